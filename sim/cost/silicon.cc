#include "sim/cost/silicon.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/cost/kernel_time.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

// Bytes of a bf16 element. [numerics, bytes]
constexpr double kElementBytes = 2;
// Attention between measured shapes: each left out gave this 90 % half width on
// H100 and B200. No table of that is kept. [assumption]
constexpr double kBetweenAttention = 0.15;
// Norms between measured shapes. No source. [assumption]
constexpr double kBetweenNorms = 0.25;
// Windows: the rates of one kernel at 8,192 and at 32,768 tokens (GB200, GB300)
// differ by 46 % forward, by nothing backward (calibrate/silicon).
// [kernel file]
constexpr double kBetweenWindows = 0.25;
// Head dimensions of the tables of attention and of windows. [kernel file]
constexpr double kAttentionDims[] = {64, 96, 128, 160, 192, 256};
constexpr double kWindowDims[] = {64, 128};
// Doublings of the head dimension beyond which another kernel runs. No source:
// it is assumed. [assumption]
constexpr double kSameKernel = 0.6;
// Weights of neighbours are 1 / (squared distance + this), of shapes and of
// elements or windows. [numerics]
constexpr double kSameShape = 1e-9;
constexpr double kNearby = 0.25;
// Farther than any row. [numerics]
constexpr double kNowhere = 1e9;

// Multiplications and additions of attention that count under the mask.
double AttentionFlops(bool is_forward, bool is_causal, double head_dim,
                      double heads, double sequence) {
  const double full = 4 * heads * sequence * sequence * head_dim;
  return full * (is_causal ? 0.5 : 1) * (is_forward ? 1 : kAttentionBackward);
}

// log(time) - log(reference) of the rows of a table with two sizes, weighted by
// the inverse square of the distance to a point in logarithms of the sizes.
struct Neighbours {
  double log_ratio = 0;
  double error = 0;
  double nearest = 0;  // distance, in doublings
};

template <class Reference>
Neighbours Weigh(const SiliconTable& table, double first, double second,
                 Reference reference) {
  // Neighbours that count. [numerics]
  constexpr int kCount = 4;
  std::vector<std::pair<double, int>> order;  // squared distance, row
  for (int row = 0; row < table.rows(); ++row) {
    const double a = std::log2(table.row(row)[0] / first);
    const double b = std::log2(table.row(row)[1] / second);
    order.emplace_back(a * a + b * b, row);
  }
  const auto end =
      order.begin() + std::min<ptrdiff_t>(kCount, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end());
  Neighbours near;
  double weights = 0;
  for (auto at = order.begin(); at != end; ++at) {
    const double weight = 1 / (at->first + kSameShape);
    const double* sizes = table.row(at->second);
    near.log_ratio += weight * std::log(table.seconds(at->second) /
                                        reference(sizes[0], sizes[1]));
    near.error += weight * table.error(at->second);
    weights += weight;
  }
  near.log_ratio /= weights;
  near.error /= weights;
  near.nearest = std::sqrt(order.front().first);
  return near;
}

// Time from a table by rows and columns whose kernel moves so many bytes an
// element: only the elements matter.
SiliconTime Streamed(const SiliconTable& table, const DeviceSpec& device,
                     double elements, double bytes_of_element) {
  const auto stream = [&](double count) {
    return StreamSeconds(device, bytes_of_element * count) + kKernelGapSeconds;
  };
  double log_ratio = 0;
  double error = 0;
  double weights = 0;
  double nearest = kNowhere;
  for (int row = 0; row < table.rows(); ++row) {
    const double* sizes = table.row(row);
    const double distance = std::log2(sizes[0] * sizes[1] / elements);
    const double weight = 1 / (distance * distance + kNearby);
    log_ratio +=
        weight * std::log(table.seconds(row) / stream(sizes[0] * sizes[1]));
    error += weight * table.error(row);
    weights += weight;
    nearest = std::min(nearest, std::abs(distance));
  }
  SiliconTime time;
  time.seconds = std::exp(log_ratio / weights) * stream(elements);
  time.is_inside = nearest <= 1;
  time.error =
      std::hypot(error / weights, kBetweenNorms * std::min(2.0, nearest));
  return time;
}

}  // namespace

Silicon::Silicon(std::shared_ptr<const std::vector<SiliconTable>> tables,
                 DeviceSpec device)
    : tables_(std::move(tables)), device_(std::move(device)) {}

Silicon::Silicon(std::vector<SiliconTable> tables, DeviceSpec device)
    : Silicon(
          std::make_shared<const std::vector<SiliconTable>>(std::move(tables)),
          std::move(device)) {}

Silicon::Silicon(std::string shipped, DeviceSpec device)
    : shipped_(std::move(shipped)), device_(std::move(device)) {}

std::shared_ptr<const Silicon> Silicon::Shipped(const std::string& device) {
  static std::mutex mutex;
  static auto* const made =
      new std::map<std::string, std::shared_ptr<const Silicon>>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = made->find(device);
  if (found != made->end()) return found->second;
  std::shared_ptr<const Silicon> silicon;
  const std::vector<std::string> names = ShippedSiliconNames();
  const std::string products = absl::StrCat(device, "_gemm_bfloat16");
  if (std::find(names.begin(), names.end(), products) != names.end()) {
    // The tables of A100 are of the card with 80 GB.
    const absl::StatusOr<DeviceSpec> spec =
        FindDevice(device == "a100" ? "a100-80gb" : device);
    if (spec.ok()) silicon.reset(new Silicon(device, *spec));
  }
  return made->emplace(device, std::move(silicon)).first->second;
}

bool IsSiliconFile(absl::string_view choice) {
  return absl::StrContains(choice, '/') || absl::StrContains(choice, '.');
}

const SiliconTable* Silicon::Find(const std::vector<std::string>& words) const {
  if (shipped_.empty()) return FindTable(*tables_, words);
  // Windows stand beside the attention without them.
  std::string file = absl::StrCat(
      shipped_, "_", words[0] == "window" ? "attention" : words[0]);
  if (words[0] == "gemm") absl::StrAppend(&file, "_", words[1]);
  const std::vector<SiliconTable>* tables = ShippedSilicon(file);
  return tables == nullptr ? nullptr : FindTable(*tables, words);
}

std::optional<SiliconTime> Silicon::Product(const std::string& type,
                                            const std::string& layout, double m,
                                            double n, double k) const {
  const SiliconTable* table = Find({"gemm", type, layout});
  if (table == nullptr) table = Find({"gemm", type, "TN"});
  if (table == nullptr) return {};
  const SiliconGrid* grid = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<SiliconGrid>& made = grids_[table];
    if (made == nullptr) made = std::make_unique<SiliconGrid>(*table);
    grid = made.get();
  }
  const Precision precision = type == "bfloat16" ? Precision::kBf16
                              : type == "nvfp4"  ? Precision::kNvfp4
                                                 : Precision::kFp8;
  const double element = OperandBytes(precision);
  const SiliconTime time =
      grid->At(m, n, k, [&](double rows, double columns, double inner) {
        const double bytes =
            kElementBytes * rows * columns + element * inner * (rows + columns);
        return GemmSeconds(device_, precision, rows, columns, inner, 1, bytes);
      });
  if (time.seconds <= 0) return {};
  return time;
}

std::optional<SiliconTime> Silicon::Attention(const std::string& type,
                                              bool is_forward, bool is_causal,
                                              double head_dim, double heads,
                                              double sequence) const {
  const char* const way = is_forward ? "fwd" : "bwd";
  const char* const mask = is_causal ? "causal" : "full";
  const SiliconTable* table = nullptr;
  double least = 0;
  double measured_dim = 0;
  for (const double dim : kAttentionDims) {
    const SiliconTable* const other =
        Find({"attention", type, way, mask, absl::StrCat(dim)});
    if (other == nullptr) continue;
    const double distance = std::abs(std::log2(dim / head_dim));
    if (table != nullptr && distance >= least) continue;
    table = other;
    least = distance;
    measured_dim = dim;
  }
  // Another kernel runs for heads of another size by far.
  if (table == nullptr || least > kSameKernel) return {};
  const OpPass pass = is_forward ? OpPass::kForward : OpPass::kBackwardInput;
  const auto curve = [&](double dim, double count, double length) {
    return AttentionSeconds(
        device_, pass, is_causal,
        AttentionFlops(is_forward, is_causal, dim, count, length), length);
  };
  const Neighbours near =
      Weigh(*table, heads, sequence, [&](double count, double length) {
        return curve(measured_dim, count, length);
      });
  SiliconTime time;
  time.seconds = std::exp(near.log_ratio) * curve(head_dim, heads, sequence);
  time.is_inside = near.nearest <= 1;
  time.error = std::hypot(
      near.error, kBetweenAttention * std::min(3.0, near.nearest + least));
  return time;
}

std::optional<SiliconTime> Silicon::Window(bool is_forward, double head_dim,
                                           double window, double flops) const {
  const SiliconTable* table = nullptr;
  double measured_dim = 0;
  for (const double dim : kWindowDims) {
    const SiliconTable* const other = Find(
        {"window", "bfloat16", is_forward ? "fwd" : "bwd", absl::StrCat(dim)});
    if (other == nullptr) continue;
    if (table != nullptr && std::abs(std::log2(dim / head_dim)) >=
                                std::abs(std::log2(measured_dim / head_dim))) {
      continue;
    }
    table = other;
    measured_dim = dim;
  }
  if (table == nullptr || window <= 0 || flops <= 0) return {};
  const OpPass pass = is_forward ? OpPass::kForward : OpPass::kBackwardInput;
  double log_ratio = 0;
  double error = 0;
  double weights = 0;
  double nearest = std::numeric_limits<double>::infinity();
  for (int row = 0; row < table->rows(); ++row) {
    const double* sizes = table->row(row);
    const double part = sizes[2] / sizes[1];
    // Scales to the scores that the window leaves.
    const double measured =
        AttentionFlops(is_forward, false, measured_dim, sizes[0], sizes[1]) *
        part * (1 - part / 2);
    const double distance = std::log2(sizes[2] / window);
    const double weight = 1 / (distance * distance + kNearby);
    log_ratio += weight * std::log(table->seconds(row) /
                                   AttentionSeconds(device_, pass, true,
                                                    measured, sizes[2]));
    error += weight * table->error(row);
    weights += weight;
    nearest = std::min(nearest, std::abs(distance));
  }
  SiliconTime time;
  time.seconds = std::exp(log_ratio / weights) *
                 AttentionSeconds(device_, pass, true, flops, window);
  time.is_inside = nearest <= 1;
  time.error = std::hypot(error / weights,
                          kBetweenWindows * (1 + std::min(3.0, nearest)));
  return time;
}

std::optional<SiliconTime> Silicon::Norm(bool is_forward, double bytes) const {
  const SiliconTable* const table =
      Find({"norm", "rms_norm", is_forward ? "fwd" : "bwd"});
  if (table == nullptr || bytes <= 0) return {};
  // Reads the input, with the gradient in a backward, and writes as much as
  // the input.
  const double bytes_of_element = (is_forward ? 2 : 3) * kElementBytes;
  return Streamed(*table, device_, bytes / bytes_of_element, bytes_of_element);
}

std::optional<SiliconTime> Silicon::Cast(const std::string& scale,
                                         double elements) const {
  const SiliconTable* const table = Find({"cast", "fp8", scale});
  if (table == nullptr || elements <= 0) return {};
  return Streamed(*table, device_, elements, kElementBytes + 1);
}

const Profile* Silicon::collectives() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (has_collectives_) return collectives_.get();
  has_collectives_ = true;
  auto profile = std::make_unique<Profile>();
  for (const char* const operation :
       {"all_reduce", "all_gather", "reduce_scatter"}) {
    const SiliconTable* const table = Find({"nccl", operation, "bfloat16"});
    for (int row = 0; table != nullptr && row < table->rows(); ++row) {
      TransferEntry entry;
      entry.operation = operation;
      entry.transport = "nccl";
      entry.ranks = static_cast<int64_t>(table->row(row)[0]);
      entry.bytes = static_cast<int64_t>(table->row(row)[1]);
      entry.nodes = 1;
      entry.time.count = 1;
      entry.time.median_s = table->seconds(row);
      profile->transfers.push_back(std::move(entry));
    }
  }
  if (!profile->transfers.empty()) collectives_ = std::move(profile);
  return collectives_.get();
}

std::optional<SiliconTime> Silicon::AllToAll(int gpus, double bytes) const {
  const SiliconTable* const table = Find({"nccl", "alltoall", "bfloat16"});
  if (table == nullptr || bytes <= 0) return {};
  int low = -1;
  int high = -1;
  for (int row = 0; row < table->rows(); ++row) {
    if (table->row(row)[0] != gpus) continue;
    if (table->row(row)[1] <= bytes || low < 0) low = row;
    high = row;
    if (table->row(row)[1] >= bytes) break;
  }
  if (low < 0) return {};
  SiliconTime time;
  time.error = table->error(low);
  const double least = table->row(low)[1];
  const double most = table->row(high)[1];
  time.is_inside = bytes >= least && bytes <= most;
  if (bytes <= least) {
    time.seconds = table->seconds(low);
  } else if (bytes >= most) {
    time.seconds = table->seconds(high) * bytes / most;
  } else {
    const double part = std::log(bytes / least) / std::log(most / least);
    time.seconds = std::exp((1 - part) * std::log(table->seconds(low)) +
                            part * std::log(table->seconds(high)));
  }
  return time;
}

// Layers of experts from tables of measured rates.

namespace {

// One of eight measured layers is left out and estimated from its neighbours,
// the nearest an octave away: 90 % are within 20 to 24 % on Blackwell, within
// 38 and 48 % on Hopper (calibrate/silicon/README.md). [kernel file]
constexpr double kBetweenExperts = 0.24;
constexpr double kBetweenHopperExperts = 0.48;
// Neighbours that count, with the weight 1 / (squared distance + kSameLayer);
// doublings to the nearest up to which a layer is among the measured ones.
// [numerics]
constexpr int kNeighbours = 4;
constexpr double kSameLayer = 0.01;
constexpr double kInsideDoublings = 1.5;

}  // namespace

bool Silicon::HasExperts(const std::string& type) const {
  const SiliconTable* const table = Find({"experts", type});
  return table != nullptr && table->rows() > 0;
}

std::optional<SiliconTime> Silicon::Experts(
    const std::string& type, double groups, double rows, double hidden,
    double inner, const ExpertsReference& reference) const {
  const SiliconTable* const table = Find({"experts", type});
  if (!HasExperts(type) || groups < 1 || rows < 1) return {};
  std::vector<std::pair<double, int>> order;  // squared distance, row
  const double sizes[] = {groups, rows, hidden, inner};
  for (int row = 0; row < table->rows(); ++row) {
    double square = 0;
    for (int size = 0; size < table->sizes; ++size) {
      const double distance = std::log2(table->row(row)[size] / sizes[size]);
      square += distance * distance;
    }
    order.emplace_back(square, row);
  }
  const auto end =
      order.begin() + std::min<ptrdiff_t>(kNeighbours, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end());
  double log_ratio = 0;
  double error = 0;
  double weights = 0;
  for (auto at = order.begin(); at != end; ++at) {
    const double weight = 1 / (at->first + kSameLayer);
    const double* own = table->row(at->second);
    log_ratio += weight * std::log(table->seconds(at->second) /
                                   reference(own[0], own[1], own[2], own[3]));
    error += weight * table->error(at->second);
    weights += weight;
  }
  const double nearest = std::sqrt(order.front().first);
  SiliconTime time;
  time.seconds =
      std::exp(log_ratio / weights) * reference(groups, rows, hidden, inner);
  time.is_inside = nearest <= kInsideDoublings;
  const double between = device_.architecture == "hopper"
                             ? kBetweenHopperExperts
                             : kBetweenExperts;
  time.error = std::hypot(error / weights, between * std::min(3.0, nearest));
  return time;
}

}  // namespace pipewright

#include "calibrate/kineto_checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "calibrate/kineto_parts.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cost/profile_shape.h"

namespace pipewright {
namespace {

// Data sheets round, and drivers keep some memory back.
constexpr double kMemoryDiffers = 0.08;
constexpr double kSuspiciousRate = 0.75;
// Shares of the work of the recorded products: some are of no linear layer.
constexpr double kMostOfWork = 0.5;

// "NVIDIA H100-SXM5 80GB": nvidia h100 sxm5 80gb
std::set<std::string> WordsOf(absl::string_view text) {
  std::set<std::string> words;
  std::string word;
  for (const char letter : absl::StrCat(text, " ")) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(letter))) {
      word += absl::ascii_tolower(static_cast<unsigned char>(letter));
    } else if (!word.empty()) {
      words.insert(word);
      word.clear();
    }
  }
  return words;
}

bool HasAll(const std::set<std::string>& words,
            const std::set<std::string>& wanted) {
  return std::includes(words.begin(), words.end(), wanted.begin(),
                       wanted.end());
}

// "sxm4" is "sxm"; "" for a name without.
std::string FormOf(const std::set<std::string>& words) {
  for (const std::string& word : words) {
    for (const char* form : {"pcie", "nvl", "sxm"}) {
      if (absl::StartsWith(word, form)) return form;
    }
  }
  return "";
}

std::string Describe(const TraceDevice& device) {
  std::vector<std::string> parts;
  if (device.multiprocessors > 0) {
    parts.push_back(absl::StrCat(device.multiprocessors, " SMs"));
  }
  if (device.memory_bytes > 0) {
    parts.push_back(FormatBytes(static_cast<double>(device.memory_bytes)));
  }
  return absl::StrCat(
      device.name.empty() ? "a device without a name" : device.name,
      parts.empty() ? "" : " (", absl::StrJoin(parts, ", "),
      parts.empty() ? "" : ")");
}

absl::Status OtherDevice(const KinetoRank& rank, const std::string& named,
                         const std::string& fits) {
  return BadValue("--device", named,
                  absl::StrCat("the device of ", rank.source,
                               " (deviceProperties): ", Describe(rank.device),
                               fits.empty() ? "" : "; --device ", fits,
                               fits.empty() ? "" : " fits"));
}

// [rows, inner] by [inner, columns].
struct ProductSize {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;
  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(inner) *
           static_cast<double>(columns);
  }
  std::string Text() const {
    return absl::StrCat("[", rows, ", ", inner, "] x [", inner, ", ", columns,
                        "]");
  }
};

std::optional<ProductSize> SizeOf(const KinetoOp& op) {
  const size_t first = op.name == "aten::addmm" ? 1 : 0;
  if (op.dims.size() < first + 2) return std::nullopt;
  const std::vector<int64_t>& left = op.dims[first];
  const std::vector<int64_t>& right = op.dims[first + 1];
  if (left.size() != 2 || right.size() != 2 || left[1] != right[0]) {
    return std::nullopt;
  }
  return ProductSize{left[0], left[1], right[1]};
}

// Operators of a forward, on its own thread.
std::vector<const KinetoOp*> ForwardOps(const KinetoRank& rank) {
  std::vector<const KinetoOp*> ops;
  for (const TraceRegion& region : rank.regions) {
    if (region.region != Region::kForward) continue;
    auto at = std::lower_bound(
        rank.ops.begin(), rank.ops.end(), region.host_start_us,
        [](const KinetoOp& op, double us) { return op.start_us < us; });
    for (; at != rank.ops.end() && at->start_us <= region.host_end_us; ++at) {
      if (at->thread == region.thread && !at->is_node) ops.push_back(&*at);
    }
  }
  return ops;
}

absl::Status CheckProducts(const KinetoRank& rank, const TracedShape& shape,
                           const std::vector<const KinetoOp*>& ops,
                           int64_t* checked) {
  const int64_t hidden = shape.model.hidden;
  const int64_t tokens = shape.microbatch_size * shape.sequence;
  double all = 0;
  double with_hidden = 0;
  double with_tokens = 0;
  std::map<std::string, double> others;  // work of those without
  std::map<int64_t, double> rows;
  for (const KinetoOp* op : ops) {
    if (op->kind != TraceOpKind::kProduct) continue;
    const std::optional<ProductSize> size = SizeOf(*op);
    if (!size || IsVocabularyProduct(*op, {shape.model, shape.tp, tokens})) {
      continue;
    }
    ++*checked;
    all += size->flops();
    rows[size->rows] += size->flops();
    if (size->rows == tokens) with_tokens += size->flops();
    if (size->inner == hidden || size->columns == hidden) {
      with_hidden += size->flops();
    } else {
      others[absl::StrCat(op->name, " ", size->Text())] += size->flops();
    }
  }
  const auto most = [](const auto& work) {
    return std::max_element(
               work.begin(), work.end(),
               [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  };
  if (all > 0 && with_hidden < kMostOfWork * all) {
    return BadValue("--model", absl::StrCat("hidden size ", hidden),
                    absl::StrCat("the model of ", rank.source,
                                 ", whose products have other sizes (Input "
                                 "Dims), such as ",
                                 most(others)));
  }
  if (shape.layer == ProfilePart::kLayer && all > 0 &&
      with_tokens < kMostOfWork * all) {
    return BadValue(
        "--sequence",
        absl::StrCat(shape.sequence, " with --microbatch-size ",
                     shape.microbatch_size, ", ", tokens, " tokens,"),
        absl::StrCat("the ", most(rows), " tokens of ", rank.source,
                     " (rows of its products, Input Dims)"));
  }
  return absl::OkStatus();
}

absl::Status CheckAttention(const KinetoRank& rank, const TracedShape& shape,
                            const KinetoOp& op, int64_t* checked) {
  if (op.dims.empty() || op.dims[0].size() != 4) return absl::OkStatus();
  const std::vector<int64_t>& queries = op.dims[0];
  const bool heads_first = HasHeadsFirst(op.name);
  ++*checked;
  const struct {
    const char* field;
    int64_t said;
    int64_t traced;
  } sizes[] = {{"--microbatch-size", shape.microbatch_size, queries[0]},
               {"--sequence", shape.sequence, queries[heads_first ? 2 : 1]},
               {"--model: heads over --tp", shape.model.heads / shape.tp,
                queries[heads_first ? 1 : 2]},
               {"--model: head_dim", shape.model.head_dim, queries[3]}};
  for (const auto& size : sizes) {
    if (size.said == size.traced) continue;
    return BadValue(
        size.field, absl::StrCat(size.said),
        absl::StrCat("the ", size.traced, " of ", rank.source, " (", op.name,
                     " of [", absl::StrJoin(queries, ", "), "], Input Dims)"));
  }
  return absl::OkStatus();
}

std::string Percent(double share) {
  return absl::StrFormat("%.0f %%", 100 * share);
}

}  // namespace

bool IsDevice(const TraceDevice& traced, const DeviceSpec& device) {
  const std::set<std::string> words = WordsOf(traced.name);
  const std::string lower = absl::AsciiStrToLower(device.device_name);
  const std::string model = lower.substr(0, lower.find(' '));
  if (!words.empty() && words.count(model) == 0) return false;
  const std::string form = FormOf(words);
  const std::string own = FormOf(WordsOf(device.device_name));
  if (!form.empty() && !own.empty() && form != own) return false;
  if (traced.multiprocessors > 0 && device.multiprocessors > 0 &&
      traced.multiprocessors != device.multiprocessors) {
    return false;
  }
  return traced.memory_bytes <= 0 || device.memory_bytes <= 0 ||
         std::abs(static_cast<double>(traced.memory_bytes) -
                  device.memory_bytes) <= kMemoryDiffers * device.memory_bytes;
}

const DeviceSpec* FastestThatFits(const TraceDevice& traced) {
  const DeviceSpec* found = nullptr;
  for (const DeviceSpec& device : AllDevices()) {
    if (traced.name.empty() || !IsDevice(traced, device)) continue;
    if (found == nullptr || device.bf16_flops > found->bf16_flops) {
      found = &device;
    }
  }
  return found;
}

bool NamesOneDevice(absl::string_view one, absl::string_view other) {
  const std::set<std::string> a = WordsOf(one);
  const std::set<std::string> b = WordsOf(other);
  if (HasAll(a, b) || HasAll(b, a)) return true;
  return std::any_of(a.begin(), a.end(), [&](const std::string& word) {
    const bool letters = absl::ascii_isalpha(word[0]);
    const bool digits = absl::ascii_isdigit(word.back());
    return letters && digits && FormOf({word}).empty() && b.count(word) > 0;
  });
}

absl::StatusOr<std::optional<DeviceSpec>> DeviceOfTrace(
    const KinetoRank& rank, const std::string& named) {
  const DeviceSpec* const fits = FastestThatFits(rank.device);
  if (named.empty()) {
    if (fits == nullptr) return std::optional<DeviceSpec>();
    return std::optional<DeviceSpec>(*fits);
  }
  absl::StatusOr<DeviceSpec> device = FindDevice(named);
  const std::string name = fits == nullptr ? "" : fits->name;
  if (device.ok()) {
    if (!IsDevice(rank.device, *device)) {
      return OtherDevice(rank,
                         absl::StrCat(named, " (", device->device_name, ", ",
                                      device->multiprocessors, " SMs, ",
                                      FormatBytes(device->memory_bytes), ")"),
                         name);
    }
    return std::optional<DeviceSpec>(*std::move(device));
  }
  if (IsDeviceFile(named)) return device.status();
  if (!rank.device.name.empty() && !NamesOneDevice(named, rank.device.name)) {
    return OtherDevice(rank, named, name);
  }
  if (fits == nullptr) return std::optional<DeviceSpec>();
  return std::optional<DeviceSpec>(*fits);
}

absl::StatusOr<CheckedShapes> CheckShapes(const KinetoRank& rank,
                                          const TracedShape& shape) {
  CheckedShapes checked;
  const std::vector<const KinetoOp*> ops = ForwardOps(rank);
  for (const KinetoOp* op : ops) {
    if (op->kind != TraceOpKind::kAttention) continue;
    PW_RETURN_IF_ERROR(CheckAttention(rank, shape, *op, &checked.attentions));
  }
  PW_RETURN_IF_ERROR(CheckProducts(rank, shape, ops, &checked.products));
  return checked;
}

double LeastFlops(ProfilePart part, ProfilePass pass,
                  const TracedShape& shape) {
  const GridPoint point = PointOf(part, pass, shape.model,
                                  static_cast<double>(shape.microbatch_size),
                                  shape.sequence, shape.tp);
  const bool backward =
      pass == ProfilePass::kBackwardInput || pass == ProfilePass::kBackwardFull;
  // One of a backward's five products makes the scores again.
  return point.work[0] + point.work[1] * (backward ? 0.8 : 1);
}

double PeakOf(const DeviceSpec& device, absl::string_view type) {
  return type == "fp8" ? std::max(device.fp8_flops, device.bf16_flops)
                       : device.bf16_flops;
}

absl::Status CheckRates(const std::vector<PassEntry>& entries,
                        const DeviceSpec& device, const std::string& source,
                        std::vector<std::string>* warnings) {
  for (const PassEntry& entry : entries) {
    const double peak = PeakOf(device, entry.type);
    const double seconds = entry.time.median_s;
    if (entry.flops <= 0 || peak <= 0 || seconds <= 0) continue;
    const double share = entry.flops / seconds / peak;
    if (share <= kSuspiciousRate) continue;
    const std::string what = absl::StrFormat(
        "%s %s in %s for %.4g FLOPs: %s of the %.4g TFLOP/s of %s",
        ProfilePartName(entry.part), ProfilePassName(entry.pass),
        FormatSeconds(seconds), entry.flops, Percent(share), peak / 1e12,
        device.name);
    if (share <= 1) {
      warnings->push_back(absl::StrCat(
          what,
          ", more than training reaches: are --layers, "
          "--microbatch-size, --sequence and --tp those of the run?"));
      continue;
    }
    constexpr char kAllowed[] =
        "at most 100 %. Likely --layers is too large, a region holds only a "
        "part of its pass (--forward, --backward, ...), --microbatch-size, "
        "--sequence or --tp are not those of the run, or it computed in "
        "another type (--type)";
    return WithValue(InFile(source, 0,
                            absl::InvalidArgumentError(
                                absl::StrCat(what, "; allowed: ", kAllowed))),
                     Percent(share), kAllowed);
  }
  return absl::OkStatus();
}

absl::Status CheckProductRates(const KinetoRank& rank, absl::string_view type,
                               const DeviceSpec& device) {
  const double peak = PeakOf(device, type);
  if (peak <= 0) return absl::OkStatus();
  for (const TraceRegion& region : rank.regions) {
    if (region.region != Region::kForward) continue;
    auto op = std::lower_bound(
        rank.ops.begin(), rank.ops.end(), region.host_start_us,
        [](const KinetoOp& each, double us) { return each.start_us < us; });
    for (; op != rank.ops.end() && op->start_us <= region.host_end_us; ++op) {
      if (op->kind != TraceOpKind::kProduct || op->thread != region.thread) {
        continue;
      }
      const std::optional<ProductSize> size = SizeOf(*op);
      if (!size) continue;
      auto kernel = std::lower_bound(region.kernels.begin(),
                                     region.kernels.end(), op->start_us,
                                     [](const LaunchedKernel& each, double us) {
                                       return each.launch_us < us;
                                     });
      double us = 0;
      for (; kernel != region.kernels.end() && kernel->launch_us <= op->end_us;
           ++kernel) {
        if (kernel->thread == op->thread)
          us += kernel->end_us - kernel->start_us;
      }
      const double share = us > 0 ? size->flops() / (us * 1e-6) / peak : 0;
      if (share <= 1) continue;
      const std::string what = absl::StrFormat(
          "%s %s at %.3f us takes %s for %.4g FLOPs: %s of the %.4g TFLOP/s of "
          "%s",
          op->name, size->Text(), op->start_us, FormatSeconds(us * 1e-6),
          size->flops(), Percent(share), peak / 1e12, device.name);
      constexpr char kAllowed[] =
          "at most 100 %. Likely the times of the trace were changed, or "
          "--device or --type are not those of the run";
      return WithValue(InFile(rank.source, 0,
                              absl::InvalidArgumentError(
                                  absl::StrCat(what, "; allowed: ", kAllowed))),
                       Percent(share), kAllowed);
    }
  }
  return absl::OkStatus();
}

}  // namespace pipewright

// Constants of docs/dev/constants.md, computed again from the committed tables of
// kernels that gave them, and compared digit by digit with what is written.
// Steps are out of reach: Kernels() refuses their files.
#include <catch2/catch.hpp>

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sim/base/file.h"
#include "sim/cost/clock.h"
#include "sim/cost/contention.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"
#include "sim/cost/silicon.h"
#include "sim/model/ops_builder.h"
#include "tests/support/experiment_csv.h"
#include "tests/support/paths.h"

namespace pipewright::rebuilt_constants_test {
namespace {

using testing::ExperimentRow;
using testing::NumberIn;
using Rows = std::vector<ExperimentRow>;
using Numbers = std::vector<double>;

// What a copy on that H100 moves, read and written (experiments/h100).
constexpr double kStream = 3.0e12;

// The rows of a table of kernels, layers or the host, by its path below
// experiments/, links resolved. Error: any other file; those of steps, cards
// and pairs of runs are elsewhere. Rows of whole steps are left out.
absl::StatusOr<Rows> Kernels(absl::string_view file) {
  namespace fs = std::filesystem;
  const fs::path root = fs::canonical(testing::SourcePath("experiments"));
  const fs::path path = fs::weakly_canonical(root / std::string(file));
  const std::string folder = path.parent_path().lexically_relative(root);
  if ((folder != "h100_load" && folder != "torch_layers" &&
       folder != "beside") ||
      path.filename() == "steps.csv") {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": is no table of kernels"));
  }
  Rows rows = testing::ExperimentRows(
      absl::StrCat(folder, "/", path.filename().string()));
  std::erase_if(rows, [](const ExperimentRow& row) {
    const auto what = row.find("what");
    return what != row.end() &&
           (what->second == "step" || what->second == "layer");
  });
  return rows;
}

// Finds the rows with these cells; fails the test if there are none.
Rows Find(absl::string_view file, const ExperimentRow& cells) {
  auto rows = Kernels(file);
  INFO(rows.status() << " " << file);
  REQUIRE(rows.ok());
  std::erase_if(*rows, [&](const ExperimentRow& row) {
    return !std::all_of(cells.begin(), cells.end(), [&](const auto& cell) {
      return row.at(cell.first) == cell.second;
    });
  });
  REQUIRE_FALSE(rows->empty());
  return *std::move(rows);
}

double One(absl::string_view file, const ExperimentRow& cells,
           const std::string& column) {
  return NumberIn(Find(file, cells).front(), column);
}

double QuantileOf(Numbers values, double part) {
  REQUIRE_FALSE(values.empty());
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part *
                                    static_cast<double>(values.size() - 1))];
}

// What nine of ten errors are within, as calibrate/silicon/check.py has it.
double NineOfTen(Numbers errors) {
  REQUIRE_FALSE(errors.empty());
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() * 9 / 10];
}

double MedianOf(Numbers values) {
  REQUIRE_FALSE(values.empty());
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

double GeometricMean(const Numbers& values) {
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

DeviceSpec Device(absl::string_view name) { return FindDevice(name).value(); }

// Clock that the sheet's peak stands for: FLOPs of bf16 that a multiprocessor
// does in a cycle are 4096 on Hopper, 8192 on Blackwell.
double ClockOf(absl::string_view name) {
  const DeviceSpec device = Device(name);
  return device.bf16_flops / device.multiprocessors /
         (device.architecture == "blackwell" ? 8192 : 4096);
}

// Ratio of the energies of a FLOP on one chip at the clocks of two devices.
double EnergyRatio(absl::string_view over, absl::string_view under) {
  return std::pow(ClockOf(over) / ClockOf(under), 2);
}

// Energies, by the law of sim/cost/clock.h.

constexpr char kProducts[] = "h100_load/products.csv";
constexpr char kMixtures[] = "h100_load/mixtures.csv";

double Rate(const ExperimentRow& row) {
  return 1e6 * NumberIn(row, "work") / NumberIn(row, "burst_us");
}

double PartLeft(const ExperimentRow& row) {
  return NumberIn(row, "burst_us") / NumberIn(row, "lasting_us");
}

// The median energy of a FLOP of lone kernels, J.
double JoulesOf(const ExperimentRow& cells) {
  const DeviceSpec h100 = Device("h100");
  Numbers joules;
  for (const ExperimentRow& row : Find(kProducts, cells)) {
    joules.push_back((h100.board_watts - h100.idle_watts) / Rate(row) /
                     std::pow(PartLeft(row), 3));
  }
  return MedianOf(joules);
}

double ProductJoules() {
  return JoulesOf({{"kind", "gemm"}, {"type", "bf16"}});
}

// The same over that of a product of bf16, which the device file has.
double OverProduct(const ExperimentRow& cells) {
  return JoulesOf(cells) / Device("h100").bf16_joules_per_flop;
}

double AttentionJoules(const char* way) {
  return OverProduct({{"kind", "attention"}, {"layout", way}});
}

// How far B200's energy was off on the H100 in a lasting product, median:
// TSMC's 4N needs 1 / 0.82 of 4NP's power.
double CarriedError() {
  const DeviceSpec h100 = Device("h100");
  const DeviceSpec b200 = Device("b200");
  const double joules =
      b200.bf16_joules_per_flop / (1 - 0.18) * EnergyRatio("h100", "b200");
  Numbers errors;
  for (const ExperimentRow& row :
       Find(kProducts, {{"kind", "gemm"}, {"type", "bf16"}})) {
    const double clock =
        std::cbrt((h100.board_watts - h100.idle_watts) / (joules * Rate(row)));
    errors.push_back(PartLeft(row) / clock - 1);
  }
  return MedianOf(errors);
}

// What a mixture consists of: kernels that compute, and the rest.
struct Mixture {
  std::vector<LoadedKernel> kernels;
  LoadedKernel rest;

  double Seconds(double clock) const {
    double seconds = rest.steady_s;
    for (const LoadedKernel& kernel : kernels) {
      seconds += kernel.clocked_s / clock;
    }
    return seconds;
  }
};

struct MixtureErrors {
  Numbers mean_power;  // by the law
  Numbers alone;       // the control: with a clock for each kernel alone
};

MixtureErrors ErrorsOfMixtures() {
  const DeviceSpec h100 = Device("h100");
  const auto burst = [](const ExperimentRow& row) {
    return 1e-6 * NumberIn(row, "burst_us");
  };
  const ExperimentRow copy = Find(kMixtures, {{"kind", "copy"}})[0];
  const double wait_s = burst(Find(kMixtures, {{"kind", "wait"}})[0]);
  const auto joules = [&](const ExperimentRow& row) {
    return JoulesOfFlop(h100, row.at("type") == "fp8" ? "fp8" : "bfloat16");
  };
  const auto attention = [&](const char* way, double flops, double factor) {
    const ExperimentRow row =
        Find(kMixtures, {{"kind", "attention"}, {"layout", way}})[0];
    return LoadedKernel{.clocked_s = burst(row),
                        .clocked_joules = factor * joules(row) * flops};
  };
  MixtureErrors errors;
  for (const ExperimentRow& row : Find(kMixtures, {})) {
    const std::string& kind = row.at("kind");
    const bool has_gaps = absl::StartsWith(kind, "product, gaps");
    if (!has_gaps && !absl::StartsWith(kind, "products") &&
        !absl::StartsWith(kind, "layer")) {
      continue;
    }
    // The product that has gaps behind it, alone.
    const ExperimentRow products =
        has_gaps ? Find(kProducts, {{"type", "bf16"},
                                    {"m", "8192"},
                                    {"n", "8192"},
                                    {"k", "8192"}})[0]
                 : Find(kMixtures,
                        {{"kind", "products"}, {"type", row.at("type")}})[0];
    Mixture mixture;
    mixture.kernels.push_back(
        {.clocked_s = burst(products),
         .clocked_joules = joules(row) * NumberIn(row, "work")});
    if (has_gaps) {
      mixture.rest.steady_s = wait_s * NumberIn(row, "layout") / 2e6;
    } else {
      const std::vector<std::string> parts =
          absl::StrSplit(row.at("layout"), '/');
      if (std::stod(parts[0]) > 0) {
        mixture.kernels.push_back(
            attention("forward", std::stod(parts[0]), kAttentionForwardJoules));
        mixture.kernels.push_back(attention("backward", std::stod(parts[1]),
                                            kAttentionBackwardJoules));
      }
      const double copied = std::stod(parts[2]);
      const double waits = absl::StrContains(kind, "2 waits")   ? 2
                           : absl::StrContains(kind, "6 waits") ? 6
                                                                : 0;
      mixture.rest = {
          .steady_s =
              copied / NumberIn(copy, "work") * burst(copy) + waits * wait_s,
          .steady_joules = kJoulesOfByte * copied};
    }
    std::vector<LoadedKernel> all = mixture.kernels;
    all.push_back(mixture.rest);
    const double lasting_s = 1e-6 * NumberIn(row, "lasting_us");
    errors.mean_power.push_back(
        mixture.Seconds(ClockUnder(h100, all, 0)) / lasting_s - 1);
    double alone_s = mixture.rest.steady_s;
    for (const LoadedKernel& kernel : mixture.kernels) {
      alone_s += kernel.clocked_s / ClockUnder(h100, {kernel}, 0);
    }
    errors.alone.push_back(alone_s / lasting_s - 1);
  }
  return errors;
}

TEST_CASE("clock: mixtures on an H100 follow their mean power", "[cost]") {
  const MixtureErrors errors = ErrorsOfMixtures();
  CHECK(errors.mean_power.size() == 14);
  for (const double error : errors.mean_power) {
    CHECK(std::abs(error) < kHopperClockError);
  }
  CHECK(QuantileOf(errors.alone, 1) > 0.08);
}

// Layers of PyTorch.

// "NAME N x K x TOKENS, WAY" in the case of a weight gradient: the part of a
// sum's traffic that is not hidden.
Numbers SharesOfSums() {
  std::map<std::string, std::map<std::string, double>> products;
  std::map<std::string, double> values;
  for (const ExperimentRow& row :
       Find("torch_layers/h100_steps.csv", {{"what", "weight gradient"}})) {
    const std::vector<std::string> parts =
        absl::StrSplit(row.at("case"), absl::MaxSplits(", ", 1));
    products[parts[0]][parts[1]] = NumberIn(row, "seconds");
    const std::vector<std::string> words = absl::StrSplit(parts[0], ' ');
    values[parts[0]] =
        NumberIn(row, "bytes_or_flops") / 2 / std::stod(words.back());
  }
  CHECK(products.size() == 30);
  Numbers shares;
  for (const auto& [name, seconds] : products) {
    const double added_s = seconds.at("added in fp32") - seconds.at("bf16");
    shares.push_back(added_s / (6 * values.at(name) / kStream));
  }
  return shares;
}

double SumsWithin() {
  Numbers off = SharesOfSums();
  for (double& share : off) share -= kGradientSumPart;
  return NineOfTen(off);
}

// The part of their traffic that groups of products do not hide, and how far
// kHopperGroupedTraffic is off, as a logarithm.
struct Groups {
  Numbers shares, errors;
};

Groups SharesOfGroups() {
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Key, ExperimentRow> alone;  // one product of all rows
  Rows rows = Find("torch_layers/h100_grouped.csv", {});
  for (const ExperimentRow& row : rows) {
    if (row.at("way") != "one") continue;
    alone[{row.at("case"), row.at("product"), row.at("type"), row.at("pass")}] =
        row;
  }
  Groups groups;
  for (const ExperimentRow& row : rows) {
    const std::string& way = row.at("way");
    if (way != "loop" && way != "streams" && way != "grouped") continue;
    const std::string& pass = row.at("pass");
    const auto one = [&](const std::string& of) {
      return alone.find(
          {row.at("case"), row.at("product"), row.at("type"), of});
    };
    const auto own = one(pass);
    const auto found = own == alone.end() ? one("F") : own;
    if (found == alone.end()) continue;
    const double one_s = NumberIn(found->second, "seconds");
    const double experts = NumberIn(row, "experts");
    const double all = experts * NumberIn(row, "rows");
    const double n = NumberIn(row, "n");
    const double k = NumberIn(row, "k");
    const double width = row.at("type") == "bf16" ? 2 : 1;
    const double weights = experts * n * k;
    const double bytes = pass == "F" ? width * (weights + all * k) + 2 * all * n
                         : pass == "B"
                             ? width * (weights + all * n) + 2 * all * k
                             : width * all * (n + k) + 2 * weights;
    const double seconds = NumberIn(row, "seconds");
    groups.shares.push_back((seconds - one_s) / (bytes / kStream));
    groups.errors.push_back(
        std::log((one_s + kHopperGroupedTraffic * bytes / kStream) / seconds));
  }
  CHECK(groups.shares.size() == 165);
  return groups;
}

double Contention() {
  Numbers times;
  for (const ExperimentRow& row : Find("beside/h100.csv", {{"blocks", "16"}})) {
    const std::string& asked = row.at("gb_per_s_asked");
    if (absl::StartsWith(row.at("beside"), "llama3-8b") &&
        (asked == "50" || asked == "350")) {
      times.push_back(NumberIn(row, "times"));
    }
  }
  CHECK(times.size() == 8);
  return GeometricMean(times);
}

constexpr char kSecond[] = "torch_layers/h100_second_kernels.csv";
constexpr char kQwen[] = "qwen3-30b-a3b ep8 grouped";

// All kernels of a layer of experts but products and attention, ms: measured,
// and estimated for fused ones, whose rows are sorted once.
Numbers UnfusedMs() {
  double measured_s = 0;
  for (const ExperimentRow& row : Find(kSecond, {{"case", kQwen}})) {
    const std::string& kernel = row.at("kernel");
    const bool is_other = !absl::StrContains(kernel, "nvjet") &&
                          !absl::StrContains(kernel, "sdpa") &&
                          !absl::StrContains(kernel, "gemm");
    if (is_other) measured_s += NumberIn(row, "seconds");
  }
  TrainingSpec training;
  training.sequence = 4096;
  training.ep = 8;
  training.execution.dispatch = ExpertDispatch::kOnce;
  AnalyticOptions options = {.device = Device("h100"),
                             .silicon = Silicon::Shipped("h100")};
  options.sustained = false;
  double estimated_s = 0;
  for (const ModelOp& op : BlockOps(*FindModel("qwen3-30b-a3b"), training,
                                    BlockKind::kExpertLayer, 0)) {
    if (op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm ||
        op.kind == OpClass::kAttention) {
      continue;
    }
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      estimated_s +=
          EstimateKernel(options, training, true, op, static_cast<OpPass>(pass))
              .seconds;
    }
  }
  return {1e3 * measured_s, 1e3 * estimated_s, 1};
}

// The sum by row numbers, over the traffic of 32768 rows of 2048.
double ScatteredSum() {
  double sum_s = 0;
  for (const ExperimentRow& row :
       Find(kSecond, {{"case", kQwen}, {"pass", "forward"}})) {
    if (absl::StrContains(row.at("kernel"), "indexFuncLargeIndex")) {
      sum_s += NumberIn(row, "seconds");
    }
  }
  return sum_s / (2 * 2.0 * 32768 * 2048 / kStream);
}

double Host(const char* operation, const char* column) {
  return One("torch_layers/h200_host.csv", {{"operation", operation}}, column);
}

constexpr char kLinear[] = "nn.Linear, no gradient";

// Host time of a kernel in whole layers, in units of torch.nn.Linear's.
double LaunchesOfKernel() {
  Numbers units;
  for (const ExperimentRow& row :
       Find("torch_layers/h200.csv", {{"launch", "eager"}})) {
    units.push_back(
        (NumberIn(row, "host_forward_s") + NumberIn(row, "host_backward_s")) /
        (NumberIn(row, "launches_forward") +
         NumberIn(row, "launches_backward")) /
        (1e-6 * Host(kLinear, "forward_us")));
  }
  CHECK(units.size() == 7);
  return GeometricMean(units);
}

// Rates of copies of FSDP2 over that of a stream.
double CopyRate(const char* what, const char* ending) {
  const DeviceSpec h100 = Device("h100");
  Numbers rates;
  for (const ExperimentRow& row :
       Find("torch_layers/h100_steps.csv", {{"what", what}})) {
    if (!absl::EndsWith(row.at("case"), ending)) continue;
    rates.push_back(StreamSeconds(h100, NumberIn(row, "bytes_or_flops")) /
                    NumberIn(row, "seconds"));
  }
  CHECK(rates.size() == 2);
  return GeometricMean(rates);
}

double AdamSeconds(const char* way) {
  return One("torch_layers/h100_steps.csv", {{"what", "AdamW"}, {"case", way}},
             "seconds");
}

// Microseconds of one kernel of mixtures.csv, forward and backward.
Numbers Short(absl::string_view kernel, const char* size = "0") {
  Numbers us;
  for (const char* const way : {" forward", " backward"}) {
    us.push_back(One(
        kMixtures,
        {{"kind", "short"}, {"type", absl::StrCat(kernel, way)}, {"m", size}},
        "burst_us"));
  }
  return us;
}

Numbers Over(const Numbers& over, const Numbers& under) {
  return {over[0] / under[0], over[1] / under[1]};
}

// What follows from the tables of calibrate/silicon.

// Error within which nine of ten shapes of a table are that are left out, one
// of eight, and estimated by the rest.
double LeftOut(const std::string& device, const std::string& file,
               const std::vector<std::string>& words, double least,
               const std::function<double(const Silicon&, const double* sizes)>&
                   seconds_of) {
  const SiliconTable& all =
      *FindTable(*ShippedSilicon(absl::StrCat(device, "_", file)), words);
  const std::vector<SiliconTable>& products =
      *ShippedSilicon(device + "_gemm_bfloat16");
  SiliconTable kept = all;
  kept.values.clear();
  std::vector<const double*> out;
  for (int row = 0; row < all.rows(); ++row) {
    const double* const cells = all.row(row);
    const std::string shape = absl::StrJoin(cells, cells + all.sizes, ",");
    if (crc32(0, reinterpret_cast<const Bytef*>(shape.data()),
              static_cast<uInt>(shape.size())) %
            8 !=
        0) {
      kept.values.insert(kept.values.end(), cells, cells + all.width());
    } else if (*std::min_element(cells, cells + all.sizes) >= least) {
      out.push_back(cells);
    }
  }
  std::vector<SiliconTable> tables = {kept};
  if (file == "experts") tables.push_back(products.front());
  const Silicon silicon(std::move(tables), Silicon::Shipped(device)->device());
  Numbers errors;
  for (const double* const cells : out) {
    errors.push_back(seconds_of(silicon, cells) / cells[all.sizes] - 1);
  }
  return NineOfTen(errors);
}

// Products and layers of experts, the worst of some devices.
double LeftOutProducts(const std::vector<std::string>& devices) {
  double worst = 0;
  for (const std::string& device : devices) {
    worst = std::max(
        worst, LeftOut(device, "gemm_bfloat16", {"gemm", "bfloat16", "TN"},
                       1024, [](const Silicon& silicon, const double* sizes) {
                         return silicon
                             .Product("bfloat16", "TN", sizes[0], sizes[1],
                                      sizes[2])
                             ->seconds;
                       }));
  }
  return worst;
}

double LeftOutExperts(const std::vector<std::string>& devices) {
  double worst = 0;
  for (const std::string& device : devices) {
    worst = std::max(
        worst,
        LeftOut(device, "experts", {"experts", "bfloat16"}, 0,
                [](const Silicon& silicon, const double* sizes) {
                  const auto product = [&](double groups, double rows, double n,
                                           double k) {
                    const double bytes = 2 * groups * (n * k + rows * (k + n));
                    return std::max(
                        silicon.Product("bfloat16", "TN", groups * rows, n, k)
                            ->seconds,
                        StreamSeconds(silicon.device(), bytes));
                  };
                  return silicon
                      .Experts(
                          "bfloat16", sizes[0], sizes[1], sizes[2], sizes[3],
                          [&](double groups, double rows, double hidden,
                              double inner) {
                            return product(groups, rows, 2 * inner, hidden) +
                                   product(groups, rows, hidden, inner);
                          })
                      ->seconds;
                }));
  }
  return worst;
}

// Most and least energy of a FLOP on GB300, J: products of cuBLAS at 1600 and
// 2174 TFLOP/s under its limit (facebookexperimental/triton, pull request
// 2023), if the slowest is as fast in a short run as the upper quartile of the
// table, of 4096 and more.
Numbers RangeOfGb300() {
  constexpr double kSlowest = 1600e12;
  constexpr double kFastest = 2174e12;
  const SiliconTable& table = *FindTable(*ShippedSilicon("gb300_gemm_bfloat16"),
                                         {"gemm", "bfloat16", "TN"});
  Numbers rates;
  for (int row = 0; row < table.rows(); ++row) {
    const double* const sizes = table.row(row);
    if (*std::min_element(sizes, sizes + 3) < 4096) continue;
    rates.push_back(2 * sizes[0] * sizes[1] * sizes[2] / table.seconds(row));
  }
  const double quartile = QuantileOf(rates, 0.75);
  const DeviceSpec gb300 = Device("gb300");
  const double watts = gb300.board_watts - gb300.idle_watts;
  return {watts / quartile * std::pow(quartile / kSlowest, 3),
          watts / kFastest};
}

// Head dimensions of all tables of attention or windows.
Numbers Dims(const std::string& kind) {
  std::map<double, int> dims;
  for (const std::string& name : ShippedSiliconNames()) {
    if (!absl::EndsWith(name, "_attention")) continue;
    for (const SiliconTable& table : *ShippedSilicon(name)) {
      if (table.words[0] == kind) ++dims[std::stod(table.words.back())];
    }
  }
  Numbers values;
  for (const auto& dim : dims) values.push_back(dim.first);
  return values;
}

// distil.py's own number.
double UnfilledFlop() {
  const auto text =
      ReadFile(testing::SourcePath("calibrate/silicon/distil.py"));
  REQUIRE(text.ok());
  const std::vector<std::string> parts =
      absl::StrSplit(*text, "\nUNFILLED_FLOP = ");
  REQUIRE(parts.size() == 2);
  return std::stod(parts[1]);
}

// Each constant's numbers in the order in which they are written: name, or
// field and device.
const std::map<std::string, Numbers>& AllRebuilt() {
  static const auto* const rebuilt = [] {
    const Groups groups = SharesOfGroups();
    const Numbers gb300 = RangeOfGb300();
    const double carried = CarriedError();
    const DeviceSpec h100 = Device("h100");
    const DeviceSpec b200 = Device("b200");
    const double gb300_joules = std::sqrt(gb300[0] * gb300[1]);
    const double linear_us = Host(kLinear, "forward_us");
    // 16384 tokens of 40 heads of 128, read and written in 16 bit.
    const double rotary_us = 1e6 * StreamSeconds(h100, 4.0 * 16384 * 40 * 128);
    const double stream = 1 / StreamSeconds(h100, 1);
    // Read once, written for four query heads each.
    const double repeats_us =
        1e6 * StreamSeconds(h100, 5 * 2.0 * 16384 * 8 * 128);
    const double logit = stream / 1e6 / (16384.0 * 128256);
    const ExperimentRow copy = Find(kProducts, {{"kind", "copy"}})[0];
    return new std::map<std::string, Numbers>{
        {"kUnfusedAdam", {AdamSeconds("foreach") / AdamSeconds("fused")}},
        {"kFp8Joules",
         {OverProduct({{"kind", "gemm"}, {"type", "fp8"}}) * h100.fp8_flops /
          h100.bf16_flops}},
        {"kHopperClockError", {NineOfTen(ErrorsOfMixtures().mean_power)}},
        {"kAttentionForwardJoules", {AttentionJoules("forward")}},
        {"kAttentionBackwardJoules", {AttentionJoules("backward")}},
        {"kJoulesOfByte",
         {(NumberIn(copy, "watts") - h100.idle_watts) *
          NumberIn(copy, "lasting_us") * 1e-6 / NumberIn(copy, "work")}},
        {"kHopperContention", {Contention()}},
        {"kUnfused", UnfusedMs()},
        {"kCarriedEnergy",
         {1.645 *
          std::sqrt((std::pow(3 * 0.021, 2) + std::pow(3 * carried, 2)) / 2)}},
        {"kCurvesClock", {carried}},
        {"kFlashAttention2",
         Over(Short("sdpa flash", "8192"), Short("sdpa cudnn", "8192"))},
        {"kComplexRotary",
         Over(Short("rotary complex"), {rotary_us, rotary_us})},
        {"kWideCrossEntropy",
         Over(Short("cross_entropy fp32"), {1 / logit, 1 / logit})},
        {"kEagerRepeats", Over(Short("repeat_kv"), {repeats_us, repeats_us})},
        {"kEagerNorm", Over(Short("rms_norm eager"), Short("rms_norm fused"))},
        {"kOfKernel", {LaunchesOfKernel()}},
        {"kPieceForward", {Host("split in 16", "forward_us"), 16, linear_us}},
        {"kPieceBackward", {Host("split in 16", "backward_us"), 16, linear_us}},
        {"kHopperGroupedTraffic", {MedianOf(groups.shares)}},
        {"kHopperGroupedError", {NineOfTen(groups.errors)}},
        {"kGradientSumPart", {MedianOf(SharesOfSums())}},
        {"kGradientSumError", {SumsWithin()}},
        {"kOutOfGathered", {CopyRate("copy out of gathered", "")}},
        {"kIntoReductionCast",
         {CopyRate("copy into the reduction", "from 2 bytes")}},
        {"kIntoReduction",
         {CopyRate("copy into the reduction", "from 4 bytes")}},
        {"kScatteredSum", {ScatteredSum()}},
        {"bf16_joules_per_flop of h100", {ProductJoules()}},
        {"bf16_joules_per_flop of h100-96gb", {ProductJoules()}},
        {"bf16_joules_per_flop of h200", {ProductJoules()}},
        {"bf16_joules_per_flop of h800", {ProductJoules()}},
        {"bf16_joules_per_flop of h100-nvl",
         {h100.bf16_joules_per_flop * EnergyRatio("h100-nvl", "h100")}},
        // Kernel files.
        {"kOneCampaignFlop", {UnfilledFlop()}},
        {"kRangeOfRates", {std::log(gb300[0] / gb300[1]) / 2}},
        {"kAttentionDims", Dims("attention")},
        {"kWindowDims", Dims("window")},
        {"kBetweenExperts",
         {LeftOutExperts({"b200", "b300", "gb200", "gb300"})}},
        {"kBetweenHopperExperts", {LeftOutExperts({"h100", "h200"})}},
        {"kHalfWayError",
         {LeftOutProducts(
             {"a100", "h100", "h200", "b200", "b300", "gb200", "gb300"})}},
        {"bf16_joules_per_flop of gb300", {gb300_joules}},
        {"bf16_joules_per_flop of b300",
         {gb300_joules * EnergyRatio("b300", "gb300")}},
        {"bf16_joules_per_flop of gb200",
         {b200.bf16_joules_per_flop * EnergyRatio("gb200", "b200")}},
    };
  }();
  return *rebuilt;
}

struct Reason {
  std::string rebuilt;  // "": nothing in AllRebuilt()
  std::string why;
};

// Why a constant is written otherwise than it is rebuilt, or cannot be.
const std::map<std::string, Reason>& Reasons() {
  static const auto* const reasons = [] {
    const std::string of_80_w =
        "the H100's 12 % are of an idle power of 80 W, assumed before 121 W "
        "were measured; of the A100 PCIe's 2.1 % the pairs are not committed";
    auto* const made = new std::map<std::string, Reason>{
        {"kCarriedEnergy", {"0.51", of_80_w}},
        {"kCurvesClock", {"0.14", of_80_w}},
        {"kCasts",
         {"",
          "the 1.79 TB/s of our cast stand in experiments/h100/README.md; the "
          "reports of that run were not kept"}},
        {"kComplexRotary",
         {"{5.9, 6.0}", "backward 666.43 over 111.8 us are 5.96; it was cut"}},
        {"kGradientSumError",
         {"0.36",
          "it reaches to 0.94, which B200's pairs fit; these are not "
          "committed"}},
        {"kHopperContention", {"1.226", "a mean of 1.2256 was cut"}},
        {"kRangeOfRates", {"0.35", "half of ln(1.156 / 0.580) is 0.345"}},
        {"kBetweenHopperExperts",
         {"0.42",
          "of layers that are equally near check.py takes those with the "
          "smallest ratio, which gives 0.48; the program the first by size"}},
        {"bf16_joules_per_flop of h100-nvl",
         {"0.849e-12",
          "it follows from the clocks 1.55 and 1.83 GHz, rounded"}},
        {"kAttentionDims",
         {"64, 128, 160, 192, 256, not 6 numbers", "no table has heads of 96"}},
        {"kWindowDims",
         {"64, not 2 numbers", "no table has windows with heads of 128"}},
    };
    for (const char* const device :
         {"gh200", "h100-96gb", "h100-nvl", "h100", "h20", "h200", "h800"}) {
      (*made)[absl::StrCat("idle_watts of ", device)] = {
          "",
          "the scripts of experiments/h100_load print it (120.6 W); no table "
          "has it"};
    }
    return made;
  }();
  return *reasons;
}

// The numbers in what is written, apart from digits of names: mantissa, digits
// behind its point, exponent.
std::vector<std::smatch> LiteralsOf(const std::string& text) {
  static const std::regex any(R"([A-Za-z_]\w*|(\d+(?:\.(\d*))?)(e-?\d+)?)");
  std::vector<std::smatch> literals(
      std::sregex_iterator(text.begin(), text.end(), any), {});
  std::erase_if(literals,
                [](const std::smatch& each) { return !each[1].matched; });
  return literals;
}

// `text` with these numbers in place of its own, each rounded to the digits
// that its own is written with.
std::string Rewritten(const std::string& text, const Numbers& numbers) {
  const std::vector<std::smatch> literals = LiteralsOf(text);
  if (literals.size() != numbers.size()) {
    return absl::StrCat(absl::StrJoin(numbers, ", "), ", not ", literals.size(),
                        " numbers");
  }
  std::string made;
  ptrdiff_t done = 0;
  for (size_t at = 0; at < literals.size(); ++at) {
    const std::smatch& literal = literals[at];
    const std::string exponent = literal[3];
    const double scale = std::stod(absl::StrCat("1", exponent));
    absl::StrAppend(
        &made, text.substr(done, literal.position() - done),
        absl::StrFormat("%.*f", literal[2].length(), numbers[at] / scale),
        exponent);
    done = literal.position() + literal.length();
  }
  return absl::StrCat(made, text.substr(done));
}

struct Entry {
  std::string name, value, kind;
};

// The rows of the page; a number of several devices once for each.
std::vector<Entry> EntriesOf(const std::string& page) {
  std::vector<Entry> entries;
  std::string field;  // of a device
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "### `")) {
      field = std::string(rest.substr(0, rest.find('`')));
      if (absl::StrContains(field, '/')) field.clear();
      continue;
    }
    std::vector<std::string> cells = absl::StrSplit(line, " | ");
    if (!absl::StartsWith(line, "| ") || cells.size() < 4) continue;
    const auto code = [](absl::string_view cell) {
      absl::ConsumePrefix(&cell, "| ");
      absl::ConsumePrefix(&cell, "`");
      absl::ConsumeSuffix(&cell, "`");
      return std::string(cell);
    };
    if (absl::StartsWith(line, "| `")) {
      // An empty unit leaves two blanks: "`2.8` |  | measured | ...".
      REQUIRE(cells.size() >= 5);
      entries.push_back({code(cells[0]), code(cells[1]), cells[3]});
    } else if (!field.empty() && absl::StartsWith(cells[1], "`")) {
      for (const absl::string_view device :
           absl::StrSplit(code(cells[0]), ", ")) {
        entries.push_back(
            {absl::StrCat(field, " of ", device), code(cells[1]), cells[2]});
      }
    }
  }
  return entries;
}

std::vector<Entry> Entries() {
  const auto page = ReadFile(testing::SourcePath("docs/dev/constants.md"));
  REQUIRE(page.ok());
  std::vector<Entry> entries = EntriesOf(*page);
  // The page's own counts, of another program.
  for (const char* const kind : {"measured", "kernel file"}) {
    INFO(kind);
    const size_t row = page->find(absl::StrCat("\n| ", kind, " | "));
    REQUIRE(row != std::string::npos);
    const std::vector<std::string> cells = absl::StrSplit(
        page->substr(row + 1, page->find('\n', row + 1) - row - 1), " | ");
    const int all = std::stoi(cells[2]) + std::stoi(cells[3]);
    CHECK(std::count_if(entries.begin(), entries.end(), [&](const Entry& each) {
            return each.kind == kind;
          }) == all);
  }
  return entries;
}

// What is not as it should be: measured constants that are neither rebuilt nor
// excused, written numbers that are not those rebuilt, excuses of none.
std::vector<std::string> ProblemsOf(const std::vector<Entry>& entries) {
  std::vector<std::string> problems;
  std::map<std::string, int> seen;
  for (const Entry& entry : entries) {
    const auto found = AllRebuilt().find(entry.name);
    const auto reason = Reasons().find(entry.name);
    const bool is_excused = reason != Reasons().end();
    if (found == AllRebuilt().end()) {
      if (is_excused) ++seen[entry.name];
      if (entry.kind == "measured" && !is_excused) {
        problems.push_back(
            absl::StrCat(entry.name, ": neither rebuilt nor with a reason"));
      }
      continue;
    }
    ++seen[entry.name];
    const std::string rebuilt = Rewritten(entry.value, found->second);
    if (rebuilt != (is_excused ? reason->second.rebuilt : entry.value)) {
      problems.push_back(absl::StrCat(entry.name, ": written ", entry.value,
                                      ", rebuilt ", rebuilt));
    } else if (is_excused && rebuilt == entry.value) {
      problems.push_back(absl::StrCat(entry.name, ": a reason for nothing"));
    }
  }
  const auto once = [&](const std::string& name) {
    if (seen[name] != 1) {
      problems.push_back(absl::StrCat(name, ": ", seen[name], " on the page"));
    }
  };
  for (const auto& each : AllRebuilt()) once(each.first);
  for (const auto& each : Reasons()) {
    if (!AllRebuilt().contains(each.first)) once(each.first);
  }
  return problems;
}

TEST_CASE("rebuilt: measured constants follow from their tables",
          "[cost][docs]") {
  const std::vector<Entry> entries = Entries();
  CHECK(absl::StrJoin(ProblemsOf(entries), "\n") == "");
  // For other kernel files no table is here. A new one is rebuilt, or counted.
  CHECK(std::count_if(entries.begin(), entries.end(), [](const Entry& entry) {
          return entry.kind == "kernel file" &&
                 !AllRebuilt().contains(entry.name);
        }) == 69);
}

TEST_CASE("rebuilt: a changed last digit and a new constant are noticed",
          "[cost][docs]") {
  const std::vector<Entry> entries = Entries();
  int changes = 0;
  for (size_t at = 0; at < entries.size(); ++at) {
    if (!AllRebuilt().contains(entries[at].name) ||
        Reasons().contains(entries[at].name)) {
      continue;
    }
    for (const std::smatch& literal : LiteralsOf(entries[at].value)) {
      std::vector<Entry> changed = entries;
      char& digit =
          changed[at].value[literal.position(1) + literal.length(1) - 1];
      digit = digit == '9' ? '8' : static_cast<char>(digit + 1);
      INFO(changed[at].name << " " << changed[at].value);
      CHECK(ProblemsOf(changed).size() == 1);
      ++changes;
    }
  }
  CHECK(changes > 35);
  std::vector<Entry> more = entries;
  more.push_back({"kPlanted", "1.5", "measured"});
  CHECK(ProblemsOf(more) == std::vector<std::string>{
                                "kPlanted: neither rebuilt nor with a reason"});
}

TEST_CASE("rebuilt: tables of steps are refused", "[cost]") {
  CHECK(Kernels("torch_layers/h100_steps.csv").ok());
  for (const char* const file :
       {"papers/torchtitan/steps.csv", "papers/megatron_table1/paper.csv",
        "closed_loop/measured.csv", "step_interval/measured.csv",
        "real_clock/runs.csv", "h100/executed.csv",
        "torch_layers/../papers/torchtitan/steps.csv",
        "torch_layers/steps.csv"}) {
    INFO(file);
    const auto rows = Kernels(file);
    REQUIRE_FALSE(rows.ok());
    CHECK(rows.status().message() ==
          absl::StrCat(file, ": is no table of kernels"));
  }
  // Nothing here reads tables past Kernels(), but for this case.
  const std::string self =
      ReadFile(testing::SourcePath("tests/cost/rebuilt_constants_test.cc"))
          .value();
  const std::vector<std::string> calls =
      absl::StrSplit(self, absl::StrCat("ExperimentRows", "("));
  CHECK(calls.size() - 1 == 2);
  // A table of kernels has rows of steps, which are not handed on.
  const auto all = testing::ExperimentRows("torch_layers/h100_steps.csv");
  const auto is_step = [](const ExperimentRow& row) {
    return row.at("what") == "step" || row.at("what") == "layer";
  };
  const Rows rows = Kernels("torch_layers/h100_steps.csv").value();
  CHECK(std::any_of(all.begin(), all.end(), is_step));
  CHECK(std::none_of(rows.begin(), rows.end(), is_step));
}

}  // namespace
}  // namespace pipewright::rebuilt_constants_test

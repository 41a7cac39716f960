#include "sim/cost/estimate_error.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/cost/block_prices.h"
#include "sim/cost/clock.h"
#include "sim/cost/host_time.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"
#include "sim/model/ops_builder.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

// Each is half of a 90 % interval, as a part of the time (of a logarithm).
// Two-sided quantile of the normal distribution. [numerics]
constexpr double kNormal90 = 1.645;

// Kernels of the curves: all rows of `reproduce published-kernels` are within
// 10 %. One curve has all products of a kind, which so err together.
// [kernel file]
constexpr double kCurveError = 0.10;
// Collectives: nine of ten points of one collective, size and device differ by
// less between versions of NCCL (H100, H200, B200; calibrate/silicon).
// [kernel file]
constexpr double kCollectiveError = 0.12;

// Common to all products of a type: what one more campaign would change against
// the mean of two, 1.645 * d / sqrt(2) * sqrt(1.5). There d is the root mean
// square over devices of the median logarithm of the ratio of two campaigns, m,
// n and k of 2048 and more (calibrate/silicon/README.md): bf16 0.049, fp8 with
// casts inside 0.072, nvfp4 0.115. Types by blocks: as fp8. [kernel file]
constexpr double kWideCampaign = 0.07;
constexpr double kFp8Campaign = 0.10;
constexpr double kFp4Campaign = 0.16;
// Products of mxfp8 take the table of one scale a tensor. Scales along the
// inner dimension cost 8 and 9 % on H100 and H200 (fp8_block over fp8 in the
// median, both with casts; calibrate/silicon). [kernel file]
constexpr double kMxfp8Table = 0.09;
// Products of groups, all of one law (GroupedSeconds): of 75 in bf16 nine of
// ten are within 24 %. Whole layers of experts in two frameworks of inference,
// 4096 tokens and more, take less than the law by 18 to 33 % in the median over
// a device (root mean square 0.25, times 1.645). In 8 and 4 bit, of which no
// law was checked, the two differ by 0.42 on Blackwell (times 1.645 / sqrt(2);
// calibrate/silicon/README.md). [kernel file]
constexpr double kGroupedLess = 0.41;
constexpr double kGroupedMore = 0.24;
constexpr double kNarrowGrouped = 0.49;
// Scans of Mamba-2 and gated delta, which no kernel was compared with: a factor
// of two either way, as what one kernel of them writes may stay on chip for the
// next one. [assumption]
constexpr double kScans = 0.69;
// What layers of experts do besides products and attention: PyTorch's kernels
// of one layer, which are not fused, take 3.10 ms on an H100 where 0.85 are
// estimated for fused ones (experiments/torch_layers). Other software fuses
// more or less, so this is a range and moves no estimate. [measured]
constexpr double kUnfused = 3.10 / 0.85 - 1;
// Casts: our own kernel on an H100 writes 8 bit at 1.79 TB/s, the tables' one
// at 2.97 (experiments/h100): a factor of 1.66. [measured]
constexpr double kCasts = 0.51;

// The energy of a FLOP carried to a chip or type that it was not measured on:
// from B200 to the A100 PCIe lasting times are off by 2.1 % in the median, to
// the H100 by 12 % (experiments/h100_load). Time goes by its cube root: 6 and
// 36 %, root mean square 0.26, times 1.645. [measured]
constexpr double kCarriedEnergy = 0.43;
// On the chip that was measured, on another board and under another limit, the
// 2.1 % of the A100 PCIe alone (calibrate/silicon/README.md). [kernel file]
constexpr double kOtherBoard = 3 * kNormal90 * 0.021;
// GB300's lies between 0.58 and 1.16 pJ (devices/gb300.textproto); B300 has the
// same chip on another board. [kernel file]
constexpr double kRangeOfRates = 0.34;
// B200's was fitted on one machine's products. FlashAttention-4 on another one
// loses 15 % of its rate at 1000 W, for which 0.77 of 1.50 pJ is enough
// (flashinfer-ai/flashinfer, pull request 2899). [kernel file]
constexpr double kOtherB200 = 0.67;
// Half of fp8's for 4 bit: a third by B300's peaks. [data sheet]
constexpr double kFp4EnergyLess = 0.41;
// 0.64 by the parts of a multiplier (its significand squared, the sum, the
// operands moved; M. Horowitz, ISSCC 2014, figure 1.1.9). [paper]
constexpr double kFp4EnergyMore = 0.25;
// The curves' lasting loads were those of other kernels: what the law was off
// by where it was carried over (experiments/h100_load). [measured]
constexpr double kCurvesClock = 0.12;
// The law where it was measured: the largest median of a layout on B200
// (calibrate/silicon/README.md), and the worst mixture on the H100 (2.7 %;
// experiments/h100_load). [kernel file]
constexpr double kFittedClock = 0.028;

// The host with PyTorch's kernels: te.Linear in bf16 takes 99.66 us on one
// GB200 and 59.19 us a year later on another (host_time.cc), so either is 30 %
// from the mean of both. [kernel file]
constexpr double kHostError = 0.30;
// What FlashAttention-2 draws was measured nowhere. It is taken to need the
// energy of cuDNN's kernels, which take 1 / 1.87 of its time
// (framework_kernels.cc); at most it draws their power, and the limit of power
// then makes it longer by the cube root of that (clock.h). [assumption]
constexpr double kFlashPower = 0.232;
// Share of a step from where on the host is said to be in the interval.
// [numerics]
constexpr double kNamedHost = 0.1;
// Largest share of a step that may be held up: keeps the logarithm finite.
// [numerics]
constexpr double kMostHeld = 0.9;

// A part of the step's time that errs as one.
struct Sides {
  double less = 0;
  double more = 0;
};

class Squares {
 public:
  void Add(double less, double more) {
    less_ += less * less;
    more_ += more * more;
  }
  void Add(double both) { Add(both, both); }
  Sides Roots() const { return {std::sqrt(less_), std::sqrt(more_)}; }

 private:
  double less_ = 0;
  double more_ = 0;
};

double CampaignOf(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return kWideCampaign;
    case Precision::kMxfp8:
      return std::hypot(kFp8Campaign, kMxfp8Table);
    case Precision::kNvfp4:
      return kFp4Campaign;
    default:
      return kFp8Campaign;
  }
}

// How far the energies may be off, as logarithms; 0 where they were measured.
Sides EnergyOf(const DeviceSpec& device, Precision precision) {
  if (device.board_watts <= 0) return {};
  const bool is_narrow = IsNarrow(precision);
  Squares squares;
  if (device.architecture == "hopper") {
    // One chip, whose energies were measured for 16 and 8 bit.
    // On H200 the same ones held within 3.7 % of ten mixtures.
    if (device.name != "h100" && device.name != "h200") {
      squares.Add(kOtherBoard);
    }
  } else if (device.architecture == "blackwell") {
    if (is_narrow) squares.Add(kCarriedEnergy);
    const bool is_ultra = device.name == "b300" || device.name == "gb300";
    is_ultra ? squares.Add(kRangeOfRates) : squares.Add(kOtherB200, 0);
    if (device.name != "b200" && device.name != "gb300") {
      squares.Add(kOtherBoard);
    }
  } else {
    squares.Add(kCarriedEnergy);
  }
  if (precision == Precision::kNvfp4) {
    squares.Add(kFp4EnergyLess, kFp4EnergyMore);
  }
  return squares.Roots();
}

// Seconds of a step by what they are of, each block as often as it runs.
struct Parts {
  double all_s = 0;
  double wide_s = 0;    // measured kernels in 16 bit
  double narrow_s = 0;  // measured products in fewer
  double grouped_s = 0;
  double small_s = 0;    // in layers of experts, fused kernels but products
  double clocked_s = 0;  // measured kernels that go by the clock
  double casts_s = 0;
  double held_s = 0;
  double cut_s = 0;
  double collectives_s = 0;
  double curves_s = 0;
  double attention_s = 0;
  double flash_s = 0;  // attention of PyTorch, other than the tables'
  double scans_s = 0;
  double sums_s = 0;  // what W's sums of gradients move, hidden or not
  double host_s = 0;  // in passes that the host makes longer than the device
  // (seconds, error) of one pass of one op.
  std::map<std::pair<std::string, int>, std::pair<double, double>> kernels;
};

void AddPass(const ModelOp& op, const OpTime& time, int pass, bool is_narrow,
             double times, Parts* parts) {
  const bool is_product =
      op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
  const double comm_s = times * time.comm_seconds[pass];
  parts->all_s += comm_s;
  parts->collectives_s += comm_s;
  if (time.seconds[pass] <= 0) return;
  const double seconds = times * time.seconds[pass];
  const double cast_s = times * time.cast_seconds[pass];
  parts->all_s += seconds;
  parts->casts_s += cast_s;
  parts->held_s += times * time.held_seconds[pass];
  parts->cut_s += times * time.cut_seconds[pass];
  if (op.kind == OpClass::kAttention) {
    parts->attention_s += seconds;
    if (absl::StrContains(time.how[pass], ", framework")) {
      parts->flash_s += seconds;
    }
  }
  if (op.kind == OpClass::kScan) parts->scans_s += seconds;
  if (!absl::StartsWith(time.how[pass], "silicon")) {
    parts->curves_s += seconds - cast_s;
    return;
  }
  (is_narrow && is_product ? parts->narrow_s : parts->wide_s) +=
      seconds - cast_s;
  if (op.kind != OpClass::kNorm) parts->clocked_s += seconds - cast_s;
  // All groups go by one law; their product of all rows has its own error.
  if (op.kind == OpClass::kGroupedGemm) parts->grouped_s += seconds - cast_s;
  auto& [sum, error] = parts->kernels[{op.name, pass}];
  sum += seconds;
  error = time.error[pass];
}

// Blocks that are alike: one of them, and how many.
struct Alike {
  int64_t layer = 0;
  double times = 0;
};

std::map<std::pair<BlockKind, int64_t>, Alike> BlocksByClass(
    const ModelSpec& model, const StageLayout& layout) {
  std::map<std::pair<BlockKind, int64_t>, Alike> blocks;
  for (const std::vector<StageBlock>& stage : layout.stages) {
    for (const StageBlock& block : stage) {
      const int64_t alike = model.layers_differ() ? 1 : block.count;
      for (int64_t at = 0; at < block.count; at += alike) {
        const int64_t layer = block.first_layer + at;
        Alike& same = blocks[{block.kind, model.ClassOf(layer)}];
        same.layer = layer;
        same.times += static_cast<double>(alike) * block.part;
      }
    }
  }
  return blocks;
}

bool HasRouting(const std::vector<ModelOp>& ops) {
  return std::any_of(ops.begin(), ops.end(), [](const ModelOp& op) {
    return op.kind == OpClass::kRouting;
  });
}

// Seconds of a block on the device in neither products nor attention.
double SmallSeconds(const std::vector<ModelOp>& ops,
                    const std::vector<OpTime>& times,
                    const bool (&by_host)[kNumOpPasses]) {
  double seconds = 0;
  for (size_t op = 0; op < ops.size(); ++op) {
    const OpClass kind = ops[op].kind;
    if (kind != OpClass::kNorm && kind != OpClass::kElementwise &&
        kind != OpClass::kRouting) {
      continue;
    }
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      if (!by_host[pass]) seconds += times[op].seconds[pass];
    }
  }
  return seconds;
}

Parts PartsOf(const BlockPrices& prices, const StageLayout& layout) {
  const ModelSpec& model = prices.inventory().model();
  const TrainingSpec& training = prices.inventory().training();
  const AnalyticOptions& options = prices.options();
  // A place in tables by pass. [numerics]
  constexpr int kWeightPass = static_cast<int>(OpPass::kBackwardWeight);
  Parts parts;
  for (const auto& [key, same] : BlocksByClass(model, layout)) {
    const std::vector<ModelOp>& ops =
        prices.inventory().Ops(key.first, same.layer);
    const std::vector<OpTime>& times = prices.Times(key.first, same.layer);
    double device[kNumOpPasses] = {0, 0, 0};
    double host[kNumOpPasses] = {0, 0, 0};
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      host[pass] =
          HostSeconds(training, options, ops, times, static_cast<OpPass>(pass));
      for (const OpTime& time : times) {
        device[pass] += time.seconds[pass] + time.comm_seconds[pass];
      }
    }
    // If the host is the longer, only it counts.
    const bool backward_by_host = host[1] + host[2] > device[1] + device[2];
    const bool by_host[] = {host[0] > device[0], backward_by_host,
                            backward_by_host};
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      if (by_host[pass]) {
        parts.host_s += same.times * host[pass];
        parts.all_s += same.times * host[pass];
        continue;
      }
      for (size_t op = 0; op < ops.size(); ++op) {
        const bool is_narrow = IsNarrow(PrecisionOf(training, ops[op]));
        AddPass(ops[op], times[op], pass, is_narrow, same.times, &parts);
        if (pass == kWeightPass &&
            absl::StartsWith(times[op].how[pass], "silicon")) {
          parts.sums_s +=
              same.times * GradientSumSeconds(options, training, ops[op]);
        }
      }
    }
    if (options.kernels == FrameworkKernels::kFused && HasRouting(ops)) {
      parts.small_s += same.times * SmallSeconds(ops, times, by_host);
    }
  }
  return parts;
}

// What the clock adds, from estimates at the ends of what is not known.
Sides ClockSides(const BlockPrices& prices, const StageLayout& layout,
                 const Parts& parts) {
  const AnalyticOptions& options = prices.options();
  // The curves are of a lasting load and know of no clock.
  if (options.silicon == nullptr) return {kCurvesClock, kCurvesClock};
  if (!options.sustained) return {};
  Squares squares;
  squares.Add(kFittedClock * parts.clocked_s / parts.all_s);
  Sides energy =
      EnergyOf(options.device, prices.inventory().training().precision);
  // Devices may all be alike, or differ as much as in the worst cluster.
  const double slowest = std::log(options.slowest_energy);
  energy.less = std::hypot(energy.less, slowest);
  const double most = std::log(options.most_slowest_energy);
  energy.more = std::hypot(energy.more, std::max(0.0, most - slowest));
  const auto with = [&](double factor, ExchangePower exchanges) {
    return PartsOf(prices.WithPower(factor, exchanges), layout).all_s /
           parts.all_s;
  };
  if (energy.more > 0) {
    squares.Add(-std::log(with(std::exp(-energy.less), ExchangePower::kCopy)),
                std::log(with(std::exp(energy.more), ExchangePower::kCopy)));
  }
  // What a device draws while it exchanges is assumed.
  if (parts.collectives_s > 0 && options.device.board_watts > 0) {
    squares.Add(-std::log(with(1, ExchangePower::kNone)),
                std::log(with(1, ExchangePower::kLimit)));
  }
  return squares.Roots();
}

// What no step of docs/dev/validation.md has, in the words of a run.
std::string UnmeasuredKind(const ModelSpec& model, const TrainingSpec& training,
                           const AnalyticOptions& options) {
  const DeviceSpec& device = options.device;
  const bool has_experts = model.has_experts();
  if (device.architecture != "ampere" && device.architecture != "hopper" &&
      device.architecture != "blackwell") {
    return absl::StrCat("devices like ", device.name);
  }
  if (!options.network.has_nvlink) return "devices without NVLink";
  if (model.Has(Mixer::kMamba)) return "Mamba layers";
  if (model.Has(Mixer::kDelta)) return "gated delta layers";
  if (has_experts && device.architecture == "ampere") {
    return "experts on Ampere";
  }
  if (has_experts && options.kernels != FrameworkKernels::kFused) {
    return "experts with PyTorch's kernels";
  }
  if (has_experts && training.precision == Precision::kNvfp4) {
    return "experts in nvfp4";
  }
  if (has_experts && training.cp > 1) {
    return "experts with context parallelism";
  }
  if (training.precision == Precision::kFp8Block) return "fp8 by blocks";
  if (model.lora_rank > 0) return "adapters with frozen weights";
  if (options.kernels != FrameworkKernels::kFused &&
      device.architecture != "hopper") {
    return "PyTorch's kernels on devices other than Hopper";
  }
  if (!model.causal) return "attention without a causal mask";
  if (training.slices > 1) return "sequences in slices";
  return "";
}

}  // namespace

RatioInterval EstimateError(const ModelSpec& model,
                            const TrainingSpec& training,
                            const AnalyticOptions& options,
                            const StageLayout& layout) {
  return EstimateError(
      BlockPrices(std::make_shared<const Inventory>(model, training), options),
      layout);
}

RatioInterval EnergyError(const DeviceSpec& device, Precision precision) {
  const Sides sides = EnergyOf(device, precision);
  // The law was fitted to times, which go by the cube root of energies.
  const double fitted = 3 * kFittedClock;
  return {std::exp(-std::hypot(sides.less, fitted)),
          std::exp(std::hypot(sides.more, fitted))};
}

RatioInterval EstimateError(const BlockPrices& prices,
                            const StageLayout& layout) {
  const TrainingSpec& training = prices.inventory().training();
  const AnalyticOptions& options = prices.options();
  const Parts parts = PartsOf(prices, layout);
  if (parts.all_s <= 0) return {};
  const double all_s = parts.all_s;
  Squares squares;
  for (const auto& [name, kernel] : parts.kernels) {
    squares.Add(kernel.first * kernel.second / all_s);
  }
  // Another campaign moves all kernels of a type; the curves are of as many.
  // Collectives and casts have terms of their own.
  const double wide_s = all_s - parts.narrow_s - parts.host_s -
                        parts.collectives_s - parts.casts_s;
  squares.Add((kWideCampaign * wide_s +
               CampaignOf(training.precision) * parts.narrow_s) /
              all_s);
  squares.Add(kCurveError * parts.curves_s / all_s);
  squares.Add(kCollectiveError * parts.collectives_s / all_s);
  std::vector<std::string> unknown;
  const double host = parts.host_s / all_s;
  if (options.kernels == FrameworkKernels::kFused) {
    squares.Add(kMegatronHostError * host, kMegatronHostMore * host);
    if (host > kNamedHost) unknown.push_back("how fast the host launches");
  } else {
    squares.Add(kHostError * host);
  }
  // Even, or twice as uneven.
  const ModelSpec& model = prices.inventory().model();
  if (const double load = ExpertLoad(model, training);
      load > 1 && training.execution.expert_load == 0) {
    const double concerned =
        (parts.grouped_s + parts.small_s + parts.collectives_s) / all_s;
    squares.Add(std::log1p(concerned * (load - 1) / load));
    unknown.push_back("how uneven natural routing is");
  }
  const double grouped = parts.grouped_s / all_s;
  const bool on_hopper = prices.options().device.architecture == "hopper";
  if (on_hopper && training.precision != Precision::kFp8Block) {
    squares.Add(kHopperGroupedError * grouped);
  } else if (IsNarrow(training.precision)) {
    squares.Add(kNarrowGrouped * grouped);
  } else {
    squares.Add(kGroupedLess * grouped, kGroupedMore * grouped);
  }
  squares.Add(0, std::log1p(kFlashPower * parts.flash_s / all_s));
  if (training.cp > 1 && IsTorchRing(training.execution.context)) {
    unknown.push_back("what PyTorch's ring takes besides its kernels");
  }
  squares.Add(kCasts * parts.casts_s / all_s);
  squares.Add(kGradientSumError * parts.sums_s / all_s);
  squares.Add(kScans * parts.scans_s / all_s);
  squares.Add(0, std::log1p(kUnfused * parts.small_s / all_s));
  // One call for all groups waits for no host.
  squares.Add(-std::log1p(-std::min(kMostHeld, parts.held_s / all_s)), 0);
  // Pieces of a product may fill each other's ends.
  squares.Add(-std::log1p(-parts.cut_s / all_s), 0);
  const Sides clock = ClockSides(prices, layout, parts);
  squares.Add(clock.less, clock.more);
  const Sides half = squares.Roots();
  RatioInterval out = {std::exp(-half.less), std::exp(half.more)};
  if (!unknown.empty()) {
    out.note = absl::StrCat("not known: ", absl::StrJoin(unknown, ", "));
  }
  if (const std::string kind = UnmeasuredKind(model, training, options);
      !kind.empty()) {
    out.unmeasured = absl::StrCat("no step was measured of ", kind);
  }
  return out;
}

}  // namespace pipewright

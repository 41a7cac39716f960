#include "sim/cost/op_time.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "sim/cost/cast_time.h"
#include "sim/cost/clock.h"
#include "sim/cost/silicon.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

constexpr char kBf16[] = "bfloat16";

struct Product {
  double m, n, k;
  const char* layout;
};

// dX[m,k] = dY[m,n] W, dW[n,k] = dY^T[n,m] X.
Product ProductOf(const ModelOp& op, OpPass pass) {
  switch (pass) {
    case OpPass::kForward:
      return {op.m, op.n, op.k, "TN"};
    case OpPass::kBackwardInput:
      return {op.m, op.k, op.n, "NN"};
    case OpPass::kBackwardWeight:
      break;
  }
  return {op.n, op.k, op.m, "NT"};
}

// The table of a precision's products. Those of 8 bit with a scale for 32
// values take that of one scale a tensor: the same units of the device
// multiply, and apply the scales besides.
const char* ProductType(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return kBf16;
    case Precision::kFp8:
    case Precision::kFp8Tensorwise:
    case Precision::kMxfp8:
      return "fp8";
    case Precision::kFp8Block:
      return "fp8_block";
    case Precision::kNvfp4:
      return "nvfp4";
  }
  return kBf16;
}

// Half of the 90 % interval of GroupedSeconds on 75 products (kernel_time.h).
// [kernel file]
constexpr double kGroupedError = 0.24;

// The least that is left of a measured product without its cast: both times are
// measured, so their difference is noisy. No source. [assumption]
constexpr double kLeastBare = 0.5;

// One that computes, with the energy of its FLOPs.
KernelEstimate Computing(const std::string& type, double joules,
                         const SiliconTime& burst) {
  KernelEstimate out = {
      .seconds = burst.seconds, .error = burst.error, .how = "silicon"};
  out.load = {.clocked_s = burst.seconds, .clocked_joules = joules};
  out.type = type;
  if (!burst.is_inside) absl::StrAppend(&out.how, ", outside");
  return out;
}

// From the device of the tables to that of the options, by the curves.
void Transfer(double here_s, double there_s, SiliconTime* time) {
  time->seconds *= here_s / there_s;
}

// A product of all rows of a device's experts, without the group's traffic; no
// cast inside.
double WholeProduct(const AnalyticOptions& options, Precision precision,
                    const std::string& type, double m, double n, double k) {
  const double element = precision == Precision::kBf16 ? 2 : 1;
  std::optional<SiliconTime> time =
      options.silicon->Product(type, "TN", m, n, k);
  const double curve_s = GemmSeconds(options.silicon->device(), precision, m, n,
                                     k, 1, element * (m + n) * k + 2 * m * n);
  if (!time) return curve_s;
  const double cast_s = CastInside(options, type, 2 * m * n * k, m * k);
  return std::max(kLeastBare * time->seconds, time->seconds - cast_s);
}

// A gated layer of experts by its parts: two products, each no shorter than
// its traffic. The measured time over this one is what interpolates well.
double LayerOfExperts(const AnalyticOptions& options, Precision precision,
                      const std::string& type, double groups, double rows,
                      double hidden, double inner) {
  const double element = precision == Precision::kBf16 ? 2 : 1;
  const DeviceSpec& device = options.silicon->device();
  const auto product = [&](double n, double k) {
    const double bytes =
        element * (groups * n * k + groups * rows * k) + 2 * groups * rows * n;
    return std::max(WholeProduct(options, precision, type, groups * rows, n, k),
                    StreamSeconds(device, bytes));
  };
  return product(2 * inner, hidden) + product(hidden, inner);
}

// Measured time of a fused layer of experts, shared by the FLOPs of its two
// products. The measured layer also ranks and permutes its rows, which the
// inventory has as operations of their own: both are streams.
std::optional<KernelEstimate> MeasuredExperts(const AnalyticOptions& options,
                                              Precision precision,
                                              const std::string& type,
                                              const ModelOp& op, OpPass pass) {
  const double hidden = op.is_gate_up ? op.k : op.n;
  const auto reference = [&](double groups, double rows, double width,
                             double inner) {
    return LayerOfExperts(options, precision, type, groups, rows, width, inner);
  };
  std::optional<SiliconTime> time = options.silicon->Experts(
      type, op.count, op.m, hidden, op.inner, reference);
  if (!time) return {};
  const double rows = op.m * op.count;
  const DeviceSpec& measured = options.silicon->device();
  const double permuted_s = 2 * StreamSeconds(measured, 4 * rows * hidden);
  time->seconds =
      std::max(kLeastBare * time->seconds, time->seconds - permuted_s);
  const double flops = op.Work(pass).flops;
  const double layer_flops = 6 * rows * hidden * op.inner;
  time->seconds *= flops / layer_flops;
  const auto curve = [&](const DeviceSpec& device) {
    return GemmSeconds(device, precision, rows, op.n, op.k, 1,
                       op.Work(pass).bytes);
  };
  Transfer(curve(options.device), curve(measured), &*time);
  KernelEstimate out =
      Computing(type, JoulesOfFlop(options.device, type) * flops, *time);
  absl::StrAppend(&out.how, ", fused");
  return out;
}

// Measured time of a product; a group's rows are all one product.
std::optional<KernelEstimate> MeasuredProduct(const AnalyticOptions& options,
                                              const TrainingSpec& training,
                                              const ModelOp& op, OpPass pass) {
  const Precision precision = PrecisionOf(training, op);
  ModelOp whole;
  whole.m = op.m * op.count;
  whole.n = op.n;
  whole.k = op.k;
  const Product product = ProductOf(whole, pass);
  const bool is_grouped = op.kind == OpClass::kGroupedGemm;
  if (product.m < 1 || product.n < 1 || product.k < 1 ||
      (op.count != 1 && !is_grouped)) {
    return {};
  }
  const std::string type = ProductType(precision);
  if (is_grouped && IsInFusedExperts(options, training, op, pass)) {
    if (auto fused = MeasuredExperts(options, precision, type, op, pass)) {
      return fused;
    }
  }
  std::optional<SiliconTime> time = options.silicon->Product(
      type, product.layout, product.m, product.n, product.k);
  if (!time) return {};
  const double flops = 2 * product.m * product.n * product.k;
  const double cast_s = CastInside(options, type, flops, product.m * product.k);
  time->seconds = std::max(kLeastBare * time->seconds, time->seconds - cast_s);
  const auto curve = [&](const DeviceSpec& device) {
    return GemmSeconds(device, precision, product.m, product.n, product.k, 1,
                       op.Work(pass).bytes);
  };
  Transfer(curve(options.device), curve(options.silicon->device()), &*time);
  KernelEstimate out =
      Computing(type, JoulesOfFlop(options.device, type) * flops, *time);
  if (is_grouped) {
    const double bytes = op.Work(pass).bytes;
    out.load.least_s = op.count * kGroupSeconds;
    const LoadedKernel traffic =
        Streaming(StreamSeconds(options.device, bytes), bytes);
    // Part of the traffic is that of sums, which groups hide as others do.
    const double part = GroupedTrafficPart(options.device);
    const double sums_s = pass == OpPass::kBackwardWeight && part < 1
                              ? GradientSumSeconds(options, training, op)
                              : 0;
    out.load.steady_s =
        part * (traffic.steady_s - sums_s) + kGradientSumPart * sums_s;
    out.seconds = std::max(out.load.least_s, out.load.steady_s + time->seconds);
    out.load.steady_joules = traffic.steady_joules;
    out.error = std::hypot(out.error, options.device.architecture == "hopper"
                                          ? kHopperGroupedError
                                          : kGroupedError);
    absl::StrAppend(&out.how, ", grouped");
  }
  return out;
}

double AttentionJoules(const AnalyticOptions& options, const std::string& type,
                       double flops, bool forward) {
  return JoulesOfFlop(options.device, type) * flops *
         (forward ? kAttentionForwardJoules : kAttentionBackwardJoules);
}

// Windows were measured at few sizes; their kernels work off one tile of
// queries after the other, so a time for each FLOP is what carries over.
std::optional<KernelEstimate> MeasuredWindow(const AnalyticOptions& options,
                                             const ModelOp& op, double flops,
                                             bool forward) {
  std::optional<SiliconTime> time =
      options.silicon->Window(forward, op.k, op.window, flops);
  if (!time) return {};
  const OpPass pass = forward ? OpPass::kForward : OpPass::kBackwardInput;
  const auto curve = [&](const DeviceSpec& device) {
    return AttentionSeconds(device, pass, true, flops, op.window);
  };
  Transfer(curve(options.device), curve(options.silicon->device()), &*time);
  return Computing(kBf16, AttentionJoules(options, kBf16, flops, forward),
                   *time);
}

// FLOPs of a causal backward with a window that goes over the whole sequence:
// in 8 bit it does (GB200 and GB300: 0.64, 2.1, 7.4 and 28 ms at 2048, 4096,
// 8192 and 16384 tokens; NVIDIA/cudnn-frontend 3929da2ef4c1, 1.21.1 with cuDNN
// 9.22).
double FlopsWithoutWindow(const ModelOp& op, double flops) {
  const double part = op.window / op.n;
  return flops * 0.5 / (part * (1 - part / 2));
}

std::optional<KernelEstimate> MeasuredAttention(const AnalyticOptions& options,
                                                const TrainingSpec& training,
                                                bool causal, const ModelOp& op,
                                                OpPass pass) {
  double flops = op.Work(pass).flops;
  if (flops <= 0 || op.n < 1 || op.k < 1) return {};
  const bool forward = pass == OpPass::kForward;
  if (op.window > 0) {
    if (forward || !causal || !training.execution.fp8_attention) {
      return MeasuredWindow(options, op, flops, forward);
    }
    flops = FlopsWithoutWindow(op, flops);
  }
  // Sequences times heads that make the FLOPs of a whole sequence; slices and
  // parts of one count by their work.
  const double heads = flops / (4 * op.n * op.n * op.k * (causal ? 0.5 : 1) *
                                (forward ? 1 : kAttentionBackward));
  std::string type = kBf16;
  std::optional<SiliconTime> time;
  if (training.execution.fp8_attention) {
    time =
        options.silicon->Attention("fp8", forward, causal, op.k, heads, op.n);
    if (time) type = "fp8";
  }
  if (!time && op.window > 0) {
    return MeasuredWindow(options, op, op.Work(pass).flops, forward);
  }
  if (!time) {
    time = options.silicon->Attention(type, forward, causal, op.k, heads, op.n);
  }
  if (!time) return {};
  const auto curve = [&](const DeviceSpec& device) {
    return AttentionSeconds(device, pass, causal, flops, op.n);
  };
  Transfer(curve(options.device), curve(options.silicon->device()), &*time);
  return Computing(type, AttentionJoules(options, type, flops, forward), *time);
}

std::optional<KernelEstimate> MeasuredNorm(const AnalyticOptions& options,
                                           const ModelOp& op, OpPass pass) {
  const double bytes = op.Work(pass).bytes;
  std::optional<SiliconTime> time =
      options.silicon->Norm(pass == OpPass::kForward, bytes);
  if (!time) return {};
  Transfer(StreamSeconds(options.device, bytes),
           StreamSeconds(options.silicon->device(), bytes), &*time);
  // Measured without the boundary between kernels.
  time->seconds += kKernelGapSeconds;
  return KernelEstimate{.seconds = time->seconds,
                        .error = time->error,
                        .how = time->is_inside ? "silicon" : "silicon, outside",
                        .load = Streaming(time->seconds, bytes)};
}

std::optional<KernelEstimate> Measured(const AnalyticOptions& options,
                                       const TrainingSpec& training,
                                       bool causal, const ModelOp& op,
                                       OpPass pass) {
  const OpWork& work = op.Work(pass);
  if (options.silicon == nullptr || (work.flops <= 0 && work.bytes <= 0)) {
    return {};
  }
  switch (op.kind) {
    case OpClass::kGemm:
    case OpClass::kGroupedGemm:
      return MeasuredProduct(options, training, op, pass);
    case OpClass::kAttention:
      return MeasuredAttention(options, training, causal, op, pass);
    case OpClass::kNorm:
      return MeasuredNorm(options, op, pass);
    default:
      return {};
  }
}

// W adds its product to a sum of gradients, where the tables only write it.
// What the sum moves besides is hidden in part. The curves have it in the
// traffic that they hide.
void AddSum(const AnalyticOptions& options, const TrainingSpec& training,
            const ModelOp& op, KernelEstimate* out) {
  const double moved_s = GradientSumSeconds(options, training, op);
  if (moved_s <= 0) return;
  const double streamed =
      options.device.hbm_bytes_per_s * options.device.hbm_sustained;
  const double seconds = kGradientSumPart * moved_s;
  out->seconds += seconds;
  out->load.steady_s += seconds;
  out->load.steady_joules += kJoulesOfByte * moved_s * streamed;
}

// Estimate with the fused kernels.
KernelEstimate Fused(const AnalyticOptions& options,
                     const TrainingSpec& training, bool causal,
                     const ModelOp& op, OpPass pass) {
  if (auto measured = Measured(options, training, causal, op, pass)) {
    return *std::move(measured);
  }
  const double seconds = OpSeconds(options.device, training, causal, op, pass);
  const OpWork& work = op.Work(pass);
  KernelEstimate out = {.seconds = seconds, .how = "curve"};
  out.load = Streaming(seconds, work.bytes);
  // Products that no table has, too: their rate stays, their power counts.
  // It is of a lasting load, so at most the board's.
  const bool is_product =
      op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
  const char* const type =
      is_product ? ProductType(PrecisionOf(training, op)) : kBf16;
  const double joules = JoulesOfFlop(options.device, type) * work.flops;
  const double most =
      std::max(0.0, options.device.board_watts - options.device.idle_watts) *
      seconds;
  out.load.steady_joules =
      std::max(out.load.steady_joules, std::min(joules, most));
  return out;
}

}  // namespace

LoadedKernel Streaming(double seconds, double bytes) {
  return {.steady_s = seconds, .steady_joules = kJoulesOfByte * bytes};
}

bool HasFusedExperts(const AnalyticOptions& options,
                     const TrainingSpec& training) {
  return options.silicon != nullptr &&
         options.silicon->HasExperts(ProductType(training.precision));
}

bool IsOfFusedExperts(const AnalyticOptions& options,
                      const TrainingSpec& training, const ModelOp& op) {
  return training.execution.fused_experts && op.inner > 0 &&
         HasFusedExperts(options, training);
}

// W adds to gradients in fp32 and has no fused form.
bool IsInFusedExperts(const AnalyticOptions& options,
                      const TrainingSpec& training, const ModelOp& op,
                      OpPass pass) {
  return pass != OpPass::kBackwardWeight &&
         IsOfFusedExperts(options, training, op);
}

double GradientSumSeconds(const AnalyticOptions& options,
                          const TrainingSpec& training, const ModelOp& op) {
  const bool is_product =
      op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
  const bool is_reduced_at_once =
      training.sharded.shard_group > 0 && training.zero >= 2 && training.dp > 1;
  if (!is_product || !op.has_weight_pass || training.gradient_bytes <= 2 ||
      is_reduced_at_once || options.kernels != FrameworkKernels::kFused) {
    return 0;
  }
  const double bytes = 2 * training.gradient_bytes - 2;
  return StreamSeconds(options.device, bytes * op.n * op.k * op.count);
}

namespace {

// Estimate of the products that PyTorch has in place of a fused one
// (torchtitan, models/llama3: wq, wk, wv; w1, w3). Each reads the input or, in
// B, writes a gradient of it, and these are added up: by kernels of their own
// in eager code, else when the sum is read.
KernelEstimate EstimateApart(const AnalyticOptions& options,
                             const TrainingSpec& training, bool causal,
                             const ModelOp& op, OpPass pass, bool is_rms) {
  const bool is_gradient = pass == OpPass::kBackwardInput;
  const Precision precision = PrecisionOf(training, op);
  const double shared =
      op.m * op.k * OperandBytes(is_gradient ? Precision::kBf16 : precision);
  ModelOp each = op;
  each.products = {};
  KernelEstimate out;
  double error = 0;
  for (const double outputs : op.products) {
    if (outputs <= 0) continue;
    const double part = outputs / op.n;
    each.n = outputs;
    OpWork& work = each.work[static_cast<int>(pass)];
    work.flops = op.Work(pass).flops * part;
    work.bytes = shared + (op.Work(pass).bytes - shared) * part;
    const KernelEstimate one =
        EstimateKernel(options, training, causal, each, pass, is_rms);
    out.seconds += one.seconds;
    out.load.clocked_s += one.load.clocked_s;
    out.load.steady_s += one.load.steady_s;
    out.load.least_s += one.load.least_s;
    out.load.clocked_joules += one.load.clocked_joules;
    out.load.steady_joules += one.load.steady_joules;
    out.how = one.how;
    out.type = one.type;
    error += std::pow(one.seconds * one.error, 2);
  }
  if (out.seconds > 0) out.error = std::sqrt(error) / out.seconds;
  if (is_gradient) {
    const int times = options.kernels == FrameworkKernels::kEager ? 3 : 1;
    const double bytes = (op.apart() - 1) * times * shared;
    const double seconds = StreamSeconds(options.device, bytes);
    out.seconds += seconds;
    out.load.steady_s += seconds;
    out.load.steady_joules += Streaming(seconds, bytes).steady_joules;
  }
  return out;
}

}  // namespace

KernelEstimate EstimateKernel(const AnalyticOptions& options,
                              const TrainingSpec& training, bool causal,
                              const ModelOp& op, OpPass pass, bool is_rms) {
  if (options.kernels != FrameworkKernels::kFused && op.apart() > 1 &&
      op.Work(pass).flops > 0) {
    return EstimateApart(options, training, causal, op, pass, is_rms);
  }
  if (op.kind == OpClass::kElementwise &&
      IsInFusedExperts(options, training, op, pass)) {
    return {.how = "fused"};
  }
  KernelEstimate out = Fused(options, training, causal, op, pass);
  if (pass == OpPass::kBackwardWeight && op.kind == OpClass::kGemm &&
      out.how != "curve") {
    AddSum(options, training, op, &out);
  }
  const double factor = FrameworkFactor(options.kernels, options.device, is_rms,
                                        training, op, pass);
  if (factor == 1) return out;
  out.seconds *= factor;
  // A slower kernel for the same FLOPs draws less; more traffic takes as much
  // more energy.
  out.load.clocked_s *= factor;
  out.load.steady_s *= factor;
  if (op.Work(pass).flops <= 0) out.load.steady_joules *= factor;
  absl::StrAppend(&out.how, ", framework");
  return out;
}

KernelEstimate EstimateInPieces(const AnalyticOptions& options,
                                const TrainingSpec& training, bool causal,
                                const ModelOp& op, OpPass pass, bool is_rms,
                                double* cut_part) {
  KernelEstimate whole =
      EstimateKernel(options, training, causal, op, pass, is_rms);
  *cut_part = 0;
  const int pieces = PiecesOf(options, op, pass);
  if (pieces == 1) return whole;
  ModelOp piece = op;
  piece.m /= pieces;
  // Each piece reads all weights.
  const double weights = (op.is_wide ? OperandBytes(Precision::kBf16)
                                     : OperandBytes(training.precision)) *
                         op.n * op.k * op.count;
  OpWork& work = piece.work[static_cast<int>(pass)];
  work.flops /= pieces;
  work.bytes = weights + (work.bytes - weights) / pieces;
  KernelEstimate cut =
      EstimateKernel(options, training, causal, piece, pass, is_rms);
  // A table may have fewer rows at a better rate; nobody cuts for that.
  if (pieces * cut.seconds <= whole.seconds) return whole;
  cut.seconds *= pieces;
  cut.load.clocked_s *= pieces;
  cut.load.steady_s *= pieces;
  cut.load.least_s *= pieces;
  cut.load.clocked_joules *= pieces;
  cut.load.steady_joules *= pieces;
  *cut_part = 1 - whole.seconds / cut.seconds;
  absl::StrAppend(&cut.how, ", in pieces");
  return cut;
}

void LowerClock(const DeviceSpec& device, double clock,
                KernelEstimate* estimate) {
  const double clocked_s = estimate->load.clocked_s;
  if (clock >= 1 || clocked_s <= 0) return;
  estimate->seconds = estimate->load.Seconds(clock);
  const bool is_measured = IsClockMeasured(device.name, estimate->type);
  estimate->error =
      std::hypot(estimate->error, device.architecture != "hopper" ? kClockError
                                  : is_measured ? kHopperClockError
                                                : kOtherLimitError);
  if (!is_measured) absl::StrAppend(&estimate->how, ", clock transferred");
}

}  // namespace pipewright

#include "sim/cost/host_time.h"

#include <algorithm>

#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"

namespace pipewright {
namespace {

// torch.nn.Linear forward in bf16, one kernel, on the host of a DGX H100 (Xeon
// Platinum 8480C): NVIDIA/TransformerEngine, issue 2053. The unit of all counts
// below. [kernel file, s]
constexpr double kLaunchSeconds = 13.48e-6;

// The same in a training process of Megatron-LM, where its own Python, hooks of
// its parameters and other threads come on top: what layers of 512 wide take,
// with the device idle for nine tenths, over the launches counted below. Of the
// two runs of hundreds of passes in 8 bit in its continuous integration, the
// geometric mean (experiments/megatron_host; NVIDIA/Megatron-LM d98e8a64). With
// Hopper on x86, with Blackwell on Grace; other Blackwell cards have x86.
// Ampere, whose published steps are of older releases, keeps the lone launch.
// [paper, s]
constexpr double kMegatronLaunchSeconds = 52e-6;
constexpr double kMegatronLaunchOnGrace = 69e-6;
// DeviceSpec::launch_s of the shipped devices with Grace, from the same issue.
// Another number is of a device file, and holds. [kernel file, s]
constexpr double kLaunchOnGrace = 37.08e-6;

// A kernel that Python launches in a layer, with the gradient recorded or
// computed: 1.4 to 1.8, geometric mean 1.6, in seven layers of 76 to 348
// kernels, dense and with experts (experiments/torch_layers, H200).
// [measured]
constexpr double kOfKernel = 1.6;

// What a module of Transformer Engine does on the host beside its kernels, in
// torch.nn.Linear's time (37.08 us on GB200, the same issue). Of te.Linear on
// GB200 there are two measurements, in us: forward in bf16 99.66 (issue 2053,
// August 2025) and 59.19 (pull request 3523, September 2026), whose geometric
// mean is 76.8; by the pull request alone forward and backward 311.30, in MXFP8
// 114.51 and 440.93. Forward: 76.8 / 37.08 less one kernel, and in 8 bit 1.93
// times as much less a product and a cast. Backward: 252.11 / 37.08 less two
// products, in 8 bit 326.42 / 37.08 less a cast more. [kernel file]
struct ModuleWork {
  double forward, backward;
};
constexpr ModuleWork kModule = {1.07, 4.80};
constexpr ModuleWork kEightBitModule = {2.00, 5.80};

// The fused layer of experts: 1.2 ms forward and 2.1 ms backward, W included,
// with 64 experts on GB200 (NVIDIA/TransformerEngine, issue 2897), over 37.08
// us. Shared by its two products. [kernel file]
constexpr ModuleWork kFusedExperts = {16, 28};

// Seconds of a launch; if none take time, those that would.
double UnitOf(const AnalyticOptions& options) {
  return options.launch_s > 0
             ? options.launch_s
             : LaunchSecondsOf(options.device, options.kernels);
}

// One product of a group, launched by C++, in launches: no Python slows it.
// Assumed: a cast of one expert's rows takes as much, as it allocates as many
// tensors (NVIDIA/TransformerEngine, issue 1499).
double OfGroup(const AnalyticOptions& options) {
  return kGroupSeconds / UnitOf(options);
}

// What rows of experts that are not sorted by fused kernels take besides:
// transposed maps, a sort, a selection and the row numbers of each in F, their
// gradients in B, counted (Megatron-Core 0.14, moe_utils.py, permute and
// unpermute). [framework source]
constexpr double kSortedForward = 6;
constexpr double kSortedBackward = 4;
// A piece of what is cut and joined again: a split in 16 takes 29.65 us forward
// and 194.84 us backward where a torch.nn.Linear takes 22.33
// (experiments/torch_layers, h200_host.csv), in seconds of the host above. C++
// makes them. [measured, s]
constexpr double kPieceForward = 29.65 / 16 / 22.33 * kLaunchSeconds;
constexpr double kPieceBackward = 194.84 / 16 / 22.33 * kLaunchSeconds;
// A collective: the call and the events on both streams (torch.distributed,
// ProcessGroupNCCL). Assumed: each takes a kernel's time. [assumption]
constexpr double kCollective = 2;

// Kernels and modules of an operation in F, B and W, counted in Megatron-Core
// 0.14 and Transformer Engine 2.8 with their fusions (rotary embedding, SwiGLU,
// permutation, bias-dropout-add).
struct Count {
  double kernels[kNumOpPasses];
  double modules[kNumOpPasses];
};

// Counted in Megatron-Core 0.14 and Transformer Engine 2.8: kernels and modules
// in F, B and W. [framework source]
Count CountOf(const ModelOp& op) {
  switch (op.kind) {
    case OpClass::kGemm:
      if (op.part == OpPart::kRouter) {
        // Casts, product, scores, top-k, two scatters, load-balancing loss,
        // sums of both maps.
        return {{16, 12, 1}, {0, 0, 0}};
      }
      return {{1, 1, 1}, {1, 1, 0}};
    case OpClass::kGroupedGemm:
      return {{0, 0, 0}, {1, 1, 0}};
    case OpClass::kBatchedGemm:
      return {{2, 4, 0}, {1, 0, 0}};
    case OpClass::kAttention:
      // DotProductAttention and its backend; cuDNN's backward has a kernel
      // before and behind it.
      return {{1, 3, 0}, {2, 1, 0}};
    case OpClass::kScan:
      return {{op.count, 2 * op.count, 0}, {1, 1, 0}};
    case OpClass::kNorm:
      // Gradients of the weights are summed by a second kernel.
      return {{1, 2, 0}, {0, 0, 0}};
    case OpClass::kElementwise:
      return {{op.count, op.count, 0}, {0, 0, 0}};
    case OpClass::kLookup:
      return {{1, 1, 0}, {0, 0, 0}};
    case OpClass::kLoss:
      return {{3, 2, 0}, {0, 0, 0}};
    case OpClass::kRouting:
      // Counts and their copies to the host, row numbers (three), permutation;
      // half of it on the way back, which adds up.
      return {{8, 4, 0}, {0, 0, 0}};
  }
  return {};
}

// Kernels of the cast of an input or a gradient (Transformer Engine 2.8,
// pytorch/csrc/quantizer.cpp): with a scale of its own, the largest value, the
// scale and the cast; of 4 bit the largest values and a cast along each
// dimension. [framework source]
double CastKernels(const TrainingSpec& training, const ModelOp& op,
                   OpPass pass) {
  const bool is_linear =
      op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
  if (!is_linear || pass == OpPass::kBackwardWeight) return 0;
  switch (PrecisionOf(training, op)) {
    case Precision::kBf16:
      return 0;
    case Precision::kFp8Tensorwise:
      return 3;
    case Precision::kNvfp4:
      return op.has_weight_pass ? 3 : 2;
    case Precision::kFp8:
    case Precision::kFp8Block:
    case Precision::kMxfp8:
      return 1;
  }
  return 0;
}

// Launches of kernels that sort and sum rows of experts, without fusion.
double SortingLaunches(const AnalyticOptions& options,
                       const TrainingSpec& training, const ModelOp& op,
                       OpPass pass) {
  if (op.kind != OpClass::kRouting || training.execution.fused_permutation) {
    return 0;
  }
  const bool is_forward = pass == OpPass::kForward;
  const double pieces_s =
      op.chunks * (is_forward ? kPieceForward : kPieceBackward);
  return kOfKernel * (is_forward ? kSortedForward : kSortedBackward) / 2 +
         pieces_s / UnitOf(options);
}

// Is what the module of a product takes measured as a whole, kernels included?
bool IsMeasuredModule(const ModelOp& op) {
  return op.kind == OpClass::kGemm && op.part != OpPart::kRouter;
}

bool Runs(const ModelOp& op, OpPass pass) {
  const OpWork& work = op.Work(pass);
  return work.flops > 0 || work.bytes > 0;
}

// Launches of a pass by kernels of its own; `products`: how many it makes.
double Launches(const AnalyticOptions& options, const TrainingSpec& training,
                const ModelOp& op, OpPass pass, int products) {
  const Execution& execution = training.execution;
  if (!Runs(op, pass) || execution.graphs(op.part)) return 0;
  const Count count = CountOf(op);
  const int index = static_cast<int>(pass);
  const bool compiled = execution.launch == Launch::kCompiled;
  const double casts = CastKernels(training, op, pass);
  double launches = count.kernels[index];
  // A compiled wrapper calls no modules, and fuses the small operations of the
  // router and of the permutation two and two.
  if (compiled) {
    const bool small =
        op.part == OpPart::kRouter || op.kind == OpClass::kRouting;
    if (small) launches = std::max(1.0, launches / 2);
  } else {
    if (!IsMeasuredModule(op)) launches *= kOfKernel;
    const ModuleWork& work = casts > 0 ? kEightBitModule : kModule;
    launches += count.modules[index] *
                (pass == OpPass::kForward ? work.forward : work.backward);
  }
  if (op.kind == OpClass::kGroupedGemm) {
    launches += OfGroup(options) * op.count * (1 + casts);
  } else {
    launches += casts;
  }
  launches += SortingLaunches(options, training, op, pass);
  launches *= products;
  for (const OpComm& comm : op.comms) {
    if (comm.pass == pass && comm.members > 1) launches += kCollective;
  }
  return launches;
}

}  // namespace

double LaunchSecondsOf(const DeviceSpec& device, FrameworkKernels kernels) {
  const bool is_grace = device.launch_s == kLaunchOnGrace;
  if (device.launch_s > 0 && !is_grace) return device.launch_s;
  const bool is_recent =
      device.architecture == "hopper" || device.architecture == "blackwell";
  if (kernels == FrameworkKernels::kFused && is_recent) {
    return is_grace ? kMegatronLaunchOnGrace : kMegatronLaunchSeconds;
  }
  return is_grace ? device.launch_s : kLaunchSeconds;
}

double HostLaunches(const AnalyticOptions& options,
                    const TrainingSpec& training, const ModelOp& op,
                    OpPass pass) {
  const bool is_apart = options.kernels != FrameworkKernels::kFused;
  double launches =
      Launches(options, training, op, pass, is_apart ? op.apart() : 1);
  if (launches > 0) {
    // Each further piece of a product, and its message: C++ makes them in
    // Transformer Engine, Python in PyTorch (torch/distributed/
    // _symmetric_memory, _pipelined_multi_all_gather_and_consume).
    launches += 2 * (is_apart ? kOfKernel : OfGroup(options)) *
                (PiecesOf(options, op, pass) - 1);
  }
  if (launches == 0 || !IsOfFusedExperts(options, training, op)) {
    return launches;
  }
  if (op.kind != OpClass::kGroupedGemm) return 0;
  // Few experts are launched faster one by one.
  switch (pass) {
    case OpPass::kForward:
      return std::min(launches, kFusedExperts.forward);
    case OpPass::kBackwardInput:
      return std::min(launches + Launches(options, training, op,
                                          OpPass::kBackwardWeight, 1),
                      kFusedExperts.backward);
    case OpPass::kBackwardWeight:
      break;  // counted in B
  }
  return 0;
}

double GraphLaunches(const TrainingSpec& training,
                     const std::vector<ModelOp>& ops, OpPass pass) {
  return std::any_of(ops.begin(), ops.end(),
                     [&](const ModelOp& op) {
                       return Runs(op, pass) &&
                              training.execution.graphs(op.part);
                     })
             ? 1
             : 0;
}

}  // namespace pipewright

#include "sim/cost/optimizer_time.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "sim/cost/clock.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"

namespace pipewright {
namespace {

// Kernel by kernel over fp32, as Emerging-Optimizers has them: the momentum
// takes the gradient in, the weight decays and gets the update; an update is
// normed, divided, cast to bf16 and back and scaled twice. [assumption, bytes]
constexpr double kGradientReadBytes = 4;
constexpr double kUpdateReadBytes = 4;
constexpr double kOrthogonalBytes = 4 + 8 + 6 + 6 + 2 * 8;
// Operands of the products; an update on its way over tensor parallelism is in
// fp32. [framework source, bytes]
constexpr double kOperand = 2;
constexpr double kOnItsWay = 4;

// C[m,n] = A[m,k] B[k,n], plus a matrix of C's size if it `adds`.
KernelEstimate IterationProduct(const AnalyticOptions& options,
                                const TrainingSpec& training, double m,
                                double n, double k, bool adds) {
  ModelOp op;
  op.kind = OpClass::kGemm;
  op.is_wide = true;
  op.m = m;
  op.n = n;
  op.k = k;
  op.work[static_cast<int>(OpPass::kForward)] = {
      2 * m * n * k, kOperand * (m * k + k * n + (adds ? 2 : 1) * m * n)};
  return EstimateKernel(options, training, false, op, OpPass::kForward);
}

// An iteration on X[rows, columns]: A = X X^T, B = b A + c A A, a X + B X.
void AddIterations(const AnalyticOptions& options, const TrainingSpec& training,
                   double rows, double columns, MatrixStep* step) {
  const double steps = training.optimizer.newton_schulz_steps;
  std::array<KernelEstimate, 3> products = {
      IterationProduct(options, training, rows, rows, columns, false),
      IterationProduct(options, training, rows, rows, rows, true),
      IterationProduct(options, training, rows, columns, rows, true)};
  if (options.silicon != nullptr && options.sustained) {
    const std::array<LoadedKernel, 3> loads = {
        products[0].load, products[1].load, products[2].load};
    const double clock = ClockUnder(options.device, loads, 0);
    for (KernelEstimate& product : products) {
      LowerClock(options.device, clock, &product);
    }
  }
  for (const KernelEstimate& product : products) {
    step->seconds += steps * product.seconds;
  }
  step->flops += steps * 2 * rows * rows * (2 * columns + rows);
}

void AddPart(const AnalyticOptions& options, const TrainingSpec& training,
             double outputs, double inputs, TensorSplit split, int members,
             MatrixStep* step) {
  const MuonTpMode mode = training.optimizer.tp_mode;
  const bool is_split = split != TensorSplit::kNone && members > 1 &&
                        mode != MuonTpMode::kBlockwise;
  const auto exchange = [&](CommKind kind, double bytes) {
    return CommSeconds(options, training,
                       {.kind = kind, .members = members, .bytes = bytes});
  };
  if (is_split && mode == MuonTpMode::kDistributed) {
    // The side that is whole makes the square.
    const bool by_outputs = split == TensorSplit::kOutputs;
    const double rows = by_outputs ? inputs : outputs;
    AddIterations(options, training, rows, by_outputs ? outputs : inputs, step);
    step->seconds += training.optimizer.newton_schulz_steps *
                     exchange(CommKind::kAllReduce, kOperand * rows * rows);
    step->elements += outputs * inputs;
    return;
  }
  if (is_split) {
    (split == TensorSplit::kOutputs ? outputs : inputs) *= members;
    step->seconds +=
        exchange(CommKind::kAllGather, kOnItsWay * outputs * inputs);
  }
  AddIterations(options, training, std::min(outputs, inputs),
                std::max(outputs, inputs), step);
  step->elements += outputs * inputs;
}

double WeightTraffic(const TrainingSpec& training) {
  return 2 * std::max(training.master_bytes, training.weight_bytes);
}

using MatrixKey =
    std::pair<std::array<double, 5>, std::pair<TensorSplit, bool>>;

MatrixKey MatrixKeyOf(const WeightMatrix& matrix) {
  return {{matrix.outputs, matrix.inputs, matrix.parts[0], matrix.parts[1],
           matrix.parts[2]},
          {matrix.split, matrix.is_expert}};
}

// Work of each of some devices.
struct MatrixWork {
  double seconds = 0;
  double elements = 0;  // orthogonalised
  double held = 0;
};

}  // namespace

MatrixStep OrthogonalisedBy(const AnalyticOptions& options,
                            const TrainingSpec& training,
                            const WeightMatrix& matrix) {
  const int members = matrix.is_expert ? training.etp() : training.tp;
  MatrixStep step;
  if (matrix.parts[0] == 0) {
    AddPart(options, training, matrix.outputs, matrix.inputs, matrix.split,
            members, &step);
    return step;
  }
  for (const double outputs : matrix.parts) {
    if (outputs == 0) continue;
    AddPart(options, training, outputs, matrix.inputs, matrix.split, members,
            &step);
  }
  return step;
}

double MuonSeconds(const AnalyticOptions& options, const TrainingSpec& training,
                   const std::vector<StageMatrices>& stages, double* held) {
  std::map<MatrixKey, MatrixStep> known;
  const bool whole = IsLayerWise(training);
  const auto seconds_of = [&](const MatrixWork& work) {
    return work.seconds +
           StreamSeconds(options.device,
                         kOrthogonalBytes * work.elements +
                             LeastMuonBytes(training) * work.held);
  };
  double seconds = 0;
  *held = 0;
  // Experts have replicas of their own.
  for (const bool of_experts : {false, true}) {
    const int shards =
        of_experts ? training.expert_shards() : training.shards();
    const int share = training.zero >= 1 && !whole ? shards : 1;
    std::vector<MatrixWork> devices(whole ? shards : 1);
    for (const StageMatrices& stage : stages) {
      std::vector<const WeightMatrix*> own;
      std::vector<double> elements;
      for (const WeightMatrix& matrix : stage.matrices) {
        if (matrix.is_expert != of_experts) continue;
        own.push_back(&matrix);
        elements.push_back(matrix.elements());
      }
      const MatrixOwners owners =
          OwnersOf(elements, static_cast<int>(devices.size()),
                   HasOneBucket(training, stage.stage));
      for (size_t index = 0; index < own.size(); ++index) {
        const auto [found, is_new] =
            known.try_emplace(MatrixKeyOf(*own[index]));
        if (is_new) {
          found->second = OrthogonalisedBy(options, training, *own[index]);
        }
        MatrixWork& device = devices[owners.owner[index]];
        device.seconds += found->second.seconds;
        device.elements += found->second.elements;
        device.held += elements[index] / share;
      }
    }
    const auto busiest = std::max_element(
        devices.begin(), devices.end(), [&](const auto& a, const auto& b) {
          return seconds_of(a) < seconds_of(b);
        });
    seconds += seconds_of(*busiest);
    *held += busiest->held;
  }
  return seconds;
}

double LeastMuonBytes(const TrainingSpec& training) {
  return kGradientReadBytes + 2 * training.optimizer.momentum_bytes +
         kUpdateReadBytes + 2 * WeightTraffic(training);
}

}  // namespace pipewright

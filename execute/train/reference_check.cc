#include "execute/train/reference_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "execute/train/units.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

constexpr double kReferenceTolerance32 = 1e-4;
// Tolerance for up to eight layers. What each of them rounds adds up as squares
// do.
constexpr double kReferenceTolerance16 = 2e-2;
constexpr double kShallow = 8;
// Tolerance for one layer. e4m3 rounds to 2^-4 at most and e5m2 to 2^-3, evenly
// spread 0.026 and 0.052 in the root of the mean square: a product of the two
// is off by 0.06 of its size, a sum of independent ones by as much of its own,
// and a gradient comes through four of them in each layer.
constexpr double kReferenceTolerance8 = 0.12;
// AdamW in fp32 on the same gradients, over a learning rate of 1e-3.
constexpr double kReferenceWeightTolerance = 1e-3;
// A tensor whose gradient is 0 but for rounding is measured by the largest
// gradient of all.
constexpr double kLeastScale = 1e-9;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool StepsWithinIteration(const Program& program) {
  const Schedule& schedule = *program.schedule;
  return schedule.update_every > 0 &&
         schedule.update_every < schedule.microbatches;
}

bool Steps(const Program& program) {
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.kind == OpKind::kOptimizer) return true;
  }
  return false;
}

class Worst {
 public:
  // Notes the largest error of tensors of `units`, and its tensor.
  Worst(const Units& units, double* error, std::string* name)
      : units_(units), error_(*error), name_(*name) {}
  void Add(double difference, double scale, const ReferenceTensor& tensor) {
    double error = scale > 0 ? difference / scale : difference;
    if (!std::isfinite(error)) error = kInfinity;
    if (!name_.empty() && error <= error_) return;
    error_ = error;
    name_ =
        absl::StrCat(tensor.name, " of stage ", units_.StageOf(tensor.stage));
  }

 private:
  const Units& units_;
  double& error_;
  std::string& name_;
};

// A difference that is no number is one.
double Larger(double difference, double largest) {
  return std::isfinite(difference) ? std::max(difference, largest) : kInfinity;
}

struct Compared {
  const ExecutedModel& model;
  const ReferenceRun& reference;
  double scale = 0;        // that the optimizer multiplies gradients with
  double least_scale = 0;  // least scale of a tensor's gradient
};

void CompareGradients(const Compared& with, const StageSnapshot& snapshot,
                      const ReferenceTensor& tensor, Worst* worst) {
  const std::vector<double>& exact = with.reference.gradients[tensor.stage];
  double largest = with.least_scale;
  for (int64_t at = tensor.begin; at < tensor.end; ++at) {
    largest = std::max(largest, std::abs(exact[at]));
  }
  double difference = 0;
  const int64_t end = std::min(tensor.end, snapshot.end);
  for (int64_t at = std::max(tensor.begin, snapshot.begin); at < end; ++at) {
    difference =
        Larger(std::abs(snapshot.gradients[at] - exact[at]), difference);
  }
  worst->Add(difference, largest, tensor);
}

// The first step of AdamW (arXiv 1711.05101, algorithm 2) has, with its bias
// corrections, moments g and g^2: w becomes w - r (g / (|g| + e) + d w).
void CompareWeights(const Compared& with, const StageSnapshot& snapshot,
                    const ReferenceTensor& tensor, Worst* worst) {
  const std::vector<double>& before = with.reference.weights[tensor.stage];
  const PwAdam& adam = with.model.adam;
  double largest = 0;
  double difference = 0;
  const int64_t end = std::min(tensor.end, snapshot.end);
  for (int64_t at = std::max(tensor.begin, snapshot.begin); at < end; ++at) {
    const double gradient = with.scale * snapshot.gradients[at];
    const double move =
        adam.learning_rate *
        (gradient / (std::abs(gradient) + double{adam.epsilon}) +
         adam.weight_decay * before[at]);
    largest = std::max(largest, std::abs(move));
    difference = Larger(std::abs(snapshot.weights[at] - (before[at] - move)),
                        difference);
  }
  if (end > std::max(tensor.begin, snapshot.begin)) {
    worst->Add(difference, largest, tensor);
  }
}

// Norm of the executed gradients, which clips them. A copy of a table is summed
// with the table itself, so that it counts once; so do copies of a stage, while
// shards each have their part.
double NormOf(const ExecutedModel& model,
              const std::vector<const StageSnapshot*>& snapshots) {
  std::vector<bool> whole(model.num_stages());
  double squares = 0;
  for (const StageSnapshot* const snapshot : snapshots) {
    if (snapshot->bidirectional > 0 || whole[snapshot->stage]) continue;
    const auto count = static_cast<int64_t>(snapshot->gradients.size());
    whole[snapshot->stage] = snapshot->begin == 0 && snapshot->end == count;
    const int64_t copy =
        model.HoldsCopyOfTable(snapshot->stage) ? model.TableElements() : 0;
    const int64_t end = std::min(snapshot->end, count - copy);
    for (int64_t at = snapshot->begin; at < end; ++at) {
      squares += double{snapshot->gradients[at]} * snapshot->gradients[at];
    }
  }
  return std::sqrt(squares);
}

// Snapshots of the first step.
std::vector<const StageSnapshot*> FirstSnapshots(
    const std::vector<WorkerRecord>& records, bool within) {
  std::vector<const StageSnapshot*> snapshots;
  for (const WorkerRecord& record : records) {
    for (const StageSnapshot& snapshot :
         within ? record.first_step : record.snapshots) {
      if (snapshot.iteration == 0) snapshots.push_back(&snapshot);
    }
  }
  return snapshots;
}

}  // namespace

double ReferenceCheck::loss_error() const {
  const double error =
      std::abs(loss - reference_loss) / std::abs(reference_loss);
  return std::isfinite(error) ? error : kInfinity;
}

bool ReferenceCheck::ok() const {
  return missing == 0 &&
         loss_error() <= std::min(tolerance, kReferenceTolerance16) &&
         gradient_error <= tolerance &&
         weight_error.value_or(0) <= kReferenceWeightTolerance;
}

double ReferenceTolerance(const ExecutedModel& model) {
  double layers = 0;
  for (const std::vector<StagePart>& stage : model.stages) {
    for (const StagePart& part : stage) layers += part.layer >= 0 ? 1 : 0;
  }
  if (model.shape.fp8_linear != 0) {
    // A gradient that is missing is an error of 1, however deep the model.
    return std::min(kReferenceTolerance8 * std::sqrt(std::max(layers, 1.0)),
                    0.5);
  }
  if (model.shape.type == PW_FP32) return kReferenceTolerance32;
  return kReferenceTolerance16 * std::sqrt(std::max(layers / kShallow, 1.0));
}

int64_t FirstStepMicrobatches(const Program& program) {
  const Schedule& schedule = *program.schedule;
  return schedule.update_every > 0
             ? int64_t{program.replicas} * schedule.update_every
             : StepMicrobatches(program).all;
}

std::string WhyNoReference(const Program& program, DataParallel mode) {
  const bool copies = program.replicas > 1 || program.schedule->directions > 1;
  if (copies && !TraitsOf(mode).reduces) {
    return "copies of a stage are not kept alike";
  }
  return "";
}

void KeepFirstStep(const Program& program, WorkerOptions* options) {
  if (StepsWithinIteration(program)) {
    options->keeps_first_step = true;
    return;
  }
  std::vector<int>& kept = options->snapshot_iterations;
  if (std::find(kept.begin(), kept.end(), 0) == kept.end()) {
    kept.insert(kept.begin(), 0);
  }
}

ReferenceCheck CheckReference(const Program& program,
                              const ExecutedModel& model,
                              const std::vector<WorkerRecord>& records,
                              bool clips, const ReferenceRun& reference) {
  const bool within = StepsWithinIteration(program);
  const bool fails =
      std::find(model.failing_steps.begin(), model.failing_steps.end(), 0) !=
      model.failing_steps.end();
  ReferenceCheck check;
  check.tolerance = ReferenceTolerance(model);
  check.reference_loss = reference.loss;
  Compared with = {.model = model, .reference = reference};
  const std::vector<const StageSnapshot*> snapshots =
      FirstSnapshots(records, within);
  const double norm = NormOf(model, snapshots);
  const double limit = model.NormLimit(0, norm, clips ? model.clip_norm : 0);
  with.scale = limit <= 0 || norm <= limit ? 1 : limit / norm;
  for (const std::vector<double>& stage : reference.gradients) {
    for (const double value : stage) {
      with.least_scale =
          std::max(with.least_scale, kLeastScale * std::abs(value));
    }
  }
  const bool weights = Steps(program) && !within && !fails;
  double weight_error = 0;
  const Units units(program);
  Worst worst_gradient(units, &check.gradient_error, &check.worst_gradient);
  Worst worst_weight(units, &weight_error, &check.worst_weight);
  std::vector<int> told(model.num_stages());
  double loss = 0;
  for (const WorkerRecord& record : records) {
    const auto found = record.loss_sum.find(0);
    loss += within                           ? record.first_loss_sum
            : found == record.loss_sum.end() ? 0
                                             : found->second;
  }
  for (const StageSnapshot* const snapshot : snapshots) {
    ++told[snapshot->stage];
    for (const ReferenceTensor& tensor : reference.tensors) {
      if (tensor.stage != snapshot->stage) continue;
      CompareGradients(with, *snapshot, tensor, &worst_gradient);
      if (weights) CompareWeights(with, *snapshot, tensor, &worst_weight);
    }
  }
  check.loss = loss / static_cast<double>(model.batch * model.sequence *
                                          FirstStepMicrobatches(program));
  if (weights) check.weight_error = weight_error;
  const int copies = program.replicas * program.schedule->directions;
  for (const int times : told) check.missing += times == copies ? 0 : 1;
  return check;
}

}  // namespace pipewright

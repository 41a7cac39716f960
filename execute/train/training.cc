#include "execute/train/training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/run/run_processes.h"
#include "execute/train/model_workers.h"
#include "execute/train/owners.h"
#include "execute/train/reference_check.h"
#include "execute/train/training_wire.h"
#include "execute/train/units.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Sums of fp32 gradients in another order differ by a few of their last bits;
// bf16 activations are the same bits either way, but not what atomics add up.
constexpr double kTolerance32 = 1e-5;
constexpr double kTolerance16 = 2e-2;
// Behind AdamW, whose weights differ by more than the gradients they are of.
constexpr double kLaterTolerance = 1e-2;
// Tolerance of weights, relative to what the optimizer has moved them: it moves
// one with next to no gradient as far as any other, in a direction that the
// last bits decide. A step that is left out is off by 1.
constexpr double kWeightTolerance = 0.1;

// The largest difference relative to the largest value, or to the largest
// change since `from` where that is not null.
double Difference(const float* mine, const float* theirs, const float* from,
                  int64_t count) {
  double largest = 0;
  double difference = 0;
  for (int64_t index = 0; index < count; ++index) {
    if (!std::isfinite(mine[index]) || !std::isfinite(theirs[index])) {
      return std::numeric_limits<double>::infinity();
    }
    const double value =
        double{theirs[index]} - (from == nullptr ? 0.0 : double{from[index]});
    largest = std::max(largest, std::abs(value));
    difference =
        std::max(difference, std::abs(double{mine[index]} - theirs[index]));
  }
  return largest > 0 ? difference / largest : difference;
}

// Tolerance of weights whose gradients have 16 bits: the last bits decide about
// many, so they are compared by the root of the mean square. A step that is
// left out is off by 1.
constexpr double kWeightTolerance16 = 0.5;

double MeanDifference(const float* mine, const float* theirs, const float* from,
                      int64_t count) {
  double moved = 0;
  double difference = 0;
  for (int64_t index = 0; index < count; ++index) {
    const double change = double{theirs[index]} - from[index];
    const double off = double{mine[index]} - theirs[index];
    moved += change * change;
    difference += off * off;
  }
  const double error = moved > 0 ? std::sqrt(difference / moved) : difference;
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

// How many (stage, direction, iteration) there are of which a data-parallel
// replica has not exactly one snapshot, or the snapshots not all of the stage.
int CountMissing(const Program& program,
                 const std::vector<WorkerRecord>& records,
                 const SequentialRun& sequential) {
  const Schedule& schedule = *program.schedule;
  const Units units(program);
  int missing = 0;
  for (size_t iteration = 0; iteration < sequential.steps.size(); ++iteration) {
    const SequentialRun::Step& theirs = sequential.steps[iteration];
    for (size_t stage = 0; stage < theirs.gradients.size(); ++stage) {
      for (int direction = 0; direction < schedule.directions; ++direction) {
        const int rank = units.RankOf(static_cast<int>(stage), direction);
        // Every data-parallel replica has one; shards lie end to end.
        const auto count = static_cast<int64_t>(theirs.gradients[stage].size());
        int64_t covered = 0;
        bool all = true;
        for (int replica = 0; replica < program.replicas; ++replica) {
          const WorkerRecord& record =
              records[static_cast<size_t>(replica) * program.pp() + rank];
          int found = 0;
          for (const StageSnapshot& each : record.snapshots) {
            if (each.iteration != static_cast<int>(iteration) ||
                each.stage != static_cast<int>(stage) ||
                each.bidirectional != direction) {
              continue;
            }
            ++found;
            const bool whole = each.begin == 0 && each.end == count;
            all &= whole || each.begin == covered;
            covered = each.end;
          }
          all &= found == 1;
        }
        missing += all && covered == count ? 0 : 1;
      }
    }
  }
  return missing;
}

}  // namespace

bool TrainingCheck::ok() const {
  if (missing > 0) return false;
  if (bits_owed) return same_bits;
  return loss_error <= tolerance && first_gradient_error <= tolerance &&
         gradient_error <= later_tolerance && weight_error <= weight_tolerance;
}

TrainingCheck CheckTraining(const Program& program, const ExecutedModel& model,
                            const std::vector<WorkerRecord>& records,
                            const SequentialRun& sequential,
                            bool deterministic) {
  TrainingCheck check;
  check.same_order = SameGradientOrder(program) &&
                     (model.shape.tied == 0 || SameTableOrder(program));
  check.bits_owed = check.same_order && deterministic;
  // With fp8 a last bit of a weight may be a whole step of its copy.
  const bool whole = model.shape.type == PW_FP32 && model.shape.fp8_linear == 0;
  check.tolerance = whole ? kTolerance32 : kTolerance16;
  check.later_tolerance = std::max(check.tolerance, kLaterTolerance);
  if (model.shape.fp8_linear != 0) {
    // Weights that differ in a last bit are rounded to other steps of fp8.
    check.later_tolerance =
        std::max(check.later_tolerance, ReferenceTolerance(model));
  }
  check.weight_tolerance = whole ? kWeightTolerance : kWeightTolerance16;
  check.missing = CountMissing(program, records, sequential);
  check.same_bits = check.missing == 0;
  const auto iterations = static_cast<int>(sequential.steps.size());
  const double tokens = TokensOfStep(model, program);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    double sum = 0;
    for (const WorkerRecord& record : records) {
      const auto found = record.loss_sum.find(iteration);
      if (found != record.loss_sum.end()) sum += found->second;
    }
    const double loss = sum / tokens;
    const double theirs = sequential.steps[iteration].loss;
    check.losses.push_back(loss);
    check.sequential_losses.push_back(theirs);
    if (!sequential.steps[iteration].gradients.empty()) {
      check.steps_in_full.push_back(iteration);
    }
    check.same_bits &= loss == theirs;
    const double error = std::abs(loss - theirs) / std::abs(theirs);
    check.loss_error = std::max(
        check.loss_error,
        std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  // Undone and made again in the next warm-up: only what follows shows it.
  const auto pending = [&](int iteration) {
    const std::vector<int>& failing = model.failing_steps;
    return std::find(failing.begin(), failing.end(), iteration) !=
           failing.end();
  };
  for (const WorkerRecord& record : records) {
    for (const StageSnapshot& mine : record.snapshots) {
      const SequentialRun::Step& theirs = sequential.steps[mine.iteration];
      // Skips steps that are not kept.
      if (theirs.gradients.empty()) continue;
      const int64_t count = mine.end - mine.begin;
      const float* const gradients =
          theirs.gradients[mine.stage].data() + mine.begin;
      const float* const weights =
          theirs.weights[mine.stage].data() + mine.begin;
      const double error = Difference(mine.gradients.data() + mine.begin,
                                      gradients, nullptr, count);
      check.gradient_error = std::max(check.gradient_error, error);
      if (mine.iteration == 0) {
        check.first_gradient_error =
            std::max(check.first_gradient_error, error);
      }
      check.same_bits &=
          std::memcmp(mine.gradients.data() + mine.begin, gradients,
                      static_cast<size_t>(count) * 4) == 0;
      if (pending(mine.iteration)) continue;
      check.weight_error = std::max(
          check.weight_error,
          (whole ? Difference : MeanDifference)(
              mine.weights.data() + mine.begin, weights,
              sequential.initial_weights[mine.stage].data() + mine.begin,
              count));
      check.same_bits &= std::memcmp(mine.weights.data() + mine.begin, weights,
                                     static_cast<size_t>(count) * 4) == 0;
    }
  }
  return check;
}

absl::Status CheckLossesFinite(const std::vector<WorkerRecord>& records) {
  for (const WorkerRecord& record : records) {
    for (const auto& [iteration, sum] : record.loss_sum) {
      if (std::isfinite(sum)) continue;
      return absl::DataLossError(absl::StrCat("the loss of step ", iteration,
                                              " is not finite (", sum, ")"));
    }
  }
  return absl::OkStatus();
}

namespace {

// From the records of all ranks.
absl::Status Conclude(const Program& program, const ExecutedModel& model,
                      const PwKernels* kernels, const TrainingOptions& options,
                      TrainedRun* trained) {
  PW_RETURN_IF_ERROR(
      DescribeRun(program, kernels, options.device_index, trained));
  if (options.reference) {
    PW_ASSIGN_OR_RETURN(const ReferenceRun reference,
                        RunReference(model, FirstStepMicrobatches(program)));
    trained->reference = CheckReference(program, model, trained->records,
                                        options.worker.synchronised, reference);
  }
  // The check knows them too, and has a report.
  if (!options.check) return CheckLossesFinite(trained->records);
  SequentialOptions in_turn = SequentialOptionsFor(program, options.worker);
  in_turn.progress = options.check_progress;
  PW_ASSIGN_OR_RETURN(
      const SequentialRun sequential,
      RunSequential(model, kernels, options.device_index, in_turn));
  trained->check = CheckTraining(program, model, trained->records, sequential,
                                 kernels == pw_cpu_kernels());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainedRun> TrainThreads(const Program& program,
                                        const ExecutedModel& model,
                                        const PwKernels* kernels,
                                        const TrainingOptions& options) {
  PW_RETURN_IF_ERROR(CheckSupported(program, model));
  TrainedRun trained;
  std::shared_ptr<Owners> owners;
  if (HasOwners(program)) {
    PW_ASSIGN_OR_RETURN(
        owners, MakeOwners(program, model, kernels, options.device_index,
                           nullptr, options.execute.timeout_s));
  }
  const MakeWorker make_worker =
      ModelWorkers(program, model, kernels, options, owners, &trained.records);
  PW_ASSIGN_OR_RETURN(trained.run,
                      RunThreads(program, make_worker, options.execute));
  PW_RETURN_IF_ERROR(Conclude(program, model, kernels, options, &trained));
  return trained;
}

absl::StatusOr<TrainedRun> TrainProcesses(ProcessGroup* job,
                                          const Program& program,
                                          const ExecutedModel& model,
                                          const PwKernels* kernels,
                                          const TrainingOptions& options) {
  PW_RETURN_IF_ERROR(CheckSupported(program, model));
  // They would read the device's memory as the host's.
  if (kernels != pw_cpu_kernels() && !options.device_path) {
    return BadValue(
        "--transport",
        absl::StrCat("mpi or sockets with --device ", kernels->name),
        "threads or nccl with cuda; threads, mpi or sockets with cpu");
  }
  TrainedRun trained;
  std::shared_ptr<Owners> owners;
  if (HasOwners(program)) {
    PW_RETURN_IF_ERROR(CheckProcesses(*job, program));
    PW_ASSIGN_OR_RETURN(
        owners, MakeOwners(program, model, kernels, options.device_index, job,
                           options.execute.timeout_s));
  }
  const MakeWorker make_worker =
      ModelWorkers(program, model, kernels, options, owners, &trained.records);
  const RunReports reports = {
      .report =
          [&] {
            WireWriter writer;
            PutRecord(trained.records[job->process()], &writer);
            return writer.bytes();
          },
      .conclude = [&](const ExecutedRun&, const std::vector<std::string>& all)
          -> absl::StatusOr<std::string> {
        for (size_t rank = 0; rank < all.size(); ++rank) {
          WireReader reader(all[rank]);
          trained.records[rank] = GetRecord(&reader);
          if (!reader.ok()) return absl::InternalError("short record");
        }
        PW_RETURN_IF_ERROR(
            Conclude(program, model, kernels, options, &trained));
        WireWriter writer;
        PutCheck(trained.check, &writer);
        PutReference(trained.reference, &writer);
        return writer.bytes();
      },
  };
  PW_ASSIGN_OR_RETURN(ProcessesRun run, RunProcesses(job, program, make_worker,
                                                     options.execute, reports));
  trained.run = std::move(run.run);
  WireReader reader(run.conclusion);
  trained.check = GetCheck(&reader);
  trained.reference = GetReference(&reader);
  return trained;
}

absl::StatusOr<ReplayedTraining> TrainReplay(const Program& program,
                                             const ExecutedModel& model,
                                             const PwKernels* kernels,
                                             const TrainingOptions& options,
                                             const ReplayOptions& replay) {
  PW_RETURN_IF_ERROR(CheckSupported(program, model));
  TrainingOptions alone = options;
  alone.worker.alone = true;
  alone.worker.snapshot_iterations.clear();
  ReplayedTraining replayed;
  const MakeWorker make_worker = ModelWorkers(
      program, model, kernels, alone, nullptr, &replayed.trained.records);
  PW_ASSIGN_OR_RETURN(replayed.replay, Replay(program, make_worker, replay));
  PW_RETURN_IF_ERROR(CheckLossesFinite(replayed.trained.records));
  PW_RETURN_IF_ERROR(
      DescribeRun(program, kernels, options.device_index, &replayed.trained));
  return replayed;
}

}  // namespace pipewright

// The part of the verb execute that runs the ranks.
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "calibrate/device.h"
#include "execute/run/fixed_worker.h"
#include "execute/run/run_processes.h"
#include "execute/train/training.h"
#include "kernels/loader.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/execute_memory.h"
#include "sim/cli/execute_model.h"
#include "sim/cli/execute_verb.h"
#include "sim/program/program.h"

namespace pipewright {

// Empty without --replay-rank.
absl::StatusOr<std::vector<int>> Execute::ReplayedRanks(ClockKind kind,
                                                        int pp) const {
  std::vector<int> ranks;
  if (replay_rank.empty()) return ranks;
  if (kind == ClockKind::kPaced) {
    return BadValue("--clock", "paced", "virtual or real with --replay-rank");
  }
  int rank = 0;
  if (replay_rank == "all") {
    for (; rank < pp; ++rank) ranks.push_back(rank);
  } else if (absl::SimpleAtoi(replay_rank, &rank) && rank >= 0 && rank < pp) {
    ranks.push_back(rank);
  } else {
    return BadValue("--replay-rank", replay_rank,
                    absl::StrCat("0 to ", pp - 1, ", all"));
  }
  return ranks;
}

absl::StatusOr<const PwKernels*> Execute::Kernels() const {
  char error[512] = "";
  const PwKernels* const kernels =
      pw_load_kernels(device.c_str(), error, sizeof(error));
  if (kernels == nullptr) {
    return absl::UnavailableError(absl::StrCat("--device: ", error));
  }
  if (kernels->device_count() < 1) {
    return absl::UnavailableError(
        absl::StrCat("--device ", device, ": ", kernels->error()));
  }
  return kernels;
}

std::string Execute::WhyNoReference(const PreparedRun& run,
                                    const Program& program,
                                    const ExecutedModel& model) const {
  if (no_reference) return "--no-reference";
  if (!model.lengths.empty()) {
    return "it knows no samples of different lengths";
  }
  const std::string why =
      pipewright::WhyNoReference(program, run.lower.data_parallel);
  if (reference || !why.empty()) return why;
  const double products =
      ReferenceProducts(model, FirstStepMicrobatches(program));
  const int64_t parameters = ReferenceParameters(model);
  if (products <= kMostReferenceProducts &&
      parameters <= kMostReferenceParameters) {
    return "";
  }
  return absl::StrFormat(
      "it would take %.1e multiply-adds and %.1e parameters; --reference runs "
      "it all the same",
      products, static_cast<double>(parameters));
}

absl::Status Execute::PrepareTraining(const ProcessJob& processes,
                                      Prepared* prepared) const {
  const PreparedRun& run = prepared->run;
  const Program& program = prepared->program;
  TrainingOptions& training = prepared->training;
  PW_ASSIGN_OR_RETURN(prepared->kernels, Kernels());
  PW_ASSIGN_OR_RETURN(prepared->model,
                      ModelToTrain(run, device == "cpu" ? PW_FP32 : PW_BF16,
                                   seed, &prepared->warnings));
  training.worker = WorkerOptionsFor(program, run.lower.data_parallel,
                                     run.lower.optimizer, run.lower.offload);
  training.worker.owner_poll_s = run.lower.layers.poll_s;
  if (one_at_a_time) training.worker.token = std::make_shared<std::mutex>();
  training.worker.parts = green_contexts;
  if (no_check) training.worker.snapshot_iterations.clear();
  const bool replays = !prepared->replayed.empty();
  prepared->no_reference = WhyNoReference(run, program, prepared->model);
  training.reference = prepared->no_reference.empty() && !replays;
  training.check = training.check && !replays;
  if (training.reference) KeepFirstStep(program, &training.worker);
  PW_ASSIGN_OR_RETURN(
      prepared->memory,
      ClaimsOf(run, program, prepared->model, prepared->kernels, training,
               {.ranks = prepared->replayed,
                .process =
                    processes.job == nullptr ? -1 : processes.job->process()}));
  return absl::OkStatus();
}

absl::Status Execute::Train(const Prepared& prepared, ProcessGroup* job,
                            ExecuteReport* report, Executed* executed) {
  const PreparedRun& run = prepared.run;
  const Program& program = prepared.program;
  const TrainingOptions& training = prepared.training;
  if (report->clock == ClockKind::kPaced) {
    const MakeWorker make_worker = [](Address) {
      return std::make_unique<FixedWorker>();
    };
    if (job == nullptr) {
      PW_ASSIGN_OR_RETURN(executed->run,
                          RunThreads(program, make_worker, training.execute));
      return absl::OkStatus();
    }
    PW_ASSIGN_OR_RETURN(
        ProcessesRun ran,
        RunProcesses(job, program, make_worker, training.execute));
    executed->run = std::move(ran.run);
    return absl::OkStatus();
  }
  const PwKernels* const kernels = prepared.kernels;
  const ExecutedModel& model = prepared.model;
  const std::vector<int>& ranks = prepared.replayed;
  report->type = std::string(TypeName(model.shape));
  report->green_contexts = green_contexts;
  report->one_at_a_time =
      one_at_a_time || (job == nullptr && device == "cuda" && !green_contexts);
  report->no_reference = prepared.no_reference;
  TrainedRun trained;
  if (!ranks.empty()) {
    if (ranks.size() < static_cast<size_t>(program.pp()) && !HasTimes(run)) {
      return absl::InvalidArgumentError(
          "--replay-rank: how long the other ranks take is not known; allowed: "
          "with pass times (--profile, --forward, …), or all");
    }
    PW_ASSIGN_OR_RETURN(ReplayedTraining replayed,
                        TrainReplay(program, model, kernels, training,
                                    {.clock = report->clock,
                                     .ranks = ranks,
                                     .times_known = HasTimes(run),
                                     .trace = training.execute.trace,
                                     .timeout_s = timeout_s,
                                     .faults = training.execute.faults}));
    trained = std::move(replayed.trained);
    trained.run = std::move(replayed.replay.composed);
    for (const int rank : ranks) {
      executed->peak_activations[rank] = trained.peak_activations[rank];
    }
    report->replay = std::move(replayed.replay);
  } else {
    PW_ASSIGN_OR_RETURN(
        trained, job != nullptr
                     ? TrainProcesses(job, program, model, kernels, training)
                     : TrainThreads(program, model, kernels, training));
    executed->peak_activations = trained.peak_activations;
  }
  executed->run = std::move(trained.run);
  for (WorkerRecord& record : trained.records) {
    executed->memory.push_back(std::move(record.memory));
  }
  report->peak_bytes = trained.peak_bytes;
  report->resident_bytes = trained.resident_bytes;
  report->message_bytes = trained.message_bytes;
  report->owner_bytes = trained.owner_bytes;
  report->peak_host_bytes = trained.peak_host_bytes;
  report->device = trained.device;
  report->libraries = trained.libraries;
  if (training.check) report->check = trained.check;
  report->reference = trained.reference;
  return absl::OkStatus();
}

}  // namespace pipewright

#include "execute/report/execute_run.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "calibrate/device.h"
#include "execute/report/row_file.h"
#include "execute/report/run_to_train.h"
#include "execute/run/fixed_worker.h"
#include "execute/run/run_processes.h"
#include "execute/train/training.h"
#include "execute/transport/nccl_plan.h"
#include "kernels/loader.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/offload_turns.h"
#include "sim/config/prepare.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/network_time.h"
#include "sim/program/program.h"
#include "sim/run/describe_run.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

// What process 0 tells the others of --row.
constexpr char kIsThere[] = "is in the table";
constexpr char kDiffers[] = "is in the table, and differs";
// 11 days; a date so far away is still one that the system knows.
constexpr double kMostTimeout_s = 1e6;
// [bytes] Blocks of this size go back to the system as soon as they are freed.
constexpr int kMapFrom = 128 << 10;

// The times that all processes must agree on, one line each.
std::string TimesOf(const Program& program) {
  std::string text;
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankProgram& its = program.ranks[rank];
    absl::StrAppend(&text, "pass times of rank ", rank, ":");
    for (const Lane& lane : its.lanes) {
      if (lane.stage >= 0) absl::StrAppend(&text, " ", lane.seconds);
    }
    absl::StrAppend(&text, "\nside times of rank ", rank, ":");
    for (const SideOp& op : its.side_ops) {
      absl::StrAppend(&text, " ", op.seconds);
      if (!IsCollective(op.kind)) continue;
      // A measured time is rare, and is not among the options.
      if (const auto measured = MeasuredCollective(
              program.network, op,
              GroupMembers(program, program.groups[op.group], 0))) {
        absl::StrAppend(&text, "+", measured->seconds);
      }
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(
      &text, "hop: ", program.network.hop_s,
      "\npair factor: ", program.pair_factor,
      "\nmicrobatch factors: ", absl::StrJoin(program.microbatch_factor, " "),
      "\nslice factors: ", absl::StrJoin(program.slice_factor, " "), "\n");
  return text;
}

absl::StatusOr<const PwKernels*> LoadKernels(const std::string& device) {
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

// Ranks of --replay-rank; empty without it.
absl::StatusOr<std::vector<int>> ReplayedRanks(const ExecuteRequest& request,
                                               int pp) {
  if (!request.replays()) return std::vector<int>();
  if (request.paced()) {
    return BadValue("--clock", "paced", "virtual or real with --replay-rank");
  }
  if (request.replay_rank == "all") {
    std::vector<int> all(pp);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  int rank = 0;
  if (!absl::SimpleAtoi(request.replay_rank, &rank) || rank < 0 || rank >= pp) {
    return BadValue("--replay-rank", request.replay_rank,
                    absl::StrCat("0 to ", pp - 1, ", all"));
  }
  return std::vector<int>{rank};
}

class ExecuteRunner {
 public:
  ExecuteRunner(const ExecuteRequest& request, const ProcessJob& processes,
                const ExecuteCalls& calls)
      : request_(request),
        processes_(processes),
        calls_(calls),
        run_part_(calls.progress, 0, checks() ? 0.5 : 1),
        check_part_(calls.progress, 0.5, 1) {}

  absl::Status Run();

 private:
  bool checks() const { return !request_.no_check && !request_.paced(); }
  // All that is known before the first kernel runs.
  absl::Status Prepare();
  absl::Status CheckWay();
  absl::Status PrepareProgram();
  absl::Status CheckProgram();
  // What the ranks call on NCCL's communicators ends.
  absl::Status CheckCalls();
  // Kernels, model and checks, and what they will take.
  absl::Status PrepareTraining();
  // Why the run has no float64 reference; "" if it has one.
  std::string WhyNoReference() const;
  // The options that make it another run. Not among them: how it is checked and
  // watched, the times that it is predicted from, and paths of files: on
  // another machine the folder may be another one.
  std::string OptionsText() const;
  // All that must be the same on all processes.
  std::string SameOnAll() const;
  absl::StatusOr<FirstWord> PrepareFirst();
  absl::Status JudgeMemory(const std::vector<MemoryNeed>& needs);
  absl::Status Paced();
  absl::Status Train();
  absl::Status Replay();
  // The step and the ranks' spans, if pass times are given.
  absl::Status Predict();
  absl::Status Conclude();

  const ExecuteRequest& request_;
  const ProcessJob& processes_;
  const ExecuteCalls& calls_;
  // The sequential run takes about as long as the other.
  PartOfProgress run_part_;
  PartOfProgress check_part_;
  PreparedRun run_;
  Program program_;
  TrainingOptions training_;
  RowFile row_file_;
  std::vector<std::string> warnings_;
  const PwKernels* kernels_ = nullptr;
  ExecutedModel model_;
  std::vector<int> replayed_;  // ranks
  std::vector<MemoryClaim> memory_;
  ExecuteReport report_;
};

absl::Status ExecuteRunner::CheckWay() {
  PW_RETURN_IF_ERROR(CheckOptions(request_));
  const std::vector<std::string>& clocks = ClockNames();
  const auto clock = std::find(clocks.begin(), clocks.end(), request_.clock);
  if (clock == clocks.end()) {
    return UnknownName("--clock", request_.clock, clocks);
  }
  report_.clock = static_cast<ClockKind>(clock - clocks.begin());
  ExecuteOptions& execute = training_.execute;
  PW_ASSIGN_OR_RETURN(execute.faults,
                      ParseFaults(request_.slow, request_.late));
  execute.clock = report_.clock;
  execute.timeout_s = request_.timeout_s;
  execute.trace = request_.trace;
  training_.check = !request_.no_check;
  execute.progress = &run_part_;
  training_.check_progress = &check_part_;
  if (processes_.job == nullptr) {
    execute.hopeless = calls_.hopeless;
    return absl::OkStatus();
  }
  if (request_.replays()) {
    return FieldError("--replay-rank",
                      "runs in one process; allowed: without mpirun and "
                      "--bootstrap");
  }
  if (request_.one_at_a_time) {
    return FieldError("--one-at-a-time",
                      "processes do not wait for each other's passes; "
                      "allowed: without mpirun and --bootstrap");
  }
  return absl::OkStatus();
}

absl::Status ExecuteRunner::PrepareProgram() {
  PW_ASSIGN_OR_RETURN(const RunConfig read, calls_.read());
  PW_ASSIGN_OR_RETURN(
      run_, PrepareToTrain(WithoutUnexecuted(read, report_.clock), &warnings_));
  PW_RETURN_IF_ERROR(
      CheckPredictable(run_, request_, processes_.job != nullptr));
  // What is executed is then compared: not found out behind hours of it.
  if (run_.engine == "simgrid") PW_RETURN_IF_ERROR(SimgridStarts());
  if (!request_.paced()) TakeExecutorMemory(request_.device, &run_);
  warnings_.insert(warnings_.begin(), run_.warnings.begin(),
                   run_.warnings.end());
  WarnOfIdle(run_, request_, &warnings_);
  PW_ASSIGN_OR_RETURN(program_, LowerRun(run_));
  WarnOfDroppedTurns(program_, &warnings_);
  return absl::OkStatus();
}

absl::Status ExecuteRunner::CheckProgram() {
  PW_RETURN_IF_ERROR(CheckReplicas(run_, program_, request_));
  PW_RETURN_IF_ERROR(CheckFaults(training_.execute.faults, program_));
  if (run_.lower.optimizer == OptimizerMode::kPostValidated &&
      TraitsOf(run_.lower.data_parallel).shards_step && program_.replicas > 1) {
    return BadValue("strategy.optimizer", "post-validated",
                    "synchronised or none with a sharded optimizer (the "
                    "executor's state that goes down the ranks is that of one "
                    "shard)");
  }
  if (request_.row && processes_.writes()) {
    const bool threads = processes_.job == nullptr;
    PW_RETURN_IF_ERROR(row_file_.Open(
        request_, run_,
        absl::StrCat(OptionsText(), threads ? "" : processes_.name)));
  }
  // Checked before the run. The memory of a system's device is no limit for
  // this one.
  PW_RETURN_IF_ERROR(run_.limit());
  if (run_.memory && run_.config.system.memory_bytes && !request_.paced()) {
    return ExecutorMemoryVerdict(run_);
  }
  return absl::OkStatus();
}

absl::Status ExecuteRunner::CheckCalls() {
  constexpr char kQueues[] = "CUDA_DEVICE_MAX_CONNECTIONS";
  // Its ranks are in different iterations, and CallsOf() ends with one.
  if (program_.schedule->update_every > 0) return absl::OkStatus();
  const CommCalls calls = CallsOf(program_);
  const DeviceRoom enough = {calls.most_comms, calls.most_comms};
  PW_RETURN_IF_ERROR(Prefix("--transport nccl", ProveCalls(calls, enough)));
  const DeviceRoom room = RoomOfDevice(std::getenv(kQueues));
  if (room.HoldsAll(calls)) return absl::OkStatus();
  const std::string why =
      absl::StrCat("a rank has ", calls.most_comms,
                   " communicators, and a GPU ", room.queues,
                   " hardware queues for them: a transfer that waits for its "
                   "other end may hold up another, in a circle");
  if (room.queues < kMostQueues) {
    return BadValue(kQueues, absl::StrCat(room.queues),
                    absl::StrCat("not set, or ", calls.most_comms,
                                 " and more (", why, ")"));
  }
  warnings_.push_back(why);
  return absl::OkStatus();
}

absl::Status ExecuteRunner::Prepare() {
  PW_RETURN_IF_ERROR(CheckWay());
  PW_RETURN_IF_ERROR(PrepareProgram());
  PW_RETURN_IF_ERROR(CheckProgram());
  if (processes_.nccl != nullptr) {
    if (request_.paced()) {
      return BadValue("--clock", "paced with --transport nccl",
                      "virtual or real (paced sends nothing)");
    }
    PW_RETURN_IF_ERROR(CheckCalls());
    training_.device_index = processes_.device_index;
    training_.device_path = true;
    const NcclOptions options = {.nccl = processes_.nccl,
                                 .device = processes_.device_index,
                                 .timeout_s = request_.timeout_s};
    training_.execute.data_path = [options](const Program& program,
                                            Address self, Endpoint* control) {
      return std::make_unique<NcclEndpoint>(program, self, control, options);
    };
  }
  PW_ASSIGN_OR_RETURN(replayed_, ReplayedRanks(request_, program_.pp()));
  return request_.paced() ? absl::OkStatus() : PrepareTraining();
}

std::string ExecuteRunner::WhyNoReference() const {
  if (request_.no_reference) return "--no-reference";
  if (!model_.lengths.empty()) {
    return "it knows no samples of different lengths";
  }
  const std::string why =
      pipewright::WhyNoReference(program_, run_.lower.data_parallel);
  if (request_.reference || !why.empty()) return why;
  const double products =
      ReferenceProducts(model_, FirstStepMicrobatches(program_));
  const int64_t parameters = ReferenceParameters(model_);
  if (products <= kMostReferenceProducts &&
      parameters <= kMostReferenceParameters) {
    return "";
  }
  return absl::StrFormat(
      "it would take %.1e multiply-adds and %.1e parameters; --reference runs "
      "it all the same",
      products, static_cast<double>(parameters));
}

absl::Status ExecuteRunner::PrepareTraining() {
  // glibc raises its limit with each large block that is freed, and then keeps
  // such blocks in arenas: up to twice of what JudgeMemory() has allowed.
  ::mallopt(M_MMAP_THRESHOLD, kMapFrom);
  PW_ASSIGN_OR_RETURN(kernels_, LoadKernels(request_.device));
  PW_ASSIGN_OR_RETURN(
      model_, ModelToTrain(run_, request_.device == "cpu" ? PW_FP32 : PW_BF16,
                           request_.seed, &warnings_));
  WorkerOptions& worker = training_.worker;
  worker = WorkerOptionsFor(program_, run_.lower.data_parallel,
                            run_.lower.optimizer, run_.lower.offload);
  worker.owner_poll_s = run_.lower.layers.poll_s;
  if (request_.one_at_a_time) worker.token = std::make_shared<std::mutex>();
  worker.parts = request_.green_contexts;
  if (request_.no_check) worker.snapshot_iterations.clear();
  report_.no_reference = WhyNoReference();
  training_.reference = report_.no_reference.empty() && !request_.replays();
  training_.check &= !request_.replays();
  if (training_.reference) KeepFirstStep(program_, &worker);
  const int process =
      processes_.job == nullptr ? -1 : processes_.job->process();
  PW_ASSIGN_OR_RETURN(memory_, ClaimsOf(run_, program_, model_, kernels_,
                                        training_, replayed_, process));
  return absl::OkStatus();
}

std::string ExecuteRunner::OptionsText() const {
  RunConfig sizes = run_.config;
  sizes.schedule.file.reset();
  sizes.system = {};
  sizes.costs = {};
  return absl::StrCat(
      "--device ", request_.device, "\n--clock ", request_.clock, "\n--steps ",
      request_.steps, "\n--train-seed ", request_.seed, "\n--fault-slow ",
      absl::StrJoin(request_.slow, " "), "\n--fault-late ",
      absl::StrJoin(request_.late, " "), "\n--one-at-a-time ",
      request_.one_at_a_time, "\n--green-contexts ", request_.green_contexts,
      "\n--replay-rank ", request_.replay_rank, "\n", ToString(sizes),
      ToString(program_));
}

std::string ExecuteRunner::SameOnAll() const {
  return absl::StrCat("--timeout ", request_.timeout_s, "\n--no-check ",
                      request_.no_check, "\n--reference ", request_.reference,
                      "\n--no-reference ", request_.no_reference, "\n--trace ",
                      request_.trace, "\n", OptionsText(), TimesOf(program_));
}

absl::StatusOr<FirstWord> ExecuteRunner::PrepareFirst() {
  PW_RETURN_IF_ERROR(Prepare());
  return FirstWord{processes_.job == nullptr ? "" : SameOnAll(),
                   !row_file_.has_run()  ? ""
                   : row_file_.differs() ? kDiffers
                                         : kIsThere,
                   memory_};
}

absl::Status ExecuteRunner::JudgeMemory(const std::vector<MemoryNeed>& needs) {
  // What the table has is not run again.
  if (row_file_.has_run()) return absl::OkStatus();
  const bool alone = processes_.job != nullptr || request_.replays();
  return RunMemoryVerdict(needs, alone ? 1 : program_.pp() * program_.replicas,
                          &report_.needed_bytes);
}

absl::Status ExecuteRunner::Run() {
  ProcessGroup* const job = processes_.job.get();
  const auto judge = [this](const std::vector<MemoryNeed>& needs) {
    return JudgeMemory(needs);
  };
  std::string decision;
  if (job == nullptr) {
    PW_ASSIGN_OR_RETURN(FirstWord word, PrepareFirst());
    decision = std::move(word.decision);
    PW_RETURN_IF_ERROR(judge(SumClaims({word.memory})));
  } else {
    const auto first = [this] { return PrepareFirst(); };
    PW_ASSIGN_OR_RETURN(decision,
                        FirstOfAll(job, processes_.timeout_s, first, judge));
  }
  if (!decision.empty()) {
    if (processes_.speaks()) {
      calls_.warn(
          {absl::StrCat("--row: ", row_file_.key(), " is in ",
                        request_.row.value_or(""), " and is not run again")});
    }
    return decision == kDiffers ? Differs("sequential run") : absl::OkStatus();
  }
  report_.transport = processes_.name;
  PredictMemory(run_, &report_);
  PW_RETURN_IF_ERROR(request_.paced() ? Paced() : Train());
  const auto conclude = [this] { return Conclude(); };
  PW_RETURN_IF_ERROR(
      job == nullptr ? conclude()
                     : LastOfAll(job, program_, training_.execute, conclude));
  return VerdictOf(report_);
}

absl::Status ExecuteRunner::Paced() {
  const MakeWorker make_worker = [](Address) {
    return std::make_unique<FixedWorker>();
  };
  ExecutedRun& run = report_.trained.run;
  report_.trained.peak_activations = report_.predicted_peak_activations;
  if (processes_.job == nullptr) {
    PW_ASSIGN_OR_RETURN(run,
                        RunThreads(program_, make_worker, training_.execute));
    return absl::OkStatus();
  }
  PW_ASSIGN_OR_RETURN(ProcessesRun ran,
                      RunProcesses(processes_.job.get(), program_, make_worker,
                                   training_.execute));
  run = std::move(ran.run);
  return absl::OkStatus();
}

absl::Status ExecuteRunner::Train() {
  ProcessGroup* const job = processes_.job.get();
  report_.type = std::string(TypeName(model_.shape));
  report_.green_contexts = request_.green_contexts;
  report_.one_at_a_time =
      request_.one_at_a_time ||
      (job == nullptr && request_.device == "cuda" && !request_.green_contexts);
  report_.checked = training_.check;
  if (!replayed_.empty()) return Replay();
  PW_ASSIGN_OR_RETURN(
      report_.trained,
      job != nullptr
          ? TrainProcesses(job, program_, model_, kernels_, training_)
          : TrainThreads(program_, model_, kernels_, training_));
  return absl::OkStatus();
}

absl::Status ExecuteRunner::Replay() {
  if (replayed_.size() < static_cast<size_t>(program_.pp()) &&
      !HasTimes(run_)) {
    return absl::InvalidArgumentError(
        "--replay-rank: how long the other ranks take is not known; allowed: "
        "with pass times (--profile, --forward, …), or all");
  }
  PW_ASSIGN_OR_RETURN(ReplayedTraining replayed,
                      TrainReplay(program_, model_, kernels_, training_,
                                  {.clock = report_.clock,
                                   .ranks = replayed_,
                                   .times_known = HasTimes(run_),
                                   .trace = request_.trace,
                                   .timeout_s = request_.timeout_s,
                                   .faults = training_.execute.faults}));
  std::vector<double> peaks = report_.predicted_peak_activations;
  for (const int rank : replayed_) {
    peaks[rank] = replayed.trained.peak_activations[rank];
  }
  report_.trained = std::move(replayed.trained);
  report_.trained.run = std::move(replayed.replay.composed);
  report_.trained.peak_activations = std::move(peaks);
  report_.replay = std::move(replayed.replay);
  return absl::OkStatus();
}

absl::Status ExecuteRunner::Predict() {
  if (!HasTimes(run_)) return absl::OkStatus();
  SimulateOptions options;
  options.interval = true;
  PW_ASSIGN_OR_RETURN(const ProgramResult predicted,
                      SimulateProgram(run_, program_, options));
  report_.predicted_iteration_s = predicted.report.iteration_s;
  report_.predicted_interval = predicted.report.interval;
  const RunSummary& summary = predicted.summary;
  for (const RankTimes& times : summary.times[summary.row_of_replica[0]]) {
    report_.predicted_span_s.push_back(times.span_s());
  }
  report_.predicted_by = predicted.report.engine;
  return absl::OkStatus();
}

absl::Status ExecuteRunner::Conclude() {
  calls_.warn(warnings_);
  RunSummary& summary = report_.trained.run.summary;
  summary.measured = true;
  double before_s = 0;
  for (const double end_s : summary.iteration_end_s) {
    report_.step_s.push_back(end_s - std::exchange(before_s, end_s));
  }
  Report& report = report_.report;
  report = Summarize(program_, summary, report_.trained.peak_activations);
  report.engine = "hardware";
  DescribeRun(run_, &report);
  report.gradient_sync = report.data_parallel;
  report.warnings = warnings_;
  PW_RETURN_IF_ERROR(Predict());
  std::optional<std::string> table;
  if (request_.row) {
    PW_ASSIGN_OR_RETURN(table, row_file_.With(report_));
  }
  return calls_.write(program_, &report_, std::move(table));
}

}  // namespace

absl::Status CheckOptions(const ExecuteRequest& request) {
  if (request.device != "cpu" && request.device != "cuda") {
    return UnknownName("--device", request.device, {"cpu", "cuda"});
  }
  // Not while flags are read, so that one process says it for all.
  if (!(request.timeout_s > 0 && request.timeout_s <= kMostTimeout_s)) {
    return BadValue("--timeout", absl::StrCat(request.timeout_s),
                    "a number above 0 and at most 1e6 s");
  }
  if (request.row_runs > 1 && !request.row) {
    return BadValue("--row-runs", absl::StrCat(request.row_runs), "with --row");
  }
  if (request.reference && (request.no_reference || request.replays())) {
    return FieldError("--reference",
                      "allowed: without --no-reference and --replay-rank, "
                      "whose ranks get made-up data");
  }
  if (request.green_contexts && (request.device != "cuda" ||
                                 request.one_at_a_time || request.replays())) {
    return FieldError(
        "--green-contexts",
        "gives each rank a part of one GPU; allowed: with "
        "--device cuda, without --one-at-a-time and --replay-rank");
  }
  return absl::OkStatus();
}

absl::Status ExecuteRun(const ExecuteRequest& request,
                        const ProcessJob& processes,
                        const ExecuteCalls& calls) {
  return ExecuteRunner(request, processes, calls).Run();
}

}  // namespace pipewright

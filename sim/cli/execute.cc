#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "calibrate/grid.h"
#include "execute/fixed_worker.h"
#include "execute/run_mpi.h"
#include "execute/training.h"
#include "kernels/loader.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/execute_job.h"
#include "sim/cli/execute_report.h"
#include "sim/cli/verbs.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config_fields.h"
#include "sim/memory/activations.h"
#include "sim/trace/export.h"

namespace pipewright {
namespace {

constexpr int kMostSteps = 1000;
constexpr double kDefaultClip = 1;  // Megatron-LM's --clip-grad

struct Execute {
  ConfigOptions config;
  OutputFiles files;
  bool json = false;
  std::string device = "cpu";
  std::string clock = "virtual";
  int steps = 3;
  uint64_t seed = 1;
  double timeout_s = 60;
  JobOptions job_options;
  bool no_check = false;
  std::vector<std::string> slow;
  std::vector<std::string> late;

  absl::Status Run();

 private:
  absl::StatusOr<ClockKind> Clock() const;
  absl::StatusOr<PreparedRun> PrepareRun(std::vector<std::string>* warnings);
  absl::StatusOr<ExecutedModel> ModelOf(const PreparedRun& run, PwType type,
                                        std::vector<std::string>* warnings);
};

absl::StatusOr<ClockKind> Execute::Clock() const {
  if (clock == "virtual") return ClockKind::kVirtual;
  if (clock == "paced") return ClockKind::kPaced;
  if (clock == "real") return ClockKind::kReal;
  return UnknownName("--clock", clock, {"virtual", "paced", "real"});
}

// The run as simulate would have it, but with something to train: a gradient
// reduction where a stage has several copies, and an optimizer.
absl::StatusOr<PreparedRun> Execute::PrepareRun(
    std::vector<std::string>* warnings) {
  std::vector<ConfigEdit> edits = {{.path = "iterations",
                                    .value = absl::StrCat(steps),
                                    .origin = "--steps"}};
  PW_ASSIGN_OR_RETURN(RunConfig read, config.Read(edits));
  PW_ASSIGN_OR_RETURN(PreparedRun run, Prepare(read));
  const bool unflushed = run.schedule->update_every > 0;
  if (!read.strategy.optimizer && !unflushed) {
    run.lower.optimizer = OptimizerMode::kSynchronised;
  }
  const bool copies = run.lower.replicas > 1 || run.schedule->replicas > 1;
  if (copies && run.lower.data_parallel == DataParallel::kNone) {
    if (read.strategy.data_parallel) {
      warnings->push_back(
          "strategy.data_parallel is none: copies of a stage part from each "
          "other, and the check against the sequential run will say so");
    } else {
      run.lower.data_parallel = DataParallel::kDdp;
    }
  }
  const auto stages = static_cast<size_t>(run.schedule->stages());
  if (run.lower.data_parallel != DataParallel::kNone) {
    if (run.lower.gradient_bytes.empty()) {
      run.lower.gradient_bytes.assign(stages, 0);
    }
    if (run.lower.parameter_bytes.empty()) {
      run.lower.parameter_bytes.assign(stages, 0);
    }
  }
  return run;
}

absl::StatusOr<ExecutedModel> Execute::ModelOf(
    const PreparedRun& run, PwType type, std::vector<std::string>* warnings) {
  if (!run.prepared_model) {
    return absl::InvalidArgumentError(
        "model: missing; allowed: a model to train (--model gpt-tiny), or "
        "--clock paced, which runs no kernels");
  }
  const PreparedModel& prepared = *run.prepared_model;
  const TrainingSpec& training = prepared.training;
  if (training.tp * training.cp * training.ep > 1) {
    return absl::InvalidArgumentError(
        "strategy.tp, cp, ep: the executor runs none of them; allowed: 1");
  }
  if (training.vocabulary == VocabularyPlacement::kSpread) {
    return BadValue("strategy.vocabulary", "spread", "ends");
  }
  if (run.schedule->backward != BackwardRule::kChain) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule ", run.schedule->name,
        ": its backwards do not follow the chain of stages; the executor "
        "trains only those that do"));
  }
  PW_ASSIGN_OR_RETURN(const Grid grid,
                      MakeGrid(prepared.spec, type,
                               {.microbatch_sizes = {training.microbatch_size},
                                .sequences = {training.sequence},
                                .tps = {1}}));
  warnings->insert(warnings->end(), grid.warnings.begin(), grid.warnings.end());
  if (prepared.spec.tied_embeddings) {
    warnings->push_back(absl::StrCat("model ", prepared.spec.name,
                                     ": embedding and head are trained apart "
                                     "(tied in the model)"));
  }
  ExecutedModel model;
  model.shape = grid.shapes[0].model;
  model.batch = training.microbatch_size;
  model.sequence = training.sequence;
  model.slices = run.schedule->slices;
  model.seed = seed;
  model.clip_norm = kDefaultClip;
  model.failing_steps = run.lower.failing_steps;
  model.keeps_versions = run.schedule->update_every > 0;
  if (!model.failing_steps.empty()) model.clip_norm = 0;
  switch (training.recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kFull:
      model.recompute = true;
      break;
    default:
      warnings->push_back(
          "strategy.recompute: the executor recomputes whole stages or "
          "nothing; here nothing");
  }
  for (int rank = 0; rank < run.schedule->pp(); ++rank) {
    for (const Pass pass : run.schedule->order(rank)) {
      model.recompute |= pass.kind() == PassKind::kRecompute;
    }
  }
  for (const std::vector<StageBlock>& blocks : prepared.layout.stages) {
    std::vector<StagePart>& stage = model.stages.emplace_back();
    for (const StageBlock& block : blocks) {
      switch (block.kind) {
        case BlockKind::kEmbedding:
          stage.push_back({.part = PW_EMBEDDING});
          break;
        case BlockKind::kHead:
          stage.push_back({.part = PW_HEAD});
          break;
        default:
          for (int64_t layer = 0; layer < block.count; ++layer) {
            stage.push_back(
                {.part = PW_LAYER,
                 .layer = static_cast<int>(block.first_layer + layer)});
          }
      }
    }
  }
  return model;
}

std::vector<double> StepTimes(const RunSummary& summary) {
  std::vector<double> steps;
  double before_s = 0;
  for (const double end_s : summary.iteration_end_s) {
    steps.push_back(end_s - before_s);
    before_s = end_s;
  }
  return steps;
}

long Preemptions() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

absl::Status Execute::Run() {
  PW_RETURN_IF_ERROR(files.Check());
  PW_ASSIGN_OR_RETURN(const ClockKind kind, Clock());
  if (device != "cpu" && device != "cuda") {
    return UnknownName("--device", device, {"cpu", "cuda"});
  }
  if (steps < 1 || steps > kMostSteps) {
    return BadValue("--steps", absl::StrCat(steps),
                    absl::StrCat("1 to ", kMostSteps));
  }
  if (!(timeout_s > 0)) {
    return BadValue("--timeout", absl::StrCat(timeout_s), "above 0 s");
  }
  TrainingOptions training;
  PW_ASSIGN_OR_RETURN(training.execute.faults, ParseFaults(slow, late));
  training.execute.clock = kind;
  training.execute.timeout_s = timeout_s;
  training.execute.trace =
      files.wanted("--trace") || files.wanted("--perfetto");
  training.check = !no_check;
  std::vector<std::string> warnings;
  PW_ASSIGN_OR_RETURN(const PreparedRun run, PrepareRun(&warnings));
  warnings.insert(warnings.begin(), run.warnings.begin(), run.warnings.end());
  PW_ASSIGN_OR_RETURN(const Program program, Lower(run.schedule, run.lower));
  if (run.lower.optimizer == OptimizerMode::kPostValidated &&
      run.lower.data_parallel >= DataParallel::kZero1 && program.replicas > 1) {
    return BadValue("strategy.optimizer", "post-validated",
                    "synchronised or none with a sharded optimizer (the "
                    "executor's state that goes down the ranks is that of one "
                    "shard)");
  }

  // A process a rank: one of them speaks for all.
  job_options.timeout_s = timeout_s;
  job_options.device = device;
  PW_ASSIGN_OR_RETURN(ProcessJob processes, JoinJob(job_options));
  const std::unique_ptr<MpiJob>& job = processes.job;
  if (processes.nccl != nullptr) {
    if (kind == ClockKind::kPaced) {
      return BadValue("--clock", "paced with --transport nccl",
                      "virtual or real (paced sends nothing)");
    }
    training.device_index = processes.device_index;
    training.device_path = true;
    training.execute.data_path = DataPath(processes, timeout_s);
  }
  const auto mine = [&job](absl::Status status) {
    return job == nullptr || job->speaks() || status.ok()
               ? status
               : absl::Status(status.code(), "");
  };
  ExecuteReport report;
  report.clock = kind;
  report.transport = processes.name;
  report.steps = steps;
  ExecutedRun executed;
  std::vector<double> peaks =
      PeakActivations(*run.schedule, run.lower.costs.held_until_weight);
  const long preempted = Preemptions();
  if (kind == ClockKind::kPaced) {
    const MakeWorker make_worker = [](Address) {
      return std::make_unique<FixedWorker>();
    };
    if (job != nullptr) {
      absl::StatusOr<MpiRun> ran =
          RunMpi(job.get(), program, make_worker, training.execute);
      if (!ran.ok()) return mine(ran.status());
      executed = std::move(ran->run);
    } else {
      PW_ASSIGN_OR_RETURN(executed,
                          RunThreads(program, make_worker, training.execute));
    }
  } else {
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
    PW_ASSIGN_OR_RETURN(
        const ExecutedModel model,
        ModelOf(run, device == "cpu" ? PW_FP32 : PW_BF16, &warnings));
    training.worker =
        WorkerOptionsFor(program, run.lower.data_parallel, run.lower.optimizer,
                         run.lower.costs.held_until_weight);
    if (no_check) training.worker.snapshot_iterations.clear();
    if (program.schedule->update_every > 0) {
      training.check = false;
      warnings.push_back(absl::StrCat(
          "schedule ", program.name,
          " is never flushed: its weights are those of no sequential run, and "
          "nothing is checked but that the losses are finite"));
    }
    absl::StatusOr<TrainedRun> ran =
        job != nullptr ? TrainMpi(job.get(), program, model, kernels, training)
                       : TrainThreads(program, model, kernels, training);
    if (!ran.ok()) return mine(ran.status());
    TrainedRun& trained = *ran;
    executed = std::move(trained.run);
    peaks = trained.peak_activations;
    report.peak_bytes = trained.peak_bytes;
    report.resident_bytes = trained.resident_bytes;
    report.device = trained.device;
    report.libraries = trained.libraries;
    if (training.check) report.check = trained.check;
  }
  const absl::Status verdict =
      report.check && !report.check->ok()
          ? absl::DataLossError(
                "losses, gradients or weights differ from the sequential run")
          : absl::OkStatus();
  if (job != nullptr && !job->speaks()) return mine(verdict);
  report.preemptions = Preemptions() - preempted;
  PrintWarnings(warnings);
  report.late_s = executed.late_s;
  report.wall_s = executed.wall_s;
  report.report = Summarize(program, executed.summary, std::move(peaks));
  report.report.engine = "hardware";
  report.report.network = run.network_name;
  report.report.params = run.params;
  report.report.model = run.model;
  report.report.system = run.system;
  report.report.data_parallel =
      ChoiceName(DataParallelChoices(), run.lower.data_parallel);
  report.report.gradient_sync = report.report.data_parallel;
  report.report.optimizer = ChoiceName(OptimizerChoices(), run.lower.optimizer);
  report.report.waiting = ChoiceName(WaitingChoices(), run.lower.wait_rule);
  report.report.warnings = warnings;
  const bool has_times = run.profile || run.analytic ||
                         run.config.costs.forward_s ||
                         !run.config.costs.stage_forward_s.empty();
  if (has_times) {
    PW_ASSIGN_OR_RETURN(const EngineInfo* engine, FindEngine(run.engine));
    PW_ASSIGN_OR_RETURN(const RunSummary predicted,
                        engine->run(program, EngineOptions()));
    report.predicted_iteration_s = predicted.iteration_s();
    report.predicted_by = run.engine;
  }
  const std::vector<double> step_s = StepTimes(executed.summary);
  files.Put("-o", json ? absl::StrCat(ExecuteReportToJson(report, step_s), "\n")
                       : ExecuteReportToText(report, step_s));
  if (files.wanted("--trace")) {
    files.Put("--trace", ChromeTraceJson(program, executed.ops, nullptr));
  }
  if (files.wanted("--perfetto")) {
    files.Put("--perfetto", PerfettoTrace(program, executed.ops, nullptr));
  }
  PW_RETURN_IF_ERROR(files.Write());
  return verdict;
}

}  // namespace

void AddExecute(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "execute",
      "Train under the schedule with real kernels and check the gradients");
  auto execute = std::make_shared<Execute>();
  execute->config.AddTo(verb, ConfigOptions::File::kPositional);
  verb->add_option("--device", execute->device, "what computes: cpu, cuda")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--clock", execute->clock,
                   "virtual: CPU time of the passes, any number of ranks; "
                   "paced: the given pass times in wall time, no kernels; "
                   "real: wall time")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--steps", execute->steps, "training steps")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--train-seed", execute->seed,
                   "of initial weights and tokens")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--timeout", execute->timeout_s,
                   "seconds that a rank waits before it asks the others")
      ->type_name("SECONDS")
      ->capture_default_str();
  AddJobOptions(verb, &execute->job_options);
  verb->add_flag("--no-check", execute->no_check, "without the sequential run");
  verb->add_option("--fault-slow", execute->slow,
                   "on purpose: passes take longer, KIND[@RANK]:FACTOR");
  verb->add_option("--fault-late", execute->late,
                   "on purpose: a message comes late, "
                   "RANK:ITERATION:MESSAGE:SECONDS");
  verb->add_flag("--json", execute->json, "one JSON object on standard output")
      ->group("Output");
  OutputFiles& files = execute->files;
  files.AddTo(verb, "-o", "the report, instead of standard output");
  files.AddTo(verb, "--trace", "Chrome trace, JSON");
  files.AddTo(verb, "--perfetto", "Perfetto trace, protobuf");
  verb->callback(
      [action, execute] { *action = [execute] { return execute->Run(); }; });
}

}  // namespace pipewright

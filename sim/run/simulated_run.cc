#include "sim/run/simulated_run.h"

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "sim/base/status.h"
#include "sim/config/copy_turns.h"
#include "sim/config/offload_turns.h"
#include "sim/cost/estimate_error.h"
#include "sim/cost/profile_costs.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/memory/activations.h"
#include "sim/program/program.h"
#include "sim/report/class_report.h"
#include "sim/run/describe_run.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"

namespace pipewright {
namespace {

void FreeCopies(DpClass* own) {
  for (RankProgram& rank : own->ranks) {
    for (size_t index = 0; index < rank.lanes.size(); ++index) {
      const PassKind kind = Pass::KindOf(index);
      if (kind != PassKind::kOffload && kind != PassKind::kLoad) continue;
      rank.lanes[index].seconds = 0;
      rank.lanes[index].bytes = 0;
    }
  }
  DropTurns(own);
}

// [class][rank] the most activations.
std::vector<std::vector<double>> PeaksOf(const PreparedRun& prepared,
                                         const Program& program) {
  const double held = prepared.costs.passes.held_until_weight;
  if (program.num_classes() == 1) {
    return {PeakActivations(*prepared.schedule.lowered, held,
                            prepared.offload ? prepared.offload->moved_part
                                             : std::vector<double>())};
  }
  std::vector<std::vector<double>> peaks;
  for (int index = 0; index < program.num_classes(); ++index) {
    peaks.push_back(PeakActivations(*program.dp_class(index).schedule, held,
                                    prepared.offload
                                        ? prepared.offload->moved_part
                                        : std::vector<double>()));
  }
  return peaks;
}

bool HasCopies(const Program& program) {
  for (int index = 0; index < program.num_classes(); ++index) {
    for (const RankProgram& rank : program.dp_class(index).ranks) {
      for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
        const PassKind kind = Pass::KindOf(lane);
        if ((kind == PassKind::kOffload || kind == PassKind::kLoad) &&
            rank.lanes[lane].passes > 0) {
          return true;
        }
      }
    }
  }
  return false;
}

// Operations of a run that is worth a second one.
constexpr double kMostRunTwice = 1e6;

// Operations of all replicas and iterations, whatever an engine makes of them.
double OpsOf(const Program& program) {
  double ops = 0;
  const std::vector<int> replicas = program.ReplicasOfClasses();
  for (int index = 0; index < program.num_classes(); ++index) {
    ops += static_cast<double>(program.dp_class(index).num_ops()) *
           replicas[index] * program.iterations;
  }
  return ops;
}

// Operations up to which engine simgrid is the default: some seconds.
constexpr double kMostDefaultActivities = 100'000;

struct EngineChoice {
  const EngineInfo* engine = nullptr;
  // Says why another one than engine simgrid has run; "": nothing to say.
  std::string note;
};

absl::StatusOr<EngineChoice> ChooseEngine(const PreparedRun& prepared,
                                          const Program& program,
                                          const SimulateOptions& options) {
  EngineChoice choice = {.engine = options.engine};
  if (choice.engine != nullptr) return choice;
  PW_ASSIGN_OR_RETURN(choice.engine, FindEngine(prepared.engine));
  const double ops = OpsOf(program);
  if (prepared.config.engine || choice.engine->run != &RunSimgrid ||
      ops <= kMostDefaultActivities) {
    return choice;
  }
  PW_ASSIGN_OR_RETURN(choice.engine, FindEngine("fluid"));
  choice.note = absl::StrFormat(
      "engine fluid: up to %.0f operations, and this run has %.0f, engine "
      "simgrid is the default; --engine simgrid takes it",
      kMostDefaultActivities, ops);
  return choice;
}

// Where engine simgrid was not asked for and cannot do it, fluid does.
absl::StatusOr<RunSummary> RunOn(EngineChoice* choice, bool was_given,
                                 const Program& program,
                                 const EngineOptions& options) {
  absl::StatusOr<RunSummary> summary = choice->engine->run(program, options);
  if (was_given ||
      summary.status().code() != absl::StatusCode::kUnimplemented) {
    return summary;
  }
  PW_ASSIGN_OR_RETURN(choice->engine, FindEngine("fluid"));
  choice->note = std::string(summary.status().message());
  return choice->engine->run(program, options);
}

// How much shorter the step is when copies take no time.
absl::StatusOr<double> CostOfCopies(const Program& program,
                                    const EngineInfo& engine,
                                    const EngineOptions& options,
                                    double step_s) {
  Program free = program;
  FreeCopies(&free);
  for (DpClass& other : free.more_classes) FreeCopies(&other);
  PW_ASSIGN_OR_RETURN(const RunSummary summary, engine.run(free, options));
  return step_s -
         Summarize(free, summary, std::vector<double>(free.pp())).iteration_s;
}

}  // namespace

RunConfig WithOrder(RunConfig config, const Schedule& order,
                    RunContext* context) {
  const std::string text = ScheduleToText(order);
  // One name for each order, as a context never forgets a file.
  const std::string name =
      absl::StrCat(order.name, " ", absl::Hex(std::hash<std::string>()(text)));
  context->TakeSchedule(name, text);
  config.schedule.file = name;
  config.schedule.name.reset();
  std::erase_if(config.schedule.params, [](const auto& param) {
    return param.first != PairParam().key;
  });
  return config;
}

absl::StatusOr<ProgramResult> SimulateProgram(const PreparedRun& prepared,
                                              const Program& program,
                                              const SimulateOptions& options) {
  PW_ASSIGN_OR_RETURN(EngineChoice choice,
                      ChooseEngine(prepared, program, options));
  if (options.admit) PW_RETURN_IF_ERROR(options.admit(prepared, program));
  ProgramResult result;
  const bool was_given = prepared.config.engine || options.engine != nullptr;
  PW_ASSIGN_OR_RETURN(result.summary, RunOn(&choice, was_given, program,
                                            {.trace = options.trace,
                                             .progress = options.progress}));
  Report& report = result.report;
  const double held = prepared.costs.passes.held_until_weight;
  const std::vector<std::vector<double>> peaks = PeaksOf(prepared, program);
  report = Summarize(program, result.summary, peaks[0]);
  ReportClasses(program, result.summary, peaks, &report);
  report.collectives = ReportCollectives(program);
  report.held_until_weight = held;
  report.engine = choice.engine->name;
  if (choice.engine->run == &RunSimgrid) {
    report.activities = {result.summary.execs, result.summary.comms};
  }
  if (options.interval) {
    PW_ASSIGN_OR_RETURN(report.interval,
                        PredictStepOf(prepared, program, report.iteration_s));
  }
  DescribeRun(prepared, &report);
  if (!choice.note.empty()) {
    report.network = absl::StrReplaceAll(
        report.network, {{absl::StrCat("(", prepared.engine, ")"),
                          absl::StrCat("(", report.engine, ")")}});
  }
  if (report.offload && !HasCopies(program)) {
    report.offload->step_cost_s = 0;
  } else if (report.offload && OpsOf(program) > kMostRunTwice) {
    report.offload->cost_left_out = true;
  } else if (report.offload) {
    PW_ASSIGN_OR_RETURN(
        report.offload->step_cost_s,
        // Without progress: that of a run has ended.
        CostOfCopies(program, *choice.engine, {}, report.iteration_s));
  }
  DescribeResults(prepared, &report);
  report.warnings = prepared.warnings;
  if (!choice.note.empty()) report.warnings.push_back(choice.note);
  if (options.advise && report.memory && !report.memory->fits_device()) {
    report.memory->changes = options.advise(prepared);
  }
  return result;
}

absl::StatusOr<SimulatedRun> Simulate(PreparedRun prepared,
                                      const SimulateOptions& options) {
  SimulatedRun run;
  PW_ASSIGN_OR_RETURN(Program program, LowerRun(prepared));
  WarnOfDroppedTurns(program, &prepared.warnings);
  PW_ASSIGN_OR_RETURN(ProgramResult result,
                      SimulateProgram(prepared, program, options));
  run.program = std::make_shared<const Program>(std::move(program));
  run.prepared = std::move(prepared);
  run.summary = std::move(result.summary);
  run.report = std::move(result.report);
  run.prepared.warnings = run.report.warnings;
  return run;
}

absl::StatusOr<SimulatedRun> Simulate(const RunConfig& config,
                                      RunContext* context,
                                      const SimulateOptions& options) {
  PW_ASSIGN_OR_RETURN(PreparedRun prepared, Prepare(config, context));
  return Simulate(std::move(prepared), options);
}

namespace {

// As TakeRecomputePasses does with the times: R passes of the schedule are no
// part of the backward.
void TakeOutRecompute(std::vector<TimeSource>* sources) {
  bool any = false;
  const auto at = [](std::array<double, kNumPassKinds>& stage,
                     PassKind kind) -> double& {
    return stage[static_cast<int>(kind)];
  };
  for (TimeSource& source : *sources) {
    for (auto& stage : source.seconds) {
      const double again_s = at(stage, PassKind::kRecompute);
      any |= again_s > 0;
      at(stage, PassKind::kBackwardInput) -= again_s;
      at(stage, PassKind::kBackwardFull) -= again_s;
    }
  }
  if (any) return;
  for (TimeSource& source : *sources) {
    for (auto& stage : source.seconds) {
      at(stage, PassKind::kRecompute) = at(stage, PassKind::kForward);
    }
  }
}

// The factor of the layers. Of a schedule with both kinds of backward, it is
// the one further from 1.
double BackToBackIn(const PreparedRun& run, const Schedule& schedule) {
  double out = 1;
  const auto take = [&out](double ratio) {
    if (std::abs(std::log(ratio)) > std::abs(std::log(out))) out = ratio;
  };
  for (const ProfiledTime& time : run.costs.profile->costs.times) {
    if (!IsLayer(time.part) || time.pass != ProfilePass::kForward) continue;
    const BackToBack ratios = BackToBackOf(
        *run.costs.profile->profile, *time.nearest,
        run.prepared_model->training.recompute == Recompute::kFull);
    if (schedule.Has(PassKind::kBackwardWeight)) take(ratios.split);
    if (schedule.Has(PassKind::kBackwardFull)) take(ratios.fused);
  }
  return out;
}

}  // namespace

absl::StatusOr<std::optional<StepInterval>> PredictStepOf(
    const PreparedRun& run, const Program& program, double iteration_s) {
  if (run.costs.analytic) {
    const PreparedModel& model = *run.prepared_model;
    const RatioInterval ratio = EstimateError(*run.costs.prices, model.layout);
    return std::optional<StepInterval>({ratio.low * iteration_s,
                                        ratio.high * iteration_s, ratio.note,
                                        ratio.unmeasured});
  }
  if (!run.costs.profile || !run.costs.profile->costs.error_unknown.empty()) {
    return std::optional<StepInterval>();
  }
  const ProfileCosts& measured = run.costs.profile->costs;
  StepErrors errors = {.sources = measured.sources, .noise = measured.jitter};
  const Schedule& schedule = *program.schedule;
  if (schedule.Has(PassKind::kRecompute)) TakeOutRecompute(&errors.sources);
  errors.back_to_back = BackToBackIn(run, schedule);
  if (run.network.measured_hop) {
    const std::optional<TimeError> hop =
        HopError(*run.costs.profile->profile, run.lower.hop_bytes);
    if (!hop) return std::optional<StepInterval>();
    errors.sources.push_back({.name = "hop", .error = *hop, .hop = true});
  }
  if (run.config.costs.optimizer_s) {
    // Given, so taken as exact.
    for (TimeSource& source : errors.sources) {
      if (source.optimizer) source.error = {};
    }
    errors.noise.optimizer.clear();
  }
  PW_ASSIGN_OR_RETURN(
      const StepInterval interval,
      PredictStep(program, run.lower.costs, errors, iteration_s));
  return std::optional<StepInterval>(interval);
}

}  // namespace pipewright

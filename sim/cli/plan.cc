#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/search/plan.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/foreign/foreign_args.h"
#include "sim/memory/schedule_memory.h"
#include "sim/report/memory_report.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/torch_csv.h"

namespace pipewright {
namespace {

constexpr int kMostPlanWorkers = 1024;

struct PlanVerb {
  ConfigOptions config;
  OutputFiles files;
  std::vector<std::string> fixed;
  std::string objective = "tokens_per_s";
  int workers = 0;
  int most_confirmed = PlanOptions().most_confirmed;
  bool no_confirm = false;
  bool json = false;
  std::string emit;  // megatron, torchtitan

  absl::StatusOr<PlanRequest> Request();
  absl::Status Emit(const PlanOutcome& outcome, RunContext* context);
  absl::Status Run();
};

// What the configuration says of an axis; "" for nothing.
std::string GivenOf(const std::string& axis, const RunConfig& config) {
  const StrategyChoice& strategy = config.strategy;
  if (axis == "schedule") return config.schedule.name.value_or("");
  if (axis == "offload") {
    return strategy.offload ? ChoiceName(OffloadChoices(), *strategy.offload)
                            : "";
  }
  if (axis == "recompute") {
    return strategy.recompute
               ? ChoiceName(RecomputeChoices(), *strategy.recompute)
               : "";
  }
  if (!strategy.data_parallel && !strategy.zero) return "";
  return TraitsOf(DataParallelOf(strategy)).name;
}

absl::Status TakeFix(const std::string& text, PlanRequest* request) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return BadValue("--fix", text, "AXIS=VALUE[,VALUE...], as in tp=8");
  }
  const std::string axis = text.substr(0, equals);
  const std::string value = text.substr(equals + 1);
  // Numbers with commas are one layout.
  if (axis == "layout") {
    request->fixed[axis].push_back(value);
    return absl::OkStatus();
  }
  for (const absl::string_view part : absl::StrSplit(value, ',')) {
    request->fixed[axis].push_back(std::string(part));
  }
  return absl::OkStatus();
}

// Values of axes that a target's file can say.
absl::Status RestrictTo(const std::string& target, PlanRequest* request) {
  const std::map<std::string, std::vector<std::string>> megatron = {
      {"schedule", {"1f1b", "interleaved-1f1b"}},
      {"offload", {"none"}},
      {"recompute", {"none", "selective", "full"}},
      {"data_parallel", {"ddp", "zero1", "fsdp"}}};
  const std::map<std::string, std::vector<std::string>> torchtitan = {
      {"offload", {"none"}},
      {"recompute", {"none", "op-selective", "full"}},
      {"data_parallel", {"fsdp"}}};
  for (const auto& [axis, allowed] :
       target == "megatron" ? megatron : torchtitan) {
    const auto fixed = request->fixed.find(axis);
    if (fixed == request->fixed.end()) {
      const std::string given = GivenOf(axis, request->base);
      if (given.empty()) {
        request->fixed[axis] = allowed;
      } else if (!absl::c_linear_search(allowed, given)) {
        return BadValue(axis, given,
                        absl::StrCat(absl::StrJoin(allowed, ", "),
                                     " with --emit ", target));
      }
      continue;
    }
    for (const std::string& value : fixed->second) {
      if (absl::c_linear_search(allowed, value)) continue;
      return BadValue(
          absl::StrCat("--fix ", axis), value,
          absl::StrCat(absl::StrJoin(allowed, ", "), " with --emit ", target));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanRequest> PlanVerb::Request() {
  PlanRequest request;
  PW_ASSIGN_OR_RETURN(request.base, config.Read(&files));
  const Framework target =
      emit == "torchtitan" ? Framework::kTorchtitan : Framework::kMegatron;
  if (!emit.empty() && request.base.strategy.framework &&
      request.base.strategy.framework != target) {
    return BadValue(
        request.base.Field("strategy.framework"),
        ChoiceName(FrameworkChoices(), *request.base.strategy.framework),
        absl::StrCat(emit, " with --emit ", emit));
  }
  // The file means that framework, with its defaults.
  if (!emit.empty() && !request.base.strategy.framework) {
    request.base.strategy.framework = target;
    request.base.notes.push_back(
        absl::StrCat("--emit ", emit, ": planned with --framework ", emit));
  }
  const RunConfig& base = request.base;
  if (base.engine.value_or("fast") != "fast") {
    return BadValue(base.Field("engine"), *base.engine,
                    "fast, with which a plan searches; it confirms on simgrid "
                    "by itself (--confirm)");
  }
  if (base.costs.jitter.value_or("none") != "none") {
    return BadValue(base.Field("costs.jitter"), *base.costs.jitter,
                    "none: a plan searches without jitter and confirms with "
                    "3 % (--confirm)");
  }
  for (const std::string& path : GivenPaths(base)) {
    if (!absl::StartsWith(path, "slow.")) continue;
    return FieldError(base.Field(path),
                      "not with plan, which takes devices and links as they "
                      "are; allowed: with simulate, for what a plan finds");
  }
  for (const std::string& text : fixed) {
    PW_RETURN_IF_ERROR(TakeFix(text, &request));
  }
  if (!emit.empty() && emit != "megatron" && emit != "torchtitan") {
    return BadValue("--emit", emit, "megatron, torchtitan");
  }
  if (!emit.empty()) PW_RETURN_IF_ERROR(RestrictTo(emit, &request));
  if (objective == "cost") {
    request.objective = PlanObjective::kCost;
  } else if (objective != "tokens_per_s") {
    return BadValue("--objective", objective, "tokens_per_s, cost");
  }
  if (request.base.strategy.global_batch) {
    RunContext context;
    PW_ASSIGN_OR_RETURN(request.global_batch,
                        GlobalBatchSamples(request.base, &context));
    // Each point says its own dp and microbatches.
    request.base.strategy.global_batch.reset();
  }
  return request;
}

// Reads the file as the target would, without the comment lines, and says what
// is not as planned. Error: kResourceExhausted if that does not fit.
absl::Status CheckReadBack(const RunConfig& best, const std::string& text,
                           const std::string& target, RunContext* context,
                           std::vector<std::string>* notes) {
  std::vector<absl::string_view> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, kCommentMark)) lines.push_back(line);
  }
  const bool titan = target == "torchtitan";
  ForeignSurroundings around;
  if (best.costs.analytic) around.given["costs.analytic.device"] = "auto";
  if (best.strategy.dp)
    around.given["strategy.dp"] = absl::StrCat(*best.strategy.dp);
  PW_ASSIGN_OR_RETURN(
      const ForeignArgs foreign,
      ReadForeignArgs(absl::StrJoin(lines, "\n"),
                      titan ? "emitted.toml" : "emitted.sh", around));
  PW_ASSIGN_OR_RETURN(RunConfig read, ReadConfig("", "", {foreign.edits}));
  read.system = best.system;
  read.costs = best.costs;
  read.strategy.dp = best.strategy.dp;
  if (!read.strategy.microbatches) {
    read.strategy.microbatches = best.strategy.microbatches;
  }
  PW_ASSIGN_OR_RETURN(const SimulatedRun planned, Simulate(best, context));
  PW_ASSIGN_OR_RETURN(const SimulatedRun again, Simulate(read, context));
  const auto peak = [](const SimulatedRun& run) {
    const ScheduleMemory& memory = *run.report.memory->memory;
    return memory.ranks[memory.WorstRank()].at_peak.total();
  };
  const double time = again.report.iteration_s / planned.report.iteration_s - 1;
  if (std::abs(time) > 1e-9) {
    notes->push_back(absl::StrCat("what ", target, " runs of the file takes ",
                                  FormatSeconds(again.report.iteration_s),
                                  " an iteration, the plan ",
                                  FormatSeconds(planned.report.iteration_s)));
  }
  if (!planned.report.memory || !again.report.memory) return absl::OkStatus();
  if (peak(again) != peak(planned)) {
    notes->push_back(absl::StrCat(
        "what ", target, " runs of the file needs ",
        FormatBytes(static_cast<double>(peak(again))), " on a rank, the plan ",
        FormatBytes(static_cast<double>(peak(planned)))));
  }
  return Prefix("--emit", MemoryVerdict(*again.report.memory));
}

// The winner as arguments, and its order as PyTorch's CSV.
absl::Status PlanVerb::Emit(const PlanOutcome& outcome, RunContext* context) {
  if (outcome.ranked.empty()) return absl::OkStatus();
  RunConfig best = outcome.space->ConfigOf(outcome.ranked[0].point);
  best.engine.reset();
  PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(best, context));
  std::vector<std::string> notes;
  std::string csv = files.path("--emit-schedule");
  if (!csv.empty()) {
    absl::StatusOr<std::string> order = ScheduleToTorchCsv(
        *run.schedule.written, TorchFlavour::kComputeOnly, &notes);
    if (order.ok()) {
      files.Put("--emit-schedule", *std::move(order));
    } else {
      return Prefix("--emit-schedule", order.status());
    }
  }
  PW_ASSIGN_OR_RETURN(EmittedArgs emitted,
                      EmitArgs(best, run,
                               emit == "megatron" ? ForeignForm::kMegatron
                                                  : ForeignForm::kTorchtitan,
                               csv));
  notes.insert(notes.end(), emitted.notes.begin(), emitted.notes.end());
  PW_RETURN_IF_ERROR(CheckReadBack(best, emitted.text, emit, context, &notes));
  PrintWarnings(notes);
  files.Put("--emit-file", std::move(emitted.text));
  return absl::OkStatus();
}

absl::Status PlanVerb::Run() {
  if (json) files.SetFormat("-o", FileFormat::kJson);
  PW_ASSIGN_OR_RETURN(const PlanRequest request, Request());
  // --from-args tells them apart by their endings.
  files.SetFormat("--emit-file", emit == "torchtitan" ? FileFormat::kToml
                                                      : FileFormat::kShell);
  PW_RETURN_IF_ERROR(files.Check());
  const bool emits = files.wanted("--emit-file");
  if (emits == emit.empty()) {
    return MissingValue(emits ? "--emit" : "--emit-file",
                        emits ? "megatron or torchtitan, with --emit-file"
                              : "a file, with --emit");
  }
  if (files.wanted("--emit-schedule") && !emits) {
    return MissingValue("--emit", "with --emit-schedule");
  }
  PlanOptions options;
  options.workers =
      workers > 0
          ? workers
          : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.most_confirmed = most_confirmed;
  options.confirm = !no_confirm;
  if (options.confirm) {
    const absl::Status starts = SimgridStarts();
    if (!starts.ok()) {
      return Reworded(starts, absl::StrCat(starts.message(),
                                           "; --no-confirm plans without it"));
    }
  }
  RunContext context;
  PW_ASSIGN_OR_RETURN(const PlanOutcome outcome,
                      MakePlan(request, options, &context));
  if (!json) PrintWarnings(outcome.warnings);
  const absl::Status verdict = PlanVerdict(outcome);
  if (verdict.code() == absl::StatusCode::kInvalidArgument) return verdict;
  files.Put("-o", json ? absl::StrCat(PlanToJson(outcome), "\n")
                       : PlanToText(outcome));
  if (emits) PW_RETURN_IF_ERROR(Emit(outcome, &context));
  PW_RETURN_IF_ERROR(files.Write());
  return verdict;
}

}  // namespace

void AddPlan(CLI::App* app, Action* action) {
  CLI::App* verb =
      app->add_subcommand("plan", "Find the fastest configuration that fits");
  auto plan = std::make_shared<PlanVerb>();
  plan->config.AddTo(verb, ConfigOptions::File::kPositional);
  plan->config.AddFromArgs(verb);
  verb->add_option("--fix", plan->fixed,
                   "allow only these values of an axis; may be repeated "
                   "(docs/plan.md lists the axes)")
      ->type_name("AXIS=VALUE[,VALUE...]")
      ->allow_extra_args(false);
  verb->add_option("--objective", plan->objective,
                   "what is best: tokens_per_s of all nodes, or the least "
                   "cost of a token on any number of them")
      ->type_name("NAME");
  AddInteger(verb, "-j", &plan->workers, 1, kMostPlanWorkers,
             "threads (default: the cores)")
      ->type_name("N");
  AddInteger(verb, "--confirm", &plan->most_confirmed, 0, 1000000,
             "runs on simgrid with 3 % jitter at most; 0: as many as it takes")
      ->type_name("N");
  verb->add_flag("--no-confirm", plan->no_confirm, "none of these runs");
  verb->add_flag("--json", plan->json, "one JSON object on standard output")
      ->group("Output");
  plan->files.AddTo(verb, "-o", "the plan, instead of standard output",
                    FileFormat::kText);
  verb->add_option("--emit", plan->emit,
                   "the best as arguments: megatron, torchtitan")
      ->type_name("NAME");
  plan->files.AddTo(verb, "--emit-file", "where --emit writes",
                    FileFormat::kShell);
  plan->files.AddTo(verb, "--emit-schedule",
                    "the order of the best as PyTorch's CSV", FileFormat::kCsv);
  verb->callback([plan, action] { *action = [plan] { return plan->Run(); }; });
}

}  // namespace pipewright

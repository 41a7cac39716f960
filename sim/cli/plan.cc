#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/analysis/plot/read_points.h"
#include "sim/analysis/search/plan.h"
#include "sim/analysis/search/plan_clusters.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/figure_files.h"
#include "sim/cli/plan_watch.h"
#include "sim/cli/requests.h"
#include "sim/cli/verbs.h"
#include "sim/config/flags.h"
#include "sim/foreign/foreign_args.h"
#include "sim/memory/schedule_memory.h"
#include "sim/report/memory_report.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/torch_csv.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

constexpr int kMostPlanWorkers = 1024;
constexpr double kMostTime_s = 1e9;
constexpr double kMostTokens = 1e18;
constexpr double kMostRate = 1e15;

struct EmitTarget;

struct PlanVerb {
  ConfigOptions config;
  OutputFiles files;
  std::vector<std::string> fixed;
  std::string objective = "tokens_per_s";
  int workers = 0;
  int most_confirmed = PlanOptions().most_confirmed;
  bool no_confirm = false;
  int top = PlanOptions().top;
  int refined = 0;
  int64_t most_candidates = 0;
  std::string time;  // that it may take; "": as long as it takes
  std::string progress = "line";
  std::string emit;
  const EmitTarget* target = nullptr;  // of `emit`
  std::string target_step;
  double target_rate = 0;  // 0: none
  std::string tokens;

  absl::StatusOr<PlanRequest> RequestOf(RunConfig base);
  absl::StatusOr<PlanQuestion> Question();
  absl::Status TakeTarget(PlanQuestion* question) const;
  bool IsOfClusters(const PlanQuestion& question) const {
    return question.clusters.size() > 1 || question.target.is_given() ||
           question.tokens;
  }
  PlanOptions Options() const;
  absl::StatusOr<PlanClusters> Search(const PlanQuestion& question,
                                      RunContext* context) const;
  std::string OrderFile() const;
  absl::Status Emit(const PlanOutcome& outcome, RunContext* context);
  absl::Status EmitPoint(RunConfig best, RunContext* context);
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
  std::vector<std::string>& values = request->fixed[axis];
  for (const absl::string_view part : absl::StrSplit(value, ',')) {
    // Repeated values would be counted as so many combinations.
    if (!absl::c_linear_search(values, part)) values.emplace_back(part);
  }
  return absl::OkStatus();
}

// Schedules whose order PyTorch has, or takes from a file.
std::vector<std::string> TorchSchedules() {
  std::vector<std::string> names;
  for (const ScheduleInfo* info : AllSchedules()) {
    ScheduleParams params;
    params.pp = 4;
    params.vpp = info->default_vpp;
    params.microbatches = 8;
    const absl::StatusOr<Schedule> small = BuildSchedule(info->name, params);
    std::vector<std::string> lost;
    if (!info->torch_name.empty() ||
        (small.ok() && TorchHasPlacement(small->placement) &&
         ScheduleToTorchCsv(*small, TorchFlavour::kComputeOnly, &lost).ok() &&
         lost.empty())) {
      names.push_back(info->name);
    }
  }
  return names;
}

// What a file is written for.
struct EmitTarget {
  const char* name;
  Framework framework;
  ForeignForm form;
  FileFormat format;
  const char* ending;  // by which --from-args knows the file
  // Values of axes that the file can say.
  std::map<std::string, std::vector<std::string>> axes;
};

const std::vector<EmitTarget>& EmitTargets() {
  using Axes = std::map<std::string, std::vector<std::string>>;
  static const auto* const targets = [] {
    const Axes megatron = {{"schedule", {"1f1b", "interleaved-1f1b"}},
                           {"offload", {"none"}},
                           {"recompute", {"none", "selective", "full"}},
                           {"data_parallel", {"ddp", "zero1", "fsdp"}}};
    const Axes torchtitan = {{"schedule", TorchSchedules()},
                             {"offload", {"none"}},
                             {"recompute", {"none", "op-selective", "full"}},
                             {"data_parallel", {"fsdp"}}};
    const Axes deepspeed = {
        {"schedule", {"1f1b"}},
        {"offload", {"none"}},
        {"recompute", {"none", "full"}},
        {"data_parallel", {"ddp", "zero1", "zero2", "fsdp"}}};
    return new std::vector<EmitTarget>{
        {"megatron", Framework::kMegatron, ForeignForm::kMegatron,
         FileFormat::kShell, ".sh", megatron},
        {"bridge", Framework::kMegatron, ForeignForm::kBridge,
         FileFormat::kShell, ".sh", megatron},
        {"torchtitan", Framework::kTorchtitan, ForeignForm::kTorchtitan,
         FileFormat::kPython, ".py", torchtitan},
        {"torchtitan", Framework::kTorchtitan, ForeignForm::kTorchtitanToml,
         FileFormat::kToml, ".toml", torchtitan},
        {"deepspeed", Framework::kDeepSpeed, ForeignForm::kDeepSpeed,
         FileFormat::kJson, ".json", deepspeed}};
  }();
  return *targets;
}

// The last one of the name whose ending the file has, else the first one.
// Error: kInvalidArgument for a name that is none.
absl::StatusOr<const EmitTarget*> TargetOf(const std::string& name,
                                           const std::string& file) {
  const EmitTarget* found = nullptr;
  std::vector<std::string> names;
  for (const EmitTarget& target : EmitTargets()) {
    if (names.empty() || names.back() != target.name) {
      names.emplace_back(target.name);
    }
    if (name != target.name) continue;
    if (found == nullptr || absl::EndsWith(file, target.ending)) {
      found = &target;
    }
  }
  if (found != nullptr) return found;
  return BadValue("--emit", name, absl::StrJoin(names, ", "));
}

// Megatron-LM has types of moments and masters, and weights in 8 bit, with the
// distributed optimizer alone.
bool NeedsShardedStep(const StrategyChoice& strategy) {
  return strategy.moment_bytes_per_parameter.value_or(8) != 8 ||
         strategy.master_bytes_per_parameter.value_or(4) != 4 ||
         strategy.narrow_weights.value_or(false);
}

// Keeps the search within what the target can say.
absl::Status RestrictTo(const EmitTarget& target, PlanRequest* request) {
  const StrategyChoice& strategy = request->base.strategy;
  for (auto [axis, allowed] : target.axes) {
    if (target.framework == Framework::kMegatron &&
        NeedsShardedStep(strategy)) {
      std::erase(allowed, "ddp");
    }
    const auto fixed = request->fixed.find(axis);
    const std::string given = GivenOf(axis, request->base);
    if (fixed == request->fixed.end() && given.empty()) {
      // Flash attention keeps no scores: there is nothing to recompute.
      if (strategy.attention.value_or(Attention::kFlash) == Attention::kFlash &&
          strategy.recompute_modules.empty()) {
        std::erase(allowed, "selective");
      }
      request->fixed[axis] = std::move(allowed);
      continue;
    }
    const bool is_fixed = fixed != request->fixed.end();
    for (const std::string& value :
         is_fixed ? fixed->second : std::vector<std::string>{given}) {
      if (absl::c_linear_search(allowed, value)) continue;
      return BadValue(is_fixed ? absl::StrCat("--fix ", axis) : axis, value,
                      absl::StrCat(absl::StrJoin(allowed, ", "),
                                   " with --emit ", target.name));
    }
  }
  return absl::OkStatus();
}

// Takes the values of a flag that has several out of the layers. Error:
// kInvalidArgument for one that is empty or repeated.
absl::StatusOr<std::vector<std::string>> TakeList(
    const std::vector<std::string>& paths, GivenConfig* given) {
  std::vector<std::string> values;
  absl::Status status;
  for (std::vector<ConfigEdit>& layer : given->layers) {
    std::erase_if(layer, [&](const ConfigEdit& edit) {
      if (!absl::c_linear_search(paths, edit.path) || !IsList(edit.value)) {
        return false;
      }
      values = absl::StrSplit(edit.value, ',');
      const std::set<std::string> each(values.begin(), values.end());
      if (each.size() < values.size() || each.count("") > 0) {
        status.Update(
            BadValue(edit.origin, edit.value,
                     "names or numbers, each once, separated by commas"));
      }
      return true;
    });
  }
  PW_RETURN_IF_ERROR(status);
  return values;
}

// A device that is named may not be there where fewer nodes are searched, and
// each of these layouts would be refused.
absl::Status CheckSlowDevices(const PlanQuestion& question) {
  for (const PlanRequest& request : question.clusters) {
    const RunConfig& base = request.base;
    if (base.slow.devices.empty()) continue;
    const auto fixed = request.fixed.find("nodes");
    const bool has_all =
        fixed != request.fixed.end()
            ? fixed->second.size() == 1
            : request.objective == PlanObjective::kTokensPerSecond;
    const bool differs =
        base.system.nodes != question.clusters[0].base.system.nodes;
    if (has_all && !question.least && !differs) continue;
    return FieldError(base.Field("slow.devices"),
                      "fewer nodes may not have them; allowed: --objective "
                      "tokens_per_s without a target, or --fix nodes=N");
  }
  return absl::OkStatus();
}

// "300B", "1.5T": K, M, B and T for thousands to 1e12.
absl::StatusOr<double> TokenCount(const std::string& text) {
  double count = 0;
  absl::string_view number = text;
  double unit = 1;
  for (const auto& [letter, factor] :
       {std::pair("K", 1e3), std::pair("M", 1e6), std::pair("B", 1e9),
        std::pair("T", 1e12)}) {
    if (absl::ConsumeSuffix(&number, letter)) {
      unit = factor;
      break;
    }
  }
  if (!absl::SimpleAtod(number, &count) || !(count > 0) ||
      !(count * unit <= kMostTokens)) {
    return BadValue("--tokens", text, "more than 0, at most 1e18: 300B, 1.5T");
  }
  return count * unit;
}

absl::Status PlanVerb::TakeTarget(PlanQuestion* question) const {
  if (!tokens.empty()) {
    PW_ASSIGN_OR_RETURN(question->tokens, TokenCount(tokens));
  }
  PlanTarget& wanted = question->target;
  if (target_rate > 0) wanted.tokens_per_s = target_rate;
  if (!target_step.empty()) {
    const absl::StatusOr<double> seconds =
        ParseQuantity(target_step, Unit::kTime);
    PW_RETURN_IF_ERROR(InField("--target-step", seconds.status()));
    if (*seconds <= 0) {
      return BadValue("--target-step", target_step, "more than 0s");
    }
    wanted.step_s = *seconds;
  }
  if (!wanted.is_given()) return absl::OkStatus();
  const char* const flag = wanted.step_s ? "--target-step" : "--target-rate";
  if (wanted.step_s && wanted.tokens_per_s) {
    return FieldError("--target-rate",
                      "given together with --target-step; allowed: one of "
                      "them");
  }
  const PlanRequest& first = question->clusters[0];
  if (first.objective != PlanObjective::kTokensPerSecond) {
    return FieldError(flag,
                      "it asks for the fastest plan; allowed: --objective "
                      "tokens_per_s");
  }
  if (wanted.step_s && first.global_batch == 0) {
    return MissingValue("--global-batch",
                        "samples of a step, with --target-step: without it "
                        "they depend on the devices");
  }
  if (first.fixed.count("nodes") > 0) {
    return FieldError(flag, "--fix nodes is given; allowed: --nodes");
  }
  if (!first.base.system.nodes) {
    return MissingValue("--nodes", absl::StrCat("the most nodes, with ", flag));
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanQuestion> PlanVerb::Question() {
  PW_ASSIGN_OR_RETURN(GivenConfig given, config.Given());
  PW_ASSIGN_OR_RETURN(std::vector<std::string> systems,
                      TakeList({"system.preset", "system.file"}, &given));
  PW_ASSIGN_OR_RETURN(std::vector<std::string> nodes,
                      TakeList({"system.nodes"}, &given));
  PlanQuestion question;
  question.least = nodes.empty() && (target_rate > 0 || !target_step.empty());
  if (systems.empty()) systems.emplace_back();
  if (nodes.empty()) nodes.emplace_back();
  for (const std::string& system : systems) {
    for (const std::string& count : nodes) {
      std::vector<ConfigEdit> last;
      if (!system.empty()) {
        last.push_back({IsSystemFile(system) ? "system.file" : "system.preset",
                        system, "--system"});
      }
      if (!count.empty()) last.push_back({"system.nodes", count, "--nodes"});
      PW_ASSIGN_OR_RETURN(RunConfig base, ConfigOptions::ReadGiven(
                                              &files, given, std::move(last)));
      // A row of its own would hide a name that is wrong.
      if (systems.size() > 1 && base.system.preset) {
        PW_RETURN_IF_ERROR(Prefix(base.Field("system.preset"),
                                  FindSystem(*base.system.preset).status()));
      }
      PW_ASSIGN_OR_RETURN(PlanRequest request, RequestOf(std::move(base)));
      request.drops_variants = systems.size() > 1;
      question.clusters.push_back(std::move(request));
    }
  }
  PW_RETURN_IF_ERROR(TakeTarget(&question));
  PW_RETURN_IF_ERROR(CheckSlowDevices(question));
  return question;
}

absl::StatusOr<PlanRequest> PlanVerb::RequestOf(RunConfig base) {
  if (target != nullptr && base.strategy.framework &&
      base.strategy.framework != target->framework) {
    return BadValue(
        base.Field("strategy.framework"),
        ChoiceName(FrameworkChoices(), *base.strategy.framework),
        absl::StrCat(ChoiceName(FrameworkChoices(), target->framework),
                     " with --emit ", emit));
  }
  // The file means that framework, with its defaults.
  if (target != nullptr && !base.strategy.framework) {
    base.strategy.framework = target->framework;
    base.notes.push_back(
        absl::StrCat("--emit ", emit, ": planned with --framework ",
                     ChoiceName(FrameworkChoices(), target->framework)));
  }
  PW_ASSIGN_OR_RETURN(PlanRequest request,
                      PlanRequestOf(std::move(base), fixed, objective));
  if (target != nullptr) PW_RETURN_IF_ERROR(RestrictTo(*target, &request));
  if (request.objective == PlanObjective::kEnergy && refined > 0) {
    return FieldError("--refine",
                      "it looks for faster orders; allowed: without "
                      "--objective energy");
  }
  return request;
}

}  // namespace

absl::StatusOr<PlanRequest> PlanRequestOf(RunConfig base,
                                          const std::vector<std::string>& fixed,
                                          const std::string& objective) {
  PlanRequest request;
  if (base.engine.value_or("fast") != "fast") {
    return BadValue(base.Field("engine"), *base.engine,
                    "fast, with which a plan searches; it confirms on fluid "
                    "by itself (--confirm)");
  }
  if (base.costs.jitter.value_or("none") != "none") {
    return BadValue(base.Field("costs.jitter"), *base.costs.jitter,
                    "none: a plan searches without jitter and confirms with "
                    "3 % (--confirm)");
  }
  for (const std::string& path : GivenPaths(base)) {
    if (!absl::StartsWith(path, "slow.") || path == "slow.devices") continue;
    return FieldError(base.Field(path),
                      "not with plan, which draws nothing and takes links as "
                      "they are; allowed: slow.devices, or with simulate, for "
                      "what a plan finds");
  }
  // A bound is that of healthy devices.
  for (const std::string& slow : base.slow.devices) {
    double factor = 1;
    const size_t star = slow.rfind('*');
    if (star == std::string::npos ||
        !absl::SimpleAtod(slow.substr(star + 1), &factor) || factor >= 1) {
      continue;
    }
    return BadValue(base.Field("slow.devices"), slow,
                    "a factor from 1 on with plan: the others are slower");
  }
  for (const std::string& text : fixed) {
    PW_RETURN_IF_ERROR(TakeFix(text, &request));
  }
  if (objective == "cost") {
    request.objective = PlanObjective::kCost;
  } else if (objective == "energy") {
    request.objective = PlanObjective::kEnergy;
  } else if (objective != "tokens_per_s") {
    return BadValue("--objective", objective, "tokens_per_s, cost, energy");
  }
  if (base.strategy.global_batch) {
    RunContext context;
    PW_ASSIGN_OR_RETURN(request.global_batch,
                        GlobalBatchSamples(base, &context));
    // Each point says its own dp and microbatches.
    base.strategy.global_batch.reset();
  }
  request.base = std::move(base);
  return request;
}

absl::StatusOr<double> PlanSeconds(const std::string& time) {
  if (time.empty()) return 0;
  const absl::StatusOr<double> seconds = ParseQuantity(time, Unit::kTime);
  PW_RETURN_IF_ERROR(InField("--time", seconds.status()));
  if (*seconds <= 0 || *seconds > kMostTime_s) {
    return BadValue("--time", time, "more than 0s, at most 1e9s");
  }
  return seconds;
}

namespace {

// Reads the file as the target would, without the comment lines, and says what
// is not as planned. Error: that of the reader; kResourceExhausted if that does
// not fit.
absl::Status CheckReadBack(RunConfig best, const EmittedArgs& emitted,
                           const EmitTarget& target, const std::string& file,
                           RunContext* context,
                           std::vector<std::string>* notes) {
  std::vector<absl::string_view> lines;
  for (const absl::string_view line : absl::StrSplit(emitted.text, '\n')) {
    if (!absl::StartsWith(line, kCommentMark)) lines.push_back(line);
  }
  ForeignSurroundings around;
  std::vector<ConfigEdit> beside;
  if (target.form == ForeignForm::kDeepSpeed) {
    for (const auto& [path, value] : emitted.beside) {
      around.given[path] = value;
      beside.push_back({path, value, path});
    }
  }
  if (best.costs.analytic) around.given["costs.analytic.device"] = "auto";
  if (best.strategy.dp) {
    around.given["strategy.dp"] = absl::StrCat(*best.strategy.dp);
  }
  PW_ASSIGN_OR_RETURN(
      const ForeignArgs foreign,
      ReadForeignArgs(absl::StrJoin(lines, "\n"), file, around));
  PW_ASSIGN_OR_RETURN(RunConfig read,
                      ReadConfig("", "", {foreign.edits, beside}));
  for (const std::string& note : foreign.notes) {
    if (absl::StrContains(note, "not modelled:") ||
        absl::StrContains(note, "not known")) {
      notes->push_back(note);
    }
  }
  const std::optional<FrameworkKernels> kernels = read.costs.analytic_kernels;
  read.system = best.system;
  read.costs = best.costs;
  read.costs.analytic_kernels = kernels;
  read.strategy.dp = best.strategy.dp;
  if (!read.strategy.microbatches) {
    read.strategy.microbatches = best.strategy.microbatches;
  }
  read.engine = best.engine = "fast";
  PW_ASSIGN_OR_RETURN(const SimulatedRun planned, Simulate(best, context));
  PW_ASSIGN_OR_RETURN(const SimulatedRun again, Simulate(read, context));
  const auto peak = [](const SimulatedRun& run) {
    const ScheduleMemory& memory = *run.report.memory->memory;
    return memory.ranks[memory.WorstRank()].at_peak.total();
  };
  const double time = again.report.iteration_s / planned.report.iteration_s - 1;
  if (std::abs(time) > 1e-9) {
    notes->push_back(absl::StrCat(
        "what ", target.name, " runs of the file takes ",
        FormatSeconds(again.report.iteration_s), " an iteration, the plan ",
        FormatSeconds(planned.report.iteration_s)));
  }
  if (!planned.report.memory || !again.report.memory) return absl::OkStatus();
  if (peak(again) != peak(planned)) {
    notes->push_back(absl::StrCat(
        "what ", target.name, " runs of the file needs ",
        FormatBytes(static_cast<double>(peak(again))), " on a rank, the plan ",
        FormatBytes(static_cast<double>(peak(planned)))));
  }
  return Prefix("--emit", MemoryVerdict(*again.report.memory));
}

// What the file leaves to its reader.
std::string BesideNote(const EmittedArgs& emitted, const EmitTarget& target,
                       const std::string& file) {
  const bool has_comments = target.form != ForeignForm::kDeepSpeed;
  std::string words;
  for (const auto& [path, value] : emitted.beside) {
    // Others are of the simulation.
    if (has_comments && !absl::StartsWith(path, "strategy.") &&
        !absl::StartsWith(path, "schedule.")) {
      continue;
    }
    absl::StrAppend(&words, has_comments ? " " : " --set ", path, "=", value);
  }
  if (words.empty()) return "";
  return has_comments
             ? absl::StrCat(target.name, " has no words for", words,
                            ": comment lines of the file alone have them")
             : absl::StrCat(
                   "the same run, with what the file cannot say: "
                   "pipewright simulate --from-args ",
                   file, words);
}

// The order that was found, if it is the fastest of all, the list included;
// null without one. What was cut would not be found again.
const PlanRefined* FastestRefined(const PlanOutcome& outcome) {
  const PlanRefined* best = nullptr;
  const bool on_fluid = outcome.ranked[0].confirmed_s.has_value();
  const auto score = [&](const PlanResult& from, double fast_s,
                         const std::optional<double>& fluid_s) {
    return from.ScoreAt(on_fluid ? *fluid_s : fast_s);
  };
  const PlanResult& first = outcome.ranked[0];
  double least = score(first, first.iteration_s, first.confirmed_s);
  for (const PlanRefined& refined : outcome.refined) {
    if (!refined.why_not.empty() || refined.found->is_cut ||
        (on_fluid && !refined.confirmed_s)) {
      continue;
    }
    const double own =
        score(refined.from, refined.iteration_s, refined.confirmed_s);
    if (own >= least) continue;
    least = own;
    best = &refined;
  }
  return best;
}

// The first plan that the target takes. Error: that of the best one.
absl::Status PlanVerb::Emit(const PlanOutcome& outcome, RunContext* context) {
  if (outcome.cut != PlanCut::kNone) {
    PrintWarnings(
        {"--emit: the search was cut; a layout that is left may be "
         "faster than the one that is written"});
  }
  absl::Status refused;
  const PlanRefined* const best =
      outcome.ranked.empty() ? nullptr : FastestRefined(outcome);
  if (best != nullptr) {
    const absl::Status written = EmitPoint(best->config, context);
    if (written.code() != absl::StatusCode::kInvalidArgument) return written;
    PrintWarnings({absl::StrCat("the order that was found is not written: ",
                                written.message())});
  }
  for (const PlanResult& result : outcome.ranked) {
    const absl::Status written =
        EmitPoint(outcome.space->ConfigOf(result.point), context);
    if (written.code() != absl::StatusCode::kInvalidArgument) {
      if (!refused.ok()) {
        PrintWarnings({absl::StrCat(refused.message(), "; tried in its place: ",
                                    outcome.space->NameOf(result.point))});
      }
      return written;
    }
    if (!refused.ok()) continue;
    refused = Reworded(
        written,
        absl::StrCat("--emit ", emit, ": the best plan is refused: ",
                     absl::StripPrefix(written.message(),
                                       absl::StrCat("--emit ", emit, ": "))));
  }
  return refused;
}

// A point as arguments, and its order as PyTorch's CSV.
absl::Status PlanVerb::EmitPoint(RunConfig best, RunContext* context) {
  best.engine.reset();
  PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(best, context));
  if (target->framework == Framework::kTorchtitan &&
      !files.wanted("--emit-schedule") && *run.config.strategy.pp > 1 &&
      NeedsTorchCsv(run)) {
    files.SetPath("--emit-schedule", OrderFile());
  }
  std::vector<std::string> notes;
  const std::string csv = files.path("--emit-schedule");
  if (!csv.empty()) {
    absl::StatusOr<std::string> order = ScheduleToTorchCsv(
        *run.schedule.written, TorchFlavour::kComputeOnly, &notes);
    PW_RETURN_IF_ERROR(Prefix("--emit-schedule", order.status()));
    context->TakeSchedule(csv, *order);
    files.Put("--emit-schedule", *std::move(order));
  }
  // With the order in a file of its own, nothing makes it again.
  RunConfig written = best;
  if (!csv.empty()) {
    std::erase_if(written.schedule.params,
                  [](const auto& param) { return param.first != "pair"; });
  }
  PW_ASSIGN_OR_RETURN(EmittedArgs emitted,
                      EmitArgs(written, run, target->form, csv));
  notes.insert(notes.end(), emitted.notes.begin(), emitted.notes.end());
  const std::string beside =
      BesideNote(emitted, *target, files.path("--emit-file"));
  if (!beside.empty()) notes.push_back(beside);
  PW_RETURN_IF_ERROR(CheckReadBack(best, emitted, *target,
                                   files.path("--emit-file"), context, &notes));
  PrintWarnings(notes);
  files.Put("--emit-file", std::move(emitted.text));
  return absl::OkStatus();
}

// Beside the file, with its name.
std::string PlanVerb::OrderFile() const {
  return absl::StrCat(
      absl::StripSuffix(files.path("--emit-file"), target->ending), ".csv");
}

PlanOptions PlanVerb::Options() const {
  PlanOptions options;
  options.workers =
      workers > 0
          ? workers
          : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.most_confirmed = most_confirmed;
  options.confirm = !no_confirm;
  options.top = top;
  options.refined = refined;
  options.most_tried = most_candidates;
  return options;
}

absl::StatusOr<PlanClusters> PlanVerb::Search(const PlanQuestion& question,
                                              RunContext* context) const {
  PlanOptions options = Options();
  PW_ASSIGN_OR_RETURN(const double most_s, PlanSeconds(time));
  PlanProgressForm form = PlanProgressForm::kLine;
  if (progress == "json") {
    form = PlanProgressForm::kJson;
  } else if (progress == "none") {
    form = PlanProgressForm::kNone;
  } else if (progress != "line") {
    return BadValue("--progress", progress, "line, json, none");
  }
  PlanWatch watch(form, most_s);
  watch.AddTo(&options);
  PW_ASSIGN_OR_RETURN(PlanClusters clusters,
                      ComparePlans(question, options, context));
  for (const PlanCluster& row : clusters.rows) {
    if (row.outcome == nullptr) continue;
    row.outcome->command = CommandLine();
    for (PlanRefined& each : row.outcome->refined) {
      each.command = SimulateCommand(ToString(each.config), {});
    }
  }
  return clusters;
}

absl::Status PlanVerb::Run() {
  if (!emit.empty()) {
    PW_ASSIGN_OR_RETURN(target, TargetOf(emit, files.path("--emit-file")));
    // --from-args tells them apart by their endings.
    files.SetFormat("--emit-file", target->format);
    if (target->framework == Framework::kTorchtitan &&
        files.wanted("--emit-file") && !files.wanted("--emit-schedule")) {
      files.AlsoWrites("--emit-file", OrderFile());
    }
  }
  PW_ASSIGN_OR_RETURN(const PlanQuestion question, Question());
  PW_RETURN_IF_ERROR(files.Check());
  const bool emits = files.wanted("--emit-file");
  if (emits == emit.empty()) {
    return MissingValue(emits ? "--emit" : "--emit-file",
                        emits ? "megatron, bridge, torchtitan or deepspeed, "
                                "with --emit-file"
                              : "a file, with --emit");
  }
  if (files.wanted("--emit-schedule") && !emits) {
    return MissingValue("--emit", "with --emit-schedule");
  }
  RunContext context;
  PW_ASSIGN_OR_RETURN(const PlanClusters clusters, Search(question, &context));
  // What answers, or else what was searched first.
  const PlanCluster* shown = nullptr;
  for (const PlanCluster& row : clusters.rows) {
    if (shown == nullptr && row.outcome != nullptr) shown = &row;
  }
  if (clusters.answer) shown = &clusters.rows[*clusters.answer];
  const PlanOutcome& outcome = *shown->outcome;
  if (!files.json()) PrintWarnings(outcome.warnings);
  absl::Status verdict = ClustersVerdict(clusters);
  const auto has_signal = [](const PlanCluster& row) {
    return row.outcome != nullptr && row.outcome->cut == PlanCut::kSignal;
  };
  if (verdict.ok() && absl::c_any_of(clusters.rows, has_signal)) {
    verdict = absl::CancelledError(
        "stopped by a signal; the report has the best that was found");
  }
  if (verdict.code() == absl::StatusCode::kInvalidArgument) return verdict;
  if (IsOfClusters(question)) {
    files.Put("-o", files.json()
                        ? absl::StrCat(ClustersToJson(clusters).dump(2), "\n")
                        : absl::StrCat(ClustersToText(clusters), "\n",
                                       ClusterName(*shown), "\n",
                                       PlanToText(outcome)));
  } else {
    files.Put("-o", files.json() ? absl::StrCat(PlanToJson(outcome), "\n")
                                 : PlanToText(outcome));
  }
  if (files.wanted("--html")) {
    if (outcome.ranked.empty()) {
      files.Drop({"--html"});
      PrintWarnings({"--html: nothing fits, so there is no page to write"});
    } else {
      files.Put("--html", FigureHtml(FigureOfPlan(outcome)));
    }
  }
  const absl::Status emitted =
      emits ? Emit(outcome, &context) : absl::OkStatus();
  if (!emitted.ok()) files.Drop({"--emit-file", "--emit-schedule"});
  PW_RETURN_IF_ERROR(files.Write());
  return emitted.ok() ? verdict : emitted;
}

}  // namespace

void AddPlan(CLI::App* app, Action* action) {
  CLI::App* verb =
      app->add_subcommand("plan", "Find the fastest configuration that fits");
  auto plan = std::make_shared<PlanVerb>();
  plan->config.AddTo(verb, ConfigOptions::File::kPositional);
  verb->add_option("--fix", plan->fixed,
                   "allow only these values of an axis; may be repeated "
                   "(docs/plan.md lists the axes)")
      ->type_name("AXIS=VALUE[,VALUE...]")
      ->allow_extra_args(false);
  verb->add_option("--objective", plan->objective,
                   "what is best: tokens_per_s of all nodes, or the least "
                   "cost or energy of a token on any number of them")
      ->type_name("NAME");
  verb->add_option("--target-step", plan->target_step,
                   "the fewest nodes, up to --nodes, whose best plan takes at "
                   "most that long a step")
      ->type_name("TIME");
  verb->add_option("--target-rate", plan->target_rate,
                   "the same for at least so many tokens a second")
      ->type_name("N")
      ->check(NumberCheck("--target-rate", 0, kMostRate));
  verb->add_option("--tokens", plan->tokens,
                   "tokens of the whole training (1.5T), for device-hours")
      ->type_name("N");
  AddInteger(verb, "-j", &plan->workers, 1, kMostPlanWorkers,
             "threads (default: the cores)")
      ->type_name("N");
  AddInteger(verb, "--confirm", &plan->most_confirmed, 0, 1000000,
             "runs on fluid with 3 % jitter at most; 0: as many as it takes")
      ->type_name("N");
  verb->add_flag("--no-confirm", plan->no_confirm, "none of these runs");
  AddInteger(verb, "--top", &plan->top, 1, 100000,
             "rows of the list, the best of the whole space")
      ->type_name("N")
      ->capture_default_str();
  AddInteger(verb, "--refine", &plan->refined, 0, 1000,
             "search for a faster order of the N best layouts, as schedule "
             "optimal does")
      ->type_name("N");
  verb->add_option("--time", plan->time,
                   "end after that long with the best so far, as Ctrl-C does")
      ->type_name("TIME");
  AddInteger(verb, "--max-candidates", &plan->most_candidates, 1, 1000000000,
             "the same after so many candidates, wherever it runs")
      ->type_name("N");
  verb->add_option("--progress", plan->progress,
                   "the best so far on standard error: as a line of a terminal "
                   "(line), as lines of JSON (json), or none")
      ->type_name("FORM")
      ->capture_default_str();
  plan->files.AddReport(verb, "the plan");
  plan->files.AddTo(verb, "--html",
                    "a page of what was simulated: scatter, table, commands",
                    FileFormat::kHtml);
  verb->add_option("--emit", plan->emit,
                   "the best as a file of: megatron, bridge, torchtitan, "
                   "deepspeed")
      ->type_name("NAME");
  plan->files.AddTo(verb, "--emit-file", "where --emit writes",
                    FileFormat::kShell);
  plan->files.AddTo(verb, "--emit-schedule",
                    "the order of the best as PyTorch's CSV", FileFormat::kCsv);
  verb->callback([plan, action] { *action = [plan] { return plan->Run(); }; });
}

}  // namespace pipewright

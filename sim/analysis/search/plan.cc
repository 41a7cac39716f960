#include "sim/analysis/search/plan.h"

#include <cmath>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/analysis/search/memory_advice.h"
#include "sim/analysis/search/plan_search.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/report/format.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr size_t kMostHelp = 5;

// What would make the smallest point fit. Error: kInternal where it does.
absl::Status FindHelp(PlanOutcome* outcome, RunContext* context) {
  const absl::StatusOr<PreparedRun> prepared =
      Prepare(outcome->space->ConfigOf(*outcome->smallest), context);
  if (!prepared.ok() || !prepared->memory) return absl::OkStatus();
  const ScheduleMemory& memory = *prepared->memory->memory;
  outcome->smallest_bytes =
      static_cast<double>(memory.ranks[memory.WorstRank()].needed());
  if (prepared->memory->fits() && prepared->limit().ok()) {
    return absl::InternalError(
        absl::StrCat("plan found that nothing fits, but ",
                     outcome->space->NameOf(*outcome->smallest),
                     " does: a bound on memory is wrong; --fix what you can, "
                     "and report it"));
  }
  for (const MemoryChange& change :
       AdviseMemory(*prepared, kMostHelp, context)) {
    if (outcome->help.size() == kMostHelp) break;
    outcome->help.push_back(
        absl::StrCat(change.change, ": ", FormatBytes(change.needed_bytes),
                     change.fits ? ", fits" : ", not enough by itself"));
  }
  outcome->help.push_back(absl::StrCat("devices with ",
                                       FormatBytes(outcome->smallest_bytes),
                                       ", or more nodes"));
  return absl::OkStatus();
}

// What the best would take with as many layers on each stage.
void CompareWithEven(PlanOutcome* outcome, RunContext* context) {
  RunConfig config = outcome->space->ConfigOf(outcome->ranked[0].point);
  if (config.strategy.layers.empty() && !config.strategy.layout) return;
  config.strategy.layers.clear();
  config.strategy.layout.reset();
  const absl::StatusOr<SimulatedRun> run = Simulate(config, context);
  if (!run.ok()) return;
  outcome->even_s = run->report.iteration_s;
  outcome->even_fits = run->report.fits.value_or(true);
}

}  // namespace

absl::StatusOr<PlanOutcome> MakePlan(const PlanRequest& request,
                                     const PlanOptions& options,
                                     RunContext* context) {
  PlanOutcome outcome;
  PW_ASSIGN_OR_RETURN(std::unique_ptr<PlanSpace> space,
                      PlanSpace::Make(request, context));
  outcome.space = std::move(space);
  outcome.top = options.top;
  std::deque<PlanBounds> bounds;
  for (PlanSpace* const variant : outcome.space->Variants()) {
    bounds.emplace_back(variant);
  }
  PlanOutcome plain;
  plain.space = outcome.space;
  PlanSearch(&plain, &bounds, options, context).RunPlain();
  PlanSearch(&outcome, &bounds, options, context).Run(plain);
  if (outcome.ranked.empty()) {
    if (outcome.smallest && outcome.cut == PlanCut::kNone &&
        std::isinf(options.most_score)) {
      PW_RETURN_IF_ERROR(FindHelp(&outcome, context));
    }
    return outcome;
  }
  if (!plain.ranked.empty()) outcome.simplest = plain.ranked[0];
  absl::StatusOr<SimulatedRun> run =
      Simulate(outcome.space->ConfigOf(outcome.ranked[0].point), context,
               {.interval = true});
  if (run.ok()) {
    outcome.interval = run->report.interval;
    std::set<std::string> known;
    for (const std::string& warning : run->warnings()) {
      if (known.insert(warning).second) outcome.warnings.push_back(warning);
    }
    outcome.report = std::move(run->report);
  }
  CompareWithEven(&outcome, context);
  RefinePlan(options, &outcome, context);
  return outcome;
}

double MemoryErrorOf(const RunConfig& config) {
  return config.strategy.framework.value_or(Framework::kMegatron) ==
                 Framework::kMegatron
             ? kMemoryError
             : kTorchMemoryError;
}

bool IsAtRisk(const PreparedRun& run) {
  if (!run.memory || !run.memory->limit_bytes || !run.memory->fits_device()) {
    return false;
  }
  const ScheduleMemory& memory = *run.memory->memory;
  const RankMemory& worst = memory.ranks[memory.WorstRank()];
  const auto held = static_cast<double>(worst.peak() + worst.fragmentation);
  return run.memory->is_near_limit() ||
         static_cast<double>(worst.needed()) +
                 MemoryErrorOf(run.config) * held >
             *run.memory->limit_bytes;
}

absl::Status PlanVerdict(const PlanOutcome& outcome) {
  if (!outcome.ranked.empty()) return absl::OkStatus();
  const PlanCounts& counts = outcome.counts;
  if (outcome.cut != PlanCut::kNone) {
    return absl::CancelledError(
        absl::StrCat("the search was cut after ", counts.tried + counts.plain,
                     " candidates, before it had found one that fits"));
  }
  if (counts.legal == 0) {
    return absl::InvalidArgumentError(
        "no combination is legal: the devices, the global batch and what is "
        "fixed do not divide; fix less, or another --global-batch or --nodes");
  }
  if (counts.memory == 0) {
    const std::string reason =
        counts.reasons.empty() ? "" : counts.reasons.begin()->first;
    return absl::InvalidArgumentError(absl::StrCat(
        "all ", counts.refused, " combinations were refused: ", reason));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("nothing fits: ", outcome.space->NameOf(*outcome.smallest),
                   " needs least, ", FormatBytes(outcome.smallest_bytes),
                   " of ", FormatBytes(outcome.limit_bytes)));
}

}  // namespace pipewright

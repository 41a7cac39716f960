// The search for the best configuration: first the plain points (PlanSpace),
// then all legal ones in the order of a lower bound on their time, as far as
// the bound leaves any that could be among the best; engine `fast` for each of
// these, `fluid` with jitter for those that could be first or second. It
// prints nothing, and may be cut at any time.
//
// Threads: points are bounded and simulated in batches of a fixed size, so that
// the result and all counts are the same for any number of threads. No thread
// is left when fluid begins.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/search/plan_space.h"
#include "sim/engine/step_interval.h"
#include "sim/report/report.h"

namespace pipewright {

class Json;

// Scores that differ by no larger share are the same: the rest is rounding.
inline constexpr double kSamePlan = 1e-9;

// Why a search ended early.
enum class PlanCut { kNone, kCandidates, kTime, kSignal };

struct PlanProgress;

struct PlanOptions {
  int workers = 1;
  int top = 10;  // so many of the best are those of the whole space
  // Candidates that are prepared at most; 0: as many as it takes. Unlike
  // `stops` it leaves the same result on every machine.
  int64_t most_tried = 0;
  // Asked again and again, by any thread; may be null.
  std::function<PlanCut()> stops;
  // Called between batches, by one thread; may be null.
  std::function<void(const PlanProgress&)> progress;
  // Confirmations at most; 0: as many as it takes.
  int most_confirmed = 24;
  std::string jitter = "3%";  // a confirmation's; costs.seed is its seed
  bool confirm = true;
  int refined = 0;  // layouts whose orders are searched for
  // Nothing with a higher bound on its score is looked at.
  double most_score = std::numeric_limits<double>::infinity();
  // A fault on purpose, for tests: bounds are this many times too high.
  double bound_factor = 1;
};

struct PlanCounts {
  int64_t legal = 0;
  int64_t memory = 0;     // do not fit
  int64_t bound = 0;      // cannot be better than the second best
  int64_t same = 0;       // are another point with another schedule's name
  int64_t dominated = 0;  // offload where nothing has to go: never faster
  int64_t simulated = 0;
  int64_t refused = 0;
  int64_t tried = 0;  // were prepared, some for what they are without copies
  int64_t plain = 0;  // were prepared before, among plain points
  // Nobody knows, since the search was cut; those pruned by bound are in it.
  int64_t left = 0;
  std::map<std::string, int64_t> reasons;  // why points were refused
};

// A point that was simulated.
struct PlanResult {
  PlanPoint point;
  int64_t order = 0;       // in the enumeration
  double bound_s = 0;      // bound of iteration_s
  double iteration_s = 0;  // engine fast
  double tokens_per_s = 0;
  double peak_bytes = 0;  // MostPeakMemoryOf its report
  // Too near to the limit to rely on (IsAtRisk).
  bool is_near_limit = false;
  std::optional<double> cost;         // for 1e9 tokens, where a price is given
  std::optional<double> confirmed_s;  // fluid with jitter
  std::optional<StepEnergy> energy;   // of a step on engine fast
  double score = 0;  // what is minimised: seconds, seconds * devices, or joules
  double score_per_s = 1;
  double score_fixed = 0;
  // Schedules that run the same passes in the same order here.
  std::vector<std::string> same_schedules;

  // Score of the same with a step of so many seconds.
  double ScoreAt(double seconds) const {
    return score_fixed + score_per_s * seconds;
  }
};

// A layout whose order was searched for.
struct PlanRefined {
  PlanResult from;  // with its own schedule
  // Why it keeps that one; "" where the order that was found is faster.
  std::string why_not;
  // The best that was found, whatever became of it.
  std::optional<FoundOrder> found;
  RunConfig config;
  // Layers of its stages; empty: those of `from`.
  std::vector<int64_t> layers;
  // Were layers free to move, no order on these ranks would take less: the work
  // of all stages on all ranks alike. 0: they are given.
  double least_of_splits_s = 0;
  double iteration_s = 0;
  double peak_bytes = 0;
  bool is_near_limit = false;
  std::optional<double> confirmed_s;
  std::string command;  // that simulates it
};

// How far a search is.
struct PlanProgress {
  const PlanSpace& space;
  const PlanCounts& counts;
  const PlanResult* best = nullptr;  // null: nothing fits yet
  // Score below which nothing is left; nothing while that is not known.
  std::optional<double> left;
};

struct PlanOutcome {
  std::shared_ptr<PlanSpace> space;
  PlanCounts counts;
  std::vector<PlanResult> ranked;  // the best first
  int top = 10;  // of them, but after a cut, those of the whole space
  std::vector<PlanResult> front;  // throughput against memory, fastest first
  std::optional<PlanResult> simplest;  // best of the plain points
  PlanCut cut = PlanCut::kNone;
  bool is_whole = true;  // false: cut before all were looked at
  std::string command;   // that searches on after a cut
  // After a cut: score below which nothing is left, if that is known.
  std::optional<double> left;
  // The winner's run again: of engine fast, with its interval.
  std::optional<Report> report;
  std::optional<StepInterval> interval;
  std::vector<std::string> warnings;  // the winner's, each once
  // The winner with even layers, where it has others and even ones exist.
  std::optional<double> even_s;
  bool even_fits = true;
  int confirmed = 0;
  // Points that could still be second, were they confirmed.
  int64_t open = 0;
  std::vector<PlanRefined> refined;  // in the order of `ranked`
  // Nothing fits: the least that a point needs, its point, what would help.
  std::optional<PlanPoint> smallest;
  double smallest_bytes = 0;
  double limit_bytes = 0;
  std::vector<std::string> help;
  // Point with the lowest bound of those that memory alone keeps out; that
  // bound, in the unit of scores.
  std::optional<PlanPoint> kept_out;
  double kept_out_s = 0;
};

// Errors: those of PlanSpace::Make; kInvalidArgument where there is no legal
// point, or where each was refused; kResourceExhausted where none fits (the
// outcome then has `smallest` and `help`, see PlanVerdict).
absl::StatusOr<PlanOutcome> MakePlan(const PlanRequest& request,
                                     const PlanOptions& options,
                                     RunContext* context);

// OK; kResourceExhausted where nothing fits; kInvalidArgument where nothing is
// legal or everything was refused; kCancelled after a cut that left nothing.
absl::Status PlanVerdict(const PlanOutcome& outcome);

// The largest error known of what torchtitan reserves, as kMemoryError: 47.0
// GiB of 41.3 estimated, on 64 H200 (experiments/papers/torchtitan). DeepSpeed
// has no published peak, and is PyTorch too.
inline constexpr double kTorchMemoryError = 0.138;
double MemoryErrorOf(const RunConfig& config);
// Fits, but would not if it needed so much more.
bool IsAtRisk(const PreparedRun& run);

// How far the best is ahead of the next, against the model's own error.
std::string PlanConfidence(const PlanOutcome& outcome);

// For people, and as one JSON object (docs/dev/plan.md).
std::string PlanToText(const PlanOutcome& outcome);
std::string PlanToJson(const PlanOutcome& outcome);
Json PlanAsJson(const PlanOutcome& outcome);
// A line of a terminal, and one of JSON.
std::string PlanToText(const PlanProgress& progress);
std::string PlanToJson(const PlanProgress& progress);

}  // namespace pipewright

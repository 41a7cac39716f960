#include "sim/analysis/search/plan_clusters.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kSecondsOfHour = 3600;

// On fluid, if that was asked for.
double StepOf(const PlanResult& result) {
  return result.confirmed_s.value_or(result.iteration_s);
}

double RateOf(const PlanResult& result) {
  return result.tokens_per_s * result.iteration_s / StepOf(result);
}

int64_t DevicesOf(const PlanCluster& row) {
  return int64_t{row.outcome->ranked[0].point.group.nodes} *
         row.outcome->space->devices_per_node();
}

double ScoreOfSample(const PlanCluster& row) {
  const PlanResult& best = row.outcome->ranked[0];
  return best.ScoreAt(StepOf(best)) /
         static_cast<double>(row.outcome->space->request().global_batch);
}

std::optional<double> DeviceHours(const PlanClusters& clusters,
                                  const PlanCluster& row) {
  const double rate = RateOf(row.outcome->ranked[0]);
  if (!clusters.tokens || rate <= 0) return {};
  return *clusters.tokens / rate * static_cast<double>(DevicesOf(row)) /
         kSecondsOfHour;
}

bool Meets(const PlanTarget& target, const PlanOutcome& outcome) {
  if (outcome.ranked.empty()) return false;
  const PlanResult& best = outcome.ranked[0];
  if (target.step_s) return StepOf(best) <= *target.step_s * (1 + kSamePlan);
  return !target.tokens_per_s ||
         RateOf(best) >= *target.tokens_per_s * (1 - kSamePlan);
}

// Seconds that a step may take at most; no limit if samples differ.
double MostSeconds(const PlanTarget& target, const PlanSpace& space) {
  if (target.step_s) return *target.step_s;
  const RunConfig& base = space.request().base;
  if (!target.tokens_per_s || !space.probe().tokens ||
      GivesLengths(base.sequences)) {
    return std::numeric_limits<double>::infinity();
  }
  // The probe has one sample.
  return *space.probe().tokens *
         static_cast<double>(space.request().global_batch) /
         *target.tokens_per_s;
}

std::string SystemName(const RunConfig& config) {
  const SystemChoice& system = config.system;
  return system.preset ? *system.preset
         : system.file ? *system.file
                       : system.shape.value_or("");
}

PlanCluster Planned(const PlanRequest& request, const PlanTarget& target,
                    const PlanOptions& options, RunContext* context) {
  PlanCluster row = {.system = SystemName(request.base),
                     .nodes = request.base.system.nodes.value_or(1)};
  absl::StatusOr<PlanOutcome> outcome = MakePlan(request, options, context);
  row.status = outcome.status();
  if (!outcome.ok()) return row;
  row.outcome = std::make_shared<PlanOutcome>(*std::move(outcome));
  row.status = PlanVerdict(*row.outcome);
  row.meets = Meets(target, *row.outcome);
  return row;
}

// Did the search end before it had looked at all? Then what it has not found is
// not known to be missing.
bool IsCut(const PlanCluster& row) {
  return row.outcome != nullptr && row.outcome->cut != PlanCut::kNone;
}

bool IsCut(const PlanClusters& clusters) {
  return std::any_of(clusters.rows.begin(), clusters.rows.end(),
                     [](const PlanCluster& row) { return IsCut(row); });
}

// Is any plan of the request fast enough on engine fast? Bounds keep all others
// out. True too if the search was cut. What cannot be searched is left to the
// search that says so.
bool MayMeet(const PlanRequest& request, const PlanTarget& target,
             const PlanOptions& options, RunContext* context) {
  const auto space = PlanSpace::Make(request, context);
  if (!space.ok()) return false;
  PlanOptions quick = options;
  quick.most_score = MostSeconds(target, **space) * (1 + kSamePlan);
  quick.confirm = false;
  quick.refined = 0;
  quick.top = 1;
  quick.progress = nullptr;
  const absl::StatusOr<PlanOutcome> outcome = MakePlan(request, quick, context);
  return outcome.ok() &&
         (outcome->cut != PlanCut::kNone || Meets(target, *outcome));
}

// The first size that meets the target, or whose search was cut: larger ones
// would not be the fewest. Else the largest.
PlanCluster Least(PlanRequest request, const PlanTarget& target,
                  const PlanOptions& options, RunContext* context) {
  const int most = request.base.system.nodes.value_or(1);
  for (const int nodes : NodesUpTo(most)) {
    request.base.system.nodes = nodes;
    if (!MayMeet(request, target, options, context)) continue;
    PlanCluster row = Planned(request, target, options, context);
    if (row.meets || IsCut(row) || nodes == most) return row;
  }
  return Planned(request, target, options, context);
}

std::string TargetText(const PlanTarget& target) {
  return target.step_s ? absl::StrCat(FormatSeconds(*target.step_s), " a step")
                       : absl::StrFormat("%.6g tokens/s", *target.tokens_per_s);
}

// Values of a second axis may be refused for the same reason.
std::string LeftOutText(const PlanCluster& row) {
  if (row.outcome == nullptr) return "";
  std::set<std::string> known;
  std::string out;
  for (const PlanLeftOut& each : row.outcome->space->left_out()) {
    const std::string why(each.status.message());
    if (!known.insert(why).second) continue;
    absl::StrAppend(&out, "    left out: ", why, "\n");
  }
  return out;
}

// A variant that no cluster can run is the user's mistake. What a cluster can
// run nothing of is said in its row.
absl::Status CheckLeftOut(const PlanQuestion& question, RunContext* context) {
  std::optional<std::vector<PlanLeftOut>> by_all;
  for (const PlanRequest& request : question.clusters) {
    const auto space = PlanSpace::Make(request, context);
    if (!space.ok()) return absl::OkStatus();
    const std::vector<PlanLeftOut>& own = (*space)->left_out();
    if (!by_all) by_all = own;
    std::erase_if(*by_all, [&](const PlanLeftOut& each) {
      return absl::c_none_of(own, [&](const PlanLeftOut& other) {
        return other.chosen == each.chosen;
      });
    });
    if (by_all->empty()) return absl::OkStatus();
  }
  return by_all ? by_all->front().status : absl::OkStatus();
}

std::string ClusterText(const PlanClusters& clusters, const PlanCluster& row) {
  std::string out = absl::StrFormat("  %-28s", ClusterName(row));
  if (!row.fits()) {
    return absl::StrCat(out, "  ", row.status.message(), "\n",
                        LeftOutText(row));
  }
  const PlanResult& best = row.outcome->ranked[0];
  absl::StrAppendFormat(&out, " %6d devices %10s  batch %-6d", DevicesOf(row),
                        FormatSeconds(StepOf(best)),
                        row.outcome->space->request().global_batch);
  if (RateOf(best) > 0) {
    absl::StrAppendFormat(&out, " %10.6g tokens/s %9.5g a device", RateOf(best),
                          RateOf(best) / static_cast<double>(DevicesOf(row)));
  }
  if (const auto hours = DeviceHours(clusters, row)) {
    absl::StrAppendFormat(&out, "  %.4g device-hours", *hours);
  }
  if (best.energy) {
    absl::StrAppendFormat(&out, "  %.4g J a token",
                          1 / best.energy->tokens_per_joule);
  }
  if (!row.meets) absl::StrAppend(&out, "  too slow");
  absl::StrAppend(&out, best.is_near_limit ? "  !" : "", "\n    ",
                  row.outcome->space->NameOf(best.point), "\n");
  absl::StrAppend(&out, LeftOutText(row));
  return out;
}

std::string AnswerText(const PlanClusters& clusters) {
  constexpr char kNotSettled[] = "not settled, the search was cut";
  const PlanTarget& target = clusters.target;
  const std::string end =
      IsCut(clusters) ? absl::StrCat(" (", kNotSettled, ")\n") : "\n";
  if (!clusters.answer && IsCut(clusters)) {
    return absl::StrCat(kNotSettled, "\n");
  }
  if (!clusters.answer) {
    return target.is_given()
               ? absl::StrCat("none reaches ", TargetText(target), "\n")
               : std::string("nothing fits\n");
  }
  const PlanCluster& row = clusters.rows[*clusters.answer];
  const PlanOutcome& plan = *row.outcome;
  if (!target.is_given()) {
    const PlanObjective objective = plan.space->request().objective;
    return absl::StrCat(objective == PlanObjective::kEnergy ? "least energy"
                        : objective == PlanObjective::kCost ? "least cost"
                                                            : "fastest",
                        ": ", ClusterName(row), end);
  }
  std::string out =
      absl::StrCat("fewest devices for ", TargetText(target), ": ",
                   DevicesOf(row), ", ", ClusterName(row), end);
  const PlanResult& best = plan.ranked[0];
  const double most_s = MostSeconds(target, *plan.space);
  if (plan.interval && plan.interval->high_s > most_s) {
    absl::StrAppendFormat(
        &out, "the 90 %% interval of its step, %s to %s, reaches beyond that\n",
        FormatSeconds(plan.interval->low_s),
        FormatSeconds(plan.interval->high_s));
  } else if (!plan.interval && StepOf(best) > 0) {
    absl::StrAppend(&out, "the error of its step is not known\n");
  }
  return out;
}

Json ClusterToJson(const PlanClusters& clusters, const PlanCluster& row) {
  Json out = {{"system", row.system},
              {"nodes", row.nodes},
              {"devices", nullptr},
              {"global_batch", nullptr},
              {"error", nullptr},
              {"meets", row.meets},
              {"step_s", nullptr},
              {"tokens_per_s", nullptr},
              {"tokens_per_s_per_device", nullptr},
              {"device_hours", nullptr},
              {"joules_per_token", nullptr},
              {"left_out", Json::array()},
              {"plan", nullptr}};
  if (!row.status.ok()) out["error"] = std::string(row.status.message());
  if (row.outcome != nullptr) {
    out["plan"] = PlanAsJson(*row.outcome);
    out["global_batch"] = row.outcome->space->request().global_batch;
    for (const PlanLeftOut& each : row.outcome->space->left_out()) {
      Json fixed = Json::object();
      for (const auto& [axis, value] : each.chosen) fixed[axis] = value;
      out["left_out"].push_back(
          {{"fix", fixed}, {"error", std::string(each.status.message())}});
    }
  }
  if (!row.fits()) return out;
  const PlanResult& best = row.outcome->ranked[0];
  out["devices"] = DevicesOf(row);
  out["step_s"] = StepOf(best);
  out["tokens_per_s"] = RateOf(best);
  out["tokens_per_s_per_device"] =
      RateOf(best) / static_cast<double>(DevicesOf(row));
  if (const auto hours = DeviceHours(clusters, row)) {
    out["device_hours"] = *hours;
  }
  if (best.energy) {
    out["joules_per_token"] = 1 / best.energy->tokens_per_joule;
  }
  return out;
}

}  // namespace

std::string ClusterName(const PlanCluster& row) {
  return absl::StrCat(row.system, row.system.empty() ? "" : ", ", row.nodes,
                      row.nodes == 1 ? " node" : " nodes");
}

std::vector<int> NodesUpTo(int most) {
  std::set<int> nodes = {most};
  for (const int odd : {1, 3, 5, 7}) {
    for (int64_t count = odd; count <= most; count *= 2) {
      nodes.insert(static_cast<int>(count));
    }
  }
  return {nodes.begin(), nodes.end()};
}

absl::StatusOr<PlanClusters> ComparePlans(const PlanQuestion& question,
                                          const PlanOptions& options,
                                          RunContext* context) {
  PW_RETURN_IF_ERROR(CheckLeftOut(question, context));
  PlanClusters out = {.target = question.target, .tokens = question.tokens};
  for (const PlanRequest& request : question.clusters) {
    out.rows.push_back(
        question.least ? Least(request, question.target, options, context)
                       : Planned(request, question.target, options, context));
  }
  const auto is_searched = [](const PlanCluster& row) {
    return row.outcome != nullptr;
  };
  if (std::none_of(out.rows.begin(), out.rows.end(), is_searched)) {
    return out.rows[0].status;
  }
  const auto key = [&](const PlanCluster& row) {
    return std::make_pair(question.target.is_given() ? DevicesOf(row) : 0,
                          ScoreOfSample(row));
  };
  for (size_t row = 0; row < out.rows.size(); ++row) {
    if (!out.rows[row].meets) continue;
    if (!out.answer || key(out.rows[row]) < key(out.rows[*out.answer])) {
      out.answer = row;
    }
  }
  return out;
}

absl::Status ClustersVerdict(const PlanClusters& clusters) {
  if (clusters.answer) return absl::OkStatus();
  for (const PlanCluster& row : clusters.rows) {
    if (IsCut(row) && !row.status.ok()) return row.status;
  }
  if (IsCut(clusters)) {
    return absl::CancelledError(
        "the search was cut before it had found a plan that answers");
  }
  const PlanCluster* best = nullptr;
  for (const PlanCluster& row : clusters.rows) {
    if (row.fits() &&
        (best == nullptr || ScoreOfSample(row) < ScoreOfSample(*best))) {
      best = &row;
    }
  }
  if (best == nullptr) return clusters.rows[0].status;
  const PlanResult& found = best->outcome->ranked[0];
  return absl::ResourceExhaustedError(
      absl::StrCat("no plan reaches ", TargetText(clusters.target),
                   ": the best takes ", FormatSeconds(StepOf(found)),
                   " a step, ", absl::StrFormat("%.6g tokens/s", RateOf(found)),
                   ", on ", ClusterName(*best)));
}

std::string ClustersToText(const PlanClusters& clusters) {
  std::string out = "clusters\n";
  for (const PlanCluster& row : clusters.rows) {
    absl::StrAppend(&out, ClusterText(clusters, row));
  }
  return absl::StrCat(out, AnswerText(clusters));
}

Json ClustersToJson(const PlanClusters& clusters) {
  Json out = {{"target", nullptr}, {"tokens", nullptr}, {"answer", nullptr}};
  if (clusters.target.step_s) {
    out["target"] = {{"step_s", *clusters.target.step_s}};
  } else if (clusters.target.tokens_per_s) {
    out["target"] = {{"tokens_per_s", *clusters.target.tokens_per_s}};
  }
  if (clusters.tokens) out["tokens"] = *clusters.tokens;
  if (clusters.answer) out["answer"] = *clusters.answer;
  out["clusters"] = Json::array();
  for (const PlanCluster& row : clusters.rows) {
    out["clusters"].push_back(ClusterToJson(clusters, row));
  }
  return out;
}

}  // namespace pipewright

// What a plan says, as text and as JSON.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/search/plan.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/config/config_fields.h"
#include "sim/report/format.h"
#include "sim/report/limits.h"

namespace pipewright {
namespace {

struct Margin {
  double share = 0;  // by which the next is slower than the best
  size_t row = 0;    // row of the next
};

// Over the first that is slower by more than rounding; nothing without one.
std::optional<Margin> MarginOf(const PlanOutcome& outcome) {
  if (outcome.ranked.empty()) return {};
  const PlanResult& best = outcome.ranked[0];
  for (size_t row = 1; row < outcome.ranked.size(); ++row) {
    const PlanResult& next = outcome.ranked[row];
    double share = next.score / best.score - 1;
    if (best.confirmed_s && next.confirmed_s) {
      share =
          next.ScoreAt(*next.confirmed_s) / best.ScoreAt(*best.confirmed_s) - 1;
    }
    if (share > kSamePlan) return Margin{share, row};
  }
  return {};
}

bool IsOfEnergy(const PlanSpace& space) {
  return space.request().objective == PlanObjective::kEnergy;
}

// Half of the prediction interval, as a share of its middle.
std::optional<double> ModelError(const PlanOutcome& outcome) {
  if (!outcome.interval) return {};
  double low = outcome.interval->low_s;
  double high = outcome.interval->high_s;
  if (IsOfEnergy(*outcome.space)) {
    const auto& energy = outcome.report->throughput->energy;
    if (!energy || energy->low <= 0) return {};
    low = energy->low;
    high = energy->high;
  }
  return (high - low) / (high + low);
}

// Rows of the list: those behind it need not be the next of the whole space.
size_t RowsOf(const PlanOutcome& outcome) {
  return std::min<size_t>(outcome.top, outcome.ranked.size());
}

std::string SizeText(double bytes) {
  return bytes > 0 ? FormatBytes(bytes) : std::string("-");
}

std::string ThroughputText(const PlanResult& result) {
  return result.tokens_per_s > 0
             ? absl::StrFormat("%.6g tokens/s", result.tokens_per_s)
             : std::string("");
}

std::string NameText(const PlanSpace& space, const PlanResult& result) {
  return result.same_schedules.empty()
             ? space.NameOf(result.point)
             : absl::StrCat(space.NameOf(result.point), " (the same as ",
                            absl::StrJoin(result.same_schedules, ", "), ")");
}

std::string RowText(const PlanOutcome& outcome, const PlanResult& result) {
  std::string out = absl::StrFormat(
      "%10.6g s  %10s%s %18s", result.iteration_s, SizeText(result.peak_bytes),
      result.is_near_limit ? "!" : " ", ThroughputText(result));
  if (result.cost)
    absl::StrAppendFormat(&out, "  %8.4g per 1e9 tokens", *result.cost);
  if (IsOfEnergy(*outcome.space) && result.energy) {
    absl::StrAppendFormat(&out, "  %8.4g J a token",
                          1 / result.energy->tokens_per_joule);
  }
  if (result.confirmed_s) {
    absl::StrAppendFormat(&out, "  fluid %.6g s", *result.confirmed_s);
  }
  return absl::StrCat(out, "  ", NameText(*outcome.space, result));
}

// What "!" means, if a row that is shown has it.
std::string NearLimitText(const PlanOutcome& outcome, size_t rows) {
  const auto is_near = [](const PlanResult& result) {
    return result.is_near_limit;
  };
  if (std::none_of(outcome.ranked.begin(), outcome.ranked.begin() + rows,
                   is_near) &&
      std::none_of(outcome.front.begin(), outcome.front.end(), is_near)) {
    return "";
  }
  return absl::StrFormat(
      "\n! at risk: so near to the limit that %.1f %% more than estimated, the "
      "largest error known of a peak, or what the allocator holds beyond its "
      "peak would not fit: try it before you rely on it\n",
      100 * MemoryErrorOf(outcome.space->request().base));
}

std::string ScoreText(const PlanSpace& space, double score) {
  switch (space.request().objective) {
    case PlanObjective::kCost:
      return absl::StrFormat("%.6g device-seconds", score);
    case PlanObjective::kEnergy:
      return absl::StrFormat("%.6g kJ a step", score / 1e3);
    case PlanObjective::kTokensPerSecond:
      break;
  }
  return FormatSeconds(score);
}

// "13.1 s, 5.3 % less than the best so far"; `best` may be null.
std::string LeftText(const PlanSpace& space, double left,
                     const PlanResult* best) {
  const std::string score = ScoreText(space, left);
  if (best == nullptr) return score;
  if (left >= best->score) {
    return absl::StrCat(score, ", more than the best so far");
  }
  return absl::StrFormat("%s, %.2g %% less than the best so far", score,
                         100 * (1 - left / best->score));
}

const char* CutName(PlanCut cut) {
  switch (cut) {
    case PlanCut::kNone:
      return "";
    case PlanCut::kCandidates:
      return "candidates";
    case PlanCut::kTime:
      return "time";
    case PlanCut::kSignal:
      return "signal";
  }
  return "";
}

std::string CutText(const PlanOutcome& outcome) {
  if (outcome.cut == PlanCut::kNone) return "";
  std::string out =
      absl::StrFormat("\ncut by %s after %d candidates",
                      outcome.cut == PlanCut::kCandidates ? "--max-candidates"
                      : outcome.cut == PlanCut::kTime     ? "--time"
                                                          : "a signal",
                      outcome.counts.tried + outcome.counts.plain);
  if (outcome.left) {
    absl::StrAppend(
        &out, ": no layout that is left takes less than ",
        LeftText(*outcome.space, *outcome.left,
                 outcome.ranked.empty() ? nullptr : &outcome.ranked[0]));
  } else if (!outcome.is_whole) {
    absl::StrAppend(&out,
                    ": too early for a bound on what is left, plain layouts "
                    "alone were looked at");
  } else {
    absl::StrAppend(&out, ": the search had ended, what follows it had not");
  }
  return absl::StrCat(
      out, "\nto search on, from the start, with a larger limit or none: ",
      outcome.command, "\n");
}

// What the plain layout costs that needs nothing that frameworks differ in.
std::string SimplestText(const PlanOutcome& outcome) {
  const PlanResult& best = outcome.ranked[0];
  if (!outcome.simplest || outcome.space->IsPlain(best.point)) return "";
  const double share = outcome.simplest->score / best.score - 1;
  const std::optional<double> error = ModelError(outcome);
  return absl::StrFormat(
      "%s: %.3g %% %s (engine fast)\n  %s\n",
      !error           ? "simplest layout"
      : share < *error ? "simplest layout, within the model's own error"
                       : "simplest layout, beyond the model's own error",
      100 * share, IsOfEnergy(*outcome.space) ? "more energy" : "slower",
      RowText(outcome, *outcome.simplest));
}

// "; no step of this kind is measured", if so.
std::string UnmeasuredText(const PlanOutcome& outcome) {
  return !outcome.interval || outcome.interval->unmeasured.empty()
             ? ""
             : absl::StrCat("; ", outcome.interval->unmeasured);
}

// "energy of the best: 1.23 J a token, 612 W a device".
std::string EnergyText(const PlanResult& best) {
  if (!best.energy) return "";
  return absl::StrFormat(
      "energy of the best: %.4g J a token, %.0f W a device\n",
      1 / best.energy->tokens_per_joule, best.energy->watts_per_device);
}

// "12.31 s from 12.74 s (3.4 % less)".
std::string GainText(const char* engine, double after_s, double before_s) {
  return absl::StrFormat("%s%s from %s (%.3g %% less)", engine,
                         FormatSeconds(after_s), FormatSeconds(before_s),
                         100 * (1 - after_s / before_s));
}

std::string RefinedText(const PlanOutcome& outcome) {
  std::string out;
  for (const PlanRefined& refined : outcome.refined) {
    const PlanResult& from = refined.from;
    if (refined.why_not.empty()) {
      absl::StrAppend(
          &out,
          "  refined: ", GainText("", refined.iteration_s, from.iteration_s),
          refined.confirmed_s
              ? GainText(", fluid ", *refined.confirmed_s, *from.confirmed_s)
              : "",
          ", ", SizeText(refined.peak_bytes), refined.is_near_limit ? "!" : "");
    } else {
      absl::StrAppend(&out, "  as it was, ", FormatSeconds(from.iteration_s),
                      ": ", refined.why_not);
    }
    absl::StrAppend(&out, "\n    ", NameText(*outcome.space, from), "\n");
    if (!refined.layers.empty()) {
      absl::StrAppend(&out, "    layers ", absl::StrJoin(refined.layers, ","),
                      "\n");
    }
    if (!refined.found) continue;
    const FoundOrder& found = *refined.found;
    absl::StrAppendFormat(
        &out,
        "    made from %s: passes and hops take %s, no order below %s (gap "
        "%s)%s\n",
        found.start, FormatSeconds(found.time), FormatSeconds(found.least_time),
        FormatPercent(found.gap()), found.is_cut ? ", cut" : "");
    if (refined.least_of_splits_s > 0) {
      absl::StrAppend(&out, "    layers on other stages: none below ",
                      FormatSeconds(refined.least_of_splits_s),
                      ", the work of all on all ranks alike\n");
    }
    if (refined.why_not.empty()) {
      absl::StrAppend(&out, "    ", refined.command, "\n");
    }
  }
  return out.empty() ? out : absl::StrCat("\nsearched orders\n", out);
}

std::string CountsText(const PlanCounts& counts) {
  std::string out = absl::StrFormat(
      "legal              %d\n"
      "pruned by memory   %d\n"
      "%s %d\n"
      "the same as others %d\n"
      "offload not needed %d\n"
      "simulated          %d\n"
      "refused            %d\n",
      counts.legal, counts.memory,
      counts.left > 0 ? "not looked at     " : "pruned by bound   ",
      counts.left + counts.bound, counts.same, counts.dominated,
      counts.simulated, counts.refused);
  for (const auto& [reason, count] : counts.reasons) {
    absl::StrAppendFormat(&out, "  %d times: %s\n", count, reason);
  }
  return out;
}

// Compares the winner's layout with the even one, if both were simulated.
std::optional<std::pair<double, bool>> AgainstEven(const PlanOutcome& outcome) {
  if (!outcome.even_s || outcome.ranked.empty()) return {};
  const double best = outcome.ranked[0].iteration_s;
  return std::make_pair(*outcome.even_s / best - 1, outcome.even_fits);
}

// Numbers and truth values as such.
Json ValueToJson(const std::string& text) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  if (text == "true" || text == "false") return text == "true";
  return text;
}

Json GroupToJson(const PlanSpace& space, const PlanResult& result) {
  const PlanGroup& group = result.point.group;
  const PlanLayout& layout =
      space.Of(group).Layouts(group.pp, group.vpp)[group.layout];
  Json out = {{"schedule", space.schedules()[group.schedule]},
              {"nodes", group.nodes},
              {"tp", group.tp},
              {"cp", group.cp},
              {"ep", group.ep},
              {"pp", group.pp},
              {"vpp", group.vpp},
              {"dp", group.dp},
              {"microbatches", group.microbatches},
              {"microbatch_size", group.microbatch_size},
              {"layout", layout.name},
              {"layers", layout.counts},
              {"recompute", ""},
              {"data_parallel", TraitsOf(result.point.data_parallel).name},
              {"offload", ""},
              {"iteration_s", result.iteration_s},
              {"bound_s", result.bound_s},
              {"tokens_per_s", result.tokens_per_s},
              {"peak_memory_bytes", result.peak_bytes},
              {"near_memory_limit", result.is_near_limit},
              {"same_schedules", result.same_schedules},
              {"confirmed_s", nullptr},
              {"cost_per_1e9_tokens", nullptr},
              {"joules_per_token", nullptr},
              {"watts_per_device", nullptr}};
  out["recompute"] = ChoiceName(RecomputeChoices(), group.recompute);
  out["offload"] = ChoiceName(OffloadChoices(), result.point.offload);
  if (result.confirmed_s) out["confirmed_s"] = *result.confirmed_s;
  if (result.cost) out["cost_per_1e9_tokens"] = *result.cost;
  if (result.energy) {
    out["joules_per_token"] = 1 / result.energy->tokens_per_joule;
    out["watts_per_device"] = result.energy->watts_per_device;
  }
  for (const auto& [axis, value] : space.Of(group).chosen()) {
    out[axis] = ValueToJson(value);
  }
  return out;
}

Json RefinedToJson(const PlanSpace& space, const PlanRefined& refined) {
  Json out = {{"from", GroupToJson(space, refined.from)},
              {"why_not", nullptr},
              {"iteration_s", nullptr},
              {"gain", 0},
              {"peak_memory_bytes", nullptr},
              {"near_memory_limit", refined.is_near_limit},
              {"confirmed_s", nullptr},
              {"found_order", nullptr},
              {"layers", nullptr},
              {"least_of_splits_s", nullptr},
              {"command", nullptr}};
  if (!refined.why_not.empty()) out["why_not"] = refined.why_not;
  if (!refined.found) return out;
  out["iteration_s"] = refined.iteration_s;
  if (refined.why_not.empty()) {
    out["gain"] = 1 - refined.iteration_s / refined.from.iteration_s;
  }
  out["peak_memory_bytes"] = refined.peak_bytes;
  if (refined.confirmed_s) out["confirmed_s"] = *refined.confirmed_s;
  out["found_order"] = FoundOrderToJson(*refined.found);
  if (!refined.layers.empty()) out["layers"] = refined.layers;
  if (refined.least_of_splits_s > 0) {
    out["least_of_splits_s"] = refined.least_of_splits_s;
  }
  out["command"] = refined.command;
  return out;
}

Json CountsToJson(const PlanCounts& counts) {
  Json reasons = Json::object();
  for (const auto& [reason, count] : counts.reasons) reasons[reason] = count;
  return {{"legal", counts.legal},
          {"pruned_by_memory", counts.memory},
          {"pruned_by_bound", counts.bound},
          {"not_looked_at", counts.left},
          {"same_as_others", counts.same},
          {"offload_not_needed", counts.dominated},
          {"simulated", counts.simulated},
          {"refused", counts.refused},
          {"refusals", reasons},
          {"candidates", counts.tried + counts.plain}};
}

}  // namespace

std::string PlanConfidence(const PlanOutcome& outcome) {
  const std::optional<Margin> margin = MarginOf(outcome);
  if (!margin) {
    return outcome.ranked.size() > 1
               ? "all points that were simulated are as fast, so there is no "
                 "margin"
               : "no second point was simulated, so there is no margin";
  }
  const std::optional<double> error = ModelError(outcome);
  if (!error) {
    return "the error of these times is not known (no interval: given times, "
           "or no published steps of this device), so nobody can say whether "
           "the margin means anything";
  }
  return absl::StrFormat(
      "the 90 %% interval of a step%s is +-%.1f %% of its middle: the margin "
      "is "
      "%s than the model's own error%s",
      IsOfEnergy(*outcome.space) ? "'s energy" : "", 100 * *error,
      margin->share > *error ? "larger" : "smaller",
      margin->share > *error
          ? ""
          : "; errors that both share cancel, but measure both before you "
            "decide");
}

std::string PlanToText(const PlanOutcome& outcome) {
  std::string out = CountsText(outcome.counts);
  absl::StrAppend(&out, CutText(outcome));
  if (outcome.ranked.empty()) {
    if (!outcome.smallest || outcome.cut != PlanCut::kNone) return out;
    absl::StrAppend(
        &out, "\nnothing fits in ", FormatBytes(outcome.limit_bytes),
        "; least is needed by\n  ", outcome.space->NameOf(*outcome.smallest),
        ": ", FormatBytes(outcome.smallest_bytes), "\n");
    if (!outcome.help.empty()) absl::StrAppend(&out, "what would help it:\n");
    for (const std::string& help : outcome.help) {
      absl::StrAppend(&out, "  ", help, "\n");
    }
    return out;
  }
  absl::StrAppend(&out, "\nbest", UnmeasuredText(outcome), "\n  ",
                  RowText(outcome, outcome.ranked[0]), "\n");
  absl::StrAppend(&out, EnergyText(outcome.ranked[0]), SimplestText(outcome));
  if (const auto margin = MarginOf(outcome)) {
    if (margin->row > 1) {
      absl::StrAppendFormat(&out, "as fast as the best: %d others\n",
                            margin->row - 1);
    }
    absl::StrAppendFormat(
        &out, "margin over the %s: %.3g %%%s\n",
        margin->row > 1 ? "next" : "second", 100 * margin->share,
        outcome.ranked[margin->row].confirmed_s ? " (fluid with jitter)"
                                                : " (engine fast)");
  }
  absl::StrAppend(&out, PlanConfidence(outcome), "\n");
  if (const auto even = AgainstEven(outcome)) {
    absl::StrAppendFormat(
        &out,
        "with even layers the same takes %.3g %% longer%s (engine fast)\n",
        100 * even->first, even->second ? "" : ", and does not fit");
  }
  if (outcome.confirmed > 0) {
    absl::StrAppendFormat(&out,
                          "confirmed on fluid: %d; not confirmed, but could "
                          "still be first or second there: %d\n",
                          outcome.confirmed, outcome.open);
  }
  if (outcome.report) {
    absl::StrAppend(&out, "\nwhat limits it\n");
    for (const StepLimit& limit : LimitsOf(*outcome.report)) {
      absl::StrAppendFormat(&out, "  %5.1f %% of the step: %s\n",
                            100 * limit.share, limit.name);
    }
    if (std::isfinite(outcome.limit_bytes) && outcome.report->memory) {
      // With the context, which the peaks of the rows are without.
      const ScheduleMemory& memory = *outcome.report->memory->memory;
      const RankMemory& worst = memory.ranks[memory.WorstRank()];
      absl::StrAppend(
          &out, "  memory: ", FormatBytes(static_cast<double>(worst.needed())),
          " of ", FormatBytes(outcome.limit_bytes), ", ",
          FormatBytes(static_cast<double>(worst.needed() - worst.peak())),
          " of it beyond the allocator's peak",
          !outcome.report->memory->fits_tightly()
              ? ""
              : absl::StrCat(
                    ": fits tightly, without the ",
                    FormatBytes(static_cast<double>(worst.fragmentation)),
                    " of fragmentation"),
          "\n");
    }
    if (outcome.kept_out && outcome.kept_out_s < outcome.ranked[0].score) {
      absl::StrAppendFormat(
          &out, "  more memory would save at most %.3g %% of the %s: %s\n",
          100 * (1 - outcome.kept_out_s / outcome.ranked[0].score),
          IsOfEnergy(*outcome.space) ? "energy" : "step",
          outcome.space->NameOf(*outcome.kept_out));
    }
  }
  absl::StrAppend(
      &out,
      outcome.space->request().objective == PlanObjective::kTokensPerSecond
          ? "\nthe fastest"
          : "\nthe best",
      outcome.cut == PlanCut::kNone ? "\n" : " so far\n");
  const size_t rows = RowsOf(outcome);
  for (size_t row = 0; row < rows; ++row) {
    absl::StrAppend(&out, "  ", RowText(outcome, outcome.ranked[row]), "\n");
  }
  absl::StrAppend(&out, RefinedText(outcome));
  absl::StrAppend(&out,
                  "\nthroughput against memory (Pareto front of the simulated "
                  "ones)\n");
  for (const PlanResult& result : outcome.front) {
    absl::StrAppend(&out, "  ", RowText(outcome, result), "\n");
  }
  return absl::StrCat(out, NearLimitText(outcome, rows));
}

std::string PlanToText(const PlanProgress& progress) {
  const int64_t tried = progress.counts.tried + progress.counts.plain;
  if (progress.best == nullptr) {
    return absl::StrCat("nothing that fits yet, ", tried, " candidates");
  }
  return absl::StrCat(
      "best so far ", ScoreText(progress.space, progress.best->score),
      progress.left ? absl::StrCat("; left: nothing below ",
                                   LeftText(progress.space, *progress.left,
                                            progress.best))
                    : "",
      "; ", tried, " candidates; ", NameText(progress.space, *progress.best));
}

std::string PlanToJson(const PlanProgress& progress) {
  const SystemChoice& system = progress.space.request().base.system;
  Json out = {{"system", nullptr},
              {"nodes", system.nodes.value_or(1)},
              {"best", nullptr},
              {"left", nullptr},
              {"counts", CountsToJson(progress.counts)}};
  if (progress.best != nullptr) {
    out["best"] = GroupToJson(progress.space, *progress.best);
  }
  if (system.preset || system.file) {
    out["system"] = system.preset ? *system.preset : *system.file;
  }
  if (progress.left) out["left"] = *progress.left;
  return out.dump();
}

std::string PlanToJson(const PlanOutcome& outcome) {
  return PlanAsJson(outcome).dump(2);
}

Json PlanAsJson(const PlanOutcome& outcome) {
  Json out = {{"counts", CountsToJson(outcome.counts)}};
  out["fits"] = !outcome.ranked.empty();
  out["cut"] = nullptr;
  if (outcome.cut != PlanCut::kNone) {
    out["cut"] = {{"by", CutName(outcome.cut)},
                  {"left", nullptr},
                  {"command", outcome.command}};
    if (outcome.left) out["cut"]["left"] = *outcome.left;
  }
  out["best"] = nullptr;
  out["simplest"] = nullptr;
  out["margin"] = nullptr;
  out["model_error"] = nullptr;
  out["limits"] = Json::array();
  out["even_layout_s"] = nullptr;
  out["confirmed"] = outcome.confirmed;
  out["could_be_second"] = outcome.open;
  out["ranked"] = Json::array();
  out["front"] = Json::array();
  out["refined"] = Json::array();
  for (const PlanRefined& refined : outcome.refined) {
    out["refined"].push_back(RefinedToJson(*outcome.space, refined));
  }
  out["smallest"] = nullptr;
  out["help"] = outcome.help;
  out["warnings"] = outcome.warnings;
  if (!outcome.ranked.empty()) {
    out["best"] = GroupToJson(*outcome.space, outcome.ranked[0]);
  }
  if (outcome.simplest) {
    out["simplest"] = GroupToJson(*outcome.space, *outcome.simplest);
  }
  if (const auto margin = MarginOf(outcome)) out["margin"] = margin->share;
  if (const auto error = ModelError(outcome)) out["model_error"] = *error;
  if (outcome.interval && !outcome.interval->unmeasured.empty()) {
    out["unmeasured_kind"] = outcome.interval->unmeasured;
  }
  if (outcome.even_s) out["even_layout_s"] = *outcome.even_s;
  if (outcome.report) {
    for (const StepLimit& limit : LimitsOf(*outcome.report)) {
      out["limits"].push_back({{"what", limit.name}, {"share", limit.share}});
    }
  }
  for (size_t row = 0; row < RowsOf(outcome); ++row) {
    out["ranked"].push_back(GroupToJson(*outcome.space, outcome.ranked[row]));
  }
  for (const PlanResult& result : outcome.front) {
    out["front"].push_back(GroupToJson(*outcome.space, result));
  }
  if (outcome.smallest && outcome.ranked.empty() &&
      outcome.cut == PlanCut::kNone) {
    out["smallest"] = {{"name", outcome.space->NameOf(*outcome.smallest)},
                       {"needed_bytes", outcome.smallest_bytes},
                       {"limit_bytes", outcome.limit_bytes}};
  }
  return out;
}

}  // namespace pipewright

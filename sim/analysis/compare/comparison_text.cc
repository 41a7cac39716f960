#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"

namespace pipewright {
namespace {

constexpr size_t kMaxRanksPrinted = 64;

std::string CauseLabel(const Difference& difference) {
  if (difference.cause == "kernels") {
    return absl::StrCat("kernels ", difference.kind);
  }
  if (difference.cause == "copies") return "offload and load copies";
  if (difference.cause == "gaps") return "launch gaps and waiting";
  return difference.cause;
}

Json ToJson(const TwoValues& values) {
  return {{"simulated", values.simulated},
          {"measured", values.measured},
          {"error", values.error()}};
}

// For values that are shares already.
Json PointsToJson(const TwoValues& values) {
  return {{"simulated", values.simulated},
          {"measured", values.measured},
          {"difference", values.difference()}};
}

Json ToJson(const Finding& finding) {
  Json json = {{"what", finding.what}, {"text", finding.text}};
  if (!finding.label.empty()) json["label"] = finding.label;
  if (finding.rank >= 0) json["rank"] = finding.rank;
  if (finding.peer >= 0) json["peer"] = finding.peer;
  if (finding.kinds.size() > 1) json["kinds"] = finding.kinds;
  if (finding.places.size() > 1) {
    const bool links = finding.places[0].second >= 0;
    Json& places = json[links ? "links" : "ranks"] = Json::array();
    for (const auto& [rank, peer] : finding.places) {
      places.push_back(links ? Json::array({rank, peer}) : Json(rank));
    }
  }
  if (finding.iteration >= 0) json["iteration"] = finding.iteration;
  if (finding.late_s != 0) {
    json["late_s"] = finding.late_s;
  } else {
    json["factor"] = finding.factor;
  }
  json["effect_s"] = finding.effect_s;
  return json;
}

Json MemoryJson(const TraceComparison& comparison, Side side) {
  Json peaks = Json::array();
  bool any = false;
  for (const RankComparison& row : comparison.ranks) {
    const std::optional<double>& bytes = row.memory_bytes[side];
    any |= bytes.has_value();
    peaks.push_back(bytes ? Json(*bytes) : Json());
  }
  if (!any) return nullptr;
  const std::string& meaning = comparison.origin[side].memory;
  return {{"meaning", meaning.empty() ? "unknown" : meaning},
          {"peak_bytes", std::move(peaks)}};
}

class Text {
 public:
  explicit Text(const TraceComparison& comparison)
      : comparison_(comparison), unit_(TimeUnitOf(comparison)) {}

  std::string Write() {
    const TraceComparison& c = comparison_;
    absl::StrAppendFormat(&out_, "%s: pp %d", c.schedule, c.pp);
    if (c.replicas > 1) absl::StrAppendFormat(&out_, ", dp %d", c.replicas);
    absl::StrAppendFormat(&out_,
                          "; iteration %d of %d\nsimulated  %s\nmeasured   "
                          "%s\n\n%-28s %12s %12s %12s\n",
                          c.iteration, c.iterations, c.simulated, c.measured,
                          absl::StrFormat("(%s)", unit_.name), "simulated",
                          "measured", "error");
    for (const std::vector<std::string>& row : MetricRows(c)) {
      absl::StrAppendFormat(&out_, "%-28s %12s %12s %12s\n", row[0], row[1],
                            row[2], row[3]);
    }
    WriteRanks();
    WriteDifferences();
    WriteFindings();
    for (const std::vector<std::string>& notes : {c.conditions, c.warnings}) {
      for (const std::string& note : notes) {
        absl::StrAppend(&out_, "note: ", note, "\n");
      }
    }
    return std::move(out_);
  }

 private:
  // One column where both traces count the same, else one for each.
  void WriteRanks() {
    const bool apart = MemoryApart(comparison_);
    std::string memory_head = absl::StrFormat("%21s", "peak memory");
    if (apart) {
      memory_head =
          absl::StrFormat("%15s%15s", "memory, sim.", "memory, meas.");
    }
    absl::StrAppendFormat(&out_, "\n%-5s %25s %25s %19s %s\n", "rank",
                          absl::StrCat("span (", unit_.name, ")"),
                          absl::StrCat("busy (", unit_.name, ")"),
                          "peak activations", memory_head);
    const auto both = [](const std::string& one, const std::string& other) {
      return absl::StrCat(one, " / ", other);
    };
    const auto bytes = [](const std::optional<double>& value) {
      return value ? FormatBytes(*value) : std::string("-");
    };
    for (size_t rank = 0;
         rank < std::min(comparison_.ranks.size(), kMaxRanksPrinted); ++rank) {
      const RankComparison& row = comparison_.ranks[rank];
      std::string activations = "-";
      if (row.peak_activations) {
        activations =
            both(absl::StrFormat("%.4g", row.peak_activations->simulated),
                 absl::StrFormat("%.4g", row.peak_activations->measured));
      }
      std::string memory = "-";
      if (row.peak_memory_bytes) {
        memory = both(FormatBytes(row.peak_memory_bytes->simulated),
                      FormatBytes(row.peak_memory_bytes->measured));
      }
      absl::StrAppendFormat(
          &out_, "%-5d %25s %25s %19s %s\n", rank,
          both(InUnit(row.span_s.simulated, unit_),
               InUnit(row.span_s.measured, unit_)),
          both(InUnit(row.busy_s.simulated, unit_),
               InUnit(row.busy_s.measured, unit_)),
          activations,
          apart
              ? absl::StrFormat("%15s%15s", bytes(row.memory_bytes[kSimulated]),
                                bytes(row.memory_bytes[kMeasured]))
              : absl::StrFormat("%21s", memory));
    }
    if (comparison_.ranks.size() > kMaxRanksPrinted) {
      absl::StrAppend(&out_, "... (--json has all)\n");
    }
  }

  void WriteDifferences() {
    absl::StrAppendFormat(&out_, "\n%-28s %12s %12s\n",
                          "the step time differs by",
                          absl::StrCat("(", unit_.name, ")"), "of the step");
    for (const std::vector<std::string>& row : DifferenceRows(comparison_)) {
      absl::StrAppendFormat(&out_, "%-28s %12s %12s%s%s\n", row[0], row[1],
                            row[2], row[3].empty() ? "" : "  ", row[3]);
    }
  }

  void WriteFindings() {
    const Findings& findings = comparison_.findings;
    absl::StrAppend(&out_, findings.list.empty()
                               ? "\nno single cause stands out\n"
                               : "\nwhat stands out (alone, it would change "
                                 "the step by):\n");
    for (const Finding& finding : findings.list) {
      absl::StrAppend(&out_, "  ", finding.text, "\n");
    }
    if (!findings.list.empty()) {
      absl::StrAppend(&out_, "  ", TogetherText(comparison_), "\n");
    }
  }

  const TraceComparison& comparison_;
  const TimeUnit unit_;
  std::string out_;
};

}  // namespace

TimeUnit TimeUnitOf(const TraceComparison& comparison) {
  return UnitFor(
      std::max(comparison.step_s.simulated, comparison.step_s.measured) / 10);
}

std::string InUnit(double seconds, const TimeUnit& unit) {
  return absl::StrFormat("%.3f", seconds / unit.seconds);
}

std::vector<std::vector<std::string>> MetricRows(const TraceComparison& c) {
  const TimeUnit unit = TimeUnitOf(c);
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, values] :
       {std::pair("step time", &c.step_s),
        std::pair("span, global", &c.span_global_s),
        std::pair("span, per rank", &c.span_per_rank_s),
        std::pair("busy", &c.busy_s)}) {
    rows.push_back({name, InUnit(values->simulated, unit),
                    InUnit(values->measured, unit),
                    FormatChange(values->error())});
  }
  for (const auto& [name, values] :
       {std::pair("bubble fraction, global", &c.bubble_global),
        std::pair("bubble fraction, per rank", &c.bubble_per_rank)}) {
    rows.push_back(
        {name, FormatPercent(values->simulated),
         FormatPercent(values->measured),
         absl::StrFormat("%+5.2f points", -values->difference() * 100)});
  }
  return rows;
}

std::vector<std::vector<std::string>> DifferenceRows(
    const TraceComparison& comparison) {
  const TimeUnit unit = TimeUnitOf(comparison);
  const double step_s = comparison.step_s.simulated;
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](std::string name, double seconds, bool given) {
    // Rounding of what is 0 is no negative number.
    const double shown = std::abs(seconds) < 1e-12 ? 0.0 : seconds;
    const bool nothing = given && std::abs(shown) < 5e-4 * unit.seconds;
    rows.push_back(
        {std::move(name),
         nothing ? "-" : absl::StrFormat("%+.3f", shown / unit.seconds),
         nothing      ? "-"
         : step_s > 0 ? FormatChange(shown / step_s)
                      : "",
         given ? "given, not measured" : ""});
  };
  for (const Difference& difference : comparison.differences) {
    add(CauseLabel(difference), difference.seconds, difference.given);
  }
  add("together", comparison.step_s.difference(), false);
  return rows;
}

std::string TogetherText(const TraceComparison& comparison) {
  const Findings& findings = comparison.findings;
  const auto change = [](double seconds) {
    return absl::StrCat(seconds < 0 ? "-" : "+",
                        FormatSeconds(std::abs(seconds)));
  };
  std::string text =
      absl::StrCat("together: ", change(findings.effect_s), " of ",
                   change(comparison.step_s.difference()), " in iteration ",
                   comparison.iteration);
  if (findings.left_out > 0) {
    absl::StrAppend(&text, "; ", findings.left_out, " smaller ones left out");
  }
  return text;
}

bool MemoryApart(const TraceComparison& comparison) {
  return std::any_of(
      comparison.ranks.begin(), comparison.ranks.end(),
      [](const RankComparison& row) {
        return !row.peak_memory_bytes &&
               (row.memory_bytes[kSimulated] || row.memory_bytes[kMeasured]);
      });
}

std::string ComparisonToText(const TraceComparison& comparison) {
  return Text(comparison).Write();
}

std::string ComparisonToJson(const TraceComparison& comparison) {
  Json json = {{"simulated", comparison.simulated},
               {"measured", comparison.measured},
               {"clock",
                {{"simulated", comparison.origin[kSimulated].clock},
                 {"measured", comparison.origin[kMeasured].clock}}},
               {"given", comparison.origin[kMeasured].given},
               {"schedule", comparison.schedule},
               {"pp", comparison.pp},
               {"dp", comparison.replicas},
               {"iteration", comparison.iteration},
               {"iterations", comparison.iterations},
               {"step_s", ToJson(comparison.step_s)},
               {"span_s",
                {{"global", ToJson(comparison.span_global_s)},
                 {"per_rank", ToJson(comparison.span_per_rank_s)}}},
               {"busy_s", ToJson(comparison.busy_s)},
               {"bubble_fraction",
                {{"global", PointsToJson(comparison.bubble_global)},
                 {"per_rank", PointsToJson(comparison.bubble_per_rank)}}}};
  json["step_s_of"] = Json::array();
  for (const TwoValues& step : comparison.step_s_of) {
    json["step_s_of"].push_back(ToJson(step));
  }
  json["ranks"] = Json::array();
  for (size_t rank = 0; rank < comparison.ranks.size(); ++rank) {
    const RankComparison& values = comparison.ranks[rank];
    Json row = {{"rank", rank},
                {"span_s", ToJson(values.span_s)},
                {"busy_s", ToJson(values.busy_s)}};
    if (values.peak_activations) {
      row["peak_activations"] = ToJson(*values.peak_activations);
    }
    if (values.peak_memory_bytes) {
      row["peak_memory_bytes"] = ToJson(*values.peak_memory_bytes);
    }
    json["ranks"].push_back(std::move(row));
  }
  json["memory"] = {{"simulated", MemoryJson(comparison, kSimulated)},
                    {"measured", MemoryJson(comparison, kMeasured)}};
  json["differences"] = Json::array();
  for (const Difference& difference : comparison.differences) {
    Json row = {{"cause", difference.cause}};
    if (!difference.kind.empty()) row["kind"] = difference.kind;
    row["seconds"] = difference.seconds;
    if (!difference.seconds_of_rank.empty()) {
      row["seconds_of_rank"] = difference.seconds_of_rank;
    }
    row["given"] = difference.given;
    json["differences"].push_back(std::move(row));
  }
  json["findings"] = Json::array();
  for (const Finding& finding : comparison.findings.list) {
    json["findings"].push_back(ToJson(finding));
  }
  json["findings_effect_s"] = comparison.findings.effect_s;
  json["findings_left_out"] = comparison.findings.left_out;
  json["conditions"] = comparison.conditions;
  json["warnings"] = comparison.warnings;
  return json.dump(2);
}

}  // namespace pipewright

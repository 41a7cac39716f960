#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/explain/explain.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

// The parts that any rank has, in their order.
std::vector<StepPart> PartsPresent(const StepExplanation& step) {
  std::vector<StepPart> parts;
  for (int index = 0; index < kNumStepParts; ++index) {
    const auto part = static_cast<StepPart>(index);
    if (std::any_of(
            step.ranks.begin(), step.ranks.end(),
            [part](const RankStep& rank) { return rank.parts[part] > 0; })) {
      parts.push_back(part);
    }
  }
  return parts;
}

// A row a part, a column a rank, or where there are many ranks a column for
// the mean and the rank that has most.
std::string PartsTable(const StepExplanation& step) {
  constexpr size_t kMostColumns = 8;
  const TimeUnit unit = UnitFor(step.step_s);
  const auto time = [&unit](double seconds) {
    return absl::StrFormat("%.3f", seconds / unit.seconds);
  };
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> head = {absl::StrCat("part (", unit.name, ")")};
  const bool by_rank = step.ranks.size() <= kMostColumns;
  if (by_rank) {
    for (const RankStep& rank : step.ranks) {
      head.push_back(absl::StrCat("rank ", rank.rank));
    }
  } else {
    head.insert(head.end(), {"mean", "least", "most", "on rank"});
  }
  head.push_back("of the step");
  rows.push_back(head);
  const auto add = [&](const std::string& name, const auto& value) {
    std::vector<std::string> row = {name};
    double sum = 0;
    double least = value(step.ranks[0]);
    const RankStep* most = &step.ranks[0];
    for (const RankStep& rank : step.ranks) {
      sum += value(rank);
      least = std::min(least, value(rank));
      if (value(rank) > value(*most)) most = &rank;
      if (by_rank) row.push_back(time(value(rank)));
    }
    const double mean = sum / static_cast<double>(step.ranks.size());
    if (!by_rank) {
      row.insert(row.end(), {time(mean), time(least), time(value(*most)),
                             absl::StrCat(most->rank)});
    }
    row.push_back(FormatPercent(step.step_s > 0 ? mean / step.step_s : 0));
    rows.push_back(std::move(row));
  };
  constexpr absl::string_view kGroups[] = {"compute", "bubble",
                                           "exposed communication"};
  for (int index = 0; index < 3; ++index) {
    const auto group = static_cast<PartGroup>(index);
    add(std::string(kGroups[index]),
        [group](const RankStep& rank) { return rank.parts.Sum(group); });
    for (const StepPart part : PartsPresent(step)) {
      if (GroupOf(part) != group) continue;
      add(absl::StrCat("  ", PartName(part)),
          [part](const RankStep& rank) { return rank.parts[part]; });
    }
  }
  add("step", [](const RankStep& rank) { return rank.parts.Sum(); });
  return TextTable(rows);
}

std::string PathText(const StepExplanation& step) {
  std::map<int, double> by_rank;
  for (const PathPiece& piece : step.critical_path) {
    by_rank[piece.rank] += piece.end_s - piece.start_s;
  }
  std::vector<std::vector<std::string>> rows = {{"part", "time", "of it"}};
  for (int index = 0; index < kNumStepParts; ++index) {
    const double seconds = step.path_parts.seconds[index];
    if (seconds <= 0) continue;
    rows.push_back({std::string(PartName(static_cast<StepPart>(index))),
                    FormatSeconds(seconds),
                    FormatPercent(seconds / step.step_s)});
  }
  std::string out = absl::StrCat("\ncritical path: ", step.critical_path.size(),
                                 " operations, none of which may be later\n",
                                 TextTable(rows), "by rank:");
  int shown = 0;
  for (const auto& [rank, seconds] : by_rank) {
    if (++shown > 16) {
      absl::StrAppend(&out, " ...");
      break;
    }
    absl::StrAppend(&out, shown == 1 ? " " : ", ", rank, " ",
                    FormatSeconds(seconds));
  }
  return out + "\n";
}

// "96 W later, 12 F earlier", the most first.
std::string MovesText(const OrderMoves& moves) {
  std::vector<std::pair<int64_t, std::string>> parts;
  for (int kind = 0; kind < kNumPassKinds; ++kind) {
    const KindMoves& own = moves.kinds[kind];
    for (const auto& [count, word] :
         {std::pair(own.earlier, "earlier"), std::pair(own.later, "later"),
          std::pair(own.more, "more"), std::pair(own.fewer, "fewer")}) {
      if (count == 0) continue;
      parts.emplace_back(
          -count,
          absl::StrCat(count, " ", PassKindName(static_cast<PassKind>(kind)),
                       " ", word));
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& one, const auto& other) {
                     return one.first < other.first;
                   });
  std::vector<std::string> words;
  if (moves.stages_elsewhere > 0) {
    words.push_back(
        absl::StrCat(moves.stages_elsewhere, " stages on another rank"));
  }
  for (const auto& part : parts) words.push_back(part.second);
  return words.empty() ? "nothing has moved" : absl::StrJoin(words, ", ");
}

Json MovesJson(const OrderMoves& moves) {
  Json out = Json::object();
  for (int kind = 0; kind < kNumPassKinds; ++kind) {
    const KindMoves& own = moves.kinds[kind];
    if (own.earlier + own.later + own.more + own.fewer == 0) continue;
    out[std::string(PassKindName(static_cast<PassKind>(kind)))] = {
        {"earlier", own.earlier},
        {"later", own.later},
        {"more", own.more},
        {"fewer", own.fewer}};
  }
  return out;
}

std::string SearchedText(const Explanation& explanation) {
  if (!explanation.searched) return "";
  const SearchedOrder& searched = *explanation.searched;
  const double step_s = explanation.step.step_s;
  return absl::StrCat(
      "\nsearched, from ", searched.found.start, ": ",
      MovesText(searched.moves), " (of ", searched.moves.passes,
      " passes)\nbubbles ", FormatPercent(searched.start_bubble), " -> ",
      FormatPercent(searched.bubble), ", step ",
      FormatSeconds(searched.start_step_s), " -> ", FormatSeconds(step_s), ", ",
      FormatChange(step_s / searched.start_step_s - 1),
      "\npasses and hops alone: ", FormatSeconds(searched.found.start_time),
      " -> ", FormatSeconds(searched.found.time), ", no order below ",
      FormatSeconds(searched.found.least_time), "\n");
}

Json SearchedJson(const Explanation& explanation) {
  if (!explanation.searched) return nullptr;
  const SearchedOrder& searched = *explanation.searched;
  return {{"found_order", FoundOrderToJson(searched.found)},
          {"passes", searched.moves.passes},
          {"moves", MovesJson(searched.moves)},
          {"stages_elsewhere", searched.moves.stages_elsewhere},
          {"start_step_s", searched.start_step_s},
          {"start_bubble", searched.start_bubble},
          {"bubble", searched.bubble}};
}

std::string Change(double from_s, double to_s) {
  return FormatChange(from_s > 0 ? to_s / from_s - 1 : 0);
}

std::string SensitivityText(const Explanation& explanation) {
  if (explanation.sensitivities.empty()) return "";
  const double step_s = explanation.step.step_s;
  std::vector<std::vector<std::string>> rows = {
      {"time", "10 % shorter", "10 % longer"}};
  for (const Sensitivity& row : explanation.sensitivities) {
    rows.push_back({row.name, Change(step_s, row.shorter_s),
                    Change(step_s, row.longer_s)});
  }
  return absl::StrCat("\nthe step with one kind of time changed:\n",
                      TextTable(rows));
}

Json PartsJson(const StepParts& parts, PartGroup group) {
  Json out = Json::object();
  for (int index = 0; index < kNumStepParts; ++index) {
    const auto part = static_cast<StepPart>(index);
    if (GroupOf(part) == group) out[std::string(PartKey(part))] = parts[part];
  }
  return out;
}

Json PartsJson(const StepParts& parts) {
  return {{"compute_s", PartsJson(parts, PartGroup::kCompute)},
          {"bubble_s", PartsJson(parts, PartGroup::kBubble)},
          {"communication_s", PartsJson(parts, PartGroup::kCommunication)}};
}

}  // namespace

std::string ExplanationToText(const Explanation& explanation) {
  const Report& report = explanation.run.report;
  const TimesInUnits units(report.in_units);
  const StepExplanation& step = explanation.step;
  std::string out = absl::StrCat(
      report.schedule, ": pp ", report.pp, ", vpp ", report.vpp,
      ", microbatches ", report.microbatches, ", engine ", report.engine,
      ", network ", report.network, "\nstep ", FormatSeconds(step.step_s),
      "  iteration ", step.iteration,
      report.dp > 1 ? absl::StrCat(", data-parallel replica ", step.replica)
                    : "",
      "\n\n", PartsTable(step), PathText(step), SearchedText(explanation));
  if (explanation.what_if) {
    absl::StrAppend(&out, "\nwhat if ", explanation.what_if->scales, ": step ",
                    FormatSeconds(explanation.what_if->step_s()), ", ",
                    Change(step.step_s, explanation.what_if->step_s()), "\n");
  }
  return out + SensitivityText(explanation);
}

std::string ExplanationToJson(const Explanation& explanation) {
  const Report& report = explanation.run.report;
  const StepExplanation& step = explanation.step;
  Json ranks = Json::array();
  for (const RankStep& rank : step.ranks) {
    Json object = {{"rank", rank.rank}, {"start_s", rank.start_s}};
    object.update(PartsJson(rank.parts));
    ranks.push_back(std::move(object));
  }
  Json pieces = Json::array();
  for (const PathPiece& piece : step.critical_path) {
    pieces.push_back({{"rank", piece.rank},
                      {"what", piece.what},
                      {"start_s", piece.start_s},
                      {"end_s", piece.end_s}});
  }
  Json path = PartsJson(step.path_parts);
  path["operations"] = std::move(pieces);
  Json sensitivities = Json::array();
  for (const Sensitivity& row : explanation.sensitivities) {
    sensitivities.push_back({{"time", row.name},
                             {"shorter_s", row.shorter_s},
                             {"longer_s", row.longer_s}});
  }
  Json what_if;
  if (explanation.what_if) {
    what_if = {{"times", explanation.what_if->scales},
               {"iteration_s", explanation.what_if->step_s()},
               {"report", ReportTree(explanation.what_if->report)}};
  }
  const Json out = {{"schedule", report.schedule},
                    {"engine", report.engine},
                    {"time_unit", TimeUnitName(report.in_units)},
                    {"iteration_s", report.iteration_s},
                    {"step_s", step.step_s},
                    {"iteration", step.iteration},
                    {"dp_replica", step.replica},
                    {"ranks", std::move(ranks)},
                    {"critical_path", std::move(path)},
                    {"searched", SearchedJson(explanation)},
                    {"what_if", std::move(what_if)},
                    {"sensitivities", std::move(sensitivities)},
                    {"warnings", report.warnings}};
  return out.dump(2);
}

}  // namespace pipewright

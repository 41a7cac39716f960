// What `sweep` prints and exports.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/cli/figure_files.h"
#include "sim/cli/sweep_verb.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

constexpr size_t kMostNotes = 40;
constexpr size_t kMostReasons = 5;

std::string JsonText(const Json& object) {
  return absl::StrCat(object.dump(2), "\n");
}

// Numbers do not tell texts apart, "dp 8, which fills one node", but those of
// names do, "zb-h1", "gpt-1.7b".
std::string WithoutNumbers(absl::string_view text) {
  std::string folded;
  bool in_name = false;
  bool in_number = false;
  for (const char letter : text) {
    const bool is_digit = absl::ascii_isdigit(letter);
    const bool joins = letter == '.' || letter == ',';
    if (is_digit && !in_name) {
      if (!in_number) folded += '#';
      in_number = true;
      continue;
    }
    if (joins && in_number) continue;
    in_number = false;
    in_name = absl::ascii_isalnum(letter) || letter == '-' || letter == '_' ||
              (letter == '.' && in_name);
    folded += letter;
  }
  return folded;
}

std::string AxesText(
    const std::vector<std::pair<std::string, SweepCell>>& axes) {
  std::string text;
  for (const auto& [name, value] : axes) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ",
                    ToString(value));
  }
  return text.empty() ? "the only point" : text;
}

}  // namespace

bool BestList::Wants(std::optional<double> value) const {
  return value &&
         (rows_.size() < kMostShown || Order(*value) < rows_.back().first);
}

void BestList::Offer(std::optional<double> value, const std::string& text) {
  if (!Wants(value)) return;
  const auto place = std::upper_bound(
      rows_.begin(), rows_.end(), Order(*value),
      [](double order, const auto& row) { return order < row.first; });
  rows_.insert(place,
               {Order(*value), absl::StrFormat("%12.6g  %s", *value, text)});
  if (rows_.size() > kMostShown) rows_.pop_back();
}

void BestList::AddTo(const char* name, std::string* out) const {
  if (rows_.empty()) return;
  absl::StrAppend(out, "\nbest of these points, ", name, ":\n");
  for (const auto& [order, text] : rows_) absl::StrAppend(out, text, "\n");
}

void CountedTexts::Add(const std::string& text, int64_t points) {
  const auto [found, is_new] =
      place_.try_emplace(WithoutNumbers(text), rows_.size());
  if (is_new) rows_.push_back({text, 0, 0});
  Row& row = rows_[found->second];
  row.points += points;
  if (row.text != text) row.others += points;
}

std::vector<std::string> CountedTexts::Lines(int64_t all, size_t most) const {
  std::vector<const Row*> shown;
  for (const Row& row : rows_) shown.push_back(&row);
  if (shown.size() > most) {
    std::stable_sort(shown.begin(), shown.end(),
                     [](const Row* one, const Row* other) {
                       return one->points > other->points;
                     });
    shown.resize(most);
  }
  std::vector<std::string> lines;
  for (const Row* const row : shown) {
    const std::string which =
        row->points < all ? absl::StrCat(row->points, " of ", all, " points")
        : all == 1        ? "the only point"
                          : absl::StrCat("all ", all, " points");
    lines.push_back(absl::StrCat(
        which,
        row->others == 0
            ? ""
            : absl::StrCat(" (", row->others, " of them with other numbers)"),
        ": ", row->text));
  }
  if (shown.size() < rows_.size()) {
    lines.push_back(absl::StrCat(rows_.size() - shown.size(),
                                 " others, which the rows have"));
  }
  return lines;
}

Json CountedTexts::ToJson() const {
  Json list = Json::array();
  for (const Row& row : rows_) {
    list.push_back({{"text", row.text},
                    {"points", row.points},
                    {"with_other_numbers", row.others}});
  }
  return list;
}

absl::Status OwnRows::Verdict() const {
  if (rows == 0 || refusals.points() < rows) return absl::OkStatus();
  const std::string message =
      absl::StrCat("no point of the sweep can run; ",
                   absl::StrJoin(refusals.Lines(rows, kMostReasons), "; "));
  return only_orders_refused ? absl::FailedPreconditionError(message)
                             : absl::InvalidArgumentError(message);
}

Json OwnRows::TimeUnit() const {
  if (reports_in.empty()) return nullptr;
  return reports_in.size() == 1 ? Json(reports_in.begin()->first)
                                : Json("mixed");
}

absl::Status SweepVerb::Export() {
  PW_RETURN_IF_ERROR(ExportRows());
  for (const char* flag : {"--html", "--figure"}) {
    if (!files.wanted(flag)) continue;
    FileFormat format = FileFormat::kHtml;
    if (absl::string_view(flag) == "--figure") {
      PW_ASSIGN_OR_RETURN(format, FigureFormat(flag, files.path(flag)));
    }
    PW_ASSIGN_OR_RETURN(const Figure figure,
                        FigureOfSweep(database, flag, format));
    PW_ASSIGN_OR_RETURN(std::string drawn, DrawFigure(figure, format));
    files.Put(flag, std::move(drawn));
  }
  return draws() ? files.Write() : absl::OkStatus();
}

absl::Status SweepVerb::ExportRows() const {
  if (csv.empty() && jsonl.empty()) return absl::OkStatus();
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepReader> reader,
                      SweepReader::Open(database));
  SweepExport out = {
      .columns = columns, .all_versions = all_versions, .stops = stops};
  if (!csv.empty()) {
    out.path = csv;
    PW_RETURN_IF_ERROR(ExportCsv(*reader, out));
  }
  if (jsonl.empty()) return absl::OkStatus();
  out.path = jsonl;
  return ExportJsonLines(*reader, out);
}

absl::Status SweepVerb::PrintStatuses() const {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepReader> reader,
                      SweepReader::Open(database));
  PW_ASSIGN_OR_RETURN(const int64_t rows, reader->rows());
  PW_ASSIGN_OR_RETURN(const int64_t others, reader->other_versions());
  PW_ASSIGN_OR_RETURN(const auto statuses, reader->Statuses());
  const Json object = {{"file", database},
                       {"rows", rows},
                       {"rows_of_other_versions", others},
                       {"statuses", statuses}};
  return Print(JsonText(object));
}

absl::StatusOr<OwnRows> SweepVerb::ReadOwnRows(
    const SweepReader& reader) const {
  std::vector<PointHash> own = walked;
  std::sort(own.begin(), own.end());
  PW_ASSIGN_OR_RETURN(const int64_t call, reader.LastSweep());
  OwnRows rows;
  // Those of earlier calls have said theirs.
  std::vector<std::pair<std::string, SaidBy>> said(warnings.begin(),
                                                   warnings.end());
  std::stable_sort(said.begin(), said.end(), [](const auto& a, const auto& b) {
    return a.second.place < b.second.place;
  });
  for (const auto& [text, by] : said) rows.notes.Add(text, by.points);
  const std::string unit_of_pass = TimeUnitName(/*in_units=*/true);
  absl::Status status;
  PW_RETURN_IF_ERROR(reader.VisitHeadlines([&](const SweepHeadline& row) {
    if (!status.ok() || !std::binary_search(own.begin(), own.end(), row.hash)) {
      return;
    }
    ++rows.rows;
    if (!row.time_unit.empty()) ++rows.reports_in[row.time_unit];
    if (row.status == NameOf(PointStatus::kRefused)) {
      rows.refusals.Add(row.reason);
      rows.only_orders_refused &= row.exit == 4;
    }
    BestList& by_time =
        row.time_unit == unit_of_pass ? rows.by_units : rows.by_time;
    const bool is_ok = row.status == NameOf(PointStatus::kOk);
    const bool is_best = is_ok && (by_time.Wants(row.iteration_s) ||
                                   rows.by_tokens.Wants(row.tokens_per_s));
    rows.run_now += row.sweep == call;
    if (!is_best) return;
    const auto found = reader.AxesOf(row.id);
    status.Update(found.status());
    if (!found.ok()) return;
    const std::string text = AxesText(*found);
    by_time.Offer(row.iteration_s, text);
    rows.by_tokens.Offer(row.tokens_per_s, text);
  }));
  PW_RETURN_IF_ERROR(status);
  return rows;
}

absl::Status SweepVerb::PrintResults(const SweepCounts& counts) const {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepReader> reader,
                      SweepReader::Open(database));
  PW_ASSIGN_OR_RETURN(const OwnRows own, ReadOwnRows(*reader));
  const absl::Status verdict = own.Verdict();
  PrintWarnings(own.notes.Lines(own.run_now, kMostNotes));
  if (verdict.ok()) {
    for (const std::string& line : own.refusals.Lines(own.rows, kMostReasons)) {
      PrintWarnings({absl::StrCat("refused: ", line)});
    }
  }
  PW_ASSIGN_OR_RETURN(const int64_t others, reader->other_versions());
  PW_ASSIGN_OR_RETURN(const int64_t rows, reader->rows());
  if (json) {
    const Json object = {
        {"file", database},
        {"shard", shard_text.empty() ? Json() : Json(ToString(shard))},
        {"points", counts.points},
        {"earlier", counts.earlier},
        {"ok", counts.ok},
        {"misfit", counts.misfits},
        {"refused", counts.refused},
        {"crashed", counts.crashed},
        {"timeout", counts.timeouts},
        {"earlier_lost", counts.earlier_lost},
        {"rows", rows},
        {"rows_of_other_versions", others},
        {"stopped", counts.stopped},
        {"time_unit", own.TimeUnit()},
        {"notes", own.notes.ToJson()},
        {"refusals", own.refusals.ToJson()}};
    PW_RETURN_IF_ERROR(Print(JsonText(object)));
    return verdict;
  }
  std::string text = absl::StrCat(
      counts.points, " points: ", counts.now(), " run now, ", counts.earlier,
      " known already\n", counts.ok, " ok, ", counts.misfits, " do not fit, ",
      counts.refused, " refused, ", counts.crashed, " crashed, ",
      counts.timeouts, " took too long\n", rows, " rows in ", database,
      others == 0 ? ""
                  : absl::StrCat(", and ", others,
                                 " of other model versions, which are kept and "
                                 "not plotted"),
      "\n");
  if (!counts.stopped) {
    own.by_tokens.AddTo("tokens_per_s", &text);
    if (own.by_tokens.empty()) own.by_time.AddTo("iteration_s", &text);
    own.by_units.AddTo("iteration in units of a pass", &text);
  }
  PW_RETURN_IF_ERROR(Print(text));
  return verdict;
}

}  // namespace pipewright

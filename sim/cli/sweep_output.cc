// What `sweep` prints and exports.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/cli/sweep_verb.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

constexpr size_t kBestShown = 5;

std::string JsonText(const Json& object) {
  return absl::StrCat(object.dump(2), "\n");
}

// The best of what it is offered, best first.
class BestList {
 public:
  explicit BestList(bool more_is_better) : more_(more_is_better) {}

  void Offer(const SweepCell& cell, const std::function<std::string()>& text) {
    if (cell.kind != SweepCell::Kind::kNumber) return;
    const double order = more_ ? -cell.number : cell.number;
    if (rows_.size() == kBestShown && order >= rows_.back().first) return;
    const auto place = std::upper_bound(
        rows_.begin(), rows_.end(), order,
        [](double value, const auto& row) { return value < row.first; });
    rows_.insert(place,
                 {order, absl::StrFormat("%12.6g  %s", cell.number, text())});
    if (rows_.size() > kBestShown) rows_.pop_back();
  }
  bool empty() const { return rows_.empty(); }
  void AddTo(const char* name, std::string* out) const {
    absl::StrAppend(out, "\nbest of these points, ", name, ":\n");
    for (const auto& [order, text] : rows_) absl::StrAppend(out, text, "\n");
  }

 private:
  const bool more_;
  std::vector<std::pair<double, std::string>> rows_;
};

std::string AxesText(const SweepRow& row) {
  std::string text;
  for (const auto& [name, cell] : row.axes) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ", ToString(cell));
  }
  return text.empty() ? "the only point" : text;
}

}  // namespace

absl::Status SweepVerb::Export() const {
  if (csv.empty() && jsonl.empty()) return absl::OkStatus();
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepReader> reader,
                      SweepReader::Open(database));
  SweepExport out = {.columns = columns, .all_versions = all_versions};
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

// Those that fit and train most tokens, or where nobody knows tokens are
// shortest.
absl::Status SweepVerb::AddBest(const SweepReader& reader,
                                std::string* text) const {
  PW_ASSIGN_OR_RETURN(const std::vector<std::string> known, reader.Columns());
  std::vector<std::string> wanted;
  for (const char* name : {"iteration_s", "tokens_per_s", "time_unit"}) {
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      wanted.emplace_back(name);
    }
  }
  std::vector<PointHash> own = walked;
  std::sort(own.begin(), own.end());
  std::vector<BestList> best = {BestList(false), BestList(true),
                                BestList(false)};
  PW_RETURN_IF_ERROR(reader.Visit(wanted, false, [&](const SweepRow& row) {
    if (row.status != "ok" ||
        !std::binary_search(own.begin(), own.end(), HashOfText(row.hash))) {
      return absl::OkStatus();
    }
    const std::string second = TimeUnitName(/*in_units=*/false);
    bool in_units = false;
    for (size_t index = 0; index < wanted.size(); ++index) {
      in_units |= wanted[index] == "time_unit" &&
                  row.cells[index].kind == SweepCell::Kind::kText &&
                  row.cells[index].text != second;
    }
    for (size_t index = 0; index < wanted.size(); ++index) {
      best[wanted[index] == "tokens_per_s" ? 1
           : in_units                      ? 2
                                           : 0]
          .Offer(row.cells[index], [&] { return AxesText(row); });
    }
    return absl::OkStatus();
  }));
  if (!best[1].empty()) {
    best[1].AddTo("tokens_per_s", text);
  } else if (!best[0].empty()) {
    best[0].AddTo("iteration_s", text);
  }
  if (!best[2].empty()) {
    best[2].AddTo("iteration in units of a pass", text);
  }
  return absl::OkStatus();
}

absl::Status SweepVerb::PrintCounts(const SweepCounts& counts) const {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepReader> reader,
                      SweepReader::Open(database));
  PW_ASSIGN_OR_RETURN(const int64_t others, reader->other_versions());
  PW_ASSIGN_OR_RETURN(const int64_t rows, reader->rows());
  if (json) {
    const Json object = {{"file", database},
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
                         {"stopped", counts.stopped}};
    return Print(JsonText(object));
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
  if (!counts.stopped) PW_RETURN_IF_ERROR(AddBest(*reader, &text));
  return Print(text);
}

}  // namespace pipewright

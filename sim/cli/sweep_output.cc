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

  bool Wants(double value) const {
    return rows_.size() < kBestShown || Order(value) < rows_.back().first;
  }
  void Offer(double value, const std::string& text) {
    if (!Wants(value)) return;
    const auto place = std::upper_bound(
        rows_.begin(), rows_.end(), Order(value),
        [](double order, const auto& row) { return order < row.first; });
    rows_.insert(place,
                 {Order(value), absl::StrFormat("%12.6g  %s", value, text)});
    if (rows_.size() > kBestShown) rows_.pop_back();
  }
  bool empty() const { return rows_.empty(); }
  void AddTo(const char* name, std::string* out) const {
    absl::StrAppend(out, "\nbest of these points, ", name, ":\n");
    for (const auto& [order, text] : rows_) absl::StrAppend(out, text, "\n");
  }

 private:
  double Order(double value) const { return more_ ? -value : value; }

  const bool more_;
  std::vector<std::pair<double, std::string>> rows_;
};

std::string AxesText(const Json& axes) {
  std::string text;
  if (!axes.is_object()) return "the only point";
  for (const auto& [name, value] : axes.items()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ",
                    value.is_string()
                        ? value.get<std::string>()
                        : ToString(SweepCell::Number(value.get<double>())));
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
  std::vector<PointHash> own = walked;
  std::sort(own.begin(), own.end());
  BestList seconds(false);
  BestList units(false);
  BestList tokens(true);
  absl::Status status;
  PW_RETURN_IF_ERROR(reader.VisitHeadlines([&](const SweepHeadline& row) {
    const bool wanted =
        (row.iteration_s &&
         (seconds.Wants(*row.iteration_s) ||
          (row.may_be_units && units.Wants(*row.iteration_s)))) ||
        (row.tokens_per_s && tokens.Wants(*row.tokens_per_s));
    if (!row.ok || !wanted || !status.ok() ||
        !std::binary_search(own.begin(), own.end(), row.hash)) {
      return;
    }
    const auto found = reader.AxesAndReport(row.id);
    status.Update(found.status());
    if (!found.ok()) return;
    const Json* const unit = found->second.find("time_unit");
    const bool in_units =
        unit != nullptr && unit->is_string() &&
        unit->get<std::string>() == TimeUnitName(/*in_units=*/true);
    const std::string axes_text = AxesText(found->first);
    if (row.iteration_s) {
      (in_units ? units : seconds).Offer(*row.iteration_s, axes_text);
    }
    if (row.tokens_per_s) tokens.Offer(*row.tokens_per_s, axes_text);
  }));
  PW_RETURN_IF_ERROR(status);
  if (!tokens.empty()) {
    tokens.AddTo("tokens_per_s", text);
  } else if (!seconds.empty()) {
    seconds.AddTo("iteration_s", text);
  }
  if (!units.empty()) units.AddTo("iteration in units of a pass", text);
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

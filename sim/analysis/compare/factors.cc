#include "sim/analysis/compare/factors.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/statistics.h"

namespace pipewright {
namespace {

// Standard deviation of a normal distribution over its median absolute
// deviation; standard error of its median over that of its mean.
constexpr double kDeviationOfMedian = 1.4826;
constexpr double kErrorOfMedian = 1.2533;

using CellList = std::vector<const Cell*>;

// A value of cells, and how far it may be off.
struct Estimate {
  double log = 0;
  double error = 0;

  bool Counts() const {
    return std::abs(std::expm1(log)) >= kSmallestFactor &&
           std::abs(log) >= kErrorsAway * error;
  }
};

// Further apart than this, two values are not the same.
double Apart(double one_error, double other_error) {
  return std::max(std::log1p(kSmallestFactor),
                  kErrorsAway * std::hypot(one_error, other_error));
}

bool Same(const Estimate& one, const Estimate& other) {
  return std::abs(one.log - other.log) <= Apart(one.error, other.error);
}

// Median by weight of what is left of `cells` after `less` of each.
template <typename Less>
Estimate EstimateOf(const CellList& cells, const Less& less) {
  std::vector<std::pair<double, double>> values;
  double total = 0;
  double square = 0;
  for (const Cell* cell : cells) {
    values.emplace_back(cell->log - less(*cell), cell->weight);
    total += cell->weight;
    square += cell->weight * cell->weight * cell->error * cell->error;
  }
  std::sort(values.begin(), values.end());
  Estimate estimate;
  if (total > 0) estimate.error = std::sqrt(square) / total;
  double below = 0;
  for (const auto& [log, weight] : values) {
    below += weight;
    estimate.log = log;
    if (below >= total / 2) break;
  }
  return estimate;
}

Estimate EstimateOf(const CellList& cells) {
  return EstimateOf(cells, [](const Cell&) { return 0.0; });
}

// Takes the largest number of cells that are alike out of `cells`; of equal
// numbers those that differ least from the simulation.
CellList TakeMost(CellList* cells) {
  std::sort(cells->begin(), cells->end(), [](const Cell* one, const Cell* two) {
    return one->log < two->log;
  });
  std::vector<double> errors;
  for (const Cell* cell : *cells) errors.push_back(cell->error);
  const double usual = Median(errors);
  const double width = Apart(usual, usual);
  size_t best = 0;
  size_t best_count = 0;
  double best_log = 0;
  size_t end = 0;
  for (size_t begin = 0; begin < cells->size(); ++begin) {
    while (end < cells->size() &&
           (*cells)[end]->log - (*cells)[begin]->log <= width) {
      ++end;
    }
    const size_t count = end - begin;
    const double log = std::abs((*cells)[begin + count / 2]->log);
    if (count > best_count || (count == best_count && log < best_log)) {
      best = begin;
      best_count = count;
      best_log = log;
    }
  }
  const auto first = cells->begin() + static_cast<std::ptrdiff_t>(best);
  const auto last = first + static_cast<std::ptrdiff_t>(best_count);
  const CellList taken(first, last);
  cells->erase(first, last);
  return taken;
}

// A factor in the making.
struct Draft {
  std::set<std::string> rows;
  std::set<Column> columns;
  Estimate estimate;
  double weight = 0;

  // Their common value is the mean by weight.
  void TakeValueOf(const Draft& other) {
    const double sum = weight + other.weight;
    if (sum <= 0) return;
    const double share = other.weight / sum;
    estimate = {
        std::lerp(estimate.log, other.estimate.log, share),
        std::hypot((1 - share) * estimate.error, share * other.estimate.error)};
    weight = sum;
  }
};

// Makes one of those that have the same value and the same `kept`.
template <typename Kept, typename Joined>
void MergeAlike(Kept Draft::*kept, Joined Draft::*joined,
                std::vector<Draft>* drafts) {
  std::vector<Draft> merged;
  for (Draft& draft : *drafts) {
    const auto same =
        std::find_if(merged.begin(), merged.end(), [&](const Draft& other) {
          return other.*kept == draft.*kept &&
                 Same(other.estimate, draft.estimate);
        });
    if (same == merged.end()) {
      merged.push_back(std::move(draft));
      continue;
    }
    ((*same).*joined).merge(draft.*joined);
    same->TakeValueOf(draft);
  }
  *drafts = std::move(merged);
}

class Explainer {
 public:
  explicit Explainer(const std::vector<Cell>& cells) {
    for (const Cell& cell : cells) {
      if (cell.logs.empty()) continue;
      rows_[cell.row].push_back(&cell);
      columns_[cell.column].push_back(&cell);
    }
    for (const auto& [row, list] : rows_) {
      CellList rest = list;
      common_[row] = EstimateOf(TakeMost(&rest)).log;
    }
    for (const auto& [column, list] : columns_) {
      if (list.size() > 1 && columns_.size() > 1) FindWhole(column, list);
    }
  }

  std::vector<Factor> Run() {
    const std::vector<Draft> apart = DraftApart();
    const std::vector<Draft> crossed = whole_.empty() ? apart : DraftCrossed();
    std::vector<Factor> factors;
    for (const Draft& draft : crossed.size() < apart.size() ? crossed : apart) {
      factors.push_back({{draft.rows.begin(), draft.rows.end()},
                         {draft.columns.begin(), draft.columns.end()},
                         draft.estimate.log});
    }
    return factors;
  }

 private:
  void FindWhole(const Column& column, const CellList& cells) {
    const auto common = [this](const Cell& cell) {
      return common_.at(cell.row);
    };
    const Estimate estimate = EstimateOf(cells, common);
    if (!estimate.Counts()) return;
    for (const Cell* cell : cells) {
      if (!Same({cell->log - common(*cell), cell->error}, estimate)) return;
    }
    whole_[column] = estimate;
  }

  // The rows' cells outside of whole columns, told apart by value. Where whole
  // columns have a factor of their own on top, they have the row's too.
  std::vector<Draft> DraftRows(bool crossed) const {
    std::vector<Draft> drafts;
    for (const auto& [row, list] : rows_) {
      CellList rest;
      for (const Cell* cell : list) {
        if (!whole_.contains(cell->column)) rest.push_back(cell);
      }
      bool missing = crossed;
      while (!rest.empty()) {
        const CellList alike = TakeMost(&rest);
        Draft draft = {.rows = {row}, .estimate = EstimateOf(alike)};
        for (const Cell* cell : alike) {
          draft.columns.insert(cell->column);
          draft.weight += cell->weight;
        }
        if (missing && Same(draft.estimate, {common_.at(row), 0})) {
          for (const Cell* cell : list) {
            if (whole_.contains(cell->column)) {
              draft.columns.insert(cell->column);
            }
          }
          missing = false;
        }
        if (draft.estimate.Counts()) drafts.push_back(std::move(draft));
      }
    }
    MergeAlike(&Draft::columns, &Draft::rows, &drafts);
    return drafts;
  }

  // Whole columns by what their cells come to.
  std::vector<Draft> DraftApart() const {
    std::vector<Draft> drafts;
    for (const auto& [column, offset] : whole_) {
      std::vector<Draft> cells;
      for (const Cell* cell : columns_.at(column)) {
        cells.push_back(
            {.rows = {cell->row},
             .columns = {column},
             .estimate = {common_.at(cell->row) + offset.log, offset.error},
             .weight = cell->weight});
      }
      MergeAlike(&Draft::columns, &Draft::rows, &cells);
      for (Draft& draft : cells) {
        if (draft.estimate.Counts()) drafts.push_back(std::move(draft));
      }
    }
    MergeAlike(&Draft::rows, &Draft::columns, &drafts);
    for (Draft& draft : DraftRows(false)) drafts.push_back(std::move(draft));
    return drafts;
  }

  // Whole columns by a factor on top of their rows'.
  std::vector<Draft> DraftCrossed() const {
    std::vector<Draft> drafts;
    for (const auto& [column, offset] : whole_) {
      Draft draft = {.columns = {column}, .estimate = offset};
      for (const Cell* cell : columns_.at(column)) {
        draft.rows.insert(cell->row);
        draft.weight += cell->weight;
      }
      drafts.push_back(std::move(draft));
    }
    MergeAlike(&Draft::rows, &Draft::columns, &drafts);
    for (Draft& draft : DraftRows(true)) drafts.push_back(std::move(draft));
    return drafts;
  }

  std::map<std::string, CellList> rows_;
  std::map<Column, CellList> columns_;
  std::map<std::string, double> common_;
  std::map<Column, Estimate> whole_;  // on top of the rows' common ratios
};

}  // namespace

double Deviation(const std::vector<double>& values) {
  const double median = Median(values);
  std::vector<double> away;
  away.reserve(values.size());
  for (const double value : values) away.push_back(std::abs(value - median));
  return kDeviationOfMedian * Median(std::move(away));
}

double ErrorOfMedian(const std::vector<double>& logs) {
  if (logs.size() < 2) return 0;
  return kErrorOfMedian * Deviation(logs) /
         std::sqrt(static_cast<double>(logs.size()));
}

bool Factor::Has(const Cell& cell) const {
  return std::binary_search(rows.begin(), rows.end(), cell.row) &&
         std::binary_search(columns.begin(), columns.end(), cell.column);
}

std::vector<Factor> Explain(const std::vector<Cell>& cells) {
  return Explainer(cells).Run();
}

namespace {

// "0-2, 5" of 0, 1, 2, 5.
std::string RanksText(const std::vector<Column>& places) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < places.size();) {
    size_t end = begin + 1;
    while (end < places.size() &&
           places[end].first == places[end - 1].first + 1) {
      ++end;
    }
    // Two are no range.
    if (end - begin == 2) --end;
    texts.push_back(absl::StrCat(places[begin].first));
    if (end - begin > 1) {
      absl::StrAppend(&texts.back(), "-", places[end - 1].first);
    }
    begin = end;
  }
  return absl::StrJoin(texts, ", ");
}

}  // namespace

CellNames NameCells(absl::string_view all, const std::vector<std::string>& rows,
                    const std::vector<Column>& columns,
                    const std::vector<Cell>& cells) {
  std::set<std::string> all_rows;
  std::set<Column> all_columns;  // in these rows
  for (const Cell& cell : cells) {
    all_rows.insert(cell.row);
    if (std::binary_search(rows.begin(), rows.end(), cell.row)) {
      all_columns.insert(cell.column);
    }
  }
  CellNames names;
  if (rows.size() < all_rows.size()) names.kinds = rows;
  const std::string what =
      names.kinds.empty() ? std::string(all) : absl::StrJoin(names.kinds, ", ");
  const bool everywhere =
      columns.size() == all_columns.size() && columns.size() > 1;
  if (everywhere || columns[0].first < 0) {
    names.text = absl::StrCat(what, " on all ranks");
    return names;
  }
  names.places = columns;
  if (columns[0].second >= 0) {
    names.text = absl::StrCat(
        what, " ",
        absl::StrJoin(columns, ", ", [](std::string* out, Column link) {
          absl::StrAppend(out, "rank ", link.first, " -> ", link.second);
        }));
    return names;
  }
  const std::string place = absl::StrCat(
      columns.size() == 1 ? "rank " : "ranks ", RanksText(columns));
  names.text = names.kinds.empty() ? absl::StrCat(place, ": ", what)
                                   : absl::StrCat(what, " on ", place);
  return names;
}

}  // namespace pipewright

// The CSV files of experiments/papers/, embedded in the binary: '#' lines, a
// line of column names, then values; a value with a comma stands in quotes. A
// column with a dot is a field of the configuration, "strategy.pp", also with a
// unit, "costs.p2p_ms"; its lists have blanks. The files are ours: a cell that
// is missing or no number is a bug and aborts.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/run_config.h"

namespace pipewright {

class TableRow {
 public:
  explicit TableRow(std::map<std::string, std::string> cells)
      : cells_(std::move(cells)) {}

  // True if the row has the column and something in it.
  bool Has(const std::string& column) const;
  const std::string& Text(const std::string& column) const;
  int Integer(const std::string& column) const;
  double Number(const std::string& column) const;
  const std::map<std::string, std::string>& cells() const { return cells_; }

  // "pp {strategy.pp}" with the cell for each name in braces.
  std::string Fill(const std::string& text) const;
  void Set(const std::string& column, const std::string& cell) {
    cells_[column] = cell;
  }
  // Takes the cells of `other` over; an empty one replaces nothing.
  void Take(const TableRow& other);

 private:
  std::map<std::string, std::string> cells_;
};

// `path` below experiments/papers, without ending: "zero_bubble_table5/times".
std::vector<TableRow> ReadTable(absl::string_view path);
// The folders of experiments/papers that have a table of this name.
std::vector<std::string> FoldersWith(absl::string_view name);

// Adds to each row the cells of the first row of `path` that agrees in the
// columns that both have; empty ones if none does, and nothing if there is no
// such file.
void JoinTable(absl::string_view path, std::vector<TableRow>* rows);

// The fields of a row; `model` is one of them if it names a preset. A row that
// names no schedule has the one of Megatron-LM and of torchtitan for its vpp.
// Error: a value that its field does not take.
absl::StatusOr<RunConfig> ConfigOf(const TableRow& row,
                                   const std::string& engine);

}  // namespace pipewright

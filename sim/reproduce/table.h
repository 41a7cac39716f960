// The CSV files of experiments/papers/, embedded in the binary: '#' lines, a
// line of column names, then values. They are ours: a cell that is missing or
// no number is a bug and aborts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

class TableRow {
 public:
  explicit TableRow(std::map<std::string, std::string> cells)
      : cells_(std::move(cells)) {}

  bool Has(const std::string& column) const {
    return cells_.count(column) > 0;
  }
  const std::string& Text(const std::string& column) const;
  int Integer(const std::string& column) const;
  double Number(const std::string& column) const;

 private:
  std::map<std::string, std::string> cells_;
};

// `path` below experiments/papers, without ending: "zero_bubble_table5/times".
std::vector<TableRow> ReadTable(absl::string_view path);
bool HasTable(absl::string_view path);

}  // namespace pipewright

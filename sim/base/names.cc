#include "sim/base/names.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t column = 0; column <= b.size(); ++column) row[column] = column;
  for (size_t line = 1; line <= a.size(); ++line) {
    size_t diagonal = row[0];
    row[0] = line;
    for (size_t column = 1; column <= b.size(); ++column) {
      const size_t substituted =
          diagonal + (a[line - 1] == b[column - 1] ? 0 : 1);
      diagonal = row[column];
      row[column] =
          std::min({row[column] + 1, row[column - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& known) {
  const std::string lower = absl::AsciiStrToLower(name);
  std::string best;
  size_t best_distance = std::max<size_t>(2, lower.size() / 2) + 1;
  for (const std::string& candidate : known) {
    const size_t distance =
        EditDistance(lower, absl::AsciiStrToLower(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

absl::Status UnknownName(absl::string_view what, absl::string_view name,
                         const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  const std::string list = absl::StrJoin(known, ", ");
  const absl::Status unknown = WithValue(
      absl::InvalidArgumentError(absl::StrCat(
          "unknown ", what, " '", name, "'",
          nearest.empty() ? ""
                          : absl::StrCat("; did you mean '", nearest, "'?"),
          " (known: ", list, ")")),
      name, list);
  // Other things are no fields; the caller knows which field they stand in.
  return absl::StartsWith(what, "--") ? AboutField(what, unknown) : unknown;
}

}  // namespace pipewright

// One file of a sweep out of those of its shards.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

struct MergeCounts {
  int64_t shards = 0;  // of the sweep
  int64_t points = 0;  // of its grid
  int64_t rows = 0;
  int64_t repeated =
      0;                // points without a row, being another point of the grid
  int64_t missing = 0;  // that nobody has run
  std::vector<int64_t> missing_shards;  // without a file
  std::vector<std::string>
      missing_points;  // a text a shard that has some, for eight
  std::map<std::string, int64_t> statuses;
};

// Writes `out`, which is there whole or not at all: the rows that one process
// would have stored, in its order. What no shard has run is missing in it and
// is counted; `sweep -o` with the same grid then runs it. Error:
// kInvalidArgument naming the file: no shard, one of another sweep, one given
// twice, one that is damaged, an `out` that is there already.
absl::StatusOr<MergeCounts> MergeShards(const std::vector<std::string>& paths,
                                        const std::string& out);

}  // namespace pipewright

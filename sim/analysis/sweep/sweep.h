// Runs the points of a sweep's shard that its file does not have yet, and
// stores their rows. It walks the grid as workers become free and never holds
// it.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/pool.h"
#include "sim/analysis/sweep/store.h"

namespace pipewright {

struct SweepCounts {
  int64_t points = 0;        // points of the shard, as far as it was walked
  int64_t earlier = 0;       // that had a row, or are another point of the grid
  int64_t earlier_lost = 0;  // those of them that crashed or timed out
  int64_t ok = 0;
  int64_t misfits = 0;
  int64_t refused = 0;
  int64_t crashed = 0;
  int64_t timeouts = 0;
  bool stopped = false;

  int64_t now() const { return ok + misfits + refused + crashed + timeouts; }
};

struct SweepWatch {
  // Asked about every tenth of a second; true ends the sweep. May be null.
  std::function<bool()> stops;
  // Called about as often. May be null.
  std::function<void(const SweepCounts&)> progress;
  // Called for every point that has run, before it is stored. May be null.
  std::function<void(const PointResult&)> finished;
  // Called for every point of the grid, those with a row too. May be null.
  std::function<void(const PointHash&)> walked;
};

// Error: kInternal where the file cannot be written or no worker be started;
// what was committed stays.
absl::StatusOr<SweepCounts> RunSweep(const SweepPoints& points,
                                     SweepStore* store, Evaluator* evaluator,
                                     const SweepWatch& watch);

// Points of the whole grid, whatever its shard.
int64_t PointsOf(const SweepGrid& grid, const RunConfig& base);

// Points of the grid's shard, and how many of them `has` no row. Points that
// are the same count once in `missing`.
struct GridCounts {
  int64_t points = 0;
  int64_t missing = 0;
};
GridCounts CountPoints(const SweepPoints& points,
                       const std::function<bool(const PointHash&)>& has);

}  // namespace pipewright

#include "sim/analysis/sweep/sweep.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRowsOfCommit = 2000;
constexpr auto kCommitEvery = std::chrono::milliseconds(250);
constexpr auto kAskEvery = std::chrono::milliseconds(100);

struct FirstBytes {
  size_t operator()(const PointHash& hash) const {
    size_t value = 0;
    std::memcpy(&value, hash.data(), sizeof(value));
    return value;
  }
};

void Count(PointStatus status, SweepCounts* counts) {
  switch (status) {
    case PointStatus::kOk:
      ++counts->ok;
      break;
    case PointStatus::kMisfit:
      ++counts->misfits;
      break;
    case PointStatus::kRefused:
      ++counts->refused;
      break;
    case PointStatus::kCrashed:
      ++counts->crashed;
      break;
    case PointStatus::kTimeout:
      ++counts->timeouts;
      break;
  }
}

class SweepRun {
 public:
  SweepRun(const SweepPoints& points, SweepStore* store, Evaluator* evaluator,
           const SweepWatch& watch)
      : points_(points),
        store_(*store),
        evaluator_(*evaluator),
        watch_(watch),
        walk_(&points.grid(), points.base()) {}

  absl::StatusOr<SweepCounts> Run() {
    while (true) {
      PW_RETURN_IF_ERROR(Fill());
      if (walked_ && evaluator_.pending() == 0) break;
      std::vector<FinishedPoint> finished;
      absl::Status status = evaluator_.Wait(0.1, &finished);
      for (FinishedPoint& point : finished) {
        PW_RETURN_IF_ERROR(Take(std::move(point)));
      }
      PW_RETURN_IF_ERROR(status);
      PW_RETURN_IF_ERROR(CommitWhenDue());
      if (Asks()) break;
    }
    PW_RETURN_IF_ERROR(store_.Commit());
    if (watch_.progress) watch_.progress(counts_);
    return counts_;
  }

 private:
  absl::Status Fill() {
    while (!walked_ && evaluator_.wants() > 0) {
      if (!walk_.NextOfShard()) {
        walked_ = true;
        return absl::OkStatus();
      }
      ++counts_.points;
      const PointHash hash = points_.HashAt(walk_.choices());
      if (watch_.walked) watch_.walked(hash);
      if (store_.Has(hash) || !under_way_.insert(hash).second) {
        ++counts_.earlier;
        if (store_.IsLost(hash)) ++counts_.earlier_lost;
        PW_RETURN_IF_ERROR(store_.AddKnown(walk_.place()));
        continue;
      }
      const uint64_t serial = ++serials_;
      point_of_serial_[serial] = {hash, walk_.place(), walk_.choices()};
      evaluator_.Give({.serial = serial, .choices = walk_.choices()});
    }
    return absl::OkStatus();
  }

  absl::Status Take(FinishedPoint point) {
    const auto known = point_of_serial_.find(point.serial);
    if (known == point_of_serial_.end()) return absl::OkStatus();
    point.result.hash = known->second.hash;
    point.result.place = known->second.place;
    // A tenth of the text.
    if (store_.has_places()) {
      point.result.axes =
          absl::StrCat("[", absl::StrJoin(known->second.choices, ","), "]");
    }
    under_way_.erase(point.result.hash);
    point_of_serial_.erase(known);
    Count(point.result.status, &counts_);
    ++uncommitted_;
    if (watch_.finished) watch_.finished(point.result);
    return store_.Add(point.result);
  }

  absl::Status CommitWhenDue() {
    const bool due = uncommitted_ >= kRowsOfCommit ||
                     Clock::now() - committed_ > kCommitEvery;
    if (!due) return absl::OkStatus();
    uncommitted_ = 0;
    const absl::Status status = store_.Commit();
    committed_ = Clock::now();
    return status;
  }

  // True where somebody wants an end.
  bool Asks() {
    if (Clock::now() - asked_ < kAskEvery) return false;
    asked_ = Clock::now();
    if (watch_.progress) watch_.progress(counts_);
    if (watch_.stops && watch_.stops()) counts_.stopped = true;
    return counts_.stopped;
  }

  struct Given {
    PointHash hash = {};
    int64_t place = 0;
    SweepChoices choices;
  };

  const SweepPoints& points_;
  SweepStore& store_;
  Evaluator& evaluator_;
  const SweepWatch& watch_;
  GridWalk walk_;
  bool walked_ = false;
  uint64_t serials_ = 0;
  absl::flat_hash_map<uint64_t, Given> point_of_serial_;
  absl::flat_hash_set<PointHash, FirstBytes> under_way_;
  int64_t uncommitted_ = 0;
  Clock::time_point committed_ = Clock::now();
  Clock::time_point asked_ = Clock::now();
  SweepCounts counts_;
};

}  // namespace

absl::StatusOr<SweepCounts> RunSweep(const SweepPoints& points,
                                     SweepStore* store, Evaluator* evaluator,
                                     const SweepWatch& watch) {
  return SweepRun(points, store, evaluator, watch).Run();
}

int64_t PointsOf(const SweepGrid& grid, const RunConfig& base) {
  int64_t points = 0;
  GridWalk walk(&grid, base);
  while (walk.Next()) ++points;
  return points;
}

GridCounts CountPoints(const SweepPoints& points,
                       const std::function<bool(const PointHash&)>& has) {
  GridCounts counts;
  GridWalk walk(&points.grid(), points.base());
  absl::flat_hash_set<PointHash, FirstBytes> seen;
  while (walk.NextOfShard()) {
    ++counts.points;
    const PointHash hash = points.HashAt(walk.choices());
    if (!has(hash) && seen.insert(hash).second) ++counts.missing;
  }
  return counts;
}

}  // namespace pipewright

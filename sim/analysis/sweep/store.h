// The file of a sweep: one SQLite file with a row a point, under the hash of
// its configuration (schema: docs/dev/sweep.md). One process writes it at a
// time; others may read meanwhile (reader.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/sweep/database.h"
#include "sim/analysis/sweep/grid.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/result.h"
#include "sim/analysis/sweep/writer_lock.h"

namespace pipewright {

inline constexpr int kSweepSchema = 4;

// An empty sweep at `path`, which is there whole or not at all. Only for the
// holder of the lock of `path`, where nothing is yet. Error: kInvalidArgument
// where no file can be made, kInternal where the disk is full.
absl::Status CreateSweepFile(const std::string& path);
// What `database` is, brought to kSweepSchema where it is older. Error:
// kInvalidArgument for a file of something else, and for a newer one.
absl::Status MigrateSweepFile(Database* database);
// Error: one of something else, or of another schema; it is not changed.
absl::Status CheckSweepFile(Database* database);

// Columns of a row that a result fills, in the order of the table.
extern const char kPointColumns[];

// A call of sweep.
struct SweepCall {
  std::string command;
  std::string base;    // a line a field
  std::string grid;    // SweepPoints::GridText(); "": rows have no places
  std::string axes;    // SweepPoints::AxesTable(), which numbers of rows are of
  int64_t points = 0;  // of the whole grid
  SweepShard shard;
};

// What the first line is in which two texts of grids differ.
std::string WhyOtherGrid(absl::string_view one, absl::string_view other);

class SweepStore {
 public:
  // Makes the file where it is not there. Error: kInvalidArgument for what
  // cannot be such a file, and while another process writes it; kInternal where
  // the disk is full.
  static absl::StatusOr<std::unique_ptr<SweepStore>> Open(
      const std::string& path);
  // Rows that are not committed are not kept.
  ~SweepStore();

  // Rows that follow are of this call. Those of one grid stand in its order,
  // whatever is run first and by which call. Error: kInvalidArgument if only
  // one of the file and the call is a shard, or both are and not the same.
  absl::Status Begin(const SweepCall& call);
  // Is there a row of this model version?
  bool Has(const PointHash& hash) const {
    return known_.contains(hash) && !forgotten_.contains(hash);
  }
  // One that crashed or timed out?
  bool IsLost(const PointHash& hash) const { return lost_.contains(hash); }
  // Forgets rows of this model version that crashed or timed out, so that their
  // points run again.
  void ForgetLost();
  // Adds the row, and replaces one of the same hash. Kept with the next Commit.
  absl::Status Add(const PointResult& result);
  // A point that has a row already; the file keeps that it is done.
  absl::Status AddKnown(int64_t place);
  // Has the call a grid, so that axes are numbers of its values?
  bool has_places() const { return first_ > 0; }
  absl::Status Commit();
  int64_t rows() const {
    return static_cast<int64_t>(known_.size() - forgotten_.size());
  }

 private:
  struct HashOfPointHash {
    size_t operator()(const PointHash& hash) const;
  };

  SweepStore(std::unique_ptr<WriterLock> lock,
             std::unique_ptr<Database> database);
  absl::Status Start();
  absl::Status FindPlaces(const SweepCall& call);
  absl::Status Transaction();
  absl::StatusOr<int64_t> ShapeOf(const std::string& shape);

  std::unique_ptr<WriterLock> lock_;  // until the database is closed
  std::unique_ptr<Database> database_;
  std::unique_ptr<Statement> insert_;
  std::unique_ptr<Statement> insert_known_;
  std::unique_ptr<Statement> remove_;
  std::unique_ptr<Statement> find_shape_;
  std::unique_ptr<Statement> insert_shape_;
  // By id. The table has no index of hashes, which would be a fifth of it.
  absl::flat_hash_map<PointHash, int64_t, HashOfPointHash> known_;
  absl::flat_hash_set<PointHash, HashOfPointHash> lost_;
  absl::flat_hash_set<PointHash, HashOfPointHash> forgotten_;  // that were lost
  std::map<std::string, int64_t> shapes_;                      // by digest
  int64_t sweep_ = 0;
  int64_t first_ = 0;  // id of the grid's first point; 0: ids as they come
  bool knows_axes_ = false;
  bool open_ = false;  // a transaction
};

}  // namespace pipewright

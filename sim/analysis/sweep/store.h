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

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/sweep/database.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/result.h"
#include "sim/analysis/sweep/writer_lock.h"

namespace pipewright {

inline constexpr int kSweepSchema = 3;

// An empty sweep at `path`, which is there whole or not at all. Only for the
// holder of the lock of `path`, where nothing is yet. Error: kInvalidArgument
// where no file can be made, kInternal where the disk is full.
absl::Status CreateSweepFile(const std::string& path);
// What `database` is, brought to kSweepSchema where it is older. Error:
// kInvalidArgument for a file of something else, and for a newer one.
absl::Status MigrateSweepFile(Database* database);
// Error: one of something else, or of another schema; it is not changed.
absl::Status CheckSweepFile(Database* database);

class SweepStore {
 public:
  // Makes the file where it is not there. Error: kInvalidArgument for what
  // cannot be such a file, and while another process writes it; kInternal where
  // the disk is full.
  static absl::StatusOr<std::unique_ptr<SweepStore>> Open(
      const std::string& path);
  // Rows that are not committed are not kept.
  ~SweepStore();

  // A call of sweep; rows that follow are its.
  absl::Status Begin(const std::string& command, const std::string& base);
  // Is there a row of this model version?
  bool Has(const PointHash& hash) const { return known_.contains(hash); }
  // One that crashed or timed out?
  bool IsLost(const PointHash& hash) const { return lost_.contains(hash); }
  // Forgets rows of this model version that crashed or timed out, so that their
  // points run again.
  void ForgetLost();
  // Adds the row, and replaces one of the same hash. Kept with the next Commit.
  absl::Status Add(const PointResult& result);
  absl::Status Commit();
  int64_t rows() const { return static_cast<int64_t>(known_.size()); }

 private:
  struct HashOfPointHash {
    size_t operator()(const PointHash& hash) const;
  };

  SweepStore(std::unique_ptr<WriterLock> lock,
             std::unique_ptr<Database> database);
  absl::Status Start();
  absl::StatusOr<int64_t> ShapeOf(const std::string& shape);

  std::unique_ptr<WriterLock> lock_;  // until the database is closed
  std::unique_ptr<Database> database_;
  std::unique_ptr<Statement> insert_;
  std::unique_ptr<Statement> find_shape_;
  std::unique_ptr<Statement> insert_shape_;
  absl::flat_hash_set<PointHash, HashOfPointHash> known_;
  absl::flat_hash_set<PointHash, HashOfPointHash> lost_;
  std::map<std::string, int64_t> shapes_;  // by digest
  int64_t sweep_ = 0;
  bool open_ = false;  // a transaction
};

}  // namespace pipewright

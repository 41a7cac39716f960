#include "sim/analysis/sweep/store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/sweep/leaves.h"
#include "sim/base/digest.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/base/version.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

absl::string_view BytesOf(const PointHash& hash) {
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

void BindOptional(Statement* statement, int place,
                  const std::optional<double>& value) {
  value ? statement->BindReal(place, *value) : statement->BindNull(place);
}

}  // namespace

const char kPointColumns[] =
    "hash, model_version, sweep, status, exit, reason, engine, seed, axes, "
    "fits, iteration_s, tokens_per_s, peak_memory_bytes, bubble_global, "
    "bubble_per_rank, mfu, shape, leaves, time_unit, iteration_units";

std::string WhyOtherGrid(absl::string_view one, absl::string_view other) {
  const std::vector<absl::string_view> lines = absl::StrSplit(one, '\n');
  const std::vector<absl::string_view> others = absl::StrSplit(other, '\n');
  for (size_t line = 0; line < std::max(lines.size(), others.size()); ++line) {
    const auto at = [line](const std::vector<absl::string_view>& of) {
      // The last line is of all that the others do not show.
      return line + 2 < of.size() ? of[line] : "nothing";
    };
    if (at(lines) == at(others)) continue;
    return absl::StrCat("'", at(lines), "' and '", at(others), "'");
  }
  if (one != other) return "the base differs, or what a file of it holds";
  return "the same";
}

size_t SweepStore::HashOfPointHash::operator()(const PointHash& hash) const {
  size_t value = 0;
  std::memcpy(&value, hash.data(), sizeof(value));
  return value;
}

SweepStore::SweepStore(std::unique_ptr<WriterLock> lock,
                       std::unique_ptr<Database> database)
    : lock_(std::move(lock)), database_(std::move(database)) {}

SweepStore::~SweepStore() {
  if (open_) database_->Execute("ROLLBACK").IgnoreError();
}

absl::StatusOr<std::unique_ptr<SweepStore>> SweepStore::Open(
    const std::string& path) {
  PW_RETURN_IF_ERROR(Database::CheckPath(path));
  PW_ASSIGN_OR_RETURN(std::unique_ptr<WriterLock> lock, WriterLock::Take(path));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    PW_RETURN_IF_ERROR(CreateSweepFile(path));
  }
  PW_ASSIGN_OR_RETURN(std::unique_ptr<Database> database,
                      Database::Open(path, Database::Mode::kWrite));
  std::unique_ptr<SweepStore> store(
      new SweepStore(std::move(lock), std::move(database)));
  PW_RETURN_IF_ERROR(store->Start());
  return store;
}

absl::Status SweepStore::Start() {
  PW_RETURN_IF_ERROR(MigrateSweepFile(database_.get()));
  PW_RETURN_IF_ERROR(
      database_->Execute("PRAGMA synchronous = NORMAL;"
                         "PRAGMA cache_size = -65536;"
                         "PRAGMA wal_autocheckpoint = 4000"));
  PW_ASSIGN_OR_RETURN(
      insert_, database_->Prepare(absl::StrCat(
                   "INSERT OR REPLACE INTO point(", kPointColumns,
                   ", id) "
                   "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")));
  PW_ASSIGN_OR_RETURN(
      insert_known_,
      database_->Prepare("INSERT OR IGNORE INTO known(id) SELECT ?1 WHERE NOT "
                         "EXISTS(SELECT 1 FROM point WHERE id = ?1)"));
  PW_ASSIGN_OR_RETURN(remove_,
                      database_->Prepare("DELETE FROM point WHERE id = ?"));
  PW_ASSIGN_OR_RETURN(
      find_shape_, database_->Prepare("SELECT id FROM shape WHERE digest = ?"));
  PW_ASSIGN_OR_RETURN(
      insert_shape_,
      database_->Prepare("INSERT INTO shape(digest, tree) VALUES(?, ?)"));
  PW_ASSIGN_OR_RETURN(
      const auto hashes,
      database_->Prepare("SELECT hash, status IN ('crashed', 'timeout'), id "
                         "FROM point WHERE model_version = ?"));
  hashes->BindInteger(0, kModelVersion);
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, hashes->Step());
    if (!found) break;
    const absl::string_view bytes = hashes->Text(0);
    PointHash hash;
    if (bytes.size() != hash.size()) continue;
    std::memcpy(hash.data(), bytes.data(), hash.size());
    known_[hash] = hashes->Integer(2);
    if (hashes->Integer(1) != 0) lost_.insert(hash);
  }
  return absl::OkStatus();
}

// Finds where the rows of the grid begin.
absl::Status SweepStore::FindPlaces(const SweepCall& call) {
  const auto refused = [&](absl::string_view is, absl::string_view allowed) {
    return AboutFile(
        database_->path(),
        WithValue(absl::InvalidArgumentError(absl::StrCat(
                      database_->path(), ": ", is, "; allowed: ", allowed)),
                  database_->path(), std::string(allowed)));
  };
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare("SELECT grid, first, points, shard, shards FROM sweep "
                         "ORDER BY id"));
  PW_ASSIGN_OR_RETURN(
      int64_t free,
      database_->Integer("SELECT 1 + coalesce(max(id), 0) FROM point"));
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) break;
    const absl::string_view grid = select->Text(0);
    const SweepShard shard =
        select->IsNull(3) ? SweepShard()
                          : SweepShard{select->Integer(3), select->Integer(4)};
    if (shard.count > 1 && shard != call.shard) {
      return refused(
          absl::StrCat("has shard ", ToString(shard), " of a sweep"),
          absl::StrCat("--shard ", ToString(shard), ", or another file"));
    }
    if (call.shard.count > 1 && (shard != call.shard || grid != call.grid)) {
      return refused(grid == call.grid
                         ? "has the whole sweep"
                         : absl::StrCat("has rows of another sweep (",
                                        WhyOtherGrid(grid, call.grid), ")"),
                     "a file that only this shard writes");
    }
    if (!grid.empty() && grid == call.grid) first_ = select->Integer(1);
    knows_axes_ |= grid == call.grid;
    free = std::max(free, select->Integer(1) + select->Integer(2));
  }
  if (first_ == 0) first_ = free;
  return absl::OkStatus();
}

absl::Status SweepStore::Begin(const SweepCall& call) {
  first_ = 0;
  knows_axes_ = false;
  if (!call.grid.empty()) PW_RETURN_IF_ERROR(FindPlaces(call));
  PW_ASSIGN_OR_RETURN(
      const auto insert,
      database_->Prepare(
          "INSERT INTO sweep(started, program, model_version, command, base, "
          "grid, first, points, shard, shards, axes) "
          "VALUES(?,?,?,?,?,?,?,?,?,?,?)"));
  const std::string now = UtcNow();
  insert->BindText(0, now);
  insert->BindText(1, kVersion);
  insert->BindInteger(2, kModelVersion);
  insert->BindText(3, call.command);
  insert->BindText(4, call.base);
  if (first_ > 0) {
    insert->BindText(5, call.grid);
    insert->BindInteger(6, first_);
    insert->BindInteger(7, call.points);
    insert->BindInteger(8, call.shard.number);
    insert->BindInteger(9, call.shard.count);
    // Once for all calls of a grid.
    if (!knows_axes_) insert->BindText(10, call.axes);
  }
  PW_RETURN_IF_ERROR(insert->Run());
  sweep_ = database_->last_row_id();
  return absl::OkStatus();
}

void SweepStore::ForgetLost() {
  forgotten_ = std::move(lost_);
  lost_.clear();
}

absl::StatusOr<int64_t> SweepStore::ShapeOf(const std::string& shape) {
  const std::string digest = absl::StrCat(Digest(shape), "-", shape.size());
  const auto known = shapes_.find(digest);
  if (known != shapes_.end()) return known->second;
  find_shape_->BindText(0, digest);
  PW_ASSIGN_OR_RETURN(const bool found, find_shape_->Step());
  int64_t id = found ? find_shape_->Integer(0) : 0;
  find_shape_->Reset();
  if (!found) {
    insert_shape_->BindText(0, digest);
    insert_shape_->BindText(1, shape);
    PW_RETURN_IF_ERROR(insert_shape_->Run());
    id = database_->last_row_id();
  }
  shapes_[digest] = id;
  return id;
}

absl::Status SweepStore::Transaction() {
  if (open_) return absl::OkStatus();
  open_ = true;
  return database_->Execute("BEGIN");
}

absl::Status SweepStore::AddKnown(int64_t place) {
  if (first_ == 0) return absl::OkStatus();
  PW_RETURN_IF_ERROR(Transaction());
  insert_known_->BindInteger(0, first_ + place);
  return insert_known_->Run();
}

absl::Status SweepStore::Add(const PointResult& result) {
  PW_RETURN_IF_ERROR(Transaction());
  insert_->BindBytes(0, BytesOf(result.hash));
  insert_->BindInteger(1, kModelVersion);
  insert_->BindInteger(2, sweep_);
  insert_->BindText(3, NameOf(result.status));
  insert_->BindInteger(4, result.exit);
  if (!result.reason.empty()) insert_->BindText(5, result.reason);
  insert_->BindText(6, result.engine);
  if (result.seed) insert_->BindInteger(7, *result.seed);
  insert_->BindText(8, result.axes);
  if (result.fits) insert_->BindInteger(9, *result.fits ? 1 : 0);
  // Units of a pass have a column of their own.
  const bool in_units = result.time_unit == TimeUnitName(/*in_units=*/true);
  BindOptional(insert_.get(), in_units ? 19 : 10, result.iteration_s);
  BindOptional(insert_.get(), 11, result.tokens_per_s);
  BindOptional(insert_.get(), 12, result.peak_memory_bytes);
  BindOptional(insert_.get(), 13, result.bubble_global);
  BindOptional(insert_.get(), 14, result.bubble_per_rank);
  BindOptional(insert_.get(), 15, result.mfu);
  if (!result.shape.empty()) {
    PW_ASSIGN_OR_RETURN(const int64_t shape, ShapeOf(result.shape));
    insert_->BindInteger(16, shape);
    insert_->BindText(17, result.leaves);
  }
  if (!result.time_unit.empty()) insert_->BindText(18, result.time_unit);
  if (first_ > 0 && result.place) {
    insert_->BindInteger(20, first_ + *result.place);
  }
  const auto [known, is_new] = known_.try_emplace(result.hash, 0);
  if (!is_new) {
    remove_->BindInteger(0, known->second);
    PW_RETURN_IF_ERROR(remove_->Run());
    forgotten_.erase(result.hash);
  }
  PW_RETURN_IF_ERROR(insert_->Run());
  known->second = database_->last_row_id();
  return absl::OkStatus();
}

absl::Status SweepStore::Commit() {
  if (!open_) return absl::OkStatus();
  open_ = false;
  const absl::Status status = database_->Execute("COMMIT");
  if (!status.ok()) database_->Execute("ROLLBACK").IgnoreError();
  return status;
}

// The schema of a sweep's file and the way from older ones.

namespace {

// "PWSW", so that `file` and we know whose it is.
constexpr int64_t kApplication = 0x50575357;

constexpr char kFirst[] = R"(
CREATE TABLE sweep(
  id INTEGER PRIMARY KEY,
  started TEXT NOT NULL,
  program TEXT NOT NULL,
  model_version INTEGER NOT NULL,
  command TEXT NOT NULL,
  base TEXT NOT NULL);
CREATE TABLE shape(
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  tree TEXT NOT NULL);
CREATE TABLE point(
  id INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  model_version INTEGER NOT NULL,
  sweep INTEGER NOT NULL REFERENCES sweep(id),
  status TEXT NOT NULL,
  exit INTEGER NOT NULL,
  reason TEXT,
  engine TEXT NOT NULL,
  seed INTEGER,
  axes TEXT NOT NULL,
  fits INTEGER,
  iteration_s REAL,
  tokens_per_s REAL,
  peak_memory_bytes REAL,
  bubble_global REAL,
  bubble_per_rank REAL,
  shape INTEGER REFERENCES shape(id),
  leaves TEXT);
CREATE INDEX point_by_iteration ON point(iteration_s);
CREATE INDEX point_by_memory ON point(peak_memory_bytes);
PRAGMA user_version = 1;
)";

// A column, and what the stored reports say of `key`, its name.
absl::Status AddColumn(const std::string& key, absl::string_view type,
                       Database* database) {
  PW_RETURN_IF_ERROR(database->Execute(
      absl::StrCat("ALTER TABLE point ADD COLUMN ", key, " ", type)));
  PW_ASSIGN_OR_RETURN(const auto shapes,
                      database->Prepare("SELECT id, tree FROM shape"));
  PW_ASSIGN_OR_RETURN(const auto update, database->Prepare(absl::StrCat(
                                             "UPDATE point SET ", key,
                                             " = json_extract(leaves, ?) "
                                             "WHERE shape = ?")));
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, shapes->Step());
    if (!found) return absl::OkStatus();
    const Json tree = ParseJson(shapes->Text(1)).value_or(Json());
    const ColumnOfShape column = FindColumn(tree, key);
    if (column.leaves.empty()) continue;
    const std::string path = absl::StrCat("$[", column.leaves[0], "]");
    update->BindText(0, path);
    update->BindInteger(1, shapes->Integer(0));
    PW_RETURN_IF_ERROR(update->Run());
  }
}

// 1 -> 2: the column mfu.
absl::Status AddMfu(Database* database) {
  PW_RETURN_IF_ERROR(AddColumn("mfu", "REAL", database));
  return database->Execute("PRAGMA user_version = 2");
}

// 2 -> 3: the unit of times, and a column for those that are no seconds.
// Reports from before there were units are in seconds.
absl::Status AddTimeUnit(Database* database) {
  PW_RETURN_IF_ERROR(AddColumn("time_unit", "TEXT", database));
  return database->Execute(absl::StrCat(
      "ALTER TABLE point ADD COLUMN iteration_units REAL;"
      "UPDATE point SET iteration_units = iteration_s, iteration_s = NULL "
      "WHERE time_unit = '",
      TimeUnitName(/*in_units=*/true),
      "';"
      "UPDATE point SET time_unit = '",
      TimeUnitName(/*in_units=*/false),
      "' WHERE time_unit IS NULL AND leaves IS NOT NULL;"
      "PRAGMA user_version = 3"));
}

// 3 -> 4: which grid and which part of it a call has run, its axes, and the
// points of a shard that are another one of it. Indexes go: they were a third
// of a row, and nothing looked rows up by them.
absl::Status AddGrid(Database* database) {
  return database->Execute(absl::StrCat(
      "ALTER TABLE sweep ADD COLUMN grid TEXT;"
      "ALTER TABLE sweep ADD COLUMN first INTEGER;"
      "ALTER TABLE sweep ADD COLUMN points INTEGER;"
      "ALTER TABLE sweep ADD COLUMN shard INTEGER;"
      "ALTER TABLE sweep ADD COLUMN shards INTEGER;"
      "ALTER TABLE sweep ADD COLUMN axes TEXT;"
      "CREATE TABLE known(id INTEGER PRIMARY KEY);"
      "CREATE TABLE slim("
      "id INTEGER PRIMARY KEY, hash BLOB NOT NULL, model_version INTEGER NOT "
      "NULL, sweep INTEGER NOT NULL REFERENCES sweep(id), status TEXT NOT "
      "NULL, exit INTEGER NOT NULL, reason TEXT, engine TEXT NOT NULL, seed "
      "INTEGER, axes TEXT NOT NULL, fits INTEGER, iteration_s REAL, "
      "tokens_per_s REAL, peak_memory_bytes REAL, bubble_global REAL, "
      "bubble_per_rank REAL, mfu REAL, shape INTEGER REFERENCES shape(id), "
      "leaves TEXT, time_unit TEXT, iteration_units REAL);"
      "INSERT INTO slim(",
      kPointColumns, ", id) SELECT ", kPointColumns,
      ", id FROM point;"
      "DROP TABLE point;"
      "ALTER TABLE slim RENAME TO point;"
      "PRAGMA user_version = 4"));
}

absl::Status NotASweep(const std::string& path, absl::string_view what) {
  constexpr char kAllowed[] =
      "a file that pipewright sweep has written, or a new one";
  return AboutFile(path,
                   WithValue(absl::InvalidArgumentError(absl::StrCat(
                                 path, ": ", what, "; allowed: ", kAllowed)),
                             path, kAllowed));
}

// Schema of a file with our mark.
absl::StatusOr<int64_t> SchemaOf(Database* database) {
  PW_ASSIGN_OR_RETURN(const int64_t application,
                      database->Integer("PRAGMA application_id"));
  if (application != kApplication) {
    return NotASweep(database->path(), "a database of another program");
  }
  PW_ASSIGN_OR_RETURN(const int64_t schema,
                      database->Integer("PRAGMA user_version"));
  if (schema > kSweepSchema) {
    return NotASweep(
        database->path(),
        absl::StrCat("written by a newer version of pipewright (schema ",
                     schema, ", this one knows ", kSweepSchema, ")"));
  }
  return schema;
}

absl::Status Migrate(Database* database) {
  PW_ASSIGN_OR_RETURN(const int64_t tables,
                      database->Integer("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) {
    PW_RETURN_IF_ERROR(database->Execute(
        absl::StrCat("PRAGMA application_id = ", kApplication)));
    PW_RETURN_IF_ERROR(database->Execute(kFirst));
  }
  PW_ASSIGN_OR_RETURN(const int64_t schema, SchemaOf(database));
  if (schema < 2) PW_RETURN_IF_ERROR(AddMfu(database));
  if (schema < 3) PW_RETURN_IF_ERROR(AddTimeUnit(database));
  if (schema < 4) PW_RETURN_IF_ERROR(AddGrid(database));
  return absl::OkStatus();
}

}  // namespace

absl::Status CreateSweepFile(const std::string& path) {
  // Under its own name only when it is whole: a kill or a full disk never
  // leaves half of one, and nobody reads half of one.
  const std::string unfinished = absl::StrCat(path, "-unfinished");
  Database::Remove(unfinished);
  const absl::Status made = [&]() -> absl::Status {
    PW_ASSIGN_OR_RETURN(const std::unique_ptr<Database> database,
                        Database::Open(unfinished, Database::Mode::kWrite));
    return MigrateSweepFile(database.get());
  }();
  if (made.ok() && std::rename(unfinished.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  Database::Remove(unfinished);
  if (!made.ok()) return Prefix(path, made);
  return AboutFile(
      path, absl::InternalError(absl::StrCat(path, ": cannot be made (",
                                             std::strerror(error), ")")));
}

absl::Status MigrateSweepFile(Database* database) {
  PW_RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  // First, since it leaves a file of another program as it is.
  const absl::Status status = Migrate(database);
  if (!status.ok()) {
    database->Execute("ROLLBACK").IgnoreError();
    return status;
  }
  PW_RETURN_IF_ERROR(database->Execute("COMMIT"));
  // Readers go on while rows are added. What a killed process leaves is right
  // without a disk that is told to write; a cut of power may lose rows.
  return database->Execute("PRAGMA journal_mode = WAL");
}

absl::Status CheckSweepFile(Database* database) {
  PW_ASSIGN_OR_RETURN(const int64_t schema, SchemaOf(database));
  if (schema == kSweepSchema) return absl::OkStatus();
  return NotASweep(
      database->path(),
      absl::StrCat("written by an older version of pipewright (schema ", schema,
                   "); pipewright sweep -o ", database->path(),
                   " brings it up to date"));
}

}  // namespace pipewright

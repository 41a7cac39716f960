// The schema of a sweep's file and the way from older ones.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/sweep/leaves.h"
#include "sim/sweep/store.h"

namespace pipewright {
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

// 1 -> 2: the column mfu, from the stored reports.
absl::Status AddMfu(Database* database) {
  PW_RETURN_IF_ERROR(
      database->Execute("ALTER TABLE point ADD COLUMN mfu REAL"));
  PW_ASSIGN_OR_RETURN(const auto shapes,
                      database->Prepare("SELECT id, tree FROM shape"));
  PW_ASSIGN_OR_RETURN(
      const auto update,
      database->Prepare("UPDATE point SET mfu = json_extract(leaves, ?) "
                        "WHERE shape = ?"));
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, shapes->Step());
    if (!found) break;
    const Json tree = ParseJson(shapes->Text(1)).value_or(Json());
    const ColumnOfShape column = FindColumn(tree, "mfu");
    if (column.leaves.empty()) continue;
    const std::string path = absl::StrCat("$[", column.leaves[0], "]");
    update->BindText(0, path);
    update->BindInteger(1, shapes->Integer(0));
    PW_RETURN_IF_ERROR(update->Run());
  }
  return database->Execute("PRAGMA user_version = 2");
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
  return absl::OkStatus();
}

void RemoveDatabase(const std::string& path) {
  for (const char* end : {"", "-journal", "-wal", "-shm"}) {
    std::remove(absl::StrCat(path, end).c_str());
  }
}

}  // namespace

absl::Status CreateSweepFile(const std::string& path) {
  // Under its own name only when it is whole: a kill or a full disk never
  // leaves half of one, and nobody reads half of one.
  const std::string unfinished = absl::StrCat(path, "-unfinished");
  RemoveDatabase(unfinished);
  const absl::Status made = [&]() -> absl::Status {
    PW_ASSIGN_OR_RETURN(const std::unique_ptr<Database> database,
                        Database::Open(unfinished, Database::Mode::kWrite));
    return MigrateSweepFile(database.get());
  }();
  if (made.ok() && std::rename(unfinished.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  RemoveDatabase(unfinished);
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

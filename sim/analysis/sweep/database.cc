#include "sim/analysis/sweep/database.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int kBusyMs = 5000;

// What a person can do about it, in front of SQLite's own words.
absl::Status ErrorOf(sqlite3* database, const std::string& path, int code) {
  const std::string words = sqlite3_errmsg(database);
  const int system = sqlite3_system_errno(database);
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::InternalError(absl::StrCat(
          path, ": the disk is full; rows that are stored already stay (",
          words, ")"));
    case SQLITE_IOERR:
      return absl::InternalError(absl::StrCat(
          path, ": cannot be written; rows that are stored already stay (",
          words, system != 0 ? absl::StrCat(", ", std::strerror(system)) : "",
          ")"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::InternalError(
          absl::StrCat(path, ": another program writes to it (", words, ")"));
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return AboutFile(path,
                       WithValue(absl::InvalidArgumentError(absl::StrCat(
                                     path, ": ", words,
                                     "; allowed: a file that pipewright sweep "
                                     "has written, or a new one")),
                                 path, "a file of pipewright sweep"));
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      return AboutFile(
          path,
          absl::InvalidArgumentError(absl::StrCat(
              path, ": cannot be opened (", words,
              system != 0 ? absl::StrCat(", ", std::strerror(system)) : "",
              ")")));
    default:
      return absl::InternalError(absl::StrCat(path, ": ", words));
  }
}

}  // namespace

Statement::~Statement() { sqlite3_finalize(statement_); }

void Statement::BindText(int place, absl::string_view text) {
  sqlite3_bind_text(statement_, place + 1, text.data(),
                    static_cast<int>(text.size()), SQLITE_STATIC);
}

void Statement::BindBytes(int place, absl::string_view bytes) {
  sqlite3_bind_blob(statement_, place + 1, bytes.data(),
                    static_cast<int>(bytes.size()), SQLITE_STATIC);
}

void Statement::BindInteger(int place, int64_t value) {
  sqlite3_bind_int64(statement_, place + 1, value);
}

void Statement::BindReal(int place, double value) {
  sqlite3_bind_double(statement_, place + 1, value);
}

void Statement::BindNull(int place) {
  sqlite3_bind_null(statement_, place + 1);
}

void Statement::BindColumn(int place, const Statement& from, int column) {
  sqlite3_bind_value(statement_, place + 1,
                     sqlite3_column_value(from.statement_, column));
}

absl::StatusOr<bool> Statement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  const char* path = sqlite3_db_filename(database_, "main");
  return ErrorOf(database_, path == nullptr ? "" : path, code);
}

absl::Status Statement::Run() {
  const absl::Status status = Step().status();
  Reset();
  return status;
}

void Statement::Reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

int64_t Statement::Integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

double Statement::Real(int column) const {
  return sqlite3_column_double(statement_, column);
}

absl::string_view Statement::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return {static_cast<const char*>(bytes), static_cast<size_t>(size)};
}

absl::Status Database::CheckPath(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) {
    return absl::OkStatus();
  }
  return AboutFile(
      path,
      BadValue(path, S_ISDIR(info.st_mode) ? "a folder" : "no regular file",
               "a file of pipewright sweep, or a new one"));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(
    const std::string& path, Mode mode) {
  PW_RETURN_IF_ERROR(CheckPath(path));
  struct stat info {};
  if (mode == Mode::kRead && ::stat(path.c_str(), &info) != 0) {
    return AboutFile(path, absl::NotFoundError(
                               absl::StrCat(path, ": there is no such file")));
  }
  sqlite3* database = nullptr;
  const int flags = mode == Mode::kRead
                        ? SQLITE_OPEN_READONLY
                        : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(path.c_str(), &database,
                                   flags | SQLITE_OPEN_NOMUTEX, nullptr);
  PW_CHECK(database != nullptr);
  std::unique_ptr<Database> opened(new Database(path, database));
  if (code != SQLITE_OK) return ErrorOf(database, path, code);
  sqlite3_extended_result_codes(database, 1);
  sqlite3_busy_timeout(database, kBusyMs);
  return opened;
}

void Database::Remove(const std::string& path) {
  for (const char* end : {"", "-journal", "-wal", "-shm"}) {
    std::remove(absl::StrCat(path, end).c_str());
  }
}

Database::~Database() { sqlite3_close_v2(database_); }

absl::Status Database::Execute(const std::string& sql) {
  const int code =
      sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(database_, path_, code);
}

absl::StatusOr<std::unique_ptr<Statement>> Database::Prepare(
    absl::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(
      database_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return ErrorOf(database_, path_, code);
  return std::make_unique<Statement>(database_, statement);
}

absl::StatusOr<int64_t> Database::Integer(absl::string_view sql) {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<Statement> statement, Prepare(sql));
  PW_ASSIGN_OR_RETURN(const bool found, statement->Step());
  return found ? statement->Integer(0) : 0;
}

int64_t Database::last_row_id() const {
  return sqlite3_last_insert_rowid(database_);
}

}  // namespace pipewright

// SQLite as values and statuses: the one place that includes sqlite3.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace pipewright {

// A prepared statement; it must not outlive its database. Places and columns
// count from 0.
class Statement {
 public:
  Statement(sqlite3* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement) {}
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Bound bytes have to live until Reset().
  void BindText(int place, absl::string_view text);
  void BindBytes(int place, absl::string_view bytes);
  void BindInteger(int place, int64_t value);
  void BindReal(int place, double value);
  void BindNull(int place);
  // What `from` has in its column; valid until its next Step.
  void BindColumn(int place, const Statement& from, int column);
  // True: a row is there; false: none is left.
  absl::StatusOr<bool> Step();
  // Step() of what gives no rows, and Reset().
  absl::Status Run();
  void Reset();

  bool IsNull(int column) const;
  int64_t Integer(int column) const;
  double Real(int column) const;
  // Valid until the next Step or Reset.
  absl::string_view Text(int column) const;

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // Error: kInvalidArgument where `path` is a folder or no regular file.
  static absl::Status CheckPath(const std::string& path);
  enum class Mode { kRead, kWrite };
  // kWrite makes the file where it is not there. Error: kInvalidArgument naming
  // the path, for a folder, a file that is no database or that cannot be
  // opened.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        Mode mode);
  // Removes the file and those that SQLite keeps beside it.
  static void Remove(const std::string& path);
  ~Database();
  Database(const Database&) = delete;

  // Error: kInternal with what SQLite says, and the path; a full disk in plain
  // words.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<std::unique_ptr<Statement>> Prepare(absl::string_view sql);
  // The one integer that `sql` gives.
  absl::StatusOr<int64_t> Integer(absl::string_view sql);
  int64_t last_row_id() const;
  const std::string& path() const { return path_; }

 private:
  Database(std::string path, sqlite3* database)
      : path_(std::move(path)), database_(database) {}

  std::string path_;
  sqlite3* database_;
};

}  // namespace pipewright

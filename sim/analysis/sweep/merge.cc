#include "sim/analysis/sweep/merge.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/sweep/database.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/result.h"
#include "sim/analysis/sweep/store.h"
#include "sim/analysis/sweep/writer_lock.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Columns of kPointColumns.
constexpr int kHashColumn = 0;
constexpr int kSweepColumn = 2;
constexpr int kStatusColumn = 3;
constexpr int kShapeColumn = 16;
constexpr int kColumns = 20;  // the id stands behind them

// The sweep of a file that is made here.
constexpr int64_t kOnlySweep = 1;
constexpr int64_t kFirstId = 1;

constexpr size_t kMostNamed = 8;

// What a file may say of itself.
constexpr int64_t kMostShards = 1'000'000;
constexpr int64_t kMostPoints = 10'000'000'000;

absl::Status Refused(const std::string& path, absl::string_view is,
                     const std::string& allowed) {
  return AboutFile(path, WithValue(absl::InvalidArgumentError(absl::StrCat(
                                       path, ": ", is, "; allowed: ", allowed)),
                                   path, allowed));
}

struct ShardFile {
  std::string path;
  std::unique_ptr<Database> database;
  std::string started;
  std::string program;
  std::string base;
  std::string grid;
  std::string axes;
  int64_t model_version = 0;
  int64_t first = 0;
  int64_t points = 0;
  SweepShard shard;
  std::map<int64_t, int64_t> shapes;  // id there -> id in the merged file
  std::unique_ptr<Statement> rows;    // at its next row

  int64_t place() const { return rows->Integer(kColumns) - first; }
};

absl::StatusOr<std::unique_ptr<ShardFile>> OpenShard(const std::string& path) {
  auto file = std::make_unique<ShardFile>();
  file->path = path;
  PW_ASSIGN_OR_RETURN(file->database,
                      Database::Open(path, Database::Mode::kRead));
  PW_RETURN_IF_ERROR(CheckSweepFile(file->database.get()));
  PW_ASSIGN_OR_RETURN(const auto check,
                      file->database->Prepare("PRAGMA quick_check(1)"));
  PW_RETURN_IF_ERROR(check->Step().status());
  if (check->Text(0) != "ok") {
    return Refused(path, absl::StrCat("is damaged (", check->Text(0), ")"),
                   "a file that pipewright sweep --shard has written; it can "
                   "run this shard again");
  }
  PW_ASSIGN_OR_RETURN(
      const auto call,
      file->database->Prepare(
          "SELECT started, program, base, grid, model_version, first, points, "
          "shard, shards, axes, (SELECT count(*) FROM sweep WHERE grid IS "
          "NULL) FROM "
          "sweep ORDER BY shards DESC, id"));
  PW_ASSIGN_OR_RETURN(const bool found, call->Step());
  const bool all_have_grids = found && call->Integer(10) == 0;
  PW_ASSIGN_OR_RETURN(
      const int64_t grids,
      file->database->Integer("SELECT count(DISTINCT grid) FROM sweep"));
  if (!all_have_grids || grids != 1) {
    return Refused(path,
                   found ? "has rows of several sweeps, or of an older version"
                         : "no sweep has run in it",
                   "a file that pipewright sweep --shard has written");
  }
  file->started = std::string(call->Text(0));
  file->program = std::string(call->Text(1));
  file->base = std::string(call->Text(2));
  file->grid = std::string(call->Text(3));
  file->axes = std::string(call->Text(9));
  file->model_version = call->Integer(4);
  file->first = call->Integer(5);
  file->points = call->Integer(6);
  file->shard = {call->Integer(7), call->Integer(8)};
  if (file->first < 1 || file->points < 0 || file->points > kMostPoints ||
      file->shard.number < 1 || file->shard.number > file->shard.count ||
      file->shard.count > kMostShards) {
    return Refused(
        path,
        absl::StrCat("says that it is shard ", ToString(file->shard), " of ",
                     file->points, " points from row ", file->first, " on"),
        "a file that pipewright sweep --shard has written");
  }
  if (file->model_version != kModelVersion) {
    return Refused(
        path, absl::StrCat("was made with model version ", file->model_version),
        absl::StrCat("version ", kModelVersion, ", that of this program"));
  }
  PW_ASSIGN_OR_RETURN(
      file->rows, file->database->Prepare(absl::StrCat("SELECT ", kPointColumns,
                                                       ", id FROM point "
                                                       "ORDER BY id")));
  return file;
}

absl::Status CheckTogether(const ShardFile& one, const ShardFile& other) {
  if (one.grid != other.grid) {
    return Refused(other.path,
                   absl::StrCat("is of another sweep than ", one.path, " (",
                                WhyOtherGrid(other.grid, one.grid), ")"),
                   "shards of one sweep");
  }
  if (one.shard.count != other.shard.count) {
    return Refused(other.path,
                   absl::StrCat("is shard ", ToString(other.shard), ", and ",
                                one.path, " is ", ToString(one.shard)),
                   "one number of shards");
  }
  if (one.shard == other.shard) {
    return Refused(
        other.path,
        absl::StrCat("is shard ", ToString(other.shard), ", and so is ",
                     one.path, ": its points would be there twice"),
        "each shard once");
  }
  return absl::OkStatus();
}

class Merge {
 public:
  Merge(std::vector<std::unique_ptr<ShardFile>> files, Database* out)
      : files_(std::move(files)), out_(*out) {
    counts_.shards = files_[0]->shard.count;
    counts_.points = files_[0]->points;
    done_.resize(counts_.points);
  }

  absl::StatusOr<MergeCounts> Run() {
    // Nobody reads it before it is whole.
    PW_RETURN_IF_ERROR(out_.Execute(
        "PRAGMA journal_mode = DELETE; PRAGMA synchronous = NORMAL;"
        "PRAGMA cache_size = -65536; BEGIN"));
    PW_RETURN_IF_ERROR(AddCall());
    PW_ASSIGN_OR_RETURN(
        insert_,
        out_.Prepare(absl::StrCat(
            "INSERT INTO point(", kPointColumns,
            ", id) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")));
    PW_ASSIGN_OR_RETURN(remove_,
                        out_.Prepare("DELETE FROM point WHERE id = ?"));
    PW_ASSIGN_OR_RETURN(
        insert_known_,
        out_.Prepare("INSERT OR IGNORE INTO known(id) VALUES(?)"));
    PW_RETURN_IF_ERROR(AddRows());
    for (const auto& file : files_) PW_RETURN_IF_ERROR(TakeKnown(*file));
    PW_RETURN_IF_ERROR(out_.Execute("COMMIT; PRAGMA journal_mode = WAL"));
    CountMissing();
    return counts_;
  }

 private:
  absl::Status AddCall() {
    const ShardFile& first = *files_[0];
    std::string started = first.started;
    for (const auto& file : files_) started = std::min(started, file->started);
    PW_ASSIGN_OR_RETURN(
        const auto insert,
        out_.Prepare("INSERT INTO sweep(id, started, program, model_version, "
                     "command, base, grid, first, points, axes, shard, "
                     "shards) VALUES(?,?,?,?,?,?,?,?,?,?,1,1)"));
    const std::string command = absl::StrCat(
        "pipewright sweep merge ",
        absl::StrJoin(files_, " ", [](std::string* text, const auto& file) {
          *text += file->path;
        }));
    insert->BindInteger(0, kOnlySweep);
    insert->BindText(1, started);
    insert->BindText(2, first.program);
    insert->BindInteger(3, first.model_version);
    insert->BindText(4, command);
    insert->BindText(5, first.base);
    insert->BindText(6, first.grid);
    insert->BindInteger(7, kFirstId);
    insert->BindInteger(8, first.points);
    insert->BindText(9, first.axes);
    return insert->Run();
  }

  absl::Status Mark(const ShardFile& file, int64_t place) {
    if (place >= 0 && place < counts_.points &&
        place % counts_.shards == file.shard.number - 1) {
      done_[place] = true;
      return absl::OkStatus();
    }
    return Refused(
        file.path,
        absl::StrCat("has a row at ", place, ", which is no point of shard ",
                     ToString(file.shard)),
        "a file that pipewright sweep --shard has written");
  }

  // Rows of all files in the order of the grid.
  absl::Status AddRows() {
    using Next = std::pair<int64_t, ShardFile*>;
    const auto later = [](const Next& one, const Next& other) {
      return one.first > other.first;
    };
    std::priority_queue<Next, std::vector<Next>, decltype(later)> next(later);
    const auto step = [&next](ShardFile* file) -> absl::Status {
      PW_ASSIGN_OR_RETURN(const bool found, file->rows->Step());
      if (found) next.push({file->place(), file});
      return absl::OkStatus();
    };
    for (const auto& file : files_) PW_RETURN_IF_ERROR(step(file.get()));
    while (!next.empty()) {
      const auto [place, file] = next.top();
      next.pop();
      PW_RETURN_IF_ERROR(Mark(*file, place));
      PW_RETURN_IF_ERROR(AddRow(place, file));
      PW_RETURN_IF_ERROR(step(file));
    }
    return absl::OkStatus();
  }

  absl::Status AddRow(int64_t place, ShardFile* file) {
    // One process runs equal points once, the first of them.
    PointHash hash = {};
    const absl::string_view bytes = file->rows->Text(kHashColumn);
    std::memcpy(hash.data(), bytes.data(), std::min(bytes.size(), hash.size()));
    const std::string status(file->rows->Text(kStatusColumn));
    const bool is_lost = status == NameOf(PointStatus::kCrashed) ||
                         status == NameOf(PointStatus::kTimeout);
    if (!seen_.insert(hash).second) {
      ++counts_.repeated;
      const auto lost = lost_.find(hash);
      if (is_lost || lost == lost_.end()) return AddKnown(place);
      // One shard has what another has lost.
      PW_RETURN_IF_ERROR(AddKnown(lost->second.place));
      remove_->BindInteger(0, kFirstId + lost->second.place);
      PW_RETURN_IF_ERROR(remove_->Run());
      --counts_.rows;
      auto& left = counts_.statuses[lost->second.status];
      if (--left == 0) counts_.statuses.erase(lost->second.status);
      lost_.erase(lost);
    } else if (is_lost) {
      lost_[hash] = {place, status};
    }
    for (int column = 0; column < kColumns; ++column) {
      insert_->BindColumn(column, *file->rows, column);
    }
    insert_->BindInteger(kSweepColumn, kOnlySweep);
    if (!file->rows->IsNull(kShapeColumn)) {
      PW_ASSIGN_OR_RETURN(const int64_t shape,
                          ShapeOf(file->rows->Integer(kShapeColumn), file));
      insert_->BindInteger(kShapeColumn, shape);
    }
    insert_->BindInteger(kColumns, kFirstId + place);
    PW_RETURN_IF_ERROR(insert_->Run());
    ++counts_.rows;
    ++counts_.statuses[status];
    return absl::OkStatus();
  }

  absl::Status AddKnown(int64_t place) {
    insert_known_->BindInteger(0, kFirstId + place);
    return insert_known_->Run();
  }

  absl::StatusOr<int64_t> ShapeOf(int64_t id, ShardFile* file) {
    const auto known = file->shapes.find(id);
    if (known != file->shapes.end()) return known->second;
    PW_ASSIGN_OR_RETURN(
        const auto tree,
        file->database->Prepare("SELECT digest, tree FROM shape WHERE id = ?"));
    tree->BindInteger(0, id);
    PW_ASSIGN_OR_RETURN(const bool found, tree->Step());
    if (!found) {
      return Refused(file->path, absl::StrCat("has no shape ", id),
                     "a file that pipewright sweep --shard has written");
    }
    PW_ASSIGN_OR_RETURN(
        const auto insert,
        out_.Prepare("INSERT OR IGNORE INTO shape(digest, tree) "
                     "VALUES(?, ?)"));
    insert->BindColumn(0, *tree, 0);
    insert->BindColumn(1, *tree, 1);
    PW_RETURN_IF_ERROR(insert->Run());
    PW_ASSIGN_OR_RETURN(const auto find,
                        out_.Prepare("SELECT id FROM shape WHERE digest = ?"));
    find->BindColumn(0, *tree, 0);
    PW_RETURN_IF_ERROR(find->Step().status());
    return file->shapes[id] = find->Integer(0);
  }

  absl::Status TakeKnown(const ShardFile& file) {
    PW_ASSIGN_OR_RETURN(const auto known,
                        file.database->Prepare("SELECT id FROM known"));
    while (true) {
      PW_ASSIGN_OR_RETURN(const bool found, known->Step());
      if (!found) return absl::OkStatus();
      const int64_t place = known->Integer(0) - file.first;
      PW_RETURN_IF_ERROR(Mark(file, place));
      PW_RETURN_IF_ERROR(AddKnown(place));
      ++counts_.repeated;
    }
  }

  void CountMissing() {
    std::vector<const ShardFile*> by_number(counts_.shards);
    for (const auto& file : files_) {
      by_number[file->shard.number - 1] = file.get();
    }
    int64_t others = 0;
    for (int64_t shard = 0; shard < counts_.shards; ++shard) {
      std::vector<int64_t> places;
      int64_t missing = 0;
      for (int64_t place = shard; place < counts_.points;
           place += counts_.shards) {
        if (done_[place]) continue;
        ++missing;
        if (places.size() < kMostNamed) places.push_back(place + 1);
      }
      counts_.missing += missing;
      const ShardFile* const file = by_number[shard];
      if (file == nullptr) counts_.missing_shards.push_back(shard + 1);
      if (missing == 0) continue;
      if (counts_.missing_points.size() == kMostNamed) {
        ++others;
        continue;
      }
      counts_.missing_points.push_back(absl::StrCat(
          missing, " of shard ", shard + 1, "/", counts_.shards, " (",
          file == nullptr ? "no file of it is given"
                          : absl::StrCat(file->path, " has not ended"),
          "): point ", absl::StrJoin(places, ", "),
          missing > static_cast<int64_t>(places.size()) ? ", ..." : ""));
    }
    if (others > 0) {
      counts_.missing_points.push_back(
          absl::StrCat("those of ", others, " other shards"));
    }
  }

  std::vector<std::unique_ptr<ShardFile>> files_;
  Database& out_;
  std::unique_ptr<Statement> insert_;
  std::unique_ptr<Statement> remove_;
  std::unique_ptr<Statement> insert_known_;
  struct LostRow {
    int64_t place = 0;
    std::string status;
  };
  absl::flat_hash_set<PointHash> seen_;
  absl::flat_hash_map<PointHash, LostRow> lost_;  // of them, without a better
  std::vector<bool> done_;  // by the point's place in the grid
  MergeCounts counts_;
};

// Files beside `out` are ours, and are removed.
absl::Status CheckBeside(const ShardFile& file, const std::string& out) {
  const auto is_file = [&file](const std::string& other) {
    struct stat ours {};
    struct stat there {};
    return ::stat(file.path.c_str(), &ours) == 0 &&
           ::stat(other.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
  };
  for (const char* made :
       {"", "-merged", "-unfinished", "-merged-unfinished"}) {
    for (const char* part : {"", "-lock", "-wal", "-shm", "-journal"}) {
      const std::string name = absl::StrCat(out, made, part);
      if (name == out || !is_file(name)) continue;
      return Refused(file.path,
                     absl::StrCat("is ", name,
                                  ", which merge removes when it "
                                  "makes ",
                                  out),
                     "another name of this file, or another -o");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MergeCounts> WriteMerged(
    std::vector<std::unique_ptr<ShardFile>> files, const std::string& path) {
  PW_RETURN_IF_ERROR(CreateSweepFile(path));
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<Database> out,
                      Database::Open(path, Database::Mode::kWrite));
  return Merge(std::move(files), out.get()).Run();
}

}  // namespace

absl::StatusOr<MergeCounts> MergeShards(const std::vector<std::string>& paths,
                                        const std::string& out) {
  std::vector<std::unique_ptr<ShardFile>> files;
  for (const std::string& path : paths) {
    PW_ASSIGN_OR_RETURN(std::unique_ptr<ShardFile> file, OpenShard(path));
    for (const auto& earlier : files) {
      PW_RETURN_IF_ERROR(CheckTogether(*earlier, *file));
    }
    PW_RETURN_IF_ERROR(CheckBeside(*file, out));
    files.push_back(std::move(file));
  }
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<WriterLock> lock,
                      WriterLock::Take(out));
  struct stat info {};
  if (::lstat(out.c_str(), &info) == 0) {
    return Refused(out, "is there already", "a new file");
  }
  const std::string unfinished = absl::StrCat(out, "-merged");
  Database::Remove(unfinished);
  absl::StatusOr<MergeCounts> counts =
      WriteMerged(std::move(files), unfinished);
  if (counts.ok() && std::rename(unfinished.c_str(), out.c_str()) == 0) {
    return counts;
  }
  const int error = errno;
  Database::Remove(unfinished);
  PW_RETURN_IF_ERROR(counts.status());
  return AboutFile(
      out, absl::InternalError(absl::StrCat(out, ": cannot be made (",
                                            std::strerror(error), ")")));
}

}  // namespace pipewright

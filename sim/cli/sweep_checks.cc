// What `sweep` refuses and warns of before it runs anything.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/figure_files.h"
#include "sim/cli/sweep_verb.h"
#include "sim/config/flags.h"
#include "sim/config/prepare.h"
#include "sim/report/report.h"
#include "sim/run/monte_carlo.h"

namespace pipewright {
namespace {

absl::Status NeedsExport(const char* flag) {
  return WithValue(FieldError(flag, "needs --csv or --jsonl: it is of exports"),
                   "", "with --csv or --jsonl");
}

// Fields that may make seeds matter.
bool MayDraw(absl::string_view field) {
  return field == "costs.jitter" || field == "costs.profile" ||
         absl::StartsWith(field, "sequences.") || field == "slow.devices_law" ||
         field == "slow.links_law" || field == "reliability.mtbf_per_device";
}

// Fields that decide whether anything says what passes take.
bool MaySayTimes(absl::string_view field) {
  for (const char* section : {"costs.", "system.", "model.", "reliability."}) {
    if (absl::StartsWith(field, section)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<SweepShard> ShardOfText(const std::string& text) {
  constexpr int64_t kMost = 1'000'000;
  constexpr char kAllowed[] =
      "K/N, the K-th of N shards, with K from 1 to N and N to 1000000; slurm, "
      "mpi: as these number their tasks; slurm/N: the task's number, of N";
  const auto number = [](const char* name) {
    const char* const value = std::getenv(name);
    int64_t parsed = 0;
    return value != nullptr && absl::SimpleAtoi(value, &parsed)
               ? std::optional<int64_t>(parsed)
               : std::nullopt;
  };
  const auto lacks = [&](absl::string_view is, const std::string& allowed) {
    return WithValue(
        FieldError("--shard",
                   absl::StrCat(text, ": ", is, "; allowed: ", allowed)),
        text, allowed);
  };
  SweepShard shard;
  if (text == "slurm") {
    const auto task = number("SLURM_ARRAY_TASK_ID");
    const auto count = number("SLURM_ARRAY_TASK_COUNT");
    if (!task || !count) {
      return lacks("SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT are not set",
                   "in a job of sbatch --array; else K/N");
    }
    // A task that is submitted again would run all shards.
    if (*count == 1) {
      return lacks("an array of one task does not say of how many shards",
                   "slurm/N with the N of the whole sweep, or K/N");
    }
    const int64_t least = number("SLURM_ARRAY_TASK_MIN").value_or(0);
    const int64_t most =
        number("SLURM_ARRAY_TASK_MAX").value_or(least + *count - 1);
    // Otherwise a part of the grid would be nobody's.
    if (most - least + 1 != *count || *task < least || *task > most) {
      return lacks(absl::StrCat("task ", *task, " of ", *count,
                                " with numbers from ", least, " to ", most),
                   "an array without gaps, as --array=1-64");
    }
    shard = {*task - least + 1, *count};
  } else if (absl::string_view tasks = text;
             absl::ConsumePrefix(&tasks, "slurm/")) {
    const auto task = number("SLURM_ARRAY_TASK_ID");
    if (!absl::SimpleAtoi(tasks, &shard.count) || shard.count < 1 ||
        shard.count > kMost) {
      return BadValue("--shard", text, kAllowed);
    }
    if (!task) {
      return lacks("SLURM_ARRAY_TASK_ID is not set",
                   "in a job of sbatch --array; else K/N");
    }
    shard.number = *task;
    if (*task < 1 || *task > shard.count) {
      return lacks(absl::StrCat("task ", *task, " is no shard"),
                   absl::StrCat("tasks from 1 to ", shard.count,
                                ", as --array=1-", shard.count));
    }
  } else if (text == "mpi") {
    bool is_known = false;
    for (const auto& [rank, size] :
         {std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
          std::pair("PMI_RANK", "PMI_SIZE"),
          std::pair("SLURM_PROCID", "SLURM_NTASKS")}) {
      const auto process = number(rank);
      const auto count = number(size);
      if (!process || !count) continue;
      shard = {*process + 1, *count};
      is_known = true;
      break;
    }
    // A rank alone would run all shards.
    if (!is_known) {
      return lacks("nothing says which process this is",
                   "below mpirun or srun; else K/N");
    }
  } else {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(text, absl::MaxSplits('/', 1));
    if (!absl::SimpleAtoi(parts.first, &shard.number) ||
        !absl::SimpleAtoi(parts.second, &shard.count)) {
      return BadValue("--shard", text, kAllowed);
    }
  }
  if (shard.number < 1 || shard.number > shard.count || shard.count > kMost) {
    return BadValue("--shard", text, kAllowed);
  }
  return shard;
}

absl::Status SweepVerb::TakeShard() {
  constexpr char kPlace[] = "{shard}";
  if (shard_text.empty()) {
    if (database.empty()) database = "runs.sqlite";
    return absl::OkStatus();
  }
  PW_ASSIGN_OR_RETURN(shard, ShardOfText(shard_text));
  if (database.empty()) database = "runs-{shard}.sqlite";
  const bool is_counted = absl::ascii_isdigit(shard_text[0]);
  if (!is_counted && !absl::StrContains(database, kPlace)) {
    return BadValue("-o", database,
                    "a name with {shard}, as every task of --shard slurm and "
                    "mpi writes a file of its own");
  }
  if (!is_counted) {
    std::fprintf(stderr, "pipewright: shard %s\n", ToString(shard).c_str());
  }
  database = absl::StrReplaceAll(
      database, {{kPlace, absl::StrCat(shard.number, "-of-", shard.count)}});
  if (!exports_only()) return absl::OkStatus();
  return WithValue(
      FieldError("--shard",
                 "a shard has a part of the rows; allowed: exports "
                 "of the file that sweep merge makes"),
      shard_text, "without --csv, --jsonl, --html and --figure");
}

absl::Status SweepVerb::CheckOptions() {
  PW_RETURN_IF_ERROR(TakeShard());
  if (files.wanted("--figure")) {
    // CheckFiles refuses other endings: that a file would be lost is worse.
    const auto format = FigureFormat("--figure", files.path("--figure"));
    if (format.ok()) files.SetFormat("--figure", *format);
  }
  if (!csv.empty() || !jsonl.empty()) return absl::OkStatus();
  if (!columns.empty()) return NeedsExport("--columns");
  return all_versions ? NeedsExport("--all-versions") : absl::OkStatus();
}

absl::Status SweepVerb::CheckFiles(const RunConfig& base,
                                   const SweepGrid& grid) {
  for (const InputField& input : InputFields(base)) {
    files.Reads(input.field, input.path);
  }
  // Values that are no paths are no files either.
  for (const SweepAxis& axis : grid.axes) {
    for (size_t index = 0; index < axis.names.size(); ++index) {
      if (!absl::StartsWith(axis.names[index], "schedule.") &&
          !absl::StartsWith(axis.names[index], "model.") &&
          !absl::StartsWith(axis.names[index], "system.") &&
          !absl::StartsWith(axis.names[index], "costs.analytic.") &&
          axis.names[index] != "sequences.lengths" &&
          axis.names[index] != "costs.profile") {
        continue;
      }
      for (const std::vector<std::string>& values : axis.values) {
        const std::string path =
            ValueInFolder(axis.names[index], values[index], axis.folder);
        if (::access(path.c_str(), F_OK) == 0) {
          files.Reads(axis.names[index], path);
        }
      }
    }
  }
  files.AlsoWrites("-o", database, FileFormat::kDatabase);
  if (!csv.empty()) files.AlsoWrites("--csv", csv, FileFormat::kCsv);
  if (!jsonl.empty()) {
    files.AlsoWrites("--jsonl", jsonl, FileFormat::kJsonLines);
  }
  PW_RETURN_IF_ERROR(files.Check());
  if (files.wanted("--figure")) {
    PW_RETURN_IF_ERROR(
        FigureFormat("--figure", files.path("--figure")).status());
  }
  if (!grid.axes.empty() || exports_only()) return absl::OkStatus();
  return MissingValue("--sweep",
                      "an axis, FIELD=VALUES, here or in a file "
                      "(docs/sweep.md); or --seeds");
}

// A column that no row can have is refused before hours of work. Below the keys
// of a report only its rows know, so that a wrong end is an error of the
// export.
absl::Status SweepVerb::CheckColumns(const SweepPoints& points) const {
  std::vector<std::string> known = SweepReader::RowColumns();
  for (const SweepAxis& axis : points.grid().axes) {
    known.insert(known.end(), axis.names.begin(), axis.names.end());
  }
  if (SweepReader::HasFile(database)) {
    PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepReader> reader,
                        SweepReader::Open(database));
    PW_ASSIGN_OR_RETURN(const std::vector<std::string> more, reader->Columns());
    known.insert(known.end(), more.begin(), more.end());
  }
  std::vector<std::string> keys = ReportKeys();
  for (const std::string& column : columns) {
    const std::string key = column.substr(0, column.find('.'));
    if (std::find(keys.begin(), keys.end(), key) != keys.end() ||
        std::find(known.begin(), known.end(), column) != known.end()) {
      continue;
    }
    keys.insert(keys.end(), known.begin(), known.end());
    return AboutField("--columns",
                      Prefix("--columns", UnknownName("column", column, keys)));
  }
  return absl::OkStatus();
}

std::vector<std::string> SweepVerb::WarningsOf(const SweepPoints& points) {
  bool seeds = false;
  bool may_draw = false;
  for (const SweepAxis& axis : points.grid().axes) {
    for (const std::string& field : axis.names) {
      seeds |= field == "costs.seed";
      may_draw |= MayDraw(field);
    }
  }
  if (!seeds || may_draw) return {};
  // A base may lack what an axis gives.
  RunContext context;
  absl::StatusOr<PreparedRun> run = Prepare(points.base(), &context);
  GridWalk walk(&points.grid(), points.base());
  if (!run.ok() && walk.Next()) {
    const absl::StatusOr<RunConfig> first = points.At(walk.choices());
    if (first.ok()) run = Prepare(*first, &context);
  }
  if (!run.ok() || run->config.reliability.mtbf_per_device_s ||
      DrawsAnything(*run)) {
    return {};
  }
  return {absl::StrCat("costs.seed: ", kNothingDrawn)};
}

absl::Status SweepVerb::CheckTimes(const SweepPoints& points,
                                   RunContext* context) {
  const SweepGrid& grid = points.grid();
  std::vector<bool> matters;
  for (const SweepAxis& axis : grid.axes) {
    matters.push_back(
        std::any_of(axis.names.begin(), axis.names.end(),
                    [](const std::string& name) { return MaySayTimes(name); }));
  }
  absl::Status first;
  std::set<SweepChoices> seen;
  GridWalk walk(&grid, points.base());
  while (walk.Next()) {
    SweepChoices told = walk.choices();
    for (size_t axis = 0; axis < told.size(); ++axis) {
      if (!matters[axis]) told[axis] = -1;
    }
    if (!seen.insert(std::move(told)).second) continue;
    const absl::StatusOr<RunConfig> point = points.At(walk.choices());
    if (!point.ok()) continue;  // its row says why
    const absl::StatusOr<RunConfig> timed = WithTimes(*point, context);
    const absl::Status status =
        timed.ok() ? CheckTimed(*timed, context) : absl::OkStatus();
    if (status.ok()) return absl::OkStatus();
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace pipewright

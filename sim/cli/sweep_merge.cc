// `sweep merge`: one file of the files of a sweep's shards.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/sweep/merge.h"
#include "sim/analysis/sweep/result.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/cli/sweep_verb.h"

namespace pipewright {
namespace {

struct SweepMerge {
  std::vector<std::string> shards;
  std::string database = "runs.sqlite";
  bool json = false;

  absl::Status Run() const {
    PW_ASSIGN_OR_RETURN(const MergeCounts counts,
                        MergeShards(shards, database));
    if (json) {
      const Json object = {{"file", database},
                           {"shards", counts.shards},
                           {"points", counts.points},
                           {"rows", counts.rows},
                           {"repeated", counts.repeated},
                           {"missing", counts.missing},
                           {"missing_shards", counts.missing_shards},
                           {"statuses", counts.statuses}};
      PW_RETURN_IF_ERROR(Print(absl::StrCat(object.dump(2), "\n")));
    } else {
      PW_RETURN_IF_ERROR(Print(absl::StrCat(
          shards.size(), " of ", counts.shards, " shards, ", counts.points,
          " points: ", counts.rows, " rows in ", database,
          counts.repeated == 0
              ? ""
              : absl::StrCat(", ", counts.repeated,
                             " points that are another of the grid"),
          "\n",
          absl::StrJoin(counts.statuses, ", ",
                        [](std::string* text, const auto& status) {
                          absl::StrAppend(text, status.second, " ",
                                          status.first);
                        }),
          "\n")));
    }
    int64_t lost = 0;
    for (const PointStatus status :
         {PointStatus::kCrashed, PointStatus::kTimeout}) {
      const auto rows = counts.statuses.find(NameOf(status));
      if (rows != counts.statuses.end()) lost += rows->second;
    }
    if (counts.missing == 0 && lost == 0) return absl::OkStatus();
    const std::string again =
        lost == 0 ? ""
                  : absl::StrCat(lost, lost == 1 ? " point" : " points",
                                 " crashed or took too long; the rows say why, "
                                 "the sweep's own command without --shard and "
                                 "with -o ",
                                 database, " --again runs them again");
    if (counts.missing == 0) return absl::InternalError(again);
    return absl::InternalError(absl::StrCat(
        again, lost == 0 ? "" : "; ", counts.missing,
        counts.missing == 1 ? " point is" : " points are",
        " missing: ", absl::StrJoin(counts.missing_points, "; "),
        "; the command of that shard runs them, or the sweep's own without "
        "--shard and with -o ",
        database));
  }
};

}  // namespace

void AddSweepMerge(CLI::App* sweep, Action* action) {
  CLI::App* verb = sweep->add_subcommand(
      "merge", "Make one file of those that sweep --shard has written");
  auto merge = std::make_shared<SweepMerge>();
  verb->add_option("SHARDS", merge->shards, "the files, in any order")
      ->required()
      ->type_name("");
  verb->add_option("-o", merge->database, "file to make, SQLite")
      ->type_name("FILE")
      ->capture_default_str();
  verb->add_flag("--json", merge->json, "counts as one JSON object");
  verb->callback(
      [action, merge] { *action = [merge] { return merge->Run(); }; });
}

}  // namespace pipewright

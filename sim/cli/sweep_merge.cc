// `sweep merge`: one file of the files of a sweep's shards.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/sweep/merge.h"
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
    if (counts.missing == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        counts.missing, counts.missing == 1 ? " point is" : " points are",
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

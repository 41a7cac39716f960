// What makes two runs of the verb execute the same: on all processes, and in a
// table of runs.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/cli/execute_verb.h"
#include "sim/config/prepare.h"
#include "sim/program/network_time.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// The times that all processes must agree on, one line each.
std::string TimesOf(const Program& program) {
  std::string text;
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankProgram& its = program.ranks[rank];
    absl::StrAppend(&text, "pass times of rank ", rank, ":");
    for (const Lane& lane : its.lanes) {
      if (lane.stage >= 0) absl::StrAppend(&text, " ", lane.seconds);
    }
    absl::StrAppend(&text, "\nside times of rank ", rank, ":");
    for (const SideOp& op : its.side_ops) {
      absl::StrAppend(&text, " ", op.seconds);
      if (!IsCollective(op.kind)) continue;
      // A measured time is rare, and is not among the options.
      if (const auto measured = MeasuredCollective(
              program.network, op,
              GroupMembers(program, program.groups[op.group], 0))) {
        absl::StrAppend(&text, "+", measured->seconds);
      }
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(
      &text, "hop: ", program.network.hop_s,
      "\npair factor: ", program.pair_factor,
      "\nmicrobatch factors: ", absl::StrJoin(program.microbatch_factor, " "),
      "\nslice factors: ", absl::StrJoin(program.slice_factor, " "), "\n");
  return text;
}

}  // namespace

// Leaves out paths of files: on another machine the folder may be another one.
std::string Execute::OptionsOf(const Prepared& prepared) const {
  RunConfig sizes = prepared.run.config;
  sizes.schedule.file.reset();
  sizes.system = {};
  sizes.costs = {};
  return absl::StrCat(
      "--device ", device, "\n--clock ", clock, "\n--steps ", steps,
      "\n--train-seed ", seed, "\n--fault-slow ", absl::StrJoin(slow, " "),
      "\n--fault-late ", absl::StrJoin(late, " "), "\n--one-at-a-time ",
      one_at_a_time, "\n--green-contexts ", green_contexts, "\n--replay-rank ",
      replay_rank, "\n", ToString(sizes), ToString(prepared.program));
}

std::string Execute::SameOnAll(const Prepared& prepared) const {
  return absl::StrCat("--timeout ", timeout_s, "\n--no-check ", no_check,
                      "\n--reference ", reference, "\n--no-reference ",
                      no_reference, "\n--trace ",
                      prepared.training.execute.trace, "\n",
                      OptionsOf(prepared), TimesOf(prepared.program));
}

}  // namespace pipewright

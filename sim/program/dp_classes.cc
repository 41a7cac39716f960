#include "sim/program/dp_classes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

bool SameGroups(const Program& one, const Program& other) {
  return std::equal(
      one.groups.begin(), one.groups.end(), other.groups.begin(),
      other.groups.end(), [](const Group& left, const Group& right) {
        return left.span == right.span && left.ranks == right.ranks &&
               left.part == right.part && left.across == right.across &&
               left.contexts == right.contexts;
      });
}

// What is not a class's own.
bool SameRun(const Program& one, const Program& other) {
  return one.network.hop_s == other.network.hop_s &&
         one.network.cluster == other.network.cluster &&
         one.network.mapping == other.network.mapping &&
         one.network.measured == other.network.measured &&
         one.network.paths == other.network.paths &&
         one.network.collectives == other.network.collectives &&
         one.network.context_parallel == other.network.context_parallel &&
         one.wait_rule == other.wait_rule &&
         one.copies_in_turn == other.copies_in_turn &&
         one.replicas == other.replicas && one.iterations == other.iterations &&
         one.until_steady == other.until_steady &&
         one.pair_factor == other.pair_factor &&
         one.false_starts == other.false_starts &&
         one.undone_steps == other.undone_steps && one.jitter == other.jitter &&
         one.interference == other.interference;
}

bool SameStages(const Schedule& one, const Schedule& other) {
  if (one.pp() != other.pp() || one.stages() != other.stages() ||
      one.directions != other.directions) {
    return false;
  }
  for (int stage = 0; stage < one.stages(); ++stage) {
    if (one.placement.RankOf(stage) != other.placement.RankOf(stage)) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<Program> JoinClasses(std::vector<Program> classes,
                                    std::vector<int> class_of_replica) {
  for (const Program& other : classes) {
    const Program& first = classes[0];
    if (other.num_classes() != 1) {
      return absl::InternalError("program: a class of several classes");
    }
    if (!SameRun(first, other)) {
      return absl::InvalidArgumentError(
          "two classes run with different networks, iterations or rules");
    }
    if (!SameStages(*first.schedule, *other.schedule)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a rank of schedule ", other.name,
                       " holds other stages than of schedule ", first.name));
    }
    if (!SameGroups(first, other)) {
      return absl::InvalidArgumentError(
          "the replicas of two classes meet in different groups");
    }
  }
  Program joined = std::move(classes[0]);
  for (size_t index = 1; index < classes.size(); ++index) {
    // What is left of the other Programs is theirs alone.
    joined.more_classes.push_back(
        std::move(static_cast<DpClass&>(classes[index])));
  }
  if (!joined.more_classes.empty()) {
    joined.class_of_replica = std::move(class_of_replica);
  }
  PW_RETURN_IF_ERROR(VerifyMeetingsOfClasses(joined));
  PW_RETURN_IF_ERROR(VerifyProgram(joined));
  return joined;
}

}  // namespace pipewright

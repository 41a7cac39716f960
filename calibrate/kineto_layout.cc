#include "calibrate/kineto_layout.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr size_t kMissingNamed = 8;

absl::Status Refuse(const KinetoRank& rank, const char* field,
                    const std::string& value, const std::string& allowed) {
  return BadValue(FieldPlace::InFile(rank.source, 0,
                                     absl::StrCat("distributedInfo.", field)),
                  value, allowed);
}

// Size of the rank's group along an axis and the rank's place in it.
struct PlaceInGroup {
  int64_t size = 0;
  int64_t place = -1;
};
std::optional<PlaceInGroup> GroupOf(const KinetoRank& rank, TraceAxis axis) {
  for (const TraceGroup& group : rank.header.groups) {
    if (!IsGroupOf(axis, group.description) || group.size < 1) continue;
    PlaceInGroup found = {.size = group.size};
    if (static_cast<int64_t>(group.ranks.size()) == group.size &&
        rank.header.rank) {
      const int64_t own = *rank.header.rank;
      bool is_member = false;
      found.place = 0;
      for (const int64_t member : group.ranks) {
        is_member |= member == own;
        found.place += member < own ? 1 : 0;
      }
      if (!is_member) continue;
    }
    return found;
  }
  return std::nullopt;
}

absl::Status CheckRanks(const std::vector<KinetoRank>& ranks, bool some_ranks,
                        std::vector<std::string>* notes) {
  std::map<int64_t, const KinetoRank*> by_number;
  for (const KinetoRank& rank : ranks) {
    if (!rank.header.rank) {
      if (ranks.size() == 1) continue;
      return Refuse(rank, "rank", "missing",
                    "the rank of each trace, where several are given");
    }
    const auto [found, is_new] =
        by_number.try_emplace(*rank.header.rank, &rank);
    if (!is_new) {
      return Refuse(rank, "rank", absl::StrCat(*rank.header.rank),
                    absl::StrCat("a rank of its own; ", found->second->source,
                                 " has it too"));
    }
    const int64_t world = rank.header.world_size;
    if (world != ranks[0].header.world_size) {
      return Refuse(rank, "world_size", absl::StrCat(world),
                    absl::StrCat("the ", ranks[0].header.world_size, " of ",
                                 ranks[0].source));
    }
    if (world > 0 && *rank.header.rank >= world) {
      return Refuse(rank, "rank", absl::StrCat(*rank.header.rank),
                    absl::StrCat("below world_size ", world));
    }
  }
  const int64_t world = ranks[0].header.world_size;
  const auto traced = static_cast<int64_t>(ranks.size());
  if (world <= traced) return absl::OkStatus();
  std::vector<std::string> missing;
  for (int64_t number = 0; number < world; ++number) {
    if (by_number.count(number) > 0) continue;
    if (missing.size() == kMissingNamed) {
      missing.push_back("...");
      break;
    }
    missing.push_back(absl::StrCat(number));
  }
  const std::string list = absl::StrJoin(missing, ", ");
  if (traced > 1 && !some_ranks) {
    return Refuse(
        ranks[0], "world_size", absl::StrCat(world),
        absl::StrCat("as many traces; there are ", traced, ", of rank ", list,
                     " none (--some-ranks imports those that there "
                     "are)"));
  }
  notes->push_back(absl::StrCat(traced, " of ", world,
                                " ranks are imported: what the others (", list,
                                ") take is not known"));
  return absl::OkStatus();
}

// The size that all traces and the user agree on; 0: nobody tells.
absl::StatusOr<int64_t> AgreedSize(const std::vector<KinetoRank>& ranks,
                                   TraceAxis axis, const char* flag,
                                   int64_t given) {
  int64_t size = 0;
  const KinetoRank* first = nullptr;
  for (const KinetoRank& rank : ranks) {
    const std::optional<PlaceInGroup> group = GroupOf(rank, axis);
    if (!group) continue;
    if (given > 0 && group->size != given) {
      return BadValue(flag, absl::StrCat(given),
                      absl::StrCat("the ", group->size, " of ", rank.source,
                                   " (distributedInfo.pg_config)"));
    }
    if (first != nullptr && group->size != size) {
      return Refuse(
          rank, "pg_config", absl::StrCat(group->size),
          absl::StrCat("the ", size, " of ", first->source, " (", flag, ")"));
    }
    size = group->size;
    first = &rank;
  }
  return size > 0 ? size : given;
}

absl::Status PlaceInPipeline(const std::vector<KinetoRank>& ranks,
                             KinetoLayout* layout) {
  const int64_t world = ranks[0].header.world_size;
  for (const KinetoRank& rank : ranks) {
    const std::optional<PlaceInGroup> group =
        GroupOf(rank, TraceAxis::kPipeline);
    int64_t place = group ? group->place : -1;
    if (layout->pp == 1) place = 0;
    if (place < 0 && layout->pp > 1 && rank.header.rank && world > 0) {
      if (world % layout->pp != 0) {
        return BadValue("--pp", absl::StrCat(layout->pp),
                        absl::StrCat("a divisor of the ", world, " ranks"));
      }
      place = *rank.header.rank / (world / layout->pp);
    }
    layout->pipeline.push_back(place);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KinetoLayout> LayoutOfRanks(const std::vector<KinetoRank>& ranks,
                                           const KinetoAxes& axes) {
  KinetoLayout layout;
  PW_RETURN_IF_ERROR(CheckRanks(ranks, axes.some_ranks, &layout.notes));
  PW_ASSIGN_OR_RETURN(const int64_t cp, AgreedSize(ranks, TraceAxis::kContext,
                                                   "context parallelism", 0));
  if (cp > 1) {
    return Refuse(ranks[0], "pg_config",
                  absl::StrCat("context parallelism over ", cp),
                  "1: a profile has no passes of it");
  }
  PW_ASSIGN_OR_RETURN(const int64_t tp,
                      AgreedSize(ranks, TraceAxis::kTensor, "--tp", axes.tp));
  PW_RETURN_IF_ERROR(
      AgreedSize(ranks, TraceAxis::kExpert, "--ep", axes.ep).status());
  PW_ASSIGN_OR_RETURN(layout.pp,
                      AgreedSize(ranks, TraceAxis::kPipeline, "--pp", axes.pp));
  const int64_t world = ranks[0].header.world_size;
  layout.tp_told = tp > 0;
  layout.tp = std::max<int64_t>(1, tp);
  if (layout.pp == 0 && (world == 1 || (tp > 1 && tp == world))) layout.pp = 1;
  if (layout.pp == 0 && ranks.size() > 1) {
    return MissingValue(
        "--pp",
        "with several traces, the stages of the pipeline; these traces do not "
        "tell it (distributedInfo.pg_config has no group of a pipeline)");
  }
  if (!layout.tp_told && world > 1) {
    layout.notes.push_back(
        "--tp is taken as 1: the trace does not tell tensor parallelism");
  }
  PW_RETURN_IF_ERROR(PlaceInPipeline(ranks, &layout));
  return layout;
}

}  // namespace pipewright

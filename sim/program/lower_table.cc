// Tied embeddings: one table that the first and the last stage have copies of.
#include <set>
#include <utility>
#include <vector>

#include "sim/program/lowering.h"
#include "sim/program/program.h"

namespace pipewright {

bool SumsTable(const Schedule& schedule, const LowerOptions& options) {
  if (options.tied_bytes <= 0 || schedule.backward == BackwardRule::kNone) {
    return false;
  }
  const Placement& placement = schedule.placement;
  const bool apart =
      placement.RankOf(0, 0) != placement.RankOf(schedule.stages() - 1, 0);
  if (schedule.update_every > 0) {
    return apart && schedule.update_every == schedule.microbatches;
  }
  const bool reduces = TraitsOf(options.data_parallel).reduces &&
                       (HoldersOf(options) > 1 || schedule.directions > 1);
  return apart && (reduces || options.optimizer != OptimizerMode::kNone);
}

void Lowering::SumTable(int rank, int64_t position) {
  const bool first = schedule_.placement.RankOf(0, 0) == rank;
  const int stage = first ? 0 : schedule_.stages() - 1;
  const int32_t event = AddChannel(ChannelKind::kEvent, rank, rank, 0);
  synced_[rank].push_back(event);
  // Every holder has its part of sharded gradients.
  const double bytes =
      shards() ? options_.tied_bytes / holders() : options_.tied_bytes;
  Attach(rank, position,
         {.kind = OpKind::kAllReduce,
          .stream = Stream::kCollective,
          .bytes = bytes,
          .group = table_group_.at(rank),
          .chunk = schedule_.placement.ChunkOf(stage),
          .stage = stage,
          .tied = true,
          .outputs = {event}});
}

// If a bidirectional schedule mirrors its stages, a rank with an embedding of
// one direction has the head of the other, and the reduction over both
// directions leaves nothing to send.
void Lowering::GroupTables() {
  if (!SumsTable(schedule_, options_)) return;
  const Placement& placement = schedule_.placement;
  const std::vector<int> holders = {
      placement.RankOf(0, 0), placement.RankOf(schedule_.stages() - 1, 0)};
  if (schedule_.directions == 1) {
    const int group = AddGroup(Group::Span::kRanks, holders);
    for (const int rank : holders) table_group_[rank] = group;
    return;
  }
  for (const int rank : holders) {
    table_group_[rank] = AddGroup(Group::Span::kRanks, {rank});
  }
}

void Lowering::AddTableSum() {
  if (SumsTableFirst()) return;
  for (const auto& [rank, group] : table_group_) {
    SumTable(rank, OrderSize(rank));
  }
}

}  // namespace pipewright

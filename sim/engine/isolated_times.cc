#include "sim/engine/isolated_times.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/program/network_time.h"

namespace pipewright {

namespace {

using CollectiveTimes = std::map<std::pair<int, CollectiveKey>, double>;

// `spanning` keeps what is the same for all replicas between calls.
IsolatedTimes ComputeIsolatedTimes(const Program& program, int replica,
                                   CollectiveTimes* spanning) {
  IsolatedTimes times;
  for (const Channel& channel : program.channels) {
    times.channel_s.push_back(TransferSeconds(program, channel, replica));
  }
  CollectiveTimes inside;
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankProgram& rank_program = program.ranks[rank];
    std::vector<double>& lane_s = times.lane_s.emplace_back();
    for (size_t index = 0; index < rank_program.lanes.size(); ++index) {
      const auto kind = Pass::KindOf(index);
      const Lane& lane = rank_program.lanes[index];
      lane_s.push_back(kind == PassKind::kOffload || kind == PassKind::kLoad
                           ? CopySeconds(program, lane, kind, replica, rank)
                           : lane.seconds);
    }
    std::vector<double>& side_op_s = times.side_op_s.emplace_back();
    for (const SideOp& op : rank_program.side_ops) {
      double seconds = op.seconds;
      if (IsOneSided(op.kind)) {
        seconds = OneSidedSeconds(program, op, replica, rank);
      } else if (UsesHost(op.kind)) {
        seconds = HostOpSeconds(program, op, replica, rank);
      } else if (IsCollective(op.kind)) {
        const Group& group = program.groups[op.group];
        CollectiveTimes& plans =
            group.span == Group::Span::kRanks ? inside : *spanning;
        const auto [known, is_new] =
            plans.try_emplace({op.group, CollectiveKeyOf(op)}, 0.0);
        if (is_new) {
          known->second =
              PlanCollective(program, op, GroupMembers(program, group, replica))
                  .seconds;
        }
        seconds = known->second;
      }
      side_op_s.push_back(seconds);
    }
  }
  return times;
}

}  // namespace

ReplicaRows SortReplicas(const Program& program) {
  ReplicaRows rows;
  CollectiveTimes spanning;
  // With a pure delay all replicas are alike.
  const int distinct =
      program.network.cluster == nullptr ? 1 : program.replicas;
  for (int replica = 0; replica < distinct; ++replica) {
    IsolatedTimes times = ComputeIsolatedTimes(program, replica, &spanning);
    const auto known = std::find(rows.times.begin(), rows.times.end(), times);
    const auto row = static_cast<int>(known - rows.times.begin());
    if (known == rows.times.end()) {
      rows.times.push_back(std::move(times));
      rows.first_replica.push_back(replica);
      rows.replicas.push_back(0);
    }
    ++rows.replicas[row];
    rows.row_of_replica.push_back(row);
  }
  if (distinct < program.replicas) {
    rows.replicas[0] = program.replicas;
    rows.row_of_replica.assign(program.replicas, 0);
  }
  return rows;
}

double CountBytesSent(const Program& program) {
  const Schedule& schedule = *program.schedule;
  const double tokens =
      static_cast<double>(schedule.microbatches_per_direction()) *
      schedule.slices;
  double bytes = 0;
  for (const Channel& channel : program.channels) {
    const bool of_passes = channel.kind == ChannelKind::kActivation ||
                           channel.kind == ChannelKind::kGradient;
    bytes += channel.bytes * (of_passes ? tokens : 1);
  }
  return bytes * program.replicas;
}

}  // namespace pipewright

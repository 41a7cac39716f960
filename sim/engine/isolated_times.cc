#include "sim/engine/isolated_times.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "sim/engine/known_times.h"
#include "sim/program/network_time.h"

namespace pipewright {

namespace {

using CollectiveTimes = std::map<std::pair<int, CollectiveKey>, double>;

// All layers of a device go at the pace that their peers give them.
using PeerPaces =
    std::map<std::pair<const PeerPlan*, OpKind>, std::vector<PeerPace>>;

// `spanning` keeps what is the same for all replicas between calls.
IsolatedTimes ComputeIsolatedTimes(const Program& program, int replica,
                                   CollectiveTimes* spanning) {
  IsolatedTimes times = {.dp_class = program.ClassOf(replica)};
  const DpClass& own = program.OfReplica(replica);
  // Chunks of two ranks send alike.
  std::map<std::tuple<int, int, double>, double> between;
  for (const Channel& channel : own.channels) {
    const auto [known, is_new] = between.try_emplace(
        {channel.from_rank, channel.to_rank, channel.bytes}, 0.0);
    if (is_new) known->second = TransferSeconds(program, channel, replica);
    times.channel_s.push_back(known->second);
  }
  CollectiveTimes inside;
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankProgram& rank_program = own.ranks[rank];
    std::vector<double>& lane_s = times.lane_s.emplace_back();
    for (size_t index = 0; index < rank_program.lanes.size(); ++index) {
      const auto kind = Pass::KindOf(index);
      const Lane& lane = rank_program.lanes[index];
      lane_s.push_back(kind == PassKind::kOffload || kind == PassKind::kLoad
                           ? CopySeconds(program, lane, kind, replica, rank)
                           : lane.seconds);
    }
    std::vector<double>& side_op_s = times.side_op_s.emplace_back();
    PeerPaces with_peers;
    for (const SideOp& op : rank_program.side_ops) {
      double seconds = op.seconds;
      if (IsOneSided(op.kind) && op.peers != nullptr) {
        const auto [known, is_new] =
            with_peers.try_emplace({op.peers.get(), op.kind});
        if (is_new) known->second = PacesOfPeers(program, op, replica, rank);
        seconds = OneSidedSeconds(program, op, known->second);
      } else if (IsOneSided(op.kind)) {
        seconds = OneSidedSeconds(program, op, replica, rank);
      } else if (UsesHost(op.kind)) {
        seconds = HostOpSeconds(program, op, replica, rank);
      } else if (IsCollective(op.kind)) {
        const Group& group = program.groups[op.group];
        CollectiveTimes& plans =
            group.Instances(program.replicas) > 1 ? inside : *spanning;
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
  return SortReplicas(program, nullptr);
}

ReplicaRows SortReplicas(const Program& program, KnownTimes* known_times) {
  ReplicaRows rows;
  CollectiveTimes spanning;
  // Who meets a part of the replicas only stands for nobody else.
  const bool parts =
      std::any_of(program.groups.begin(), program.groups.end(),
                  [](const Group& group) { return group.part > 0; });
  std::vector<int> alike(program.num_classes(), -1);  // rows of classes
  for (int replica = 0; replica < program.replicas; ++replica) {
    // With a pure delay all replicas of a class are alike.
    int& of_class = alike[program.ClassOf(replica)];
    if (program.network.cluster == nullptr && of_class >= 0 && !parts) {
      ++rows.replicas[of_class];
      rows.row_of_replica.push_back(of_class);
      continue;
    }
    const auto compute = [&] {
      return ComputeIsolatedTimes(program, replica, &spanning);
    };
    IsolatedTimes times =
        known_times == nullptr
            ? compute()
            : *known_times->Get(program.OfReplica(replica).schedule, replica,
                                compute);
    times.dp_class = program.ClassOf(replica);
    const auto known =
        parts ? rows.times.end()
              : std::find(rows.times.begin(), rows.times.end(), times);
    const auto row = static_cast<int>(known - rows.times.begin());
    if (known == rows.times.end()) {
      rows.times.push_back(std::move(times));
      rows.first_replica.push_back(replica);
      rows.replicas.push_back(0);
    }
    ++rows.replicas[row];
    rows.row_of_replica.push_back(row);
    of_class = row;
  }
  return rows;
}

namespace {

double BytesOfReplica(const DpClass& own) {
  const Schedule& schedule = *own.schedule;
  const double tokens =
      static_cast<double>(schedule.microbatches_per_direction()) *
      schedule.slices;
  double bytes = 0;
  for (const Channel& channel : own.channels) {
    const bool of_passes = channel.kind == ChannelKind::kActivation ||
                           channel.kind == ChannelKind::kGradient;
    bytes += channel.bytes * (of_passes ? tokens : 1);
  }
  return bytes;
}

}  // namespace

double CountBytesSent(const Program& program) {
  const std::vector<int> replicas = program.ReplicasOfClasses();
  double bytes = 0;
  for (int index = 0; index < program.num_classes(); ++index) {
    bytes += BytesOfReplica(program.dp_class(index)) * replicas[index];
  }
  return bytes;
}

}  // namespace pipewright

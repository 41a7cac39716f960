// What can send over which links in an EventRun: the sources of traffic, and
// how each of them is to travel. Decided once before the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/engine/sharing.h"
#include "sim/engine/spread.h"
#include "sim/program/program.h"
#include "sim/schedule/token_queue.h"

namespace pipewright {

// All sources of a run, by number.
class TrafficSources {
 public:
  // `share_links`: else no source ever waits for another. `spread_peers`: as
  // SpreadPlanner's; nothing: all is shared exactly. `slowed`: things slow each
  // other down, so that what meets nobody is timed, with as_activities too.
  TrafficSources(const Network& network, bool share_links,
                 std::optional<int> spread_peers, bool as_activities = false,
                 bool slowed = false);

  // Returns the number of the source; -1 if it uses no links.
  int Add(TrafficSource source);
  bool Spreads(size_t peers) const {
    return spread_.has_value() && spread_->Spreads(peers);
  }
  // One flow for each of `pairs`, as SpreadPlanner::Add.
  int AddSpread(const SpreadPlanner::Key& key,
                const std::vector<std::pair<int, int>>& pairs);
  // Once all are added: decides how they travel.
  void Plan();
  // From here on a source meets nobody on these links, which are numbered.
  void Forget(int source, const std::vector<bool>& links);

  const std::vector<TrafficSource>& all() const { return sources_; }
  // [source]; empty without a cluster.
  const std::vector<SourcePlan>& plans() const { return plans_; }
  const SourcePlan& plan(int source) const { return plans_[source]; }
  const std::vector<SpreadPool>& pools() const { return pools_; }
  // True if what it sends may have to share a link.
  bool Shared(int source) const {
    return source >= 0 && plans_[source].sharing != Sharing::kNone;
  }
  // True if the transport moves what it sends; else it is timed, and passes may
  // slow it down.
  bool Moves(int source) const {
    return Shared(source) || (source >= 0 && as_activities_ && !slowed_);
  }
  bool as_activities() const { return as_activities_; }
  bool AnyShared() const;
  // From the beginning to the end of bytes that are alone on their links.
  double AloneSeconds(int source, double bytes) const {
    return plans_[source].latency_s + bytes / plans_[source].bytes_per_s;
  }

 private:
  const Cluster* const cluster_;  // null: no links
  const bool share_links_;
  const bool as_activities_;
  const bool slowed_;
  std::optional<SpreadPlanner> spread_;
  std::vector<TrafficSource> sources_;
  std::vector<SourcePlan> plans_;
  std::vector<SpreadPool> pools_;
};

// The channels of each replica: what has come over them, and what a transfer
// over them takes.
class EventChannels {
 public:
  // Adds their sources.
  EventChannels(const Program& program, TrafficSources* sources);

  // Place of a replica's channel among all.
  size_t SlotOf(int replica, int32_t channel) const {
    return static_cast<size_t>(replica) * most_channels_ + channel;
  }
  size_t slots() const { return tokens_.size(); }
  const Channel& At(int replica, int32_t channel) const {
    return program_.OfReplica(replica).channels[channel];
  }
  // Times of arrival that nobody has taken yet.
  TokenQueue& Tokens(int replica, int32_t channel) {
    return tokens_[SlotOf(replica, channel)];
  }
  int SourceOf(size_t slot) const { return source_[slot]; }
  // From the end of the producing operation, alone on the links.
  double SecondsOf(size_t slot) const { return seconds_[slot]; }

  // Key of a token of `pass`. Tokens of a false start may still be on their way
  // when the same passes run again.
  static uint64_t KeyOf(Pass pass, bool false_start) {
    return pass.key() | static_cast<uint64_t>(false_start ? 1 : 0) << 63;
  }

 private:
  std::vector<double> SpacingOf(const DpClass& own) const;

  const Program& program_;
  size_t most_channels_ = 0;  // in one replica of any class
  std::vector<TokenQueue> tokens_;
  std::vector<int> source_;
  std::vector<double> seconds_;
};

// Sources of copies, of work of hosts, and of pulls and pushes of each device.
class SideSources {
 public:
  // Adds them.
  SideSources(const Program& program, TrafficSources* sources);

  // -1: it uses no links.
  int OfSideOp(int device, int32_t side_op) const {
    return Find(SideKey(device, side_op));
  }
  // O and L.
  int OfCopies(int device, Stream stream) const {
    return Find(SideKey(device, CopyIndex(stream)));
  }
  // Sources of a pull or push with several peers, for each step: one, or one a
  // peer. Null: there are no links.
  const std::vector<std::vector<int>>* OfPeers(int device,
                                               const SideOp& op) const;

 private:
  using PeerKey = std::tuple<int, const PeerPlan*, bool>;
  static PeerKey PeerKeyOf(int device, const SideOp& op) {
    return {device, op.peers.get(), op.kind == OpKind::kPull};
  }
  static uint64_t SideKey(int device, int side_op) {
    return static_cast<uint64_t>(static_cast<uint32_t>(device)) << 32 |
           static_cast<uint32_t>(side_op);
  }
  // Copies of passes count down from -1 by their stream.
  static int CopyIndex(Stream stream) { return -1 - static_cast<int>(stream); }
  int Find(uint64_t key) const {
    const auto found = side_source_.find(key);
    return found == side_source_.end() ? -1 : found->second;
  }

  void AddCopies(int device, TrafficSources* sources);
  void AddHostOps(int device, TrafficSources* sources);
  void AddOneSided(int device, TrafficSources* sources);
  void AddPeers(int device, const SideOp& op, TrafficSources* sources);
  int AddSpread(int device, const SideOp& op, int step,
                TrafficSources* sources) const;
  int ReplicaOf(int device) const { return device / program_.pp(); }
  int RankOf(int device) const { return device % program_.pp(); }
  const RankProgram& RankProgramOf(int device) const {
    return program_.OfReplica(ReplicaOf(device)).ranks[RankOf(device)];
  }

  const Program& program_;
  absl::flat_hash_map<uint64_t, int> side_source_;  // by SideKey
  absl::flat_hash_map<PeerKey, std::vector<std::vector<int>>> peer_sources_;
};

}  // namespace pipewright

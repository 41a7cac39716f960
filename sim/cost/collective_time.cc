#include "sim/cost/collective_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/check.h"
#include "sim/cost/profile_shape.h"

namespace pipewright {
namespace {

// All tables: NVIDIA/nccl v2.28.9, src/graph/tuning.cc. Order LL, LL128,
// Simple; times in us, bandwidths in GB/s. [numerics]
constexpr int kProtocols = 3;
enum Protocol { kLl, kLl128, kSimple };
constexpr absl::string_view kProtocolNames[] = {"LL", "LL128", "Simple"};

// NCCL, tuning.cc: base latency of an algorithm. [framework source, us]
constexpr double kTreeBase[] = {6.8, 14, 8.4};
constexpr double kRingBase[] = {6.6, 14, 8.4};
// NCCL, tuning.cc: latency of a step over NVLink. [framework source, us]
constexpr double kTreeNvlink[] = {0.6, 1.25, 4};
constexpr double kRingNvlink[] = {0.6, 1.9, 3.4};
// NCCL, tuning.cc: latency of a step over PCIe. [framework source, us]
constexpr double kTreePcie[] = {1, 1.9, 4};
constexpr double kRingPcie[] = {1, 2.5, 5.7};
// NCCL, tuning.cc: latency of a step over the network. [framework source, us]
constexpr double kTreeNet[] = {5, 8.5, 14};
constexpr double kRingNet[] = {2.7, 4, 14};
// NCCL, tuning.cc: of the network's driver on an AMD host; three times that for
// Simple. [framework source, us]
constexpr double kNetOverhead = 2;

// NCCL, tuning.cc, by generation and 1 node, 2 nodes, more.
// [framework source, GB/s]
constexpr double kLlMax[4][3] = {
    {39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
constexpr double kRingLl128[4] = {20, 20, 36.7, 40};
constexpr double kTreeLl128[4][3] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
constexpr double kTreeMax[4][3] = {
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};
// NCCL, tuning.cc: factors on a tree's bandwidth, by protocol and
// floor(log2(bytes / kOctaveBytes)). [framework source]
constexpr int kCorrections = 23;
constexpr double kTreeCorrection[kProtocols][kCorrections] = {
    {1,  1,  1,  1,  .9, .8, .7, .7, .7, .7, .6, .5,
     .4, .4, .5, .6, .7, .8, .9, 1,  1,  1,  1},
    {1,  1,  1,  1,  1,  .9, .8, .8, .8, .7, .6, .6,
     .6, .6, .6, .6, .8, .9, .9, .9, .9, 1,  1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}};
// NCCL, tuning.cc. [framework source, bytes]
constexpr double kOctaveBytes = 64;
// NCCL, tuning.cc: the part of the bus that LL128 in rings and a tree get, LL's
// part of a tree's, and LL128's of a tree's on one node and on several.
// [framework source]
constexpr double kPartOfBus = 0.92;
constexpr double kLlOfTree = 3.8;
constexpr double kLl128OfTree = 7.0 / 9;
constexpr double kLl128OfWideTree = 120.0 / 128;
// NCCL, tuning.cc: a plateau of rings with Simple between nodes, from so many
// bytes a channel and rank on, and the factors on latency.
// [framework source]
constexpr double kPlateauBytes = 64;
constexpr double kVoltaPlateau = 1.9;
constexpr double kPlateau = 1.4;

struct Shape {
  const NcclGroup& group;
  int generation;
  int size;  // column: 1 node, 2 nodes, more
  double bus;
  // Several nodes: the column by CPU, Ampere's for AMD.
  double ll_max;
};

Shape ShapeOf(const NcclGroup& group) {
  const int generation = static_cast<int>(group.generation);
  const int size = std::min(group.nodes, 3) - 1;
  const int ll_column =
      size == 0 ? generation : static_cast<int>(NcclGeneration::kAmpere);
  return {group, generation, size, group.channels * group.channel_GBps,
          kLlMax[ll_column][size]};
}

double RingIntra(const Shape& shape, Protocol protocol) {
  const double inside =
      shape.group.has_nvlink ? kRingNvlink[protocol] : kRingPcie[protocol];
  if (shape.group.nodes == 1) return inside;
  return std::max(inside, kNetOverhead * (protocol == kSimple ? 3 : 1));
}

double RingMicroseconds(CollectiveKind collective, const Shape& shape,
                        Protocol protocol, double bytes) {
  const NcclGroup& group = shape.group;
  const bool all_reduce = collective == CollectiveKind::kAllReduce;
  const double rounds = all_reduce ? 2 : 1;
  const double steps = rounds * (group.ranks - 1);
  double bus = shape.bus;
  if (protocol == kLl) bus = std::min(shape.ll_max, shape.bus / 2);
  if (protocol == kLl128) {
    bus = std::min(kPartOfBus * shape.bus,
                   group.channels * kRingLl128[shape.generation]);
  }
  const double algorithm = bus * group.ranks / steps;
  const double inter_steps = group.nodes == 1 ? 0 : rounds * (group.nodes - 1);
  const bool one_a_node = group.ranks == group.nodes;
  const double inter = one_a_node ? kTreeNet[protocol] : kRingNet[protocol];
  double latency = kRingBase[protocol] +
                   (steps - inter_steps) * RingIntra(shape, protocol) +
                   inter_steps * inter;
  if (protocol == kSimple && all_reduce && group.nodes > 1 &&
      bytes / (static_cast<double>(group.channels) * group.ranks) >=
          kPlateauBytes) {
    latency *= shape.generation == 0 ? kVoltaPlateau : kPlateau;
  }
  latency += 1e6 * rounds * group.ring_latency_s;
  return latency + bytes / (1000 * algorithm);
}

double TreeMicroseconds(const Shape& shape, Protocol protocol, double bytes) {
  const NcclGroup& group = shape.group;
  double bus =
      std::min(kPartOfBus * shape.bus,
               group.channels * kTreeMax[shape.generation][shape.size]);
  if (protocol == kLl) bus = std::min(bus / kLlOfTree, shape.ll_max);
  if (protocol == kLl128) {
    bus = std::min(bus * (group.nodes == 1 ? kLl128OfTree : kLl128OfWideTree),
                   group.channels * kTreeLl128[shape.generation][shape.size]);
  }
  const double octave = std::floor(std::log2(bytes / kOctaveBytes));
  const double correction =
      octave >= 0 && octave < kCorrections
          ? kTreeCorrection[protocol][static_cast<int>(octave)]
          : 1;
  const double levels = std::floor(std::log2(group.nodes));
  // A tree crosses no more links on its way than a ring does.
  const double way_s = std::min(levels * group.latency_s, group.ring_latency_s);
  const double latency =
      kTreeBase[protocol] +
      2 * ((group.ranks / group.nodes - 1) *
               (group.has_nvlink ? kTreeNvlink : kTreePcie)[protocol] +
           levels * kTreeNet[protocol] + 1e6 * way_s);
  return latency + bytes / (1000 * 0.5 * bus * correction);
}

// Steps of a ring and the share of the buffer that crosses each of its edges.
struct RingShape {
  double steps;
  double share;
};

RingShape ShapeOfRing(CollectiveKind kind, int members) {
  const double n = members;
  const double once = (n - 1) / n;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return {2 * (n - 1), 2 * once};
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
      return {n - 1, once};
    default:
      return {n - 1, 0};
  }
}

CollectiveTime TimeOnRings(CollectiveKind kind, double bytes, int members,
                           const RingLinks& links) {
  const RingShape shape = ShapeOfRing(kind, members);
  CollectiveTime time = {.from = CollectiveTime::From::kRing};
  time.bytes_per_edge = shape.share * bytes / links.rings;
  time.latency_s = shape.steps * links.latency_s;
  time.seconds = time.latency_s + time.bytes_per_edge / links.ring_bytes_per_s;
  // Its steps share no links here, so it is for small messages only.
  const double step_s = bytes / links.edge_bytes_per_s;
  const bool may_double =
      members > 2 && step_s <= links.latency_s &&
      (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBarrier);
  const double doublings = std::ceil(std::log2(members));
  const double doubling_s = doublings * (links.latency_s + step_s);
  if (!may_double || doubling_s >= time.seconds) return time;
  return {.from = CollectiveTime::From::kDoubling,
          .seconds = doubling_s,
          .latency_s = doublings * links.latency_s};
}

CollectiveTime TimeByTuner(CollectiveKind kind, double bytes,
                           const NcclGroup& group) {
  double best = std::numeric_limits<double>::infinity();
  for (const absl::string_view algorithm : {"ring", "tree"}) {
    for (const absl::string_view protocol : kProtocolNames) {
      const double seconds =
          NcclSeconds(kind, algorithm, protocol, group, bytes);
      if (seconds >= 0) best = std::min(best, seconds);
    }
  }
  return {.from = CollectiveTime::From::kTuner, .seconds = best};
}

}  // namespace

absl::string_view CollectiveName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  PW_CHECK(false);
}

double NcclSeconds(CollectiveKind collective, absl::string_view algorithm,
                   absl::string_view protocol, const NcclGroup& group,
                   double bytes) {
  const Shape shape = ShapeOf(group);
  for (int index = 0; index < kProtocols; ++index) {
    if (kProtocolNames[index] != protocol) continue;
    // NCCL takes LL128 over NVLink alone (pEnable in tuning.cc).
    if (index == kLl128 && !group.has_nvlink) return -1;
    if (algorithm == "ring") {
      return 1e-6 * RingMicroseconds(collective, shape,
                                     static_cast<Protocol>(index), bytes);
    }
    if (algorithm == "tree" && collective == CollectiveKind::kAllReduce) {
      return 1e-6 *
             TreeMicroseconds(shape, static_cast<Protocol>(index), bytes);
    }
  }
  return -1;
}

std::optional<CollectiveTime> TimeOfCollective(
    CollectiveKind kind, double bytes, int members,
    const CollectiveLinks& links, const MeasuredMembers* measured) {
  if (members < 2) return CollectiveTime();
  const bool moves = kind != CollectiveKind::kBarrier && bytes > 0;
  if (measured != nullptr && moves) {
    if (const auto time = TransferSeconds(
            *measured->profile, CollectiveName(kind), members, bytes,
            {.transport = measured->transport,
             .nodes = measured->nodes,
             .between_ranks = measured->between_ranks})) {
      return CollectiveTime{.from = CollectiveTime::From::kMeasured,
                            .seconds = time->seconds,
                            .inside = time->inside,
                            .between_ranks = time->between_ranks};
    }
  }
  if (const auto* rings = std::get_if<RingLinks>(&links)) {
    return TimeOnRings(kind, bytes, members, *rings);
  }
  if (const auto* group = std::get_if<NcclGroup>(&links)) {
    if (!moves) return CollectiveTime();
    return TimeByTuner(kind, bytes, *group);
  }
  return {};
}

}  // namespace pipewright

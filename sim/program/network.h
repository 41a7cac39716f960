// What lies between the ranks of a Program.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

namespace pipewright {

// When a transfer between passes starts and which ranks it blocks.
enum class WaitRule : uint8_t {
  // As soon as the producing pass has ended. It does not block either rank.
  kBuffered,
  // When the producing pass has ended and the consumer's rank has come to the
  // consuming pass. It blocks both ranks until it has ended. A rank that has
  // both to send and to receive sends first.
  kRendezvous,
  // As kRendezvous, but what a rank sends after one pass and receives before
  // the next one is posted together and awaited together, unless an attached
  // side operation or a copy is issued between them. Over several chunks, and
  // where ranks would wait for each other so, they walk through time steps as
  // kStepped, without gaps of the schedule. There a forward and the backward
  // directly behind it are one step if a rank has several chunks: Megatron-LM's
  // send_forward_backward_recv_forward_backward (megatron/core/
  // pipeline_parallel/schedules.py, core_v0.12.0).
  kBatched,
  // Ranks walk through the time steps of the schedule (time_steps.h). What
  // passes of one step make is sent and received at its end, and a rank begins
  // the next step when all of its own has ended: PyTorch's
  // PipelineScheduleMulti, torch/distributed/pipelining/schedules.py,
  // _step_microbatches (pytorch/pytorch 1fd7abc2f521).
  kStepped,
};
absl::string_view WaitRuleName(WaitRule rule);

// How the members of a collective of a Program pass their bytes on.
enum class CollectiveAlgorithm : uint8_t {
  kRing,
  // All-reduce: two binary trees over the nodes, chains inside of them.
  kTree,
  // Rings inside the nodes, then rings over them with a part of the buffer
  // each, then inside again.
  kHierarchical,
  kFastest,  // best of these for each size, alone on the network
};

class Cluster;
class MeasuredPaths;
class RankMapping;
struct Profile;

// Time of a hop: either the same for every hop, or a cluster's links.
struct Network {
  // Used when `cluster` is null; 0: free.
  double hop_s = 0;
  std::shared_ptr<const Cluster> cluster;
  std::shared_ptr<const RankMapping> mapping;
  // Whose collectives those of gradients and parameters take the time of
  // (network_time.h), of one device a rank; null: nobody's.
  std::shared_ptr<const Profile> measured;
  // What was measured between two ends; null: nothing, their links decide.
  std::shared_ptr<const MeasuredPaths> paths;
  // Algorithm of collectives on a cluster that are not measured.
  CollectiveAlgorithm collectives = CollectiveAlgorithm::kRing;
  // So many parts a rank's devices are, one behind the other, that hold the
  // same parameters.
  int context_parallel = 1;
};

}  // namespace pipewright

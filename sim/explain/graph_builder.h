// Walks a Program beside its trace; internal to dependency_graph.cc and
// graph_walk.cc.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/explain/dependency_graph.h"
#include "sim/program/compute_stream.h"
#include "sim/program/side_sequence.h"

namespace pipewright {

class GraphBuilder {
 public:
  GraphBuilder(const Program& program, const std::vector<TraceOp>& ops,
               int iterations)
      : program_(program), ops_(ops), iterations_(iterations) {}

  absl::StatusOr<DependencyGraph> Build() &&;

 private:
  using Node = DependencyGraph::Node;
  using Nodes = std::vector<int32_t>;
  // Operations of the trace that only their order tells apart.
  struct Queue {
    std::vector<const TraceOp*> ops;
    size_t taken = 0;
  };
  // The n-th sending of a transfer belongs to its n-th arrival.
  struct Transfers {
    Queue traced;
    Nodes nodes;
    size_t sent = 0;
    size_t received = 0;
  };
  // The tokens of a channel between side operations.
  struct Tokens {
    Nodes pushed;
    std::vector<std::pair<int32_t, int32_t>> popped;  // consumer, how many-th
    int32_t pops = 0;
  };
  struct Traced {
    Queue passes;
    std::map<int32_t, Queue> side_ops;
    absl::flat_hash_map<uint64_t, Queue> copies[2];  // O, L
  };
  // One rank of one replica on its way through the order.
  struct Walk {
    explicit Walk(const RankProgram& rank_program)
        : sequence(rank_program), hook_nodes(rank_program.hooks.size()) {}
    int replica = 0;
    int rank = 0;
    int iteration = 0;
    int64_t position = 0;
    SideSequence sequence;
    Nodes front;  // what decides when the compute stream is free
    Nodes last = Nodes(kNumStreams, -1);
    std::vector<Nodes> hook_nodes;
    absl::flat_hash_map<uint64_t, int32_t> offloaded;
    absl::flat_hash_map<uint64_t, int32_t> loading;
    bool received = false;
    Traced* traced = nullptr;
    DependencyGraph::RankNodes nodes;
  };

  void SortTrace();
  absl::Status WalkRank(Walk* walk);
  absl::Status WalkStart(const Start& start, Walk* walk);
  absl::Status TakeItem(Walk* walk);
  absl::Status TakeBlock(bool hooked, Walk* walk);
  absl::Status TakeEntry(Walk* walk);
  absl::Status TakeDrop(Walk* walk);
  absl::Status AddCopy(Pass pass, Walk* walk);
  absl::Status PostSteps(const HoldingSteps& steps, Walk* walk);
  void JoinTokens();

  absl::StatusOr<int32_t> Take(Queue* queue, const Walk& walk);
  // The node of a transfer, as its sender or its receiver meets it. -1: it had
  // not arrived when the run ended.
  absl::StatusOr<int32_t> TransferNode(int replica, int32_t channel, Pass pass,
                                       bool send);
  // One node for all members, since they start and end together.
  absl::StatusOr<int32_t> MeetingNode(const SideOp& op, const Walk& walk);
  int32_t AddNode(const TraceOp& op);
  void AddEdge(int32_t from, int32_t to);
  void AddEdges(const Nodes& from, int32_t to) {
    for (const int32_t each : from) AddEdge(each, to);
  }
  // Replicas may be of several classes, which run different passes.
  const RankProgram& RankOf(const Walk& walk) const {
    return program_.OfReplica(walk.replica).ranks[walk.rank];
  }
  bool holds() const { return program_.wait_rule != WaitRule::kBuffered; }

  const Program& program_;
  const std::vector<TraceOp>& ops_;
  const int iterations_;
  DependencyGraph graph_;
  std::map<std::pair<int, int>, Traced> traced_;  // (replica, rank)
  // (replica, channel) -> key of the pass.
  std::map<std::pair<int, int>, absl::flat_hash_map<uint64_t, Transfers>>
      transfers_;
  std::map<std::pair<int, int>, Tokens> tokens_;  // (replica, channel)
  // (group, instance) -> the meetings so far; (group, replica, rank) -> how
  // many of them this member has come to.
  std::map<std::pair<int, int>, Nodes> meetings_;
  std::map<std::tuple<int, int, int>, size_t> met_;
};

}  // namespace pipewright

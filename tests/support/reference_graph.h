// The graph of the naive engine (reference_engine.h): every operation of every
// replica and iteration is a node.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/engine/engine.h"
#include "sim/program/cursor.h"
#include "tests/support/device_flows.h"

namespace pipewright {

struct ReferenceNode {
  double seconds = 0;
  std::vector<int> after;
  int iteration = 0;
  bool counts = true;  // towards the end of its iteration
  double start_s = 0;
  double end_s = 0;
};

struct ReferencePass {
  int node;
  int replica;
  int rank;
  double seconds;
};

class ReferenceGraph {
 public:
  explicit ReferenceGraph(const Program& program) : program_(program) {}

  absl::StatusOr<RunSummary> Run() {
    for (int replica = 0; replica < program_.replicas; ++replica) {
      for (int rank = 0; rank < program_.pp(); ++rank) {
        AddRank(replica, rank);
      }
    }
    if (!Solve()) return absl::FailedPreconditionError("cycle");
    return Summary();
  }

 private:
  int Add(double seconds, std::vector<int> after, int iteration) {
    nodes_.push_back({.seconds = seconds,
                      .after = std::move(after),
                      .iteration = iteration});
    return static_cast<int>(nodes_.size()) - 1;
  }
  // One node for the two sides that name it: nobody waits for its end but
  // they.
  int Shared(std::tuple<int, int, int64_t, uint64_t> name, double seconds,
             int iteration) {
    const auto [known, is_new] = shared_.try_emplace(name, 0);
    if (is_new) {
      known->second = Add(seconds, {}, iteration);
      nodes_.back().counts = holds() || std::get<1>(name) < 0;
    }
    return known->second;
  }
  // The node of the n-th token of its kind on a channel, counted by whoever
  // sends and, apart from that, by whoever receives.
  int Token(int replica, int32_t channel, bool send, uint64_t key,
            int iteration) {
    const int64_t turn = turns_[{channel, send, key}]++;
    return Shared({replica, channel, turn, key}, Seconds(replica, channel),
                  iteration);
  }
  void After(int node, int other) {
    if (other >= 0) nodes_[node].after.push_back(other);
  }
  const DpClass& Of(int replica) const { return program_.OfReplica(replica); }
  double Seconds(int replica, int channel) const {
    return NaiveTransferSeconds(program_, Of(replica).channels[channel],
                                replica);
  }

  void AddRank(int replica, int rank);
  void AddBlock(int replica, int rank, const std::vector<Op>& ops);
  void AddSideOp(int replica, int rank, const Op& op);
  void AddCopy(int replica, int rank, const Op& op);
  void AddFree(const Op& op);
  void AddDrop(int replica, const Op& op);
  void BeginStart(int replica, int rank, const Op& first);
  std::vector<int> Hooked(int replica, int rank,
                          const std::vector<Op>& block) const;
  void JoinReceives(int replica, const std::vector<Op>& ops, size_t index);
  void FlushBatch();
  // The time steps of every rank's passes, [rank][index in its order].
  void FindSteps(int replica);
  // What the rank sends and receives in the steps before `step`.
  void Exchange(int replica, int rank, int64_t step, int iteration);
  bool stepped() const { return stepped_; }
  bool batched() const { return program_.wait_rule == WaitRule::kBatched; }
  int Transfer(int replica, const Op& op);
  bool Solve();
  RunSummary Summary() const;

  bool holds() const { return program_.wait_rule != WaitRule::kBuffered; }

  const Program& program_;
  std::vector<ReferenceNode> nodes_;
  std::vector<ReferencePass> passes_;
  std::map<std::tuple<int, int, int64_t, uint64_t>, int> shared_;
  // Last node of each stream of the rank being added.
  std::vector<int> tail_;
  std::vector<int> batch_;  // posted, not yet awaited
  bool received_ = false;   // the next block's is in what was posted
  std::map<std::pair<int, int>, int> meetings_;  // (side op's group, rank)
  std::map<std::tuple<int32_t, bool, uint64_t>, int64_t> turns_;
  // [hook]: its operations in this start, and how often it has fired.
  std::vector<std::vector<int>> hooked_;
  std::vector<std::vector<int64_t>> fired_at_;
  bool stepped_ = false;  // the replica walks through time steps
  std::vector<std::vector<int64_t>> steps_;
  int64_t step_ = 0;  // the rank has ended all before it
  std::map<uint64_t, int> offloads_;
  std::map<uint64_t, int> loads_;
};

}  // namespace pipewright

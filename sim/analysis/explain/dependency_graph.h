// What every operation of a run has waited for: the operations of a trace as
// nodes, and an edge to each operation that had to end first (docs/
// architecture.md, Rules of time). It knows no causes: step_parts.h names them.
//
// The order of operations is the Program's own, walked as the engines walk it;
// the times are those of the trace, so any engine's trace will do. Replicas
// that the trace reports once are here once.
//
// Memory O(operations of all iterations).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"
#include "sim/program/op_kind.h"
#include "sim/schedule/pass.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

class DependencyGraph {
 public:
  // One operation. Seconds from the start of the run.
  struct Node {
    double start_s = 0;
    double end_s = 0;
    OpKind kind = OpKind::kPass;
    Stream stream = Stream::kCompute;
    bool message = false;  // a token between side operations of two ranks
    int32_t replica = 0;
    int32_t rank = 0;  // the sender's, for a transfer
    int32_t iteration = 0;
    int32_t side_op = -1;
    int32_t stage = -1;
    int32_t channel = -1;  // for transfers
    Pass pass{};           // for passes, their transfers and copies
    int32_t first_edge = -1;
  };
  // A rank of a replica that the trace reports.
  struct RankNodes {
    int replica = 0;
    int rank = 0;
    std::vector<int32_t> compute;  // nodes of the compute stream, in its order
    std::vector<double> end_s;     // ends on the compute stream, [iteration]
  };

  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(int32_t index) const { return nodes_[index]; }
  // By replica, then rank.
  const std::vector<RankNodes>& ranks() const { return ranks_; }

  // The dependency of `index` that ended last; of several that ended together
  // one of its own rank. -1: it has none.
  int32_t Last(int32_t index) const;
  // All dependencies of `index`, in no order.
  std::vector<int32_t> Before(int32_t index) const;
  // The node of `iteration` that ends last; -1: there is none.
  int32_t LastOf(int iteration) const;

 private:
  friend class GraphBuilder;
  struct Edge {
    int32_t from = -1;
    int32_t next = -1;
  };
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<RankNodes> ranks_;
};

// `ops`: all that an engine has told of `iterations` iterations. Error:
// kInternal where the trace is not one of this program.
absl::StatusOr<DependencyGraph> BuildDependencyGraph(
    const Program& program, const std::vector<TraceOp>& ops, int iterations);

}  // namespace pipewright

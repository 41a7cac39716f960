#include "sim/explain/dependency_graph.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/explain/graph_builder.h"
#include "sim/program/network_time.h"

namespace pipewright {
namespace {

absl::Status NotItsTrace(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("the trace is not one of this program: ", what));
}

}  // namespace

int32_t DependencyGraph::Last(int32_t index) const {
  int32_t last = -1;
  for (int32_t edge = nodes_[index].first_edge; edge >= 0;
       edge = edges_[edge].next) {
    const int32_t from = edges_[edge].from;
    if (last < 0 || nodes_[from].end_s > nodes_[last].end_s ||
        (nodes_[from].end_s == nodes_[last].end_s &&
         nodes_[last].rank != nodes_[index].rank &&
         nodes_[from].rank == nodes_[index].rank)) {
      last = from;
    }
  }
  return last;
}

std::vector<int32_t> DependencyGraph::Before(int32_t index) const {
  std::vector<int32_t> before;
  for (int32_t edge = nodes_[index].first_edge; edge >= 0;
       edge = edges_[edge].next) {
    before.push_back(edges_[edge].from);
  }
  return before;
}

int32_t DependencyGraph::LastOf(int iteration) const {
  int32_t last = -1;
  for (size_t index = 0; index < nodes_.size(); ++index) {
    if (nodes_[index].iteration != iteration) continue;
    if (last < 0 || nodes_[index].end_s > nodes_[last].end_s) {
      last = static_cast<int32_t>(index);
    }
  }
  return last;
}

absl::StatusOr<DependencyGraph> BuildDependencyGraph(
    const Program& program, const std::vector<TraceOp>& ops, int iterations) {
  return GraphBuilder(program, ops, iterations).Build();
}

void GraphBuilder::SortTrace() {
  for (const TraceOp& op : ops_) {
    if (op.iteration >= iterations_) continue;
    if (op.channel >= 0) {
      if (op.kind == OpKind::kSend) {
        transfers_[{op.replica, op.channel}][op.pass.key()]
            .traced.ops.push_back(&op);
      }
      continue;
    }
    Traced& rank = traced_[{op.replica, op.rank}];
    if (op.side_op >= 0) {
      rank.side_ops[op.side_op].ops.push_back(&op);
    } else if (op.kind == OpKind::kPass) {
      rank.passes.ops.push_back(&op);
    } else if (op.kind == OpKind::kOffload || op.kind == OpKind::kLoad) {
      rank.copies[op.kind == OpKind::kLoad][op.pass.activation()].ops.push_back(
          &op);
    }
  }
  // Side operations and copies come in any order.
  const auto sort = [](Queue* queue) {
    std::stable_sort(queue->ops.begin(), queue->ops.end(),
                     [](const TraceOp* one, const TraceOp* other) {
                       return one->start_s < other->start_s;
                     });
  };
  for (auto& [place, rank] : traced_) {
    for (auto& [side_op, queue] : rank.side_ops) sort(&queue);
    for (auto& copies : rank.copies) {
      for (auto& [activation, queue] : copies) sort(&queue);
    }
  }
}

int32_t GraphBuilder::AddNode(const TraceOp& op) {
  graph_.nodes_.push_back({.start_s = op.start_s,
                           .end_s = op.end_s,
                           .kind = op.kind,
                           .stream = op.stream,
                           .replica = op.replica,
                           .rank = op.rank,
                           .iteration = op.iteration,
                           .side_op = op.side_op,
                           .stage = op.stage,
                           .channel = op.channel,
                           .pass = op.pass});
  return static_cast<int32_t>(graph_.nodes_.size()) - 1;
}

void GraphBuilder::AddEdge(int32_t from, int32_t to) {
  if (from < 0 || to < 0 || from == to) return;
  graph_.edges_.push_back({from, graph_.nodes_[to].first_edge});
  graph_.nodes_[to].first_edge = static_cast<int32_t>(graph_.edges_.size()) - 1;
}

absl::StatusOr<int32_t> GraphBuilder::Take(Queue* queue, const Walk& walk) {
  if (queue->taken == queue->ops.size()) {
    return NotItsTrace(absl::StrCat("an operation of rank ", walk.rank,
                                    ", iteration ", walk.iteration,
                                    " is missing"));
  }
  return AddNode(*queue->ops[queue->taken++]);
}

absl::StatusOr<int32_t> GraphBuilder::TransferNode(int replica, int32_t channel,
                                                   Pass pass, bool send) {
  Transfers& transfers = transfers_[{replica, channel}][pass.key()];
  const size_t number = send ? transfers.sent++ : transfers.received++;
  while (transfers.nodes.size() <= number) {
    if (transfers.traced.taken == transfers.traced.ops.size()) {
      // On its way when the run ended: nobody has waited for it.
      if (send) return -1;
      return NotItsTrace(
          absl::StrCat("a transfer of channel ", channel, " is missing"));
    }
    transfers.nodes.push_back(
        AddNode(*transfers.traced.ops[transfers.traced.taken++]));
  }
  return transfers.nodes[number];
}

absl::StatusOr<int32_t> GraphBuilder::MeetingNode(const SideOp& op,
                                                  const Walk& walk) {
  Nodes& meetings =
      meetings_[{op.group, program_.groups[op.group].InstanceOf(walk.replica)}];
  const size_t number = met_[{op.group, walk.replica, walk.rank}]++;
  const auto side_op = static_cast<int32_t>(&op - RankOf(walk).side_ops.data());
  Queue& queue = walk.traced->side_ops[side_op];
  if (number > meetings.size()) {
    return NotItsTrace(absl::StrCat("group ", op.group, " meets out of turn"));
  }
  if (number == meetings.size()) {
    PW_ASSIGN_OR_RETURN(const int32_t meeting, Take(&queue, walk));
    meetings.push_back(meeting);
  } else {
    ++queue.taken;
  }
  return meetings[number];
}

absl::StatusOr<DependencyGraph> GraphBuilder::Build() && {
  SortTrace();
  for (auto& [place, traced] : traced_) {
    Walk walk(program_.OfReplica(place.first).ranks[place.second]);
    walk.replica = walk.nodes.replica = place.first;
    walk.rank = walk.nodes.rank = place.second;
    walk.traced = &traced;
    PW_RETURN_IF_ERROR(WalkRank(&walk));
    graph_.ranks_.push_back(std::move(walk.nodes));
  }
  JoinTokens();
  return std::move(graph_);
}

// Behind all walks, since a consumer's rank may be walked first.
void GraphBuilder::JoinTokens() {
  for (auto& [place, tokens] : tokens_) {
    const Channel& channel =
        program_.OfReplica(place.first).channels[place.second];
    for (const auto& [consumer, number] : tokens.popped) {
      if (number >= static_cast<int32_t>(tokens.pushed.size())) continue;
      const int32_t producer = tokens.pushed[number];
      if (channel.kind == ChannelKind::kEvent) {
        AddEdge(producer, consumer);
        continue;
      }
      // The engines do not trace these transfers.
      Node message = graph_.nodes_[producer];
      message.start_s = message.end_s;
      message.end_s +=
          TransferSeconds(program_, channel, static_cast<int>(message.replica));
      message.kind = OpKind::kSend;
      message.stream = Stream::kSend;
      message.message = true;
      message.channel = place.second;
      message.first_edge = -1;
      graph_.nodes_.push_back(message);
      const auto index = static_cast<int32_t>(graph_.nodes_.size()) - 1;
      AddEdge(producer, index);
      AddEdge(index, consumer);
    }
  }
}

}  // namespace pipewright

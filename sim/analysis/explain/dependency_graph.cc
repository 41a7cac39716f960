#include "sim/analysis/explain/dependency_graph.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/compute_stream.h"
#include "sim/program/network_time.h"
#include "sim/program/side_sequence.h"

namespace pipewright {

// Walks a Program beside its trace.
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

// The walk of one rank through its order, in the steps of the engines
// (sim/engine/fast_run.h): what stands on which stream and what it waits for.
absl::Status GraphBuilder::WalkRank(Walk* walk) {
  for (int iteration = 0; iteration < iterations_; ++iteration) {
    walk->iteration = iteration;
    for (const Start& start : program_.StartsOf(iteration)) {
      PW_RETURN_IF_ERROR(WalkStart(start, walk));
    }
    double end_s = iteration == 0 ? 0 : walk->nodes.end_s[iteration - 1];
    for (const int32_t node : walk->front) {
      end_s = std::max(end_s, graph_.nodes_[node].end_s);
    }
    walk->nodes.end_s.push_back(end_s);
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::WalkStart(const Start& start, Walk* walk) {
  SideSequence& sequence = walk->sequence;
  sequence.Begin(start);
  for (Nodes& nodes : walk->hook_nodes) nodes.clear();
  walk->position = sequence.begin();
  walk->received = false;
  while (true) {
    switch (sequence.NextAt(walk->position)) {
      case SideSequence::Next::kItem:
        PW_RETURN_IF_ERROR(TakeItem(walk));
        break;
      case SideSequence::Next::kBlock:
        PW_RETURN_IF_ERROR(TakeBlock(/*hooked=*/true, walk));
        break;
      case SideSequence::Next::kDrop:
        PW_RETURN_IF_ERROR(TakeDrop(walk));
        break;
      case SideSequence::Next::kEntry:
        PW_RETURN_IF_ERROR(TakeEntry(walk));
        break;
      case SideSequence::Next::kEnd:
        return absl::OkStatus();
    }
  }
}

absl::Status GraphBuilder::TakeItem(Walk* walk) {
  const SideSequence::Item item = *walk->sequence.item();
  const SideOp& op = RankOf(*walk).side_ops[item.side_op];
  int32_t node = -1;
  if (IsCollective(op.kind)) {
    PW_ASSIGN_OR_RETURN(node, MeetingNode(op, *walk));
  } else {
    PW_ASSIGN_OR_RETURN(node,
                        Take(&walk->traced->side_ops[item.side_op], *walk));
  }
  AddEdges(walk->front, node);
  for (const int32_t channel : op.inputs) {
    Tokens& tokens = tokens_[{walk->replica, channel}];
    tokens.popped.emplace_back(node, tokens.pops++);
  }
  for (const int32_t channel : op.outputs) {
    tokens_[{walk->replica, channel}].pushed.push_back(node);
  }
  if (item.output >= 0) {
    tokens_[{walk->replica, item.output}].pushed.push_back(node);
  }
  if (item.hook >= 0 && walk->sequence.Waits(item.hook)) {
    walk->hook_nodes[item.hook].push_back(node);
  }
  if (op.stream == Stream::kCompute) {
    walk->front = {node};
    walk->nodes.compute.push_back(node);
  } else {
    int32_t& last = walk->last[static_cast<int>(op.stream)];
    if (RunsInOrder(op.stream)) AddEdge(last, node);
    last = node;
  }
  walk->sequence.Taken();
  return absl::OkStatus();
}

absl::Status GraphBuilder::TakeEntry(Walk* walk) {
  const RankProgram& rank = RankOf(*walk);
  const Pass pass = (*rank.order)[walk->position];
  switch (EntryOf(pass.kind())) {
    case Entry::kBlock:
      return TakeBlock(/*hooked=*/false, walk);
    case Entry::kCopy:
      PW_RETURN_IF_ERROR(AddCopy(pass, walk));
      break;
    case Entry::kMark:
      break;
    case Entry::kFree: {
      const auto offloaded = walk->offloaded.find(pass.activation());
      if (offloaded != walk->offloaded.end()) {
        walk->front.push_back(offloaded->second);
      }
      break;
    }
  }
  ++walk->position;
  return absl::OkStatus();
}

absl::Status GraphBuilder::AddCopy(Pass pass, Walk* walk) {
  const bool load = pass.kind() == PassKind::kLoad;
  PW_ASSIGN_OR_RETURN(
      const int32_t node,
      Take(&walk->traced->copies[load ? 1 : 0][pass.activation()], *walk));
  AddEdges(walk->front, node);
  int32_t& last = walk->last[static_cast<int>(CopyStream(pass.kind()))];
  AddEdge(last, node);
  last = node;
  if (load) {
    AddEdge(walk->offloaded[pass.activation()], node);
    walk->loading[pass.activation()] = node;
  } else {
    walk->offloaded[pass.activation()] = node;
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::TakeBlock(bool hooked, Walk* walk) {
  const RankProgram& rank = RankOf(*walk);
  const Pass* const block = rank.order->data() + walk->position;
  HoldingSteps steps;
  if (holds() && !walk->received) {
    PostBefore(rank, program_.wait_rule, block, &steps);
    PW_RETURN_IF_ERROR(PostSteps(steps, walk));
    steps.clear();
  }
  PW_ASSIGN_OR_RETURN(const int32_t first, Take(&walk->traced->passes, *walk));
  AddEdges(walk->front, first);
  int32_t last = first;
  for (int part = 0; part < PartsOf(*block); ++part) {
    const Pass pass = block[part];
    const Lane& lane = rank.lanes[pass.lane()];
    if (!holds() && lane.input >= 0) {
      PW_ASSIGN_OR_RETURN(
          const int32_t input,
          TransferNode(walk->replica, lane.input, pass, /*send=*/false));
      AddEdge(input, first);
    }
    if (ReadsActivations(pass.kind())) {
      const auto loading = walk->loading.find(pass.activation());
      if (loading != walk->loading.end()) {
        AddEdge(loading->second, first);
        walk->loading.erase(loading);
      }
    }
  }
  if (hooked) {
    for (size_t hook = 0; hook < walk->hook_nodes.size(); ++hook) {
      const int64_t awaited =
          walk->sequence.Awaited(static_cast<int32_t>(hook));
      const Nodes& issued = walk->hook_nodes[hook];
      if (awaited > 0 && awaited <= static_cast<int64_t>(issued.size())) {
        AddEdge(issued[awaited - 1], first);
      }
    }
  }
  walk->nodes.compute.push_back(first);
  if (PartsOf(*block) == 2) {
    PW_ASSIGN_OR_RETURN(last, Take(&walk->traced->passes, *walk));
    AddEdge(first, last);
    walk->nodes.compute.push_back(last);
  }
  for (int part = 0; part < PartsOf(*block) && !holds(); ++part) {
    const Lane& lane = rank.lanes[block[part].lane()];
    if (lane.output < 0) continue;
    PW_ASSIGN_OR_RETURN(
        const int32_t output,
        TransferNode(walk->replica, lane.output, block[part], /*send=*/true));
    AddEdge(last, output);
  }
  walk->front = {last};
  walk->position += PartsOf(*block);
  if (hooked) walk->sequence.Passed();
  if (!holds()) return absl::OkStatus();
  PostBehind(rank, program_.wait_rule, block, walk->position, walk->sequence,
             &walk->received, &steps);
  return PostSteps(steps, walk);
}

// Transfers that hold the rank: each begins when both of its ranks have come
// to it, and the rank goes on when all of a step have ended.
absl::Status GraphBuilder::PostSteps(const HoldingSteps& steps, Walk* walk) {
  for (const std::vector<Handshake>& step : steps) {
    Nodes posted;
    for (const Handshake& handshake : step) {
      PW_ASSIGN_OR_RETURN(const int32_t node,
                          TransferNode(walk->replica, handshake.channel,
                                       handshake.pass, handshake.send));
      AddEdges(walk->front, node);
      posted.push_back(node);
    }
    if (!posted.empty()) walk->front = std::move(posted);
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::TakeDrop(Walk* walk) {
  const Dropped dropped = *walk->sequence.drop();
  if (holds()) {
    PW_RETURN_IF_ERROR(PostSteps(
        {{{.channel = dropped.channel, .pass = dropped.pass}}}, walk));
  } else {
    PW_ASSIGN_OR_RETURN(const int32_t node,
                        TransferNode(walk->replica, dropped.channel,
                                     dropped.pass, /*send=*/false));
    walk->front.push_back(node);
  }
  walk->sequence.DropTaken();
  return absl::OkStatus();
}

}  // namespace pipewright

// The walk of one rank through its order, in the steps of the engines
// (sim/engine/fast_run.h): what stands on which stream and what it waits for.
#include <algorithm>
#include <utility>

#include "sim/base/status.h"
#include "sim/explain/graph_builder.h"

namespace pipewright {

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

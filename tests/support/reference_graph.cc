#include "tests/support/reference_graph.h"

#include <algorithm>

#include "sim/program/compute_stream.h"
#include "sim/program/network_time.h"
#include "tests/support/naive_hooks.h"

namespace pipewright {
namespace {

bool SameStart(const Op& one, const Op& other) {
  return one.iteration == other.iteration &&
         one.false_start == other.false_start;
}

uint64_t Activation(const Op& op) {
  return Pass(PassKind::kForward, op.pass.microbatch(), op.pass.chunk(),
              op.pass.slice(), op.pass.direction())
                 .bits() *
             64 +
         op.iteration;
}

// Everything up to the last send of the pass or block at `index`; empty where
// something else stands there.
std::vector<Op> BlockAt(const std::vector<Op>& ops, size_t index) {
  std::vector<Op> block;
  int passes_left = 1;
  for (const size_t first = index;
       index < ops.size() && SameStart(ops[index], ops[first]); ++index) {
    const Op& part = ops[index];
    const bool new_pass =
        part.kind == OpKind::kReceive || part.kind == OpKind::kPass;
    if (part.side_op >= 0 || (!new_pass && part.kind != OpKind::kSend)) break;
    if (passes_left == 0 && new_pass) break;
    if (part.kind == OpKind::kPass && !part.pass.joint_with_next()) {
      --passes_left;
    }
    block.push_back(part);
  }
  return block;
}

}  // namespace

int ReferenceGraph::Transfer(int replica, const Op& op) {
  const uint64_t key = op.pass.key() * 2 + (op.false_start ? 1 : 0);
  return Token(replica, op.channel, op.kind == OpKind::kSend, key,
               op.iteration);
}

// Every step is raised until none is too early. An R, and a layer but the last,
// is in the step of what stands behind it.
void ReferenceGraph::FindSteps(int replica) {
  const DpClass& own = Of(replica);
  steps_.clear();
  std::map<std::pair<int32_t, uint64_t>, std::pair<int, size_t>> makers;
  for (int rank = 0; rank < program_.pp(); ++rank) {
    const RankOrder& order = *own.ranks[rank].order;
    steps_.emplace_back(order.size(), 0);
    for (size_t index = 0; index < order.size(); ++index) {
      const int32_t output = own.ranks[rank].lanes[order[index].lane()].output;
      if (output >= 0) makers[{output, order[index].key()}] = {rank, index};
    }
  }
  // Orders that wait for each other would go on for ever.
  for (size_t round = 0; round < 1000; ++round) {
    bool changed = false;
    for (int rank = 0; rank < program_.pp(); ++rank) {
      const RankProgram& program = own.ranks[rank];
      const RankOrder& order = *program.order;
      int64_t next = 0;
      int64_t number = 0;
      for (size_t first = 0; first < order.size();) {
        size_t end = first;
        while (end < order.size() &&
               (!IsComputePass(order[end].kind()) ||
                order[end].kind() == PassKind::kRecompute ||
                order[end].joint_with_next() ||
                !program.EndsPass(order[end]))) {
          ++end;
        }
        end = std::min(end + 1, order.size());
        int64_t step = next;
        if (!own.schedule->gaps.empty()) {
          for (const StepGap& gap : own.schedule->gaps[rank]) {
            if (gap.action == number) step += gap.steps;
          }
        }
        for (size_t index = first; index < end; ++index) {
          const int32_t input = program.lanes[order[index].lane()].input;
          if (input < 0) continue;
          const auto [from, at] = makers.at({input, order[index].key()});
          step = std::max(step, steps_[from][at] + 1);
        }
        for (size_t index = first; index < end; ++index) {
          changed |= steps_[rank][index] != step;
          steps_[rank][index] = step;
        }
        next = step + 1;
        ++number;
        first = end;
      }
    }
    if (!changed) return;
  }
}

void ReferenceGraph::Exchange(int replica, int rank, int64_t step,
                              int iteration) {
  int& tail = tail_[static_cast<int>(Stream::kCompute)];
  const DpClass& own = Of(replica);
  for (; step_ < step; ++step_) {
    std::vector<int> transfers;
    for (int other = 0; other < program_.pp(); ++other) {
      const RankOrder& order = *own.ranks[other].order;
      for (size_t index = 0; index < order.size(); ++index) {
        const Pass pass = order[index];
        const int32_t channel = own.ranks[other].lanes[pass.lane()].output;
        if (channel < 0 || steps_[other][index] != step_) continue;
        const bool sends = other == rank;
        if (!sends && own.channels[channel].to_rank != rank) continue;
        transfers.push_back(
            Token(replica, channel, sends, pass.key() * 2, iteration));
        After(transfers.back(), tail);
      }
    }
    if (!transfers.empty()) tail = Add(0, transfers, iteration);
  }
}

void ReferenceGraph::AddRank(int replica, int rank) {
  if (stepped()) FindSteps(replica);
  tail_.assign(kNumStreams, -1);
  meetings_.clear();
  offloads_.clear();
  loads_.clear();
  turns_.clear();
  std::vector<Op> ops;
  OpCursor cursor(program_, rank, program_.iterations,
                  program_.ClassOf(replica));
  for (Op op; cursor.Next(&op);) ops.push_back(op);
  for (size_t index = 0; index < ops.size();) {
    const Op& op = ops[index];
    const bool begins = index == 0 || !SameStart(op, ops[index - 1]);
    if (begins) BeginStart(replica, rank, op);
    if (begins) step_ = 0;
    if (op.kind == OpKind::kDrop) {
      FlushBatch();
      AddDrop(replica, op);
      ++index;
      continue;
    }
    if (op.side_op >= 0) {
      if (op.hook >= 0) JoinReceives(replica, ops, index);
      FlushBatch();
      AddSideOp(replica, rank, op);
      ++index;
      continue;
    }
    if (op.kind == OpKind::kWait) {
      FlushBatch();
      AddFree(op);
      ++index;
      continue;
    }
    if (op.kind == OpKind::kOffload || op.kind == OpKind::kLoad) {
      FlushBatch();
      AddCopy(replica, rank, op);
      ++index;
      continue;
    }
    const std::vector<Op> block = BlockAt(ops, index);
    index += block.size();
    if (!stepped()) {
      AddBlock(replica, rank, block);
    } else {
      const std::vector<int64_t>& steps = steps_[rank];
      const int64_t step = steps[op.position];
      const auto behind = static_cast<size_t>(block.back().position) + 1;
      Exchange(replica, rank, step, op.iteration);
      AddBlock(replica, rank, block);
      if (behind == steps.size() || steps[behind] != step) {
        Exchange(replica, rank, step + 1, op.iteration);
      }
    }
    if (index == ops.size() || !SameStart(ops[index], op)) FlushBatch();
  }
}

void ReferenceGraph::AddFree(const Op& op) {
  int& tail = tail_[static_cast<int>(Stream::kCompute)];
  std::vector<int> after = {offloads_.at(Activation(op))};
  if (tail >= 0) after.push_back(tail);
  tail = Add(0, std::move(after), op.iteration);
  nodes_.back().counts = false;
}

void ReferenceGraph::AddDrop(int replica, const Op& op) {
  int& tail = tail_[static_cast<int>(Stream::kCompute)];
  const int transfer = Transfer(replica, op);
  if (holds()) After(transfer, tail);
  std::vector<int> after = {transfer};
  if (tail >= 0) after.push_back(tail);
  tail = Add(0, std::move(after), op.iteration);
}

void ReferenceGraph::BeginStart(int replica, int rank, const Op& first) {
  const RankProgram& program = Of(replica).ranks[rank];
  hooked_.assign(program.hooks.size(), {});
  const int64_t end =
      first.false_start
          ? program.attachments[program.false_start_end - 1].position
          : static_cast<int64_t>(program.order->size());
  fired_at_ =
      HookFirings(program, first.iteration == 0 ? 0 : program.later_start, end);
}

// What the block waits for.
std::vector<int> ReferenceGraph::Hooked(int replica, int rank,
                                        const std::vector<Op>& block) const {
  std::vector<int> waits;
  for (size_t index = 0; index < fired_at_.size(); ++index) {
    const LaneHook& hook = Of(replica).ranks[rank].hooks[index];
    const bool before = hook.place == LaneHook::Place::kBefore;
    if (!before && hook.window == 0) continue;
    const std::vector<int64_t>& fired = fired_at_[index];
    for (const Op& op : block) {
      if (op.kind != OpKind::kPass) continue;
      const auto found = std::find(fired.begin(), fired.end(), op.position);
      if (found == fired.end()) continue;
      const auto number = found - fired.begin();
      const auto awaited = before ? number : number - hook.window;
      // Issued and not behind this very block.
      if (awaited >= 0 && awaited < std::ssize(hooked_[index])) {
        waits.push_back(hooked_[index][awaited]);
      }
    }
  }
  return waits;
}

// What the next block receives, where only operations of hooks stand in front
// of it, from `index` on: they do not split the batch.
void ReferenceGraph::JoinReceives(int replica, const std::vector<Op>& ops,
                                  size_t index) {
  if (batch_.empty()) return;
  const Op& first = ops[index];
  while (index < ops.size() && ops[index].hook >= 0) ++index;
  if (index == ops.size() || !SameStart(ops[index], first)) return;
  for (const Op& op : BlockAt(ops, index)) {
    if (op.kind != OpKind::kReceive) continue;
    batch_.push_back(Transfer(replica, op));
    After(batch_.back(), tail_[static_cast<int>(Stream::kCompute)]);
    received_ = true;
  }
}

void ReferenceGraph::FlushBatch() {
  if (batch_.empty()) return;
  int& tail = tail_[static_cast<int>(Stream::kCompute)];
  std::vector<int> after = batch_;
  if (tail >= 0) after.push_back(tail);
  tail = Add(0, std::move(after), nodes_[batch_[0]].iteration);
  batch_.clear();
}

void ReferenceGraph::AddBlock(int replica, int rank,
                              const std::vector<Op>& ops) {
  int& tail = tail_[static_cast<int>(Stream::kCompute)];
  const bool batched = program_.wait_rule == WaitRule::kBatched;
  std::vector<int> inputs = Hooked(replica, rank, ops);
  for (const Op& op : ops) {
    if (op.kind != OpKind::kReceive || received_ || stepped()) continue;
    const int transfer = Transfer(replica, op);
    if (holds()) After(transfer, tail);
    if (batched) {
      batch_.push_back(transfer);
    } else if (holds()) {
      tail = Add(0, {transfer}, op.iteration);
    } else {
      inputs.push_back(transfer);
    }
  }
  FlushBatch();
  received_ = false;
  double seconds = 0;
  for (const Op& op : ops) {
    if (op.kind != OpKind::kPass) continue;
    seconds += op.seconds;
    const auto load = loads_.find(Activation(op));
    if (ReadsActivations(op.pass.kind()) && load != loads_.end()) {
      inputs.push_back(load->second);
    }
  }
  if (tail >= 0) inputs.push_back(tail);
  const int block = Add(seconds, std::move(inputs), ops[0].iteration);
  tail = block;
  // True for what every iteration runs of a first iteration's longer order.
  const bool in_all = ops[0].position >= Of(replica).ranks[rank].later_start;
  passes_.push_back({block, replica, rank, in_all ? seconds : 0});
  for (const Op& op : ops) {
    if (op.kind != OpKind::kSend || stepped()) continue;
    const int transfer = Transfer(replica, op);
    After(transfer, holds() ? tail : block);
    if (batched) {
      batch_.push_back(transfer);
    } else if (holds()) {
      tail = Add(0, {transfer}, op.iteration);
    }
  }
}

void ReferenceGraph::AddCopy(int replica, int rank, const Op& op) {
  int& tail = tail_[static_cast<int>(op.stream)];
  const Lane& lane = Of(replica).ranks[rank].lanes[op.pass.lane()];
  const int copy =
      Add(NaiveCopySeconds(program_, lane, op.pass.kind(), replica, rank), {},
          op.iteration);
  After(copy, tail);
  After(copy, tail_[static_cast<int>(Stream::kCompute)]);
  if (op.kind == OpKind::kOffload) {
    offloads_[Activation(op)] = copy;
  } else {
    After(copy, offloads_.at(Activation(op)));
    loads_[Activation(op)] = copy;
  }
  tail = copy;
}

void ReferenceGraph::AddSideOp(int replica, int rank, const Op& op) {
  const SideOp& side_op = Of(replica).ranks[rank].side_ops[op.side_op];
  int& tail = tail_[static_cast<int>(op.stream)];
  double seconds = side_op.seconds;
  if (IsOneSided(side_op.kind)) {
    seconds = NaiveOneSidedSeconds(program_, side_op, replica, rank);
  } else if (UsesHost(side_op.kind)) {
    seconds = NaiveHostSeconds(program_, side_op, replica, rank);
  }
  const bool meets = IsCollective(side_op.kind);
  const int node = Add(meets ? 0 : seconds, {}, op.iteration);
  if (RunsInOrder(op.stream)) After(node, tail);
  After(node, tail_[static_cast<int>(Stream::kCompute)]);
  for (const int32_t channel : side_op.inputs) {
    After(node, Token(replica, channel, false, 0, op.iteration));
  }
  int done = node;
  if (meets) {
    const Group& group = program_.groups[side_op.group];
    int instance = group.span == Group::Span::kRanks ? replica : -1;
    if (instance < 0 && group.part > 0) {
      instance -= group.across ? replica % group.part : replica / group.part;
    }
    const int turn = meetings_[{side_op.group, rank}]++;
    const double alone_s =
        NaiveCollectiveSeconds(program_, side_op.kind, side_op.bytes,
                               GroupMembers(program_, group, replica));
    done =
        Shared({-2 - side_op.group, instance, turn, 0}, alone_s, op.iteration);
    After(done, node);
  }
  tail = done;
  if (op.hook >= 0) hooked_[op.hook].push_back(done);
  std::vector<int32_t> outputs = side_op.outputs;
  if (op.output >= 0) outputs.push_back(op.output);
  for (const int32_t channel : outputs) {
    After(Token(replica, channel, true, 0, op.iteration), done);
  }
}

}  // namespace pipewright

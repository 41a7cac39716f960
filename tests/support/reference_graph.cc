#include "tests/support/reference_graph.h"

#include <algorithm>
#include <limits>
#include <set>

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

// Where the action at `first` ends: an R, and a layer but the last, goes with
// what stands behind it.
size_t EndOfAction(const RankProgram& rank, size_t first) {
  const RankOrder& order = *rank.order;
  while (first < order.size() &&
         (!IsComputePass(order[first].kind()) ||
          order[first].kind() == PassKind::kRecompute ||
          order[first].joint_with_next() || !rank.EndsPass(order[first]))) {
    ++first;
  }
  return std::min(first + 1, order.size());
}

}  // namespace

int ReferenceGraph::Transfer(int replica, const Op& op) {
  const uint64_t key = op.pass.key() * 2 + (op.false_start ? 1 : 0);
  return Token(replica, op.channel, op.kind == OpKind::kSend, key,
               op.iteration);
}

// The clock ticks; in each step all ranks run what they can. When nothing can
// run any more, the pairs whose forwards could are taken apart, and the clock
// starts again.
void ReferenceGraph::FindSteps(int replica) {
  const DpClass& own = Of(replica);
  const int pp = program_.pp();
  std::map<std::pair<int32_t, uint64_t>, std::pair<int, size_t>> makers;
  for (int rank = 0; rank < pp; ++rank) {
    const RankOrder& order = *own.ranks[rank].order;
    for (size_t index = 0; index < order.size(); ++index) {
      const int32_t output = own.ranks[rank].lanes[order[index].lane()].output;
      if (output >= 0) makers[{output, order[index].key()}] = {rank, index};
    }
  }
  // Have the inputs of first..end-1 been made before `step`?
  const auto made = [&](int rank, size_t first, size_t end, int64_t step) {
    const RankProgram& program = own.ranks[rank];
    for (size_t index = first; index < end; ++index) {
      const Pass pass = (*program.order)[index];
      const int32_t input = program.lanes[pass.lane()].input;
      if (input < 0) continue;
      const auto [from, at] = makers.at({input, pass.key()});
      if (steps_[from][at] < 0 || steps_[from][at] >= step) return false;
    }
    return true;
  };
  std::set<std::pair<int, size_t>> apart;  // rank, end of the forward
  const auto end_of = [&](int rank, size_t first) {
    const RankOrder& order = *own.ranks[rank].order;
    const size_t end = EndOfAction(own.ranks[rank], first);
    if (!batched() || own.schedule->vpp() == 1 ||
        end == order.size() || apart.count({rank, end}) > 0) {
      return end;
    }
    const auto last_forward = std::find_if(
        order.rbegin(), order.rend(),
        [](Pass pass) { return pass.kind() == PassKind::kForward; });
    const bool leads = std::none_of(last_forward, order.rend(), [](Pass pass) {
      return pass.kind() == PassKind::kBackwardFull;
    });
    const size_t pair = EndOfAction(own.ranks[rank], end);
    const bool joint = (end > 1 && order[end - 2].joint_with_next()) ||
                       order[pair - 2].joint_with_next();
    return !leads && !joint && order[end - 1].kind() == PassKind::kForward &&
                   order[pair - 1].kind() == PassKind::kBackwardFull
               ? pair
               : end;
  };
  int64_t patience = 1;
  std::vector<std::map<int64_t, int64_t>> gaps(pp);  // [rank] by action
  for (size_t rank = 0; rank < own.schedule->gaps.size(); ++rank) {
    if (batched()) break;
    for (const StepGap& gap : own.schedule->gaps[rank]) {
      gaps[rank][gap.action] += gap.steps;
      patience += gap.steps;
    }
  }
  for (bool again = true; again;) {
    again = false;
    steps_.clear();
    for (int rank = 0; rank < pp; ++rank) {
      steps_.emplace_back(own.ranks[rank].order->size(), -1);
    }
    std::vector<size_t> firsts(pp, 0);
    std::vector<int64_t> actions(pp, 0);
    std::vector<int64_t> earliest(pp, 0);
    int64_t idle = 0;
    for (int64_t step = 0; idle <= patience; ++step) {
      ++idle;
      for (int rank = 0; rank < pp; ++rank) {
        const size_t first = firsts[rank];
        if (first == steps_[rank].size() ||
            step < earliest[rank] + gaps[rank][actions[rank]]) {
          continue;
        }
        const size_t end = end_of(rank, first);
        if (!made(rank, first, end, step)) continue;
        std::fill(steps_[rank].begin() + first, steps_[rank].begin() + end,
                  step);
        firsts[rank] = end;
        ++actions[rank];
        earliest[rank] = step + 1;
        idle = 0;
      }
    }
    for (int rank = 0; rank < pp; ++rank) {
      const size_t first = firsts[rank];
      if (first == steps_[rank].size()) continue;
      const size_t end = EndOfAction(own.ranks[rank], first);
      again |= made(rank, first, end, std::numeric_limits<int64_t>::max()) &&
               apart.insert({rank, end}).second;
    }
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
  stepped_ = std::any_of(
      Of(replica).ranks.begin(), Of(replica).ranks.end(),
      [](const RankProgram& each) { return !each.step_posts.empty(); });
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
  std::vector<int> inputs = Hooked(replica, rank, ops);
  for (const Op& op : ops) {
    if (op.kind != OpKind::kReceive || received_ || stepped()) continue;
    const int transfer = Transfer(replica, op);
    if (holds()) After(transfer, tail);
    if (batched()) {
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
    if (batched()) {
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

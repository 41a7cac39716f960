// The compute stream of every device: what is next on it, and the passes.
#include <algorithm>

#include "sim/engine/event_run.h"

namespace pipewright {
namespace {

// Passes that a device runs ahead of the clock each time that something comes
// to it; the one behind them ends by a timer. What it sends waits in memory.
constexpr int kMostAhead = 16;

}  // namespace

// Starts what can start on the compute stream of `index`.
void EventRun::Continue(int index) {
  Device& device = devices_[index];
  int ahead = run_ahead_ ? kMostAhead : 0;
  while (!device.busy && !device.ended && device.awaited == 0 &&
         !timers_.stopped()) {
    bool ran = true;
    switch (device.sequence.NextAt(device.position)) {
      case SideSequence::Next::kEntry:
      case SideSequence::Next::kBlock:
        ran = RunBlock(index, ahead > 0);
        --ahead;
        break;
      case SideSequence::Next::kItem:
        ran = RunItem(index);
        break;
      case SideSequence::Next::kDrop:
        ran = Drop(index);
        break;
      case SideSequence::Next::kEnd:
        EndStart(index);
        break;
    }
    if (!ran) return;
  }
}

// All devices that something has come to. One that runs ahead may send to many
// others that run ahead in turn.
void EventRun::ContinueAll() {
  for (size_t next = 0; next < to_continue_.size(); ++next) {
    const int index = to_continue_[next];
    devices_[index].looked = false;
    if (!devices_[index].busy) Continue(index);
  }
  to_continue_.clear();
}

// The side operation at the position of the device. False when the compute
// stream waits for it.
bool EventRun::RunItem(int index) {
  Device& device = devices_[index];
  const SideSequence::Item item = *device.sequence.item();
  const Stream stream = device.program().side_ops[item.side_op].stream;
  const Issued issued = {.item = item,
                         .iteration = device.iteration,
                         .start = device.sequence.number(),
                         .ready_s = device.clock_s};
  if (stream != Stream::kCompute) {
    device.sequence.Taken();
    Issue(index, stream, issued);
    return true;
  }
  if (device.queues[0].empty()) {
    Issue(index, stream, issued);
  } else {
    TryStream(index, stream);
  }
  return false;
}

// Takes the next token that a false start has left. False when it is not
// there.
bool EventRun::Drop(int index) {
  Device& device = devices_[index];
  const auto [channel, pass] = *device.sequence.drop();
  if (holds_) {
    device.sequence.DropTaken();
    device.holds.push_back({{.channel = channel, .pass = pass}});
    PostHolds(index);
    return true;  // Continue asks whether it is held
  }
  double arrival_s = 0;
  if (!Tokens(device.replica, channel).Pop(KeyOf(device, pass), &arrival_s)) {
    return false;
  }
  device.sequence.DropTaken();
  device.clock_s = std::max(device.clock_s, arrival_s);
  return true;
}

// Takes the tokens of a block when all are there.
bool EventRun::TakeBlockInputs(Device& device, const Pass* block, int parts,
                               double* start_s) {
  const std::vector<Lane>& lanes = device.program().lanes;
  double loaded_s = 0;
  for (int part = 0; part < parts; ++part) {
    const Pass pass = block[part];
    const int32_t input = lanes[pass.lane()].input;
    if (!holds_ && input >= 0 &&
        !Tokens(device.replica, input).Contains(KeyOf(device, pass))) {
      return false;
    }
    // Nothing is taken before all is there.
    if (!device.activations.Await(pass, &loaded_s)) return false;
  }
  for (int part = 0; part < parts; ++part) {
    const Pass pass = block[part];
    const int32_t input = lanes[pass.lane()].input;
    double arrival_s = 0;
    if (!holds_ && input >= 0 &&
        Tokens(device.replica, input).Pop(KeyOf(device, pass), &arrival_s)) {
      *start_s = std::max(*start_s, arrival_s);
    }
    device.activations.Use(pass);
  }
  if (loaded_s > *start_s) {
    record_.OnCopyWait(device.replica, device.rank, device.iteration, *block,
                       *start_s, loaded_s);
    *start_s = loaded_s;
  }
  return true;
}

// False when the copy has not ended yet.
bool EventRun::RunFree(Device& device, Pass pass) {
  double free_s = device.clock_s;
  if (!device.activations.AwaitOffload(pass, &free_s)) return false;
  if (free_s > device.clock_s) {
    record_.OnCopyWait(device.replica, device.rank, device.iteration, pass,
                       device.clock_s, free_s);
  }
  device.clock_s = free_s;
  return true;
}

// The pass, or the block (X&Y), at the position of the device, up to its end
// where the device runs ahead. False when it has to wait or has been started.
bool EventRun::RunBlock(int index, bool ahead) {
  Device& device = devices_[index];
  const RankProgram& rank = device.program();
  const Pass* const block = rank.order->data() + device.position;
  const Entry entry = EntryOf(block->kind());
  if (entry != Entry::kBlock) {
    if (entry == Entry::kFree && !RunFree(device, *block)) return false;
    ++device.position;
    if (entry != Entry::kCopy) return true;
    device.activations.Issue(*block);
    Issue(index, CopyStream(block->kind()),
          {.pass = *block,
           .iteration = device.iteration,
           .ready_s = device.clock_s});
    return true;
  }
  const int parts = PartsOf(*block);
  if (holds_ && !device.received) {
    device.received = true;
    PostBefore(rank, program_.wait_rule, block, &device.holds);
    PostHolds(index);
    return true;  // Continue asks whether it is held
  }
  double start_s = device.clock_s;
  const bool hooked =
      device.sequence.NextAt(device.position) == SideSequence::Next::kBlock;
  if (hooked && !device.hook_ends.Await(device.sequence, &start_s)) {
    return false;
  }
  if (!TakeBlockInputs(device, block, parts, &start_s)) return false;
  std::array<double, 2>& seconds = device.block_s;
  seconds = {};
  for (int part = 0; part < parts; ++part) {
    seconds[part] = program_.PassSeconds(device.iteration, device.replica,
                                         device.rank, block[part]) *
                    (parts == 2 ? program_.pair_factor : 1);
  }
  device.block_start_s = start_s;
  if (beside_ != nullptr) {
    device.busy = true;
    StartAt(start_s, Beside::Of::kBlock, static_cast<uint32_t>(index));
    return false;
  }
  if (exchanges_.any && RunExchanges(index, block, parts)) return false;
  const double end_s = start_s + (seconds[0] + seconds[1]);
  device.clock_s = end_s;
  NoteBlock(device, end_s);
  if (ahead) {
    EndBlock(index);
    return true;
  }
  device.busy = true;
  timers_.At(end_s, EventKind::kComputeEnd, index);
  return false;
}

// Tells of the block that runs, now that its end is known.
void EventRun::NoteBlock(const Device& device, double end_s) {
  record_.OnBlock({.replica = device.replica,
                   .rank = device.rank,
                   .iteration = device.iteration,
                   .position = device.position,
                   .passes = device.program().order->data() + device.position,
                   .start_s = device.block_start_s,
                   .end_s = end_s,
                   .alone_s = device.block_s,
                   .stretched = beside_ != nullptr || exchanges_.any});
}

void EventRun::EndBlock(int index) {
  Device& device = devices_[index];
  const RankProgram& rank = device.program();
  const Pass* const block = rank.order->data() + device.position;
  const int parts = PartsOf(*block);
  device.busy = false;
  if (device.position == device.sequence.stop()) device.sequence.Passed();
  device.position += parts;
  device.received = false;
  iterations_->NoteEnd(device.iteration, device.clock_s);
  record_.AddOps(parts);
  record_.Tell();
  if (holds_) {
    PostBehind(rank, program_.wait_rule, block, device.position,
               device.sequence, &device.received, &device.holds);
    PostHolds(index);
  } else {
    for (int part = 0; part < parts; ++part) {
      const int32_t output = rank.lanes[block[part].lane()].output;
      if (output >= 0) Send(index, output, block[part], device.clock_s);
    }
  }
}

}  // namespace pipewright

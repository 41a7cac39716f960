// The compute stream of every device: what is next on it, and the passes.
#include <algorithm>

#include "sim/engine/activation_key.h"
#include "sim/engine/event_run.h"

namespace pipewright {

// Starts what can start on the compute stream of `index`.
void EventRun::Continue(int index) {
  Device& device = devices_[index];
  while (!device.busy && !device.ended && device.awaited == 0 && !stopped_) {
    if (device.position != device.sequence.stop()) {
      if (!RunBlock(index)) return;
    } else if (device.sequence.item() != nullptr) {
      if (!RunItem(index)) return;
    } else if (device.sequence.holds()) {
      if (!RunBlock(index)) return;
    } else if (device.sequence.start().is_false &&
               device.dropped < program_.ranks[device.rank].dropped.size()) {
      if (!Drop(index)) return;
    } else {
      EndStart(index);
    }
  }
}

// The side operation at the position of the device. False when the compute
// stream waits for it.
bool EventRun::RunItem(int index) {
  Device& device = devices_[index];
  const SideSequence::Item item = *device.sequence.item();
  const Stream stream =
      program_.ranks[device.rank].side_ops[item.side_op].stream;
  const Issued issued = {.item = item,
                         .iteration = device.iteration,
                         .start = device.start,
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

bool EventRun::HooksEnded(Device& device, double* start_s) const {
  for (int32_t hook = 0; hook < device.sequence.num_hooks(); ++hook) {
    if (!device.hook_ends[hook].Await(device.sequence.Awaited(hook), start_s)) {
      return false;
    }
  }
  return true;
}

// Takes the next token that a false start has left. False when it is not
// there.
bool EventRun::Drop(int index) {
  Device& device = devices_[index];
  const auto [channel, pass] =
      program_.ranks[device.rank].dropped[device.dropped];
  if (holds_) {
    ++device.dropped;
    device.holds.push_back({channel, false, pass});
    PostHolds(index);
    return true;  // Continue asks whether it is held
  }
  double arrival_s = 0;
  if (!Tokens(device.replica, channel).Pop(KeyOf(device, pass), &arrival_s)) {
    return false;
  }
  ++device.dropped;
  device.clock_s = std::max(device.clock_s, arrival_s);
  return true;
}

// Takes the tokens of a block when all are there.
bool EventRun::TakeBlockInputs(Device& device, const Pass* block, int parts,
                               double* start_s) {
  const std::vector<Lane>& lanes = program_.ranks[device.rank].lanes;
  for (int part = 0; part < parts; ++part) {
    const Pass pass = block[part];
    const int32_t input = lanes[pass.lane()].input;
    if (!holds_ && input >= 0 &&
        !Tokens(device.replica, input).Contains(KeyOf(device, pass))) {
      return false;
    }
    if (ReadsActivations(pass.kind()) && !device.loading.empty() &&
        device.loading.contains(ActivationKey(pass)) &&
        !device.loaded_s.contains(ActivationKey(pass))) {
      return false;
    }
  }
  for (int part = 0; part < parts; ++part) {
    const Pass pass = block[part];
    const int32_t input = lanes[pass.lane()].input;
    double arrival_s = 0;
    if (!holds_ && input >= 0 &&
        Tokens(device.replica, input).Pop(KeyOf(device, pass), &arrival_s)) {
      *start_s = std::max(*start_s, arrival_s);
    }
    if (!ReadsActivations(pass.kind()) || device.loading.empty()) continue;
    const auto loaded = device.loaded_s.find(ActivationKey(pass));
    if (loaded == device.loaded_s.end()) continue;
    *start_s = std::max(*start_s, loaded->second);
    device.loading.erase(loaded->first);
    device.loaded_s.erase(loaded);
  }
  return true;
}

// The pass, or the block (X&Y), at the position of the device. False when it
// has to wait or has been started.
bool EventRun::RunBlock(int index) {
  Device& device = devices_[index];
  const RankProgram& rank = program_.ranks[device.rank];
  const Pass* const block = rank.order->data() + device.position;
  if (!IsComputePass(block->kind())) {
    ++device.position;
    if (block->kind() == PassKind::kSync) return true;
    const bool out = block->kind() == PassKind::kOffload;
    if (!out) device.loading.insert(ActivationKey(*block));
    Issue(index, out ? Stream::kD2H : Stream::kH2D,
          {.pass = *block,
           .iteration = device.iteration,
           .ready_s = device.clock_s});
    return true;
  }
  const int parts = block->joint_with_next() ? 2 : 1;
  if (holds_ && !device.received) {
    device.received = true;
    PlanHolds(index, block, parts, /*send=*/false);
    PostHolds(index);
    return true;  // Continue asks whether it is held
  }
  double start_s = device.clock_s;
  const bool hooked =
      device.position == device.sequence.stop() && device.sequence.holds();
  if (hooked && !HooksEnded(device, &start_s)) return false;
  if (!TakeBlockInputs(device, block, parts, &start_s)) return false;
  std::array<double, 2>& seconds = device.block_s;
  seconds = {};
  for (int part = 0; part < parts; ++part) {
    seconds[part] = program_.PassSeconds(device.iteration, device.replica,
                                         device.rank, block[part]) *
                    (parts == 2 ? program_.pair_factor : 1);
  }
  device.busy = true;
  device.block_start_s = start_s;
  if (beside_ != nullptr) {
    StartAt(start_s, Beside::Of::kBlock, static_cast<uint32_t>(index));
    return false;
  }
  const double end_s = start_s + (seconds[0] + seconds[1]);
  device.clock_s = end_s;
  NoteBlock(index, end_s);
  At(end_s, Event::kComputeEnd, index);
  return false;
}

// Tells of the block that runs, now that its end is known.
void EventRun::NoteBlock(int index, double end_s) {
  Device& device = devices_[index];
  const Pass* const block =
      program_.ranks[device.rank].order->data() + device.position;
  const double start_s = device.block_start_s;
  const std::array<double, 2>& seconds = device.block_s;
  const double sum_s = seconds[0] + seconds[1];
  if (device.iteration == 0) {
    RankTimes& times = summary_.times[device.replica][device.rank];
    if (!device.started) times.first_start_s = start_s;
    device.started = true;
    times.last_end_s = end_s;
    if (beside_ != nullptr) {
      times.busy_s += end_s - start_s;
    } else if (program_.jitter != nullptr) {
      times.busy_s += sum_s;
    }
  }
  if (writer_.active()) {
    writer_.replica = device.replica;
    writer_.iteration = device.iteration;
    const bool joint = block->joint_with_next();
    const double part = beside_ == nullptr || sum_s <= 0
                            ? seconds[0]
                            : seconds[0] / sum_s * (end_s - start_s);
    const double middle_s = joint ? start_s + part : end_s;
    writer_.OnPass(device.rank, device.position, block[0], start_s, middle_s,
                   joint);
    if (joint) {
      writer_.OnPass(device.rank, device.position + 1, block[1], middle_s,
                     end_s, true);
    }
  }
}

void EventRun::BlockEnd(int index) {
  Device& device = devices_[index];
  const RankProgram& rank = program_.ranks[device.rank];
  const Pass* const block = rank.order->data() + device.position;
  const int parts = block->joint_with_next() ? 2 : 1;
  device.busy = false;
  if (device.position == device.sequence.stop()) device.sequence.Passed();
  device.position += parts;
  device.received = false;
  NoteEnd(device.iteration, device.clock_s);
  summary_.simulated_ops += parts;
  if (holds_) {
    PlanHolds(index, block, parts, /*send=*/true);
    PostHolds(index);
  } else {
    for (int part = 0; part < parts; ++part) {
      const int32_t output = rank.lanes[block[part].lane()].output;
      if (output >= 0) Send(index, output, block[part], device.clock_s);
    }
  }
  Continue(index);
}

}  // namespace pipewright

#include "sim/engine/event_passes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/engine/event_beside.h"

namespace pipewright {
namespace {

// Passes that a device runs ahead of the clock each time that something comes
// to it; the one behind them ends by a timer. What it sends waits in memory.
constexpr int kMostAhead = 16;

bool HoldsRanks(const Program& program) {
  return program.wait_rule != WaitRule::kBuffered;
}

}  // namespace

HeldTransfers::HeldTransfers(const Program& program,
                             const EventChannels& channels,
                             EventTransfers* transfers)
    : program_(program), channels_(channels), transfers_(*transfers) {
  if (!HoldsRanks(program)) return;
  points_.resize(channels.slots());
  devices_.resize(static_cast<size_t>(program.pp()) * program.replicas);
}

void HeldTransfers::PostInputs(const Poster& who, const RankProgram& rank,
                               const Pass* block) {
  Device& device = devices_[who.device];
  device.received = true;
  PostBefore(rank, program_.wait_rule, block, &device.steps);
  PostNext(who);
}

void HeldTransfers::PostOutputs(const Poster& who, const RankProgram& rank,
                                const Pass* block, int64_t position,
                                const SideSequence& sequence) {
  Device& device = devices_[who.device];
  device.received = false;
  PostBehind(rank, program_.wait_rule, block, position, sequence,
             &device.received, &device.steps);
  PostNext(who);
}

void HeldTransfers::PostDropped(const Poster& who, const Dropped& dropped) {
  devices_[who.device].steps.push_back(
      {{.channel = dropped.channel, .pass = dropped.pass}});
  PostNext(who);
}

void HeldTransfers::PostNext(const Poster& who) {
  Device& device = devices_[who.device];
  if (device.steps.empty() || device.awaited > 0) return;
  const std::vector<Handshake> step = std::move(device.steps.front());
  device.steps.erase(device.steps.begin());
  for (const Handshake& handshake : step) {
    ++device.awaited;
    device.posted = handshake;
    Post(who, handshake);
  }
}

void HeldTransfers::Post(const Poster& who, const Handshake& handshake) {
  const int replica = who.sender.replica;
  MeetingPoint& point = points_[channels_.SlotOf(replica, handshake.channel)];
  const uint64_t key =
      EventChannels::KeyOf(handshake.pass, who.sender.false_start);
  TokenQueue& others = handshake.send ? point.receives : point.sends;
  double other_s = 0;
  if (!others.Pop(key, &other_s)) {
    (handshake.send ? point.sends : point.receives).Push(who.now_s, key);
    return;
  }
  transfers_.BeginHeld(who.sender, handshake.channel,
                       TransferName(program_.OfReplica(replica),
                                    handshake.channel, handshake.pass),
                       std::max(who.now_s, other_s));
}

void HeldTransfers::End(const Poster& who) {
  if (--devices_[who.device].awaited == 0) PostNext(who);
}

ComputeStreams::ComputeStreams(const Program& program,
                               const EngineOptions& options,
                               EventChannels* channels,
                               EventTransfers* transfers, SideStreams* streams,
                               PassExchanges* exchanges,
                               IterationEnds* iterations, EventRecord* record,
                               EventTimers* timers)
    : program_(program),
      channels_(*channels),
      transfers_(*transfers),
      streams_(*streams),
      exchanges_(*exchanges),
      iterations_(*iterations),
      record_(*record),
      timers_(*timers),
      holds_(HoldsRanks(program)),
      run_ahead_(options.run_ahead && !options.as_activities && !holds_ &&
                 !program.copies_in_turn && program.interference == nullptr),
      as_activities_(options.as_activities),
      stretches_(program.interference != nullptr || exchanges->any()),
      held_(program, *channels, transfers) {
  devices_.reserve(static_cast<size_t>(program.pp()) * program.replicas);
  for (int replica = 0; replica < program.replicas; ++replica) {
    for (int rank = 0; rank < program.pp(); ++rank) {
      devices_.emplace_back(program.OfReplica(replica), replica, rank);
    }
  }
}

void ComputeStreams::Begin() {
  for (int device = 0; device < size(); ++device) {
    if (devices_[device].ended) continue;
    BeginStart(device, program_.StartsOf(0).front());
  }
  for (int device = 0; device < size(); ++device) Continue(device);
  ContinueAll();
}

void ComputeStreams::BeginStart(int index, const Start& start) {
  Device& device = devices_[index];
  device.sequence.Begin(start);
  device.position = device.sequence.begin();
  device.hook_ends.Begin();
}

// The compute stream has come to the end of a start.
void ComputeStreams::EndStart(int index) {
  Device& device = devices_[index];
  const int iteration = device.iteration;
  if (device.sequence.start().is_false) {
    return BeginStart(index, program_.StartsOf(iteration).back());
  }
  ++device.iteration;
  iterations_.EndDevice(iteration, index, device.clock_s);
  device.ended = device.iteration == iterations_.issued();
  if (!device.ended) {
    BeginStart(index, program_.StartsOf(device.iteration).front());
  }
  iterations_.End(iteration);
}

void ComputeStreams::Continue(int index) {
  Device& device = devices_[index];
  int ahead = run_ahead_ ? kMostAhead : 0;
  while (!device.busy && !device.ended && !timers_.stopped() &&
         !(holds_ && held_.Holds(index))) {
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
void ComputeStreams::ContinueAll() {
  for (size_t next = 0; next < to_continue_.size(); ++next) {
    const int index = to_continue_[next];
    devices_[index].looked = false;
    if (!devices_[index].busy) Continue(index);
  }
  to_continue_.clear();
}

// The side operation at the position of the device. False when the compute
// stream waits for it.
bool ComputeStreams::RunItem(int index) {
  Device& device = devices_[index];
  const SideSequence::Item item = *device.sequence.item();
  const Stream stream = device.program().side_ops[item.side_op].stream;
  const IssuedOp issued = {.item = item,
                           .iteration = device.iteration,
                           .start = device.sequence.number(),
                           .ready_s = device.clock_s};
  if (stream != Stream::kCompute) {
    device.sequence.Taken();
    iterations_.Begin(device.iteration);
    streams_.Issue(index, stream, issued);
    return true;
  }
  const bool is_new = streams_.IsIdle(index, stream);
  if (is_new) iterations_.Begin(device.iteration);
  device.busy = is_new ? streams_.Issue(index, stream, issued)
                       : streams_.Try(index, stream);
  return false;
}

// Takes the next token that a false start has left. False when it is not
// there.
bool ComputeStreams::Drop(int index) {
  Device& device = devices_[index];
  const Dropped dropped = *device.sequence.drop();
  if (holds_) {
    device.sequence.DropTaken();
    held_.PostDropped(PosterOf(index), dropped);
    return true;  // Continue asks whether it is held
  }
  double arrival_s = 0;
  if (!channels_.Tokens(device.replica, dropped.channel)
           .Pop(EventChannels::KeyOf(dropped.pass, true), &arrival_s)) {
    return false;
  }
  device.sequence.DropTaken();
  device.clock_s = std::max(device.clock_s, arrival_s);
  return true;
}

// Takes the tokens of a block when all are there.
bool ComputeStreams::TakeInputs(int index, int parts, double* start_s) {
  Device& device = devices_[index];
  const Pass* const block = device.block();
  const bool false_start = device.sequence.start().is_false;
  const std::vector<Lane>& lanes = device.program().lanes;
  HostActivations& activations = streams_.ActivationsOf(index);
  double loaded_s = 0;
  for (int part = 0; part < parts; ++part) {
    const Pass pass = block[part];
    const int32_t input = lanes[pass.lane()].input;
    if (!holds_ && input >= 0 &&
        !channels_.Tokens(device.replica, input)
             .Contains(EventChannels::KeyOf(pass, false_start))) {
      return false;
    }
    // Nothing is taken before all is there.
    if (copies_ && !activations.Await(pass, &loaded_s)) return false;
  }
  for (int part = 0; part < parts; ++part) {
    const Pass pass = block[part];
    const int32_t input = lanes[pass.lane()].input;
    double arrival_s = 0;
    if (!holds_ && input >= 0 &&
        channels_.Tokens(device.replica, input)
            .Pop(EventChannels::KeyOf(pass, false_start), &arrival_s)) {
      *start_s = std::max(*start_s, arrival_s);
    }
    if (copies_) activations.Use(pass);
  }
  if (loaded_s > *start_s) {
    record_.OnCopyWait(device.replica, device.rank, device.iteration, *block,
                       *start_s, loaded_s);
    *start_s = loaded_s;
  }
  return true;
}

// False when the copy has not ended yet.
bool ComputeStreams::RunFree(Device& device, int index) {
  const Pass pass = *device.block();
  double free_s = device.clock_s;
  if (!streams_.ActivationsOf(index).AwaitOffload(pass, &free_s)) return false;
  if (free_s > device.clock_s) {
    record_.OnCopyWait(device.replica, device.rank, device.iteration, pass,
                       device.clock_s, free_s);
  }
  device.clock_s = free_s;
  return true;
}

// An entry of the order that is no pass. False when it has to wait.
bool ComputeStreams::RunOther(int index) {
  Device& device = devices_[index];
  const Pass pass = *device.block();
  const Entry entry = EntryOf(pass.kind());
  if (entry == Entry::kFree && !RunFree(device, index)) return false;
  ++device.position;
  if (entry != Entry::kCopy) return true;
  copies_ = true;
  streams_.ActivationsOf(index).Issue(pass);
  iterations_.Begin(device.iteration);
  streams_.Issue(
      index, CopyStream(pass.kind()),
      {.pass = pass, .iteration = device.iteration, .ready_s = device.clock_s});
  return true;
}

// The pass, or the block (X&Y), at the position of the device, up to its end
// where the device runs ahead. False when it has to wait or has been started.
bool ComputeStreams::RunBlock(int index, bool ahead) {
  Device& device = devices_[index];
  const RankProgram& rank = device.program();
  const Pass* const block = device.block();
  if (EntryOf(block->kind()) != Entry::kBlock) return RunOther(index);
  const int parts = PartsOf(*block);
  if (holds_ && !held_.received(index)) {
    held_.PostInputs(PosterOf(index), rank, block);
    return true;  // Continue asks whether it is held
  }
  double start_s = device.clock_s;
  const bool hooked =
      device.sequence.NextAt(device.position) == SideSequence::Next::kBlock;
  if (hooked && !device.hook_ends.Await(device.sequence, &start_s)) {
    return false;
  }
  if (!TakeInputs(index, parts, &start_s)) return false;
  std::array<double, 2>& seconds = device.block_s;
  seconds = {};
  for (int part = 0; part < parts; ++part) {
    seconds[part] = program_.PassSeconds(device.iteration, device.replica,
                                         device.rank, block[part]) *
                    (parts == 2 ? program_.pair_factor : 1);
  }
  device.block_start_s = start_s;
  if (program_.interference != nullptr) {
    device.busy = true;
    timers_.At(start_s, EventKind::kBesideStart, static_cast<uint32_t>(index),
               static_cast<uint32_t>(BesideEvents::Of::kBlock));
    return false;
  }
  if (exchanges_.any() &&
      exchanges_.Begin(index, rank, block, parts, seconds, start_s)) {
    device.busy = true;
    return false;
  }
  const double end_s = start_s + (seconds[0] + seconds[1]);
  device.clock_s = end_s;
  if (!as_activities_) NoteBlock(device, end_s);
  if (ahead) {
    FinishBlock(index);
    return true;
  }
  device.busy = true;
  timers_.At(end_s, EventKind::kComputeEnd, index);
  return false;
}

// Tells of the block that runs, now that its end is known.
void ComputeStreams::NoteBlock(const Device& device, double end_s) {
  if (!record_.Wants(device.iteration)) return;
  record_.OnBlock({.replica = device.replica,
                   .rank = device.rank,
                   .iteration = device.iteration,
                   .position = device.position,
                   .passes = device.block(),
                   .start_s = device.block_start_s,
                   .end_s = end_s,
                   .alone_s = device.block_s,
                   .stretched = stretches_});
}

void ComputeStreams::FinishBlock(int index) {
  Device& device = devices_[index];
  const RankProgram& rank = device.program();
  const Pass* const block = device.block();
  const int parts = PartsOf(*block);
  device.busy = false;
  if (device.position == device.sequence.stop()) device.sequence.Passed();
  device.position += parts;
  iterations_.NoteEnd(device.iteration, device.clock_s);
  record_.AddOps(parts);
  record_.Tell();
  if (holds_) {
    held_.PostOutputs(PosterOf(index), rank, block, device.position,
                      device.sequence);
    return;
  }
  for (int part = 0; part < parts; ++part) {
    const int32_t output = rank.lanes[block[part].lane()].output;
    if (output < 0 || !transfers_.Send(SenderOf(index), output, block[part],
                                       device.clock_s)) {
      continue;
    }
    Look(device.replica * program_.pp() +
         channels_.At(device.replica, output).to_rank);
  }
}

void ComputeStreams::EndBlock(int index, double now_s) {
  if (as_activities_) return EndBlockAt(index, now_s);
  FinishBlock(index);
  Continue(index);
}

void ComputeStreams::EndBlockAt(int index, double end_s) {
  Device& device = devices_[index];
  device.clock_s = end_s;
  NoteBlock(device, end_s);
  FinishBlock(index);
  Continue(index);
}

void ComputeStreams::BeginFlow(int index) {
  double end_s = 0;
  const auto flow = exchanges_.Flow(index, devices_[index].iteration, &end_s);
  if (!flow) return EndFlow(index, end_s);
  transfers_.BeginSharing(*flow);
}

void ComputeStreams::EndFlow(int index, double end_s) {
  const std::optional<double> over_s = exchanges_.End(index, end_s);
  if (!over_s) return;
  if (*over_s <= end_s) return EndBlockAt(index, *over_s);
  devices_[index].clock_s = *over_s;
  if (!as_activities_) NoteBlock(devices_[index], *over_s);
  timers_.At(*over_s, EventKind::kComputeEnd, index);
}

void ComputeStreams::EndHold(int index, double end_s) {
  Device& device = devices_[index];
  device.clock_s = std::max(device.clock_s, end_s);
  held_.End(PosterOf(index));
  if (!held_.Holds(index)) Continue(index);
}

void ComputeStreams::EndAttached(int index, double end_s) {
  Device& device = devices_[index];
  device.busy = false;
  device.clock_s = end_s;
  device.sequence.Taken();
}

}  // namespace pipewright

// Passes and what runs beside them, when they slow each other down: instead of
// one timer a thing with its end, a timer for its start, and from there on as
// many as its pace changes (interference.h).
#include <algorithm>
#include <utility>

#include "sim/engine/event_run.h"

namespace pipewright {

void EventRun::PlanBeside() {
  beside_ = std::make_unique<Interference>(
      *program_.interference, static_cast<int>(devices_.size()),
      [this](uint32_t item, double end_s, uint32_t version) {
        if (expected_s_.size() <= item) expected_s_.resize(item + 1);
        expected_s_[item] = end_s;
        timers_.At(end_s, EventKind::kBesideEnd, item, version);
      });
}

void EventRun::StartAt(double start_s, Beside::Of of, uint32_t index) {
  timers_.At(start_s, EventKind::kBesideStart, index,
             static_cast<uint32_t>(of));
}

// Mix of a block's passes, by their time.
PassMix EventRun::MixOfBlock(const Device& device) const {
  const RankProgram& rank = device.program();
  const Pass* const block = rank.order->data() + device.position;
  const double sum_s = device.block_s[0] + device.block_s[1];
  PassMix mix;
  for (int part = 0; part < (block->joint_with_next() ? 2 : 1); ++part) {
    const int stage = rank.lanes[block[part].lane()].stage;
    const double input =
        program_.input_part.empty() ? 0.5 : program_.input_part[stage];
    const PassMix one = MixOf(block[part].kind(), input, 1 - input);
    const double share = sum_s > 0 ? device.block_s[part] / sum_s : 1;
    mix.forward += share * one.forward;
    mix.backward_input += share * one.backward_input;
    mix.backward_weight += share * one.backward_weight;
  }
  return mix;
}

std::vector<int> EventRun::DevicesOf(const Transfer& transfer) const {
  if (transfer.of != Transfer::Of::kChannel) return {transfer.index};
  const Channel& channel = ChannelOf(transfer.replica, transfer.index);
  return {DeviceOf(transfer.replica, channel.from_rank),
          DeviceOf(transfer.replica, channel.to_rank)};
}

void EventRun::StartBeside(Beside::Of of, uint32_t index) {
  uint32_t item = 0;
  switch (of) {
    case Beside::Of::kBlock: {
      const Device& device = devices_[index];
      item = beside_->StartPass(device.block_start_s,
                                device.block_s[0] + device.block_s[1],
                                static_cast<int>(index), MixOfBlock(device));
      break;
    }
    case Beside::Of::kTransfer: {
      Transfer& transfer = transfers_[index];
      const Interference::Kind kind =
          transfer.beside == Transfer::Beside::kD2H ? Interference::Kind::kD2H
          : transfer.beside == Transfer::Beside::kH2D
              ? Interference::Kind::kH2D
              : Interference::Kind::kSendRecv;
      const bool timed = !Shared(transfer.source) || transfer.bytes == 0;
      item = beside_->StartBeside(transfer.start_s, transfer.alone_s, kind,
                                  DevicesOf(transfer), timed);
      transfer.item = static_cast<int32_t>(item);
      break;
    }
    case Beside::Of::kMeeting: {
      Meeting& meeting = meetings_[index];
      std::vector<int> devices;
      for (const auto& [device, stream] : meeting.arrived) {
        devices.push_back(device);
      }
      item = beside_->StartBeside(
          meeting.start_s, meeting.end_s - meeting.start_s,
          Interference::Kind::kCollective, std::move(devices),
          /*has_clock=*/!meeting.shares);
      meeting.item = static_cast<int32_t>(item);
      break;
    }
  }
  if (owners_.size() <= item) owners_.resize(item + 1);
  owners_[item] = {of, index};
}

void EventRun::EndBeside(uint32_t item, uint32_t version) {
  if (!beside_->IsCurrent(item, version)) return;  // its pace has changed
  const double end_s = expected_s_[item];
  const Beside owner = owners_[item];
  beside_->End(item, end_s);
  switch (owner.of) {
    case Beside::Of::kBlock: {
      Device& device = devices_[owner.index];
      device.clock_s = end_s;
      NoteBlock(device, end_s);
      EndBlock(static_cast<int>(owner.index));
      return Continue(static_cast<int>(owner.index));
    }
    case Beside::Of::kTransfer:
      transfers_[owner.index].item = -1;
      return EndTransfer(owner.index, end_s);
    case Beside::Of::kMeeting:
      meetings_[owner.index].item = -1;
      meetings_[owner.index].end_s = end_s;
      return EndMeeting(static_cast<int>(owner.index));
  }
}

// Ends the item of what has no clock of its own here.
void EventRun::LeaveBeside(int32_t* item, double now_s) {
  if (*item < 0) return;
  beside_->End(static_cast<uint32_t>(*item), now_s);
  *item = -1;
}

}  // namespace pipewright

#include "sim/engine/event_beside.h"

#include <utility>

namespace pipewright {

BesideEvents::BesideEvents(const Program& program, EventTimers* timers)
    : program_(program),
      running_(*program.interference, program.pp() * program.replicas,
               [this](uint32_t item, double end_s, uint32_t version) {
                 if (expected_s_.size() <= item) expected_s_.resize(item + 1);
                 expected_s_[item] = end_s;
                 to_set_.push_back({item, version, end_s});
               }),
      timers_(*timers) {}

// Mix of a block's passes, by their time.
PassMix BesideEvents::MixOfBlock(const RankProgram& rank, const Pass* block,
                                 const std::array<double, 2>& alone_s) const {
  const double sum_s = alone_s[0] + alone_s[1];
  PassMix mix;
  for (int part = 0; part < (block->joint_with_next() ? 2 : 1); ++part) {
    const int stage = rank.lanes[block[part].lane()].stage;
    const double input =
        program_.input_part.empty() ? 0.5 : program_.input_part[stage];
    const PassMix one = MixOf(block[part].kind(), input, 1 - input);
    const double share = sum_s > 0 ? alone_s[part] / sum_s : 1;
    mix.forward += share * one.forward;
    mix.backward_input += share * one.backward_input;
    mix.backward_weight += share * one.backward_weight;
  }
  return mix;
}

void BesideEvents::Own(uint32_t item, Owner owner) {
  if (owners_.size() <= item) owners_.resize(item + 1);
  owners_[item] = owner;
}

// A timer says of whom it is, which is known once its item is there.
void BesideEvents::SetTimers() {
  for (const Timer& timer : to_set_) {
    timers_.At(timer.end_s, EventKind::kBesideEnd, timer.item, timer.version);
  }
  to_set_.clear();
}

void BesideEvents::StartBlock(int device, double start_s,
                              const RankProgram& rank, const Pass* block,
                              const std::array<double, 2>& alone_s) {
  Own(running_.StartPass(start_s, alone_s[0] + alone_s[1], device,
                         MixOfBlock(rank, block, alone_s)),
      {Of::kBlock, static_cast<uint32_t>(device)});
  SetTimers();
}

void BesideEvents::Start(Owner owner, double start_s, double alone_s,
                         Interference::Kind kind, std::vector<int> devices,
                         bool timed) {
  const uint32_t item =
      running_.StartBeside(start_s, alone_s, kind, std::move(devices), timed);
  Own(item, owner);
  items_[KeyOf(owner)] = item;
  SetTimers();
}

std::optional<BesideEvents::Ended> BesideEvents::End(uint32_t item,
                                                     uint32_t version) {
  if (!running_.IsCurrent(item, version)) return std::nullopt;
  const Ended ended{owners_[item], expected_s_[item]};
  running_.End(item, ended.end_s);
  SetTimers();
  items_.erase(KeyOf(ended.owner));
  return ended;
}

void BesideEvents::Leave(Owner owner, double now_s) {
  const auto found = items_.find(KeyOf(owner));
  if (found == items_.end()) return;
  const uint32_t item = found->second;
  items_.erase(found);
  running_.End(item, now_s);
  SetTimers();
}

}  // namespace pipewright

#include "sim/engine/interference.h"

#include <algorithm>
#include <utility>

#include "sim/base/check.h"

namespace pipewright {

uint32_t Interference::StartPass(double now_s, double work_s, int device,
                                 const PassMix& mix) {
  PW_CHECK(PassOn(device) == nullptr);
  return Start(
      now_s,
      {.kind = Kind::kPass, .mix = mix, .devices = {device}, .left_s = work_s});
}

uint32_t Interference::StartBeside(double now_s, double work_s, Kind kind,
                                   std::vector<int> devices, bool has_clock) {
  PW_CHECK(kind != Kind::kPass);
  return Start(now_s, {.kind = kind,
                       .has_clock = has_clock,
                       .devices = std::move(devices),
                       .left_s = work_s});
}

uint32_t Interference::Start(double now_s, Item item) {
  uint32_t number = static_cast<uint32_t>(items_.size());
  if (free_.empty()) {
    items_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  item.running = true;
  item.since_s = now_s;
  item.version = items_[number].version;
  items_[number] = std::move(item);
  const std::vector<int> devices = items_[number].devices;
  for (const int device : devices) running_[device].push_back(number);
  Retime(devices, now_s);
  return number;
}

void Interference::End(uint32_t number, double now_s) {
  Item& item = items_[number];
  PW_CHECK(item.running);
  item.running = false;
  ++item.version;
  const std::vector<int> devices = std::move(item.devices);
  for (const int device : devices) {
    std::vector<uint32_t>& running = running_[device];
    running.erase(std::find(running.begin(), running.end(), number));
  }
  free_.push_back(number);
  Retime(devices, now_s);
}

// Whatever runs on `devices` may have changed its pace.
void Interference::Retime(const std::vector<int>& devices, double now_s) {
  for (const int device : devices) {
    for (const uint32_t number : running_[device]) {
      Item& item = items_[number];
      if (!item.has_clock) continue;
      const double slowdown = SlowdownOf(item);
      // Exactly the same: the timer that stands is right.
      if (slowdown == item.slowdown) continue;
      if (item.slowdown > 0) {
        item.left_s =
            std::max(0.0, item.left_s - (now_s - item.since_s) / item.slowdown);
      }
      item.since_s = now_s;
      item.slowdown = slowdown;
      set_timer_(number, now_s + item.left_s * slowdown, ++item.version);
    }
  }
}

double Interference::SlowdownOf(const Item& item) const {
  double slowdown = 1;
  for (const int device : item.devices) {
    slowdown = std::max(slowdown, SlowdownOn(item, device));
  }
  return slowdown;
}

double Interference::SlowdownOn(const Item& item, int device) const {
  const bool out = Runs(device, Kind::kD2H);
  const bool in = Runs(device, Kind::kH2D);
  const Beside copies = out && in ? Beside::kBothCopies
                        : out     ? Beside::kD2H
                                  : Beside::kH2D;
  if (item.kind == Kind::kPass) {
    double slowdown = 1;
    if (out || in) slowdown *= matrix_.At(item.mix, copies).pass;
    if (Runs(device, Kind::kSendRecv)) {
      slowdown *= matrix_.At(item.mix, Beside::kSendRecv).pass;
    }
    if (Runs(device, Kind::kCollective)) {
      slowdown *= matrix_.At(item.mix, Beside::kCollective).pass;
    }
    return slowdown;
  }
  const Item* pass = PassOn(device);
  if (pass == nullptr) return 1;
  switch (item.kind) {
    case Kind::kSendRecv:
      return matrix_.At(pass->mix, Beside::kSendRecv).beside;
    case Kind::kCollective:
      return matrix_.At(pass->mix, Beside::kCollective).beside;
    default:
      return matrix_.At(pass->mix, copies).beside;
  }
}

const Interference::Item* Interference::PassOn(int device) const {
  for (const uint32_t number : running_[device]) {
    if (items_[number].kind == Kind::kPass) return &items_[number];
  }
  return nullptr;
}

bool Interference::Runs(int device, Kind kind) const {
  return std::any_of(
      running_[device].begin(), running_[device].end(),
      [&](uint32_t number) { return items_[number].kind == kind; });
}

}  // namespace pipewright

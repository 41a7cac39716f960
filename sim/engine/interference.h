// The operations that run on each device now, and their progress: re-times a
// running pass, copy, transfer or collective whenever something beside it on
// one of its devices starts or ends. Every one has work, the seconds that it
// takes alone, and does it at 1/slowdown of its speed. It decides nothing about
// what starts when, and keeps no clock: its owner sets the timers that it asks
// for.
//
// Several things beside one pass: its slowdown is the product of that by the
// copies (one direction, or both), by transfers and by collectives. One over
// several devices runs at the pace of the slowest.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/cost/interference.h"

namespace pipewright {

class Interference {
 public:
  enum class Kind : uint8_t { kPass, kD2H, kH2D, kSendRecv, kCollective };
  // The end of `item` is now expected at `end_s`; timers of older versions are
  // stale.
  using SetTimer =
      std::function<void(uint32_t item, double end_s, uint32_t version)>;

  Interference(const InterferenceMatrix& matrix, int devices,
               SetTimer set_timer)
      : matrix_(matrix), running_(devices), set_timer_(std::move(set_timer)) {}

  // A pass, alone on its compute stream, from `now_s` on.
  uint32_t StartPass(double now_s, double work_s, int device,
                     const PassMix& mix);
  // Something beside passes. Without a clock of its own (a flow that a network
  // model times) it slows passes down and is never slowed itself; its
  // `work_s` is not used then.
  uint32_t StartBeside(double now_s, double work_s, Kind kind,
                       std::vector<int> devices, bool has_clock = true);

  bool IsCurrent(uint32_t item, uint32_t version) const {
    return items_[item].running && items_[item].version == version;
  }
  // The item is done; what ran beside it speeds up.
  void End(uint32_t item, double now_s);

 private:
  struct Item {
    Kind kind = Kind::kPass;
    bool running = false;
    bool has_clock = true;
    PassMix mix;
    std::vector<int> devices;
    double left_s = 0;  // work, at since_s
    double since_s = 0;
    double slowdown = 0;  // 0: not timed yet
    uint32_t version = 0;
  };

  uint32_t Start(double now_s, Item item);
  void Retime(const std::vector<int>& devices, double now_s);
  double SlowdownOf(const Item& item) const;
  double SlowdownOn(const Item& item, int device) const;
  // The pass that runs on `device`; null: none.
  const Item* PassOn(int device) const;
  bool Runs(int device, Kind kind) const;

  const InterferenceMatrix matrix_;
  std::vector<Item> items_;
  std::vector<uint32_t> free_;
  std::vector<std::vector<uint32_t>> running_;  // [device]
  SetTimer set_timer_;
};

}  // namespace pipewright

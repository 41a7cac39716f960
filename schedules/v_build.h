// From a building block to a schedule (steps 3 to 9 of the adaptive V
// planner): repeat it, lay the warm-up and the cool-down anew, fill what is
// still idle. Plans on a grid of slots with F = B = W = 1 and no hops.
// Source: as v_blocks.h.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/v_blocks.h"
#include "schedules/v_orders.h"

namespace pipewright {

class VBuilder {
 public:
  // Builds into one set of buffers, time after time.
  VBuilder(int pp, int microbatches);
  VBuilder(const VBuilder&) = delete;
  VBuilder& operator=(const VBuilder&) = delete;

  // False when the block makes no schedule whose fullest rank stays within
  // `limit` chunk activations. `peak`: of the repeated block.
  bool Build(const VBlockSlots& slots, int peak, int limit);

  // The schedule built last, W in the order of their B.
  const VOrders& orders() const { return orders_; }
  // Its peak in chunk activations.
  int peak() const { return peak_; }

 private:
  // Nothing in a cell. Columns count from 1: that of a pass is its end.
  static constexpr uint8_t kIdle = kVKinds;

  bool LayWarmUp(const VBlockSlots& slots, int rank, uint8_t** next,
                 std::array<int, kVKinds>* counts);
  void LaySteady(const VBlockSlots& slots, int rank, uint8_t* next,
                 std::array<int, kVKinds> counts);
  int RankPeak(int rank) const;
  bool FitFewMicrobatches(int limit);
  bool LayCoolDown();
  bool LayCoolDown(int rank, int last_forward, int* first_change);
  void WriteCells();
  int LastColumn() const;
  void FillIdle();
  int FillIdle(int rank, int column);
  int Ready(int rank, int kind, int microbatch);
  int NextIdle(int rank, int column);
  bool ReadOrders();

  int* At(int rank, int kind) { return replay_.Ends(rank, kind); }
  uint8_t* Row(int rank) { return cells_.data() + int64_t{rank} * width_; }
  int16_t* Live(int rank) { return live_.data() + int64_t{rank} * width_; }

  int pp_;
  int microbatches_;  // asked for
  int repeats_;       // times that the block repeats, at least 2pp
  int peak_ = 0;      // peak of the block, then of the schedule
  VOrders orders_;
  VReplay<int> replay_;
  int width_ = 0;                               // columns of a row
  std::vector<uint8_t> cells_;                  // [rank][column]
  std::vector<int16_t> live_;                   // [rank][column], behind it
  std::vector<std::array<int, kVKinds>> done_;  // [rank], before a column
  std::vector<int> counted_;    // [rank], first column not in done_
  std::vector<int> next_idle_;  // [rank], next column to fill
  std::vector<uint8_t> pending_;
};

}  // namespace pipewright

#include "schedules/v_greedy.h"

#include <algorithm>
#include <cstring>

#include "sim/base/check.h"

namespace pipewright {
namespace {

// A slot holds one of F.0, F.1, B.1, B.0, or one of these.
constexpr uint8_t kWeight = 4;  // W of either chunk
constexpr uint8_t kFree = 5;

bool IsForward(uint8_t cell) { return cell <= kF1; }
bool IsInput(uint8_t cell) { return cell == kB1 || cell == kB0; }

// The grid of slots, and where in it every pass is.
class Grid {
 public:
  Grid(int pp, int microbatches, int slots)
      : pp_(pp),
        microbatches_(microbatches),
        slots_(slots),
        cells_(int64_t{pp} * slots, kFree),
        at_(int64_t{kVKinds} * pp * microbatches) {}

  uint8_t* Row(int rank) { return cells_.data() + int64_t{rank} * slots_; }
  // Slots of the passes of one kind; kWeight has both chunks, two a
  // microbatch.
  int* At(int rank, int kind) {
    return at_.data() + (int64_t{rank} * kVKinds + kind) * microbatches_;
  }
  void Put(int rank, int slot, uint8_t kind, int index) {
    Row(rank)[slot] = kind;
    At(rank, kind)[index] = slot;
  }

  // Every B leaves a W, every idle slot takes one, the rest come at the end.
  void FillWithWeights() {
    for (int rank = 0; rank < pp_; ++rank) {
      uint8_t* const row = Row(rank);
      int pending = 0;
      int weights = 0;
      for (int slot = 0; weights < 2 * microbatches_; ++slot) {
        PW_CHECK(slot < slots_);
        if (IsInput(row[slot])) ++pending;
        if (row[slot] != kFree || pending == 0) continue;
        --pending;
        Put(rank, slot, kWeight, weights++);
      }
    }
  }

  // Each pass as early as the order of the grid allows; drops W from it.
  void Retime() {
    std::vector<uint8_t> old(cells_.size(), kFree);
    old.swap(cells_);
    std::vector<int> clocks(pp_, 0);
    std::vector<std::array<int, 5>> counts(pp_);
    for (int slot = 0; slot < slots_; ++slot) {
      for (int rank = 0; rank < pp_; ++rank) {
        const uint8_t kind = old[int64_t{rank} * slots_ + slot];
        if (kind == kFree) continue;
        const int index = counts[rank][kind]++;
        const int start =
            std::max(clocks[rank], AfterNeighbour(rank, kind, index));
        clocks[rank] = start + 1;
        if (kind != kWeight) Put(rank, start, kind, index);
      }
    }
  }

  // Moves passes of the warm-up (where `warm_up`) and of the cool-down to the
  // left while no rank holds more than the fullest one does now. Without W in
  // the grid an idle slot counts as one.
  void Reorder(bool warm_up);

  VOrders Orders();

 private:
  // First slot behind the producer on another rank.
  int AfterNeighbour(int rank, uint8_t kind, int index) {
    const bool up = kind == kF0 || kind == kB1;
    const int producer = up ? rank - 1 : rank + 1;
    if (kind == kWeight || producer < 0 || producer == pp_) return 0;
    return At(producer, kind)[index] + 1;
  }

  // First slot behind everything that the pass needs.
  int Earliest(int rank, uint8_t kind, int index, const int* inputs) {
    int earliest = index > 0 ? At(rank, kind)[index - 1] + 1 : 0;
    if (kind == kWeight) return std::max(earliest, inputs[index] + 1);
    if (kind > kF0) {
      earliest = std::max(earliest, At(rank, kind - 1)[index] + 1);
    }
    return std::max(earliest, AfterNeighbour(rank, kind, index));
  }

  int pp_;
  int microbatches_;
  int slots_;
  std::vector<uint8_t> cells_;  // [rank][slot]
  std::vector<int> at_;
};

// What a rank holds after each slot.
class Memory {
 public:
  // `implicit`: an idle slot is a W while one is pending.
  Memory(const uint8_t* row, int slots, bool implicit)
      : row_(row),
        slots_(slots),
        implicit_(implicit),
        live_(slots, -1),
        pending_(slots, -1) {
    Update(0);
  }

  int Peak() const { return *std::max_element(live_.begin(), live_.end()); }

  // The first free slot from `earliest` on, before `slot`, to which the pass
  // there can move without any slot above `cap`; else `slot`.
  int Target(int earliest, int slot, int cap) const {
    const uint8_t kind = row_[slot];
    int begin = earliest;
    if (IsForward(kind)) {
      for (int back = slot - 1; back >= begin; --back) {
        if (live_[back] >= cap) begin = back + 1;
      }
    }
    for (int target = begin; target < slot; ++target) {
      const void* const free = std::memchr(row_ + target, kFree, slot - target);
      if (free == nullptr) return slot;
      target = static_cast<int>(static_cast<const uint8_t*>(free) - row_);
      if (!IsWeightSlot(target) || Postpones(kind, target, slot, cap)) {
        return target;
      }
    }
    return slot;
  }

  // After a change of the row from `slot` on; ends where nothing changes.
  void Update(int slot, int changed_to = 0) {
    int live = slot > 0 ? live_[slot - 1] : 0;
    int pending = slot > 0 ? pending_[slot - 1] : 0;
    for (; slot < slots_; ++slot) {
      const uint8_t cell = row_[slot];
      live += IsForward(cell) - (cell == kWeight);
      pending += IsInput(cell);
      if (implicit_ && cell == kFree && pending > 0) {
        --live;
        --pending;
      }
      if (slot > changed_to && live_[slot] == live &&
          pending_[slot] == pending) {
        return;
      }
      live_[slot] = live;
      pending_[slot] = pending;
    }
  }

 private:
  // An idle slot that counts as a W.
  bool IsWeightSlot(int slot) const {
    return implicit_ && pending_[slot] < (slot > 0 ? pending_[slot - 1] : 0);
  }
  bool IsWasted(int slot) const {
    return row_[slot] == kFree && !IsWeightSlot(slot);
  }
  // Taking `target` for another pass puts off its W, up to the next idle slot
  // that had none to do.
  bool Postpones(uint8_t kind, int target, int slot, int cap) const {
    const int room = cap - 1 - (IsForward(kind) ? 1 : 0);
    for (int at = target; at < slot && !IsWasted(at); ++at) {
      if (live_[at] > room) return false;
    }
    return true;
  }

  const uint8_t* row_;
  int slots_;
  bool implicit_;
  std::vector<int> live_;
  std::vector<int> pending_;  // W that could run
};

void Grid::Reorder(bool warm_up) {
  std::vector<Memory> memory;
  std::vector<std::vector<int>> inputs(pp_);  // sorted slots of both B
  int cap = 0;
  for (int rank = 0; rank < pp_; ++rank) {
    memory.emplace_back(Row(rank), slots_, !warm_up);
    cap = std::max(cap, memory.back().Peak());
    inputs[rank].resize(2 * microbatches_);
    std::merge(At(rank, kB1), At(rank, kB1) + microbatches_, At(rank, kB0),
               At(rank, kB0) + microbatches_, inputs[rank].begin());
  }
  const auto move = [&](int rank, int slot, uint8_t kind, int index) {
    uint8_t* const row = Row(rank);
    const int target = memory[rank].Target(
        Earliest(rank, kind, index, inputs[rank].data()), slot, cap);
    if (target == slot) return;
    row[slot] = kFree;
    Put(rank, target, kind, index);
    memory[rank].Update(target, slot);
    if (IsInput(kind)) {
      std::vector<int>& list = inputs[rank];
      const auto from = std::lower_bound(list.begin(), list.end(), slot);
      const auto to = std::lower_bound(list.begin(), from, target);
      *from = target;
      std::rotate(to, from, from + 1);
    }
  };

  enum { kWarmUp, kStable, kCoolDown } phase = kWarmUp;
  std::vector<std::array<int, 5>> counts(pp_);
  for (int slot = 0; slot < slots_; ++slot) {
    for (int rank = 0; rank < pp_; ++rank) {
      const uint8_t kind = Row(rank)[slot];
      if (kind == kFree) continue;
      const int index = counts[rank][kind]++;
      if (phase == kWarmUp && kind == kB0 && rank == 0) phase = kStable;
      if (phase == kCoolDown || (phase == kWarmUp && warm_up)) {
        move(rank, slot, kind, index);
      }
      if (phase == kStable && kind == kF0 && index == microbatches_ - 1) {
        phase = kCoolDown;
      }
    }
  }
}

VOrders Grid::Orders() {
  VOrders orders(pp_, microbatches_);
  for (int rank = 0; rank < pp_; ++rank) {
    const uint8_t* const row = Row(rank);
    uint8_t* next = orders.rank(rank);
    uint8_t* const end = next + orders.length();
    int pending1 = 0, pending0 = 0;
    for (int slot = 0; next < end; ++slot) {
      // Behind the grid only W are left.
      const uint8_t cell = slot < slots_ ? row[slot] : kFree;
      if (cell != kFree) {
        pending1 += cell == kB1;
        pending0 += cell == kB0;
        *next++ = cell;
      } else if (pending1 > 0) {
        --pending1;
        *next++ = kW1;
      } else if (pending0 > 0) {
        --pending0;
        *next++ = kW0;
      }
    }
  }
  return orders;
}

}  // namespace

VOrders GreedyV(int microbatches,
                const std::vector<std::array<int, 4>>& block) {
  const int pp = static_cast<int>(block.size());
  int last = 0;
  for (const auto& slots : block) {
    last = std::max(last, *std::max_element(slots.begin(), slots.end()));
  }
  // The block's passes, and at worst all W behind them.
  Grid grid(pp, microbatches,
            last + 1 + kVBlockSlots * (microbatches - 1) + 2 * microbatches);
  for (int rank = 0; rank < pp; ++rank) {
    for (uint8_t kind = kF0; kind <= kB0; ++kind) {
      for (int index = 0; index < microbatches; ++index) {
        const int slot = block[rank][kind] + kVBlockSlots * index;
        PW_CHECK(grid.Row(rank)[slot] == kFree);
        grid.Put(rank, slot, kind, index);
      }
    }
  }
  grid.FillWithWeights();
  grid.Reorder(true);
  grid.Retime();
  grid.Reorder(false);
  grid.FillWithWeights();
  grid.Retime();
  return grid.Orders();
}

}  // namespace pipewright

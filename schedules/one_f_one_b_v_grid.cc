#include "schedules/one_f_one_b_v_grid.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "sim/base/check.h"

namespace pipewright::one_f_one_b_v_grid {
namespace {

// F of chunk 0, F of chunk 1, then both halves of BW of chunk 1 and chunk 0:
// a slot each, so that a microbatch takes a rank six slots.
enum Cell : uint8_t { kF0, kF1, kFirst1, kSecond1, kFirst0, kSecond0, kFree };
constexpr int kPeriod = kFree;

bool IsForward(uint8_t kind) { return kind <= kF1; }
bool IsFirst(uint8_t kind) { return kind == kFirst1 || kind == kFirst0; }
bool IsSecond(uint8_t kind) { return kind == kSecond1 || kind == kSecond0; }

class Grid {
 public:
  Grid(int pp, int microbatches)
      : pp_(pp),
        microbatches_(microbatches),
        slots_(kPeriod * (4 * pp + microbatches + 3)),
        cells_(int64_t{pp} * slots_, kFree),
        live_(int64_t{pp} * slots_, 0),
        at_(int64_t{pp} * kPeriod * microbatches) {
    Repeat();
    CountLive();
  }

  // Moves every pass to the left while no rank needs more memory than the
  // fullest one.
  void Compact() {
    std::vector<std::array<int, kPeriod>> counts(pp_);
    for (int slot = 0; slot < slots_; ++slot) {
      for (int rank = 0; rank < pp_; ++rank) {
        const uint8_t kind = Row(rank)[slot];
        if (kind == kFree) continue;
        const int microbatch = counts[rank][kind]++;
        Move(rank, kind, microbatch, slot,
             Target(rank, kind, slot, Earliest(rank, kind, microbatch)));
      }
    }
  }

  void AddTo(ScheduleBuilder& builder) {
    for (int rank = 0; rank < pp_; ++rank) {
      std::array<int, kPeriod> counts{};
      builder.Reserve(rank, int64_t{4} * microbatches_);
      for (int slot = 0; slot < slots_; ++slot) {
        const uint8_t kind = Row(rank)[slot];
        if (kind == kFree || IsSecond(kind)) continue;
        builder.Add(
            rank,
            IsForward(kind) ? PassKind::kForward : PassKind::kBackwardFull,
            counts[kind]++, kind == kF1 || kind == kFirst1 ? 1 : 0);
      }
    }
  }

 private:
  uint8_t* Row(int rank) { return cells_.data() + int64_t{rank} * slots_; }
  int16_t* Live(int rank) { return live_.data() + int64_t{rank} * slots_; }
  int& At(int rank, int kind, int microbatch) {
    return at_[(int64_t{rank} * kPeriod + kind) * microbatches_ + microbatch];
  }

  // A microbatch's way through the ranks and back, again every six slots, each
  // pass at the first slot behind the one before it that keeps ranks free of
  // collisions.
  void Repeat() {
    int last = kPeriod;
    const auto place = [&](int rank, uint8_t kind, int position) {
      last +=
          1 + (position % kPeriod + kPeriod - (last + 1) % kPeriod) % kPeriod;
      for (int half = 0; half < (IsForward(kind) ? 1 : 2); ++half) {
        for (int index = 0; index < microbatches_; ++index) {
          const int slot = last + half + kPeriod * index;
          PW_CHECK(Row(rank)[slot] == kFree);
          Row(rank)[slot] = static_cast<uint8_t>(kind + half);
          At(rank, kind + half, index) = slot;
        }
      }
    };
    for (int rank = 0; rank < pp_; ++rank) place(rank, kF0, rank + 1);
    for (int rank = pp_ - 1; rank >= 0; --rank) {
      place(rank, kF1, 2 * pp_ - rank);
    }
    int position = 2 * pp_ + 1 + (pp_ % 3 == 0 ? 3 : 0);
    int since_gap = (3 - (pp_ + 2) % 3) % 3;
    const auto place_backward = [&](int rank, uint8_t kind) {
      place(rank, kind, position);
      position += 2;
      if (++since_gap == 3) {
        position += 3;
        since_gap = 0;
      }
    };
    for (int rank = 0; rank < pp_; ++rank) place_backward(rank, kFirst1);
    for (int rank = pp_ - 1; rank >= 0; --rank) place_backward(rank, kFirst0);
  }

  void CountLive() {
    for (int rank = 0; rank < pp_; ++rank) {
      int live = 0;
      for (int slot = 0; slot < slots_; ++slot) {
        const uint8_t kind = Row(rank)[slot];
        live += IsForward(kind) - IsSecond(kind);
        Live(rank)[slot] = static_cast<int16_t>(live);
        peak_ = std::max(peak_, live);
      }
    }
  }

  // The first slot after its kind of the microbatch before and after its
  // producer.
  int Earliest(int rank, uint8_t kind, int microbatch) {
    int earliest = microbatch > 0 ? At(rank, kind, microbatch - 1) + 1 : 0;
    int producer = rank;
    int made = kind - 1;
    const bool up = kind == kF0 || kind == kFirst1;
    if (!IsSecond(kind) && (up ? rank > 0 : rank < pp_ - 1)) {
      producer = up ? rank - 1 : rank + 1;
      made = IsForward(kind) ? kind : kind + 1;
    }
    if (made < kF0) return earliest;
    return std::max(earliest, At(producer, made, microbatch) + 1);
  }

  int Target(int rank, uint8_t kind, int slot, int earliest) {
    const uint8_t* const row = Row(rank);
    if (IsForward(kind)) {
      int begin = slot;
      while (begin > earliest && Live(rank)[begin - 1] < peak_) --begin;
      earliest = begin;
    }
    while (earliest < slot) {
      const void* const free =
          std::memchr(row + earliest, kFree, slot - earliest);
      if (free == nullptr) return slot;
      earliest = static_cast<int>(static_cast<const uint8_t*>(free) - row);
      // The second half needs a place right behind the first.
      if (!IsFirst(kind) || row[earliest + 1] == kFree) return earliest;
      ++earliest;
    }
    return slot;
  }

  void Move(int rank, uint8_t kind, int microbatch, int from, int to) {
    if (to >= from) return;
    Row(rank)[from] = kFree;
    Row(rank)[to] = kind;
    At(rank, kind, microbatch) = to;
    const int change = IsForward(kind) - IsSecond(kind);
    if (change == 0) return;
    int16_t* const live = Live(rank);
    for (int slot = to; slot < from; ++slot) {
      live[slot] = static_cast<int16_t>(live[slot] + change);
    }
  }

  int pp_;
  int microbatches_;
  int slots_;
  int peak_ = 0;                // peak of the repeated pattern, in chunks
  std::vector<uint8_t> cells_;  // [rank][slot]
  std::vector<int16_t> live_;   // [rank][slot], behind it
  std::vector<int> at_;         // slot of [rank][kind][microbatch]
};

}  // namespace
}  // namespace pipewright::one_f_one_b_v_grid

namespace pipewright {

void AddOneFOneBV(int pp, int microbatches, ScheduleBuilder& builder) {
  one_f_one_b_v_grid::Grid grid(pp, microbatches);
  grid.Compact();
  grid.AddTo(builder);
}

}  // namespace pipewright

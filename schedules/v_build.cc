#include "schedules/v_build.h"

#include <algorithm>
#include <limits>

namespace pipewright {
namespace {

constexpr std::array<int, kVKinds> kSlotEach = {1, 1, 1, 1, 1, 1};
constexpr int kNever = std::numeric_limits<int>::max();

bool IsForward(int kind) { return kind <= kF1; }
bool IsWeight(int kind) { return kind == kW1 || kind == kW0; }

}  // namespace

VBuilder::VBuilder(int pp, int microbatches)
    : pp_(pp),
      microbatches_(microbatches),
      repeats_(std::max(microbatches, 2 * pp)),
      orders_(pp, microbatches),
      replay_(pp, microbatches),
      done_(pp),
      next_idle_(pp) {}

bool VBuilder::Build(const VBlockSlots& slots, int peak, int limit) {
  peak_ = peak;
  if (peak_ > 2 * pp_) return false;
  if (repeats_ == microbatches_ && peak_ > limit) return false;
  for (int rank = 0; rank < pp_; ++rank) {
    uint8_t* next = orders_.rank(rank);
    std::array<int, kVKinds> counts;
    if (!LayWarmUp(slots, rank, &next, &counts)) return false;
    LaySteady(slots, rank, next, counts);
  }
  if (microbatches_ < repeats_ && !FitFewMicrobatches(limit)) return false;
  replay_.Reset();
  if (!replay_.Run(orders_, kSlotEach, 0) || !LayCoolDown()) return false;
  FillIdle();
  return ReadOrders();
}

// Lays the passes before the first B.0 in an order that needs no more memory
// and starts the backwards earlier. It lays only microbatches that were asked
// for.
bool VBuilder::LayWarmUp(const VBlockSlots& slots, int rank, uint8_t** next,
                         std::array<int, kVKinds>* counts) {
  std::array<int, kVKinds> left;
  int total = 0;
  for (int kind = 0; kind < kVKinds; ++kind) {
    const int ahead = slots[rank][kB0] - slots[rank][kind];
    left[kind] = std::clamp((ahead + VBlock::kPeriod - 1) / VBlock::kPeriod, 0,
                            repeats_);
    if (ahead <= 0) left[kind] = 0;
    total += left[kind];
  }
  *counts = left;
  std::array<int, kVKinds> laid{};
  int live = 0;
  int most = 0;
  const auto lay = [&](int kind) {
    if (left[kind] == 0) return;
    --left[kind];
    --total;
    live += IsForward(kind) - IsWeight(kind);
    most = std::max(most, live);
    if (laid[kind]++ < microbatches_) *(*next)++ = static_cast<uint8_t>(kind);
  };
  int quota1 = std::min({rank + 1, peak_ / 2, repeats_});
  int quota0 = std::min(peak_ - quota1, repeats_);
  for (int cell = 0; cell < 2 * (pp_ - 1 - rank) && quota0 > 0; ++cell) {
    --quota0;
    lay(kF0);
  }
  for (int pair = 0; pair <= rank; ++pair) {
    if (quota0-- > 0) lay(kF0);
    if (quota1-- > 0) lay(kF1);
  }
  while (total > 0) {
    lay(kB1);
    lay(kW1);
    lay(left[kF1] > 0 ? kF1 : kF0);
  }
  return most <= peak_;
}

// From the first B.0 on the block repeats as it is.
void VBuilder::LaySteady(const VBlockSlots& slots, int rank, uint8_t* next,
                         std::array<int, kVKinds> counts) {
  const std::array<int, kVKinds>& at = slots[rank];
  std::array<uint8_t, VBlock::kPeriod> kind_of;
  for (int kind = 0; kind < kVKinds; ++kind) {
    kind_of[at[kind] % VBlock::kPeriod] = static_cast<uint8_t>(kind);
  }
  const uint8_t* const end = orders_.rank(rank) + orders_.length();
  for (int slot = at[kB0]; next < end; ++slot) {
    const uint8_t kind = kind_of[slot % VBlock::kPeriod];
    if (slot < at[kind] || counts[kind] >= microbatches_) continue;
    ++counts[kind];
    *next++ = kind;
  }
}

int VBuilder::RankPeak(int rank) const {
  const uint8_t* const order = orders_.rank(rank);
  int live = 0;
  int peak = 0;
  for (int position = 0; position < orders_.length(); ++position) {
    live += IsForward(order[position]) - IsWeight(order[position]);
    peak = std::max(peak, live);
  }
  return peak;
}

// Fewer microbatches than the block was repeated for leave memory over: the
// first W can wait until the end.
bool VBuilder::FitFewMicrobatches(int limit) {
  const bool postpone = microbatches_ <= pp_ && 2 * microbatches_ <= limit;
  int peak = 0;
  for (int rank = 0; rank < pp_; ++rank) {
    if (postpone) {
      uint8_t* kept = orders_.rank(rank);
      uint8_t* const end = kept + orders_.length();
      size_t room = static_cast<size_t>(peak_ - RankPeak(rank));
      pending_.clear();
      for (const uint8_t* order = kept; order < end; ++order) {
        if (IsWeight(*order) && pending_.size() < room) {
          pending_.push_back(*order);
        } else {
          *kept++ = *order;
        }
      }
      std::copy(pending_.begin(), pending_.end(), kept);
    }
    peak = std::max(peak, RankPeak(rank));
  }
  peak_ = peak;
  return peak_ <= limit;
}

// Puts the last backwards of both chunks two columns apart behind the last
// forward of rank 0, and W where they leave room.
bool VBuilder::LayCoolDown() {
  // At worst all W come behind.
  width_ = LastColumn() + 2 * pp_ + 2 * microbatches_ + 1;
  cells_.assign(int64_t{pp_} * width_, kIdle);
  for (std::array<int, kVKinds>& done : done_) done.fill(0);
  WriteCells();
  const int last_forward = At(0, kF1)[microbatches_ - 1];
  int first_change = kNever;
  for (int rank = 0; rank < pp_; ++rank) {
    if (!LayCoolDown(rank, last_forward, &first_change)) return false;
  }
  // What ends before the first change keeps its time.
  replay_.Rewind(first_change - 1);
  for (int rank = 0; rank < pp_; ++rank) {
    uint8_t* next = orders_.rank(rank) + replay_.position(rank);
    uint8_t* const row = Row(rank);
    for (int column = first_change; column < width_; ++column) {
      if (row[column] != kIdle) *next++ = row[column];
    }
    std::fill(row + first_change, row + width_, kIdle);
    done_[rank] = replay_.counts(rank);
  }
  if (!replay_.Run(orders_, kSlotEach, 0)) return false;
  if (LastColumn() >= width_) {
    width_ = LastColumn() + 1;
    cells_.assign(int64_t{pp_} * width_, kIdle);
    for (std::array<int, kVKinds>& done : done_) done.fill(0);
  }
  WriteCells();
  return true;
}

// Passes from done_ on.
void VBuilder::WriteCells() {
  for (int rank = 0; rank < pp_; ++rank) {
    uint8_t* const row = Row(rank);
    for (uint8_t kind = 0; kind < kVKinds; ++kind) {
      const int* const at = At(rank, kind);
      for (int index = done_[rank][kind]; index < microbatches_; ++index) {
        row[at[index]] = kind;
      }
    }
  }
}

int VBuilder::LastColumn() const {
  int last = 0;
  for (int rank = 0; rank < pp_; ++rank) {
    last = std::max(last, replay_.end(rank));
  }
  return last;
}

bool VBuilder::LayCoolDown(int rank, int last_forward, int* first_change) {
  uint8_t* const row = Row(rank);
  const auto clear = [&](int column) {
    *first_change = std::min(*first_change, column);
    row[column] = kIdle;
  };
  const int backwards0 = std::min((peak_ + 1) / 2, microbatches_);
  const int backwards1 =
      std::min(rank + 1, std::min(peak_ - backwards0, microbatches_));
  for (int index = 1; index <= backwards0; ++index) {
    clear(At(rank, kB0)[microbatches_ - index]);
  }
  for (int index = 1; index <= backwards1; ++index) {
    clear(At(rank, kB1)[microbatches_ - index]);
  }
  int weights1 = 0, weights0 = 0;  // taken out
  const auto last = [&](int kind, int taken) {
    return taken < microbatches_ ? At(rank, kind)[microbatches_ - 1 - taken]
                                 : 0;
  };
  while (weights1 < backwards1 || weights0 < backwards0 ||
         weights1 + weights0 < peak_) {
    const int column1 = last(kW1, weights1);
    const int column0 = last(kW0, weights0);
    if (column1 == 0 && column0 == 0) break;
    (column1 > column0 ? weights1 : weights0)++;
    clear(std::max(column1, column0));
  }
  const auto lay = [&](int column, uint8_t kind) {
    if (row[column] != kIdle) return false;
    *first_change = std::min(*first_change, column);
    row[column] = kind;
    return true;
  };
  for (int index = 0; index < backwards0; ++index) {
    if (!lay(last_forward - rank + 2 * (pp_ - index), kB0)) return false;
  }
  for (int index = 0; index < backwards1; ++index) {
    if (!lay(last_forward + 1 + rank - 2 * index, kB1)) return false;
  }
  // W go behind those left, each behind as many B of its chunk.
  const int begin = std::max(last(kW1, weights1), last(kW0, weights0)) + 1;
  int room1 = weights1, room0 = weights0;
  for (int column = begin; column < width_; ++column) {
    room1 -= row[column] == kB1;
    room0 -= row[column] == kB0;
  }
  // Counts in `room` the W to lay whose B is in front of the column.
  for (int column = begin; weights1 + weights0 > 0; ++column) {
    if (row[column] == kB1) {
      ++room1;
    } else if (row[column] == kB0) {
      ++room0;
    } else if (row[column] == kIdle && room1 > 0) {
      *first_change = std::min(*first_change, column);
      row[column] = kW1;
      --room1;
      --weights1;
    } else if (row[column] == kIdle && room0 > 0) {
      *first_change = std::min(*first_change, column);
      row[column] = kW0;
      --room0;
      --weights0;
    }
  }
  return true;
}

// The first column behind the producer.
int VBuilder::Ready(int rank, int kind, int microbatch) {
  int producer = rank;
  int made = kind - 1;
  if (IsWeight(kind)) {
    made = kind - 2;
  } else {
    const bool up = kind == kF0 || kind == kB1;
    if (kind == kF0 && rank == 0) return 0;
    if (up ? rank > 0 : rank < pp_ - 1) {
      producer = up ? rank - 1 : rank + 1;
      made = kind;
    }
  }
  return At(producer, made)[microbatch] + 1;
}

// Moves to the idle cell the nearest pass behind it that can run there.
// Returns the first later column at which another try makes sense.
int VBuilder::FillIdle(int rank, int column) {
  uint8_t* const row = Row(rank);
  int16_t* const live = Live(rank);
  std::array<int, kVKinds> at;
  int wake = kNever;
  for (int kind = 0; kind < kVKinds; ++kind) {
    at[kind] = kNever;
    const int index = done_[rank][kind];
    if (index == microbatches_) continue;
    const int ready = Ready(rank, kind, index);
    if (ready <= column) {
      at[kind] = At(rank, kind)[index];
    } else {
      wake = std::min(wake, ready);
    }
  }
  while (true) {
    const auto nearest = std::min_element(at.begin(), at.end());
    const int from = *nearest;
    if (from == kNever) return wake;
    *nearest = kNever;
    const auto kind = static_cast<uint8_t>(nearest - at.begin());
    if (IsForward(kind)) {
      int full = from - 1;
      while (full >= column && live[full] < peak_) --full;
      if (full >= column) {
        wake = std::min(wake, full + 1);
        continue;
      }
    }
    row[from] = kIdle;
    row[column] = kind;
    At(rank, kind)[done_[rank][kind]] = column;
    const int change = IsForward(kind) - IsWeight(kind);
    if (change != 0) {
      for (int cell = column; cell < from; ++cell) {
        live[cell] = static_cast<int16_t>(live[cell] + change);
      }
    }
    return column + 1;
  }
}

// The first idle cell of a rank from `column` on.
int VBuilder::NextIdle(int rank, int column) {
  const uint8_t* const row = Row(rank);
  const int end = replay_.end(rank);
  while (column < end && row[column] != kIdle) ++column;
  return column < end ? column : kNever;
}

void VBuilder::FillIdle() {
  live_.resize(cells_.size());
  counted_.assign(pp_, 1);
  for (int rank = 0; rank < pp_; ++rank) {
    const uint8_t* const row = Row(rank);
    int16_t* const live = Live(rank);
    const int end = replay_.end(rank);
    int held = 0;
    for (int column = 1; column <= end; ++column) {
      held += IsForward(row[column]) - IsWeight(row[column]);
      live[column] = static_cast<int16_t>(held);
    }
    done_[rank].fill(0);
    next_idle_[rank] = NextIdle(rank, 1);
  }
  while (true) {
    const int column = *std::min_element(next_idle_.begin(), next_idle_.end());
    if (column == kNever) return;
    for (int rank = 0; rank < pp_; ++rank) {
      if (next_idle_[rank] != column) continue;
      const uint8_t* const row = Row(rank);
      for (int& cell = counted_[rank]; cell < column; ++cell) {
        if (row[cell] != kIdle) ++done_[rank][row[cell]];
      }
      const int wake = FillIdle(rank, column);
      next_idle_[rank] = wake == kNever ? kNever : NextIdle(rank, wake);
      if (row[column] == kIdle) continue;
      // A neighbour may be waiting for the pass that was moved.
      for (const int neighbour : {rank - 1, rank + 1}) {
        if (neighbour < 0 || neighbour == pp_) continue;
        if (next_idle_[neighbour] > column + 1) {
          next_idle_[neighbour] = NextIdle(neighbour, column + 1);
        }
      }
    }
  }
}

bool VBuilder::ReadOrders() {
  const int block_peak = peak_;
  peak_ = 0;
  for (int rank = 0; rank < pp_; ++rank) {
    uint8_t* next = orders_.rank(rank);
    const uint8_t* const end = next + orders_.length();
    const uint8_t* cell = Row(rank);
    pending_.clear();
    size_t first_pending = 0;
    int live = 0;
    for (; next < end; ++cell) {
      uint8_t kind = *cell;
      if (kind == kIdle) continue;
      live += IsForward(kind) - IsWeight(kind);
      peak_ = std::max(peak_, live);
      if (kind == kB1 || kind == kB0) pending_.push_back(kind + 2);
      if (IsWeight(kind)) {
        if (first_pending == pending_.size()) return false;
        kind = pending_[first_pending++];
      }
      *next++ = kind;
    }
  }
  return peak_ <= block_peak;
}

}  // namespace pipewright

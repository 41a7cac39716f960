#include "schedules/v_blocks.h"

#include <algorithm>

namespace pipewright {
namespace {

constexpr int kPeriod = VBlock::kPeriod;

int Mod(int value) { return (value % kPeriod + kPeriod) % kPeriod; }

// Does a rank whose F.0 and B.1 come `ahead` slots and whose F.1 and B.0 come
// -`rank` slots after those of rank 0 keep all four apart?
bool Apart(const std::array<int, 3>& row, int ahead, int rank) {
  const int forward0 = Mod(ahead), forward1 = Mod(row[0] - rank);
  const int backward1 = Mod(row[1] + ahead), backward0 = Mod(row[2] - rank);
  return forward0 != forward1 && forward0 != backward1 &&
         forward0 != backward0 && forward1 != backward1 &&
         forward1 != backward0 && backward1 != backward0;
}

// Slots repeat, so a period of ranks on each side of the turn tells about all.
bool Fits(const VBlock& block, int pp) {
  for (int rank = 1; rank <= std::min({block.turn, kPeriod, pp - 1}); ++rank) {
    if (!Apart(block.row, block.near * rank, rank)) return false;
  }
  const int last = std::min(block.turn + kPeriod, pp - 1);
  for (int rank = block.turn + 1; rank <= last; ++rank) {
    const int ahead = block.near * block.turn + block.far * (rank - block.turn);
    if (!Apart(block.row, ahead, rank)) return false;
  }
  return true;
}

}  // namespace

void PlaceVBlock(const VBlock& block, int pp, VBlockSlots* slots) {
  slots->resize(pp);
  int slot = 0;
  const auto place = [&](int rank, int kind) {
    const int near_ranks = std::min(rank, block.turn);
    const int ahead = block.near * near_ranks + block.far * (rank - near_ranks);
    const bool with_ahead = kind == kF0 || kind == kB1;
    const int first = kind == kF0 ? 0 : block.row[kind - 1];
    const int residue = Mod(first + (with_ahead ? ahead : -rank));
    slot += 1 + Mod(residue - slot - 1);
    (*slots)[rank][kind] = slot;
  };
  for (int rank = 0; rank < pp; ++rank) place(rank, kF0);
  for (int rank = pp - 1; rank >= 0; --rank) place(rank, kF1);
  for (int rank = 0; rank < pp; ++rank) place(rank, kB1);
  for (int rank = pp - 1; rank >= 0; --rank) place(rank, kB0);
  for (std::array<int, kVKinds>& at : *slots) {
    unsigned used = 0;
    for (int kind = kF0; kind <= kB0; ++kind) used |= 1u << Mod(at[kind]);
    for (const int kind : {kW1, kW0}) {
      at[kind] = at[kind - 2] + 1;
      while ((used >> Mod(at[kind]) & 1) != 0) ++at[kind];
      used |= 1u << Mod(at[kind]);
    }
  }
}

int VBlockPeak(const VBlockSlots& slots) {
  int peak = 0;
  for (const std::array<int, kVKinds>& at : slots) {
    // At W.0's first slot and for a period behind it, all kinds repeat.
    for (int slot = at[kW0]; slot < at[kW0] + kPeriod; ++slot) {
      const auto count = [&](int kind) {
        return (slot - at[kind] + kPeriod) / kPeriod;
      };
      peak = std::max(peak, count(kF0) + count(kF1) - count(kW1) - count(kW0));
    }
  }
  return peak;
}

std::vector<VBlock> AllVBlocks(int pp) {
  std::vector<VBlock> blocks;
  const auto add_turns = [&](VBlock block) {
    // At the last rank a turn changes nothing, whatever far is.
    const int last = std::max(1, pp - 1);
    for (block.turn = 1; block.turn <= last; ++block.turn) {
      const bool repeats =
          block.turn == last ? block.far > 1 : block.far == block.near;
      if (!repeats && Fits(block, pp)) blocks.push_back(block);
    }
  };
  for (int first = 1; first < kPeriod; ++first) {
    for (int second = 1; second < kPeriod; ++second) {
      for (int third = 1; third < kPeriod; ++third) {
        if (first == second || first == third || second == third) continue;
        for (int near = 1; near < kPeriod; ++near) {
          for (int far = 1; far <= std::max(1, near - 1); ++far) {
            add_turns({.row = {first, second, third},
                       .near = near,
                       .far = far,
                       .turn = 1});
          }
        }
      }
    }
  }
  return blocks;
}

}  // namespace pipewright

// The step of experiments/scale/w1.yaml where nobody shares a link, written for
// it alone: 1F1B with a copy to the host behind every forward and one back in
// front of every backward. Shares nothing with engines, programs or schedules.
#pragma once

#include <algorithm>
#include <vector>

namespace pipewright::testing {

struct W1ByHand {
  int ranks = 16;
  int microbatches = 64;
  double forward_s = 5e-3;
  double input_s = 5e-3;       // B
  double weight_s = 5e-3;      // W
  std::vector<double> hop_s;   // [rank] from it to the next one, and back
  std::vector<double> copy_s;  // [rank] O or L of a microbatch

  // The last end of anything.
  double Run() const {
    std::vector<Rank> state(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      state[rank].arrived.assign(microbatches, rank == 0 ? 0 : kNever);
      state[rank].returned.assign(microbatches, rank + 1 == ranks ? 0 : kNever);
      state[rank].offloaded.assign(microbatches, 0);
    }
    double end_s = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks; ++rank) {
        while (Step(rank, &state)) moved = true;
        end_s = std::max({end_s, state[rank].clock_s, state[rank].out_s});
      }
    }
    return end_s;
  }

 private:
  static constexpr double kNever = -1;
  struct Rank {
    std::vector<double> arrived;   // [microbatch] activations
    std::vector<double> returned;  // [microbatch] gradients
    std::vector<double> offloaded;
    int forwards = 0;
    int backwards = 0;
    double clock_s = 0;
    double out_s = 0;  // copies to the host have ended
    double in_s = 0;
  };

  // One forward, or one backward with its W. False: it has to wait, or is done.
  bool Step(int number, std::vector<Rank>* state) const {
    Rank& rank = (*state)[number];
    const int ahead = std::min(ranks - number, microbatches);
    if (rank.forwards < std::min(rank.backwards + ahead, microbatches)) {
      const int microbatch = rank.forwards;
      if (rank.arrived[microbatch] == kNever) return false;
      rank.clock_s =
          std::max(rank.clock_s, rank.arrived[microbatch]) + forward_s;
      if (number + 1 < ranks) {
        (*state)[number + 1].arrived[microbatch] = rank.clock_s + hop_s[number];
      }
      rank.out_s = std::max(rank.out_s, rank.clock_s) + copy_s[number];
      rank.offloaded[microbatch] = rank.out_s;
      ++rank.forwards;
      return true;
    }
    if (rank.backwards == microbatches) return false;
    const int microbatch = rank.backwards;
    if (rank.returned[microbatch] == kNever) return false;
    rank.in_s =
        std::max({rank.in_s, rank.clock_s, rank.offloaded[microbatch]}) +
        copy_s[number];
    rank.clock_s =
        std::max({rank.clock_s, rank.in_s, rank.returned[microbatch]}) +
        input_s;
    if (number > 0) {
      (*state)[number - 1].returned[microbatch] =
          rank.clock_s + hop_s[number - 1];
    }
    rank.clock_s += weight_s;
    ++rank.backwards;
    return true;
  }
};

}  // namespace pipewright::testing

// Orders of a schedule on a V placement with a split backward, and their
// times: what the planners v_greedy.h and v_plan.h work on. Passes of a kind
// run in microbatch order, so a rank's order is a string of kinds. No Schedule
// yet: VSchedule makes one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Kind and chunk, in the order of a microbatch's way through a rank.
enum VKind : uint8_t { kF0, kF1, kB1, kB0, kW1, kW0 };
inline constexpr int kVKinds = 6;

// Every rank has six passes a microbatch.
struct VOrders {
  VOrders(int ranks, int count)
      : pp(ranks),
        microbatches(count),
        kinds(int64_t{kVKinds} * ranks * count) {}

  int length() const { return kVKinds * microbatches; }
  uint8_t* rank(int rank) { return kinds.data() + int64_t{rank} * length(); }
  const uint8_t* rank(int rank) const {
    return kinds.data() + int64_t{rank} * length();
  }

  int pp;
  int microbatches;
  std::vector<uint8_t> kinds;  // [rank][position]
};

Schedule VSchedule(absl::string_view name, const VOrders& orders);

// Largest number of chunk activations on any rank, from F to the end of W.
int VPeakChunks(const VOrders& orders);

// The same in units of peak_activations, where a split B leaves `held` of its
// activations until its W.
double VPeak(const VOrders& orders, double held);

// Longest of the ranks' own spans at `costs`, in their unit; infinite when the
// orders deadlock.
double VSpan(const VOrders& orders, const PlanCosts& costs);

// Longest path through VOrders: each pass as early as its rank's order, its
// producer and the hop allow.
template <class Time>
class VReplay {
 public:
  VReplay(int pp, int microbatches)
      : pp_(pp),
        microbatches_(microbatches),
        counts_(pp),
        positions_(pp),
        clocks_(pp),
        first_(pp),
        ends_(int64_t{kVKinds} * pp * microbatches),
        zeros_(microbatches, 0),
        inputs_() {
    for (int rank = 0; rank < pp; ++rank) {
      std::array<Input, kVKinds> inputs;
      inputs[kF0] = rank > 0 ? From(rank - 1, kF0) : Input{&kMany, &zeros_[0]};
      inputs[kF1] = rank < pp - 1 ? From(rank + 1, kF1) : Here(rank, kF0);
      inputs[kB1] = rank > 0 ? From(rank - 1, kB1) : Here(rank, kF1);
      inputs[kB0] = rank < pp - 1 ? From(rank + 1, kB0) : Here(rank, kB1);
      inputs[kW1] = Here(rank, kB1);
      inputs[kW0] = Here(rank, kB0);
      inputs_.push_back(inputs);
    }
  }

  VReplay(const VReplay&) = delete;
  VReplay& operator=(const VReplay&) = delete;

  // Forgets all times.
  void Reset() {
    for (auto& counts : counts_) counts.fill(0);
    std::fill(positions_.begin(), positions_.end(), 0);
    std::fill(clocks_.begin(), clocks_.end(), Time{0});
  }

  // Forgets the passes that end after `time`; those up to there must have
  // been timed by Run.
  void Rewind(Time time) {
    for (int rank = 0; rank < pp_; ++rank) {
      positions_[rank] = 0;
      clocks_[rank] = 0;
      for (int kind = 0; kind < kVKinds; ++kind) {
        const Time* const ends = Ends(rank, kind);
        int& count = counts_[rank][kind];
        count =
            static_cast<int>(std::upper_bound(ends, ends + count, time) - ends);
        positions_[rank] += count;
        if (count > 0) {
          clocks_[rank] = std::max(clocks_[rank], ends[count - 1]);
        }
      }
    }
  }

  // Times what has not been timed. False when the orders deadlock.
  bool Run(const VOrders& orders, const std::array<Time, kVKinds>& seconds,
           Time hop) {
    bool up = false;
    for (bool progress = true; progress;) {
      progress = false;
      up = !up;
      for (int step = 0; step < pp_; ++step) {
        const int rank = up ? step : pp_ - 1 - step;
        progress |=
            Advance(rank, orders.rank(rank), orders.length(), seconds, hop);
      }
    }
    for (const int position : positions_) {
      if (position < orders.length()) return false;
    }
    return true;
  }

  Time* Ends(int rank, int kind) {
    return ends_.data() + (int64_t{rank} * kVKinds + kind) * microbatches_;
  }
  int position(int rank) const { return positions_[rank]; }
  const std::array<int, kVKinds>& counts(int rank) const {
    return counts_[rank];
  }
  Time end(int rank) const { return clocks_[rank]; }
  Time span(int rank) const { return clocks_[rank] - first_[rank]; }

 private:
  static constexpr int kMany = std::numeric_limits<int>::max();

  struct Input {
    const int* count;  // passes done by the producer
    const Time* ends;
    bool hop = false;
  };
  Input From(int rank, int kind) {
    return {&counts_[rank][kind], Ends(rank, kind), true};
  }
  // On one rank the order is enough for the time.
  Input Here(int rank, int kind) {
    return {&counts_[rank][kind], zeros_.data()};
  }

  bool Advance(int rank, const uint8_t* order, int length,
               const std::array<Time, kVKinds>& seconds, Time hop) {
    const Input* const inputs = inputs_[rank].data();
    int* const counts = counts_[rank].data();
    Time* const ends = Ends(rank, 0);
    const int begin = positions_[rank];
    int position = begin;
    Time clock = clocks_[rank];
    for (; position < length; ++position) {
      const int kind = order[position];
      const Input& input = inputs[kind];
      const int microbatch = counts[kind];
      if (*input.count <= microbatch) break;
      clock = std::max(clock, input.ends[microbatch] + (input.hop ? hop : 0));
      if (position == 0) first_[rank] = clock;
      clock += seconds[kind];
      ends[int64_t{kind} * microbatches_ + microbatch] = clock;
      counts[kind] = microbatch + 1;
    }
    positions_[rank] = position;
    clocks_[rank] = clock;
    return position != begin;
  }

  int pp_;
  int microbatches_;
  std::vector<std::array<int, kVKinds>> counts_;
  std::vector<int> positions_;
  std::vector<Time> clocks_;
  std::vector<Time> first_;
  std::vector<Time> ends_;  // [rank][kind][microbatch]
  std::vector<Time> zeros_;
  std::vector<std::array<Input, kVKinds>> inputs_;
};

// The same with buffers to use again.
double VSpan(const VOrders& orders, const PlanCosts& costs,
             VReplay<double>* replay);

}  // namespace pipewright

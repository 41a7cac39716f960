// The copies of one rank: its activations, the times that its passes have, and
// a search for the set and the order of copies with the lowest peak. Internal
// to offload/; what it is for says activation_plan.h.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/offload/activation_plan.h"
#include "sim/offload/pass_times.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

class RankPlan {
 public:
  // All must outlive this.
  RankPlan(const Schedule& schedule, int rank, const PassTimes& times,
           const OffloadCosts& costs);

  // The order with the copies of the best set that was found.
  RankOrder Plan(const OffloadChoice& choice, RankOffload* out);

 private:
  // What a forward leaves, and when it can be away.
  struct Activation {
    Pass forward;
    double ready_s = 0;   // the forward has ended
    double needed_s = 0;  // the first pass that needs it begins
    double out_s = 0;
    double in_s = 0;
    double lifespan_s() const { return needed_s - ready_s; }
  };
  // An entry in front of the one at `position`.
  struct Entry {
    int64_t position;
    double time_s;
    Pass pass;
  };
  struct Result {
    std::vector<Entry> entries;  // in their order
    int64_t offloaded = 0;
    double peak = 0;
    double above = 0;  // how far and how often close to the peak
  };

  std::vector<int32_t> Candidates(const OffloadChoice& choice) const;
  // Books copies for `order`, first come first served; drops what does not fit.
  Result Book(const std::vector<int32_t>& order) const;
  void Weigh(Result* result) const;
  // Tries other orders of `order` around the highest point of `best`.
  void Improve(std::vector<int32_t> order, Result* best) const;
  // The first entry that begins, or ends, at `time_s` or later.
  int64_t FirstStart(double time_s) const;
  int64_t FirstEnd(double time_s) const;

  const Schedule& schedule_;
  const int rank_;
  const RankOrder& order_;
  const PassTimes& times_;
  const OffloadCosts& costs_;
  std::vector<Activation> activations_;  // in the order of their forwards
};

}  // namespace pipewright

// The copies of the ranks behind one switch, started all at once: lanes are
// never idle while a copy could run, so that nothing is lost in gaps. Those
// that are late in the end are left out, the latest first. Internal to
// plans of copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/program/bookings.h"
#include "sim/program/rank_plan.h"

namespace pipewright {

// Which of several copies that could run goes first.
enum class CopyTurn { kFirstReady, kFirstNeeded, kLastNeeded };

class CopyQueues {
 public:
  // Queues for any of `candidates`. Both must outlive this.
  CopyQueues(const std::vector<RankPlan>& ranks,
             const std::vector<CopyCandidate>& candidates);

  // The first `count` of the candidates. What cannot be lower than `best` may
  // end early, with a highest peak of kNever. Time O(count) for each time that
  // something is left out.
  Bookings Run(int64_t count, const OneWay& way, CopyTurn turn,
               const Bookings& best) const;

 private:
  // An order of all candidates by a key; of those with the same, the first one
  // of `candidates` is first.
  struct Order {
    std::vector<int32_t> sorted;  // indices
    std::vector<int32_t> place;   // [index]
  };
  template <typename Key>
  Order OrderBy(const Key& key) const;
  const PlannedActivation& Of(int32_t index) const {
    const CopyCandidate& candidate = candidates_[index];
    return ranks_[candidate.rank].activations()[candidate.activation];
  }
  template <typename Ready, typename Begin>
  void RunLane(const std::vector<int32_t>& by_ready, const Order& first,
               const Ready& ready, const Begin& begin) const;
  const Order& FirstOut(CopyTurn turn) const;
  const Order& FirstIn(CopyTurn turn) const;

  const std::vector<RankPlan>& ranks_;
  const std::vector<CopyCandidate>& candidates_;
  Order first_ready_;
  Order last_ready_;
  Order first_needed_;
  Order last_needed_;
};

}  // namespace pipewright

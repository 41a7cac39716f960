// Which rank to look at next, where ranks go on when others have made what they
// need: as many visits as there are ranks and passes, whatever the order of the
// ranks in the pipeline.
//
// Sweeps over all ranks are fastest as long as many of them go on. Then those
// are followed that may have got something.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pipewright {

class RankVisits {
 public:
  // `links`: from a rank that sends to one that receives.
  RankVisits(int ranks, std::vector<std::pair<int, int>> links);

  // Visits of channels with from_rank and to_rank.
  template <class Channels>
  static RankVisits Along(int ranks, const Channels& channels) {
    std::vector<std::pair<int, int>> links;
    links.reserve(channels.size());
    for (const auto& channel : channels) {
      links.emplace_back(channel.from_rank, channel.to_rank);
    }
    return RankVisits(ranks, std::move(links));
  }

  // Calls `visit(rank)`, which says whether the rank has gone on, until none
  // does. What ranks get in other ways than by links a sweep finds.
  template <class Visit>
  void Run(const Visit& visit) {
    // A sweep that few ranks gain from went against the tokens: forwards flow
    // up the ranks and backwards down.
    bool up = true;
    while (true) {
      int gained = 0;
      moved_.clear();
      for (int step = 0; step < ranks_; ++step) {
        const int rank = up ? step : ranks_ - 1 - step;
        if (!visit(rank)) continue;
        ++gained;
        if (gained <= ranks_ / kFew) moved_.push_back(rank);
      }
      visits_ += ranks_;
      if (gained == 0) return;
      if (gained <= ranks_ / kFew) Follow(visit);
      if (2 * gained < ranks_) up = !up;
    }
  }

  int64_t visits() const { return visits_; }

 private:
  static constexpr int kFew = 4;  // this part of the ranks

  // From those in `moved_` on.
  template <class Visit>
  void Follow(const Visit& visit) {
    while (!moved_.empty()) {
      round_.clear();
      for (const int rank : moved_) {
        for (int at = first_[rank]; at < first_[rank + 1]; ++at) {
          const int receiver = receivers_[at];
          if (!in_round_[receiver]) round_.push_back(receiver);
          in_round_[receiver] = true;
        }
      }
      moved_.clear();
      for (const int rank : round_) {
        in_round_[rank] = false;
        if (visit(rank)) moved_.push_back(rank);
      }
      visits_ += static_cast<int64_t>(round_.size());
    }
  }

  const int ranks_;
  std::vector<int> first_;      // [rank] of its receivers
  std::vector<int> receivers_;  // rank after rank, each once
  std::vector<int> moved_;      // in the last sweep, if few have, or round
  std::vector<int> round_;
  std::vector<char> in_round_;  // [rank]
  int64_t visits_ = 0;
};

}  // namespace pipewright

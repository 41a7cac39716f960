#include "sim/schedule/rank_visits.h"

#include <algorithm>

namespace pipewright {

RankVisits::RankVisits(int ranks, std::vector<std::pair<int, int>> links)
    : ranks_(ranks), first_(ranks + 1, 0), in_round_(ranks, false) {
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  receivers_.reserve(links.size());
  for (const auto& [from, to] : links) {
    ++first_[from + 1];
    receivers_.push_back(to);
  }
  for (int rank = 0; rank < ranks; ++rank) first_[rank + 1] += first_[rank];
}

}  // namespace pipewright

#include "sim/sequences/partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kEpsilon = 1e-6;  // of the program, in units of cost

struct CostSet {
  std::vector<std::pair<int, double>> items;  // index, cost
  double sum = 0;

  void Add(std::pair<int, double> item) {
    items.push_back(item);
    sum += item.second;
  }
  bool operator<(const CostSet& other) const {
    if (sum != other.sum) return sum < other.sum;
    if (items.size() != other.items.size()) {
      return items.size() < other.items.size();
    }
    return items < other.items;
  }
};

// The sets of a solution in descending order, without the empty ones: what
// costs something comes before them.
struct Solution {
  std::vector<CostSet> sets;
  size_t count = 0;  // empty ones too

  double spread() const {
    return sets.front().sum - (sets.size() == count ? sets.back().sum : 0);
  }
  bool operator<(const Solution& other) const {
    const double own = spread();
    const double others = other.spread();
    if (own != others) return own < others;
    return sets.front() < other.sets.front();
  }
  // The first `sorted` sets are in order. Most merges bring a single set.
  void Sort(size_t sorted) {
    const auto larger = [](const CostSet& a, const CostSet& b) { return b < a; };
    const auto middle = sets.begin() + static_cast<ptrdiff_t>(sorted);
    std::sort(middle, sets.end(), larger);
    std::inplace_merge(sets.begin(), middle, sets.end(), larger);
  }
  // The smallest of `other` to the largest own one, and so on.
  void Merge(Solution other) {
    const size_t first = count - other.sets.size();
    const size_t untouched = std::min(first, sets.size());
    for (size_t place = first; place < count; ++place) {
      CostSet& taken = other.sets[count - 1 - place];
      if (place >= sets.size()) {
        // Behind the own ones, in the order of the places.
        sets.push_back(std::move(taken));
        continue;
      }
      for (const std::pair<int, double>& item : taken.items) {
        sets[place].Add(item);
      }
    }
    Sort(untouched);
  }
};

std::vector<Solution> FirstSolutions(const std::vector<double>& costs,
                                     size_t count, bool equal) {
  std::vector<int> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return costs[a] < costs[b]; });
  const size_t step = equal ? count : 1;
  std::vector<Solution> solutions;
  solutions.reserve(order.size() / step);
  for (size_t first = 0; first < order.size(); first += step) {
    Solution solution;
    solution.count = count;
    for (size_t place = first; place < first + step; ++place) {
      solution.sets.emplace_back();
      solution.sets.back().Add({order[place], costs[order[place]]});
    }
    solution.Sort(0);
    solutions.push_back(std::move(solution));
  }
  return solutions;
}

// One exchange of the largest part with another one.
bool SwapLargest(const std::vector<double>& costs,
                 const std::vector<double>& sums, Parts* parts) {
  const double most = sums.front();
  const double least = sums.back();
  for (int& mine : parts->front()) {
    for (size_t other = 1; other < parts->size(); ++other) {
      for (int& theirs : (*parts)[other]) {
        const double own = costs[mine];
        const double its = costs[theirs];
        if (own - its > kEpsilon && sums[other] - its + own + kEpsilon < most &&
            most - own + its > least + kEpsilon) {
          std::swap(mine, theirs);
          return true;
        }
      }
    }
  }
  return false;
}

// And of the smallest.
bool SwapSmallest(const std::vector<double>& costs,
                  const std::vector<double>& sums, Parts* parts) {
  const double most = sums.front();
  const double least = sums.back();
  for (int& mine : parts->back()) {
    for (size_t other = 0; other + 1 < parts->size(); ++other) {
      for (int& theirs : (*parts)[other]) {
        const double own = costs[mine];
        const double its = costs[theirs];
        if (its - own > kEpsilon &&
            sums[other] - its + own > least + kEpsilon &&
            least - own + its + kEpsilon < most) {
          std::swap(mine, theirs);
          return true;
        }
      }
    }
  }
  return false;
}

double SpreadOf(const Parts& parts, const std::vector<double>& costs) {
  double least = SumOf(parts.front(), costs);
  double most = least;
  for (const SampleSet& part : parts) {
    const double sum = SumOf(part, costs);
    least = std::min(least, sum);
    most = std::max(most, sum);
  }
  return most - least;
}

}  // namespace

double SumOf(const SampleSet& part, const std::vector<double>& costs) {
  double sum = 0;
  for (const int item : part) sum += costs[item];
  return sum;
}

Parts PartsByDifferencing(const std::vector<double>& costs, int count,
                          bool equal) {
  PW_CHECK(count >= 1 && !costs.empty());
  PW_CHECK(!equal || costs.size() % count == 0);
  std::vector<Solution> heap =
      FirstSolutions(costs, static_cast<size_t>(count), equal);
  std::make_heap(heap.begin(), heap.end());
  const auto take = [&heap] {
    std::pop_heap(heap.begin(), heap.end());
    Solution solution = std::move(heap.back());
    heap.pop_back();
    return solution;
  };
  while (heap.size() > 1) {
    Solution first = take();
    first.Merge(take());
    heap.push_back(std::move(first));
    std::push_heap(heap.begin(), heap.end());
  }
  Parts parts(count);
  for (size_t place = 0; place < heap.front().sets.size(); ++place) {
    for (const auto& [index, cost] : heap.front().sets[place].items) {
      parts[place].push_back(index);
    }
  }
  return parts;
}

void SortParts(const std::vector<double>& costs, Parts* parts) {
  struct Keyed {
    double sum;
    int least;
    size_t place;
  };
  std::vector<Keyed> keys;
  keys.reserve(parts->size());
  for (size_t place = 0; place < parts->size(); ++place) {
    const SampleSet& part = (*parts)[place];
    keys.push_back(
        {SumOf(part, costs),
         part.empty() ? -1 : *std::min_element(part.begin(), part.end()),
         place});
  }
  const auto before = [](const Keyed& a, const Keyed& b) {
    return a.sum != b.sum ? a.sum > b.sum : a.least > b.least;
  };
  if (std::is_sorted(keys.begin(), keys.end(), before)) return;
  std::stable_sort(keys.begin(), keys.end(), before);
  Parts sorted;
  sorted.reserve(parts->size());
  for (const Keyed& key : keys)
    sorted.push_back(std::move((*parts)[key.place]));
  *parts = std::move(sorted);
}

Parts Balance(Parts parts, const std::vector<double>& costs) {
  std::vector<double> sums(parts.size());
  while (true) {
    SortParts(costs, &parts);
    for (size_t place = 0; place < parts.size(); ++place) {
      sums[place] = SumOf(parts[place], costs);
    }
    if (!SwapLargest(costs, sums, &parts) &&
        !SwapSmallest(costs, sums, &parts)) {
      return parts;
    }
  }
}

absl::StatusOr<Parts> Divide(const std::vector<double>& costs, int count,
                             bool equal) {
  const auto items = static_cast<int>(costs.size());
  if (items < count || (equal && items % count != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        items, " samples do not divide into ", count, equal ? " equal" : "",
        " parts; allowed: ", equal ? "a multiple of " : "", count,
        equal ? "" : " samples or more"));
  }
  Parts parts = Balance(PartsByDifferencing(costs, count, equal), costs);
  if (!equal && items % count == 0) {
    Parts others = Balance(PartsByDifferencing(costs, count, true), costs);
    if (SpreadOf(parts, costs) > SpreadOf(others, costs)) {
      parts = std::move(others);
    }
  }
  for (SampleSet& part : parts) {
    PW_CHECK(!part.empty());
    std::sort(part.begin(), part.end());
  }
  return parts;
}

Parts FillBins(const std::vector<int64_t>& sizes, int64_t capacity,
               BinChoice choice) {
  SampleSet order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return sizes[a] > sizes[b]; });
  Parts bins;
  std::vector<int64_t> room;
  for (const int item : order) {
    const int64_t size = sizes[item];
    PW_CHECK(size <= capacity);
    size_t found = bins.size();
    for (size_t bin = 0; bin < bins.size(); ++bin) {
      if (room[bin] < size) continue;
      if (found == bins.size() || room[bin] < room[found]) found = bin;
      if (choice == BinChoice::kFirst) break;
    }
    if (found == bins.size()) {
      bins.emplace_back();
      room.push_back(capacity);
    }
    bins[found].push_back(item);
    room[found] -= size;
  }
  return bins;
}

}  // namespace pipewright

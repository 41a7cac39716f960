#include "sim/model/partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kEpsilon = 1e-6;  // epsilon of the program, in units of cost

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

// What parts are ordered by. Only empty parts have the same key.
struct PartKey {
  double sum = 0;
  int least = -1;

  bool IsBefore(const PartKey& other) const {
    return sum != other.sum ? sum > other.sum : least > other.least;
  }
};

PartKey KeyOf(const SampleSet& part, const std::vector<double>& costs) {
  return {SumOf(part, costs),
          part.empty() ? -1 : *std::min_element(part.begin(), part.end())};
}

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
    const auto larger = [](const CostSet& a, const CostSet& b) {
      return b < a;
    };
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

// Parts while they exchange items. What is large is kept up to date, so that an
// exchange costs what it changes: items by cost, so that a search sees only
// those of a fitting cost, and parts in the order of SortParts.
class Exchange {
 public:
  Exchange(Parts parts, const std::vector<double>& costs)
      : costs_(costs),
        parts_(std::move(parts)),
        keys_(parts_.size()),
        order_(parts_.size()),
        part_of_(costs.size()),
        place_of_(costs.size()) {
    for (size_t part = 0; part < parts_.size(); ++part) {
      keys_[part] = KeyOf(parts_[part], costs_);
      for (size_t place = 0; place < parts_[part].size(); ++place) {
        by_cost_.push_back(parts_[part][place]);
        part_of_[parts_[part][place]] = static_cast<int>(part);
        place_of_[parts_[part][place]] = static_cast<int>(place);
      }
    }
    std::sort(by_cost_.begin(), by_cost_.end(),
              [&](int a, int b) { return costs[a] < costs[b]; });
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), Before());
  }

  // One exchange of the largest part with another one.
  bool SwapLargest() {
    const int own_part = order_.front();
    const double most = keys_[own_part].sum;
    const double least = keys_[order_.back()].sum;
    for (const int mine : parts_[own_part]) {
      const double own = costs_[mine];
      // Both bounds hold for a run of items in the order of their costs.
      const auto first = Until(
          [&](double its) { return !(most - own + its > least + kEpsilon); });
      const auto end = Until([&](double its) { return own - its > kEpsilon; });
      if (SwapFirst(mine, first, end, [&](double its, double sum) {
            return sum - its + own + kEpsilon < most;
          })) {
        return true;
      }
    }
    return false;
  }

  // And of the smallest.
  bool SwapSmallest() {
    const int own_part = order_.back();
    const double most = keys_[order_.front()].sum;
    const double least = keys_[own_part].sum;
    for (const int mine : parts_[own_part]) {
      const double own = costs_[mine];
      const auto first =
          Until([&](double its) { return !(its - own > kEpsilon); });
      const auto end = Until(
          [&](double its) { return least - own + its + kEpsilon < most; });
      if (SwapFirst(mine, first, end, [&](double its, double sum) {
            return sum - its + own > least + kEpsilon;
          })) {
        return true;
      }
    }
    return false;
  }

  // In order.
  Parts Take() && {
    Parts sorted;
    sorted.reserve(parts_.size());
    for (const int part : order_) sorted.push_back(std::move(parts_[part]));
    return sorted;
  }

 private:
  using Place = std::vector<int>::const_iterator;

  struct ByKey {
    const std::vector<PartKey>& keys;
    bool operator()(int a, int b) const { return keys[a].IsBefore(keys[b]); }
  };
  ByKey Before() const { return {keys_}; }

  // Behind the items, in ascending order of cost, whose costs are `inside`.
  template <typename Inside>
  Place Until(const Inside& inside) const {
    return std::partition_point(by_cost_.begin(), by_cost_.end(),
                                [&](int item) { return inside(costs_[item]); });
  }

  // Against the first item of the first part that `fits`.
  template <typename Fits>
  bool SwapFirst(int mine, Place begin, Place end, const Fits& fits) {
    const int own_part = part_of_[mine];
    int found = -1;
    for (Place place = begin; place < end; ++place) {
      const int theirs = *place;
      const int part = part_of_[theirs];
      if (part == own_part || !fits(costs_[theirs], keys_[part].sum)) continue;
      if (found < 0 ||
          (part == part_of_[found] ? place_of_[theirs] < place_of_[found]
                                   : Before()(part, part_of_[found]))) {
        found = theirs;
      }
    }
    if (found < 0) return false;
    const int its_part = part_of_[found];
    Leave(own_part);
    Leave(its_part);
    parts_[own_part][place_of_[mine]] = found;
    parts_[its_part][place_of_[found]] = mine;
    std::swap(part_of_[mine], part_of_[found]);
    std::swap(place_of_[mine], place_of_[found]);
    Enter(own_part);
    Enter(its_part);
    return true;
  }

  void Leave(int part) {
    order_.erase(
        std::lower_bound(order_.begin(), order_.end(), part, Before()));
  }
  void Enter(int part) {
    keys_[part] = KeyOf(parts_[part], costs_);
    order_.insert(
        std::lower_bound(order_.begin(), order_.end(), part, Before()), part);
  }

  const std::vector<double>& costs_;
  Parts parts_;
  std::vector<PartKey> keys_;  // by part
  std::vector<int> order_;     // parts, the largest first
  std::vector<int> by_cost_;   // items
  std::vector<int> part_of_;   // by item
  std::vector<int> place_of_;  // by item, in its part
};

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
    PartKey key;
    size_t place;
  };
  std::vector<Keyed> keys;
  keys.reserve(parts->size());
  for (size_t place = 0; place < parts->size(); ++place) {
    keys.push_back({KeyOf((*parts)[place], costs), place});
  }
  const auto before = [](const Keyed& a, const Keyed& b) {
    return a.key.IsBefore(b.key);
  };
  if (std::is_sorted(keys.begin(), keys.end(), before)) return;
  std::stable_sort(keys.begin(), keys.end(), before);
  Parts sorted;
  sorted.reserve(parts->size());
  for (const Keyed& keyed : keys) {
    sorted.push_back(std::move((*parts)[keyed.place]));
  }
  *parts = std::move(sorted);
}

Parts Balance(Parts parts, const std::vector<double>& costs) {
  if (parts.size() < 2) return parts;
  Exchange exchange(std::move(parts), costs);
  while (exchange.SwapLargest() || exchange.SwapSmallest()) {
  }
  return std::move(exchange).Take();
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

// Dealing out items of a cost to parts of about the same sum: the largest
// differencing method (Karmarkar and Karp, "The differencing method of set
// partitioning", UCB/CSD 82/113), swaps afterwards, and bins of a capacity.
//
// Orders and ties are those of the packing program of ODC (sail-sg/odc,
// 13cfbd3, examples/llm_training/packing.py), so that the same lengths give the
// same parts. Sums are added from left to right for the same reason.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

// Indices of items.
using SampleSet = std::vector<int>;
using Parts = std::vector<SampleSet>;

double SumOf(const SampleSet& part, const std::vector<double>& costs);

// `count` parts by the differencing method, the largest first, items in the
// order in which they came. `equal`: parts of equally many items, for which
// costs.size() is a multiple of `count`. Costs are above 0.
Parts PartsByDifferencing(const std::vector<double>& costs, int count,
                          bool equal);

// Swaps one item of the largest part against one of another, or one of the
// smallest, while that lowers the largest or raises the smallest sum.
Parts Balance(Parts parts, const std::vector<double>& costs);

// The better of both ways to start, swapped and with sorted items, in
// descending order of cost. Error: kInvalidArgument with fewer items than
// parts, or a number that is no multiple of `count` with `equal`.
absl::StatusOr<Parts> Divide(const std::vector<double>& costs, int count,
                             bool equal);

// Descending by (sum of costs, smallest index).
void SortParts(const std::vector<double>& costs, Parts* parts);

enum class BinChoice : uint8_t {
  kFirst,  // the first bin with room
  kBest,   // that with the least room; the earliest of several
};
// Items in descending size into bins, in the order in which they were opened.
// Every size is at most `capacity`.
Parts FillBins(const std::vector<int64_t>& sizes, int64_t capacity,
               BinChoice choice);

}  // namespace pipewright

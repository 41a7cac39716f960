// Published tables that ship with the program: folders of experiments/papers/
// and, for each, the function that computes it again.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

// One published number and ours.
struct Comparison {
  std::string setting;   // "1.5B, pp 8, microbatches 24"
  std::string schedule;  // "zb-h1"
  std::string published;
  double simulated = 0;
  std::string rounded;  // as precise as `published`
  // False for a reference value of ours that the paper does not print.
  bool in_paper = true;
  bool matches() const { return published == rounded; }
};

struct Paper {
  std::string name;  // the folder, with hyphens
  std::string summary;
  std::string metric;  // what is compared
  absl::StatusOr<std::vector<Comparison>> (*run)(const std::string& engine);
};

const std::vector<Paper>& AllPapers();

// experiments/papers/zero_bubble_table5: bubble rates to four decimals.
absl::StatusOr<std::vector<Comparison>> ReproduceZeroBubbleTable5(
    const std::string& engine);

}  // namespace pipewright

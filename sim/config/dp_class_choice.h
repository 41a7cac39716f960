// Section strategy.dp_classes of a configuration: data-parallel replicas that
// do not run the same. Every list but `microbatch_factor` has one value a
// class; an empty one leaves what the rest of the configuration says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright {

struct DpClassChoice {
  std::vector<int64_t> replicas;
  std::vector<int64_t> microbatches;
  // Factor on the times of all passes and optimizer steps of the class, or of
  // `slow_rank` alone (-1: all ranks).
  std::vector<double> slower;
  std::vector<int64_t> slow_rank;
  // One a microbatch, class after class, in place of costs.microbatch_factor.
  std::vector<double> microbatch_factor;
  std::vector<std::string> schedule;  // in place of schedule.name

  bool given() const {
    return !replicas.empty() || !microbatches.empty() || !slower.empty() ||
           !slow_rank.empty() || !microbatch_factor.empty() ||
           !schedule.empty();
  }
};

}  // namespace pipewright

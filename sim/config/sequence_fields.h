// The fields of section `sequences`, as VisitFields (run_config_fields.h) has
// the others.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/config/choice_row.h"
#include "sim/sequences/lengths.h"
#include "sim/sequences/packer.h"

namespace pipewright {

inline const std::vector<ChoiceRow>& PackerChoices() {
  static const std::vector<ChoiceRow> rows = [] {
    std::vector<ChoiceRow> all;
    for (const PackerTraits& traits : kPackers) {
      all.push_back({traits.name, static_cast<int>(traits.packer)});
    }
    return all;
  }();
  return rows;
}

inline const std::vector<ChoiceRow>& PackerCostChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"linear", static_cast<int>(PackerCost::kLinear)},
      {"fit", static_cast<int>(PackerCost::kFit)},
      {"flops", static_cast<int>(PackerCost::kFlops)},
  };
  return rows;
}

template <typename Config, typename Visitor>
void VisitSequences(Config& config, Visitor& visit) {
  auto& sequences = config.sequences;
  visit.Text("sequences.lengths", sequences.lengths);
  visit.Texts("sequences.histogram", sequences.histogram);
  visit.Choice("sequences.packer", sequences.packer, PackerChoices());
  visit.Choice("sequences.packer_cost", sequences.packer_cost,
               PackerCostChoices());
  visit.Int("sequences.minibatch", sequences.minibatch, 1, kMostSamples);
  visit.Int("sequences.max_token_len", sequences.max_token_len, 1, kMostLength);
  visit.Int("sequences.seed", sequences.seed, 0,
            std::numeric_limits<int64_t>::max());
}

}  // namespace pipewright

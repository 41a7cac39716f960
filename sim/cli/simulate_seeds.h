// `simulate --seeds N`: many draws in place of one run.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/cli/common.h"

namespace pipewright {

struct SeedOptions {
  int seeds = 0;    // 0: one run
  int workers = 0;  // 0: as many as there are cores
  std::vector<std::string> versus;

  void AddTo(CLI::App* verb);
  // Options that only make sense together. Errors: kInvalidArgument.
  absl::Status Check(const OutputFiles& files) const;
};

// Runs the draws; puts the report into `files`, as text or JSON.
absl::Status SimulateSeeds(const ConfigOptions& config,
                           const SeedOptions& options, bool json,
                           OutputFiles* files);

}  // namespace pipewright

// Random configurations of models on systems: what a user could ask for, all of
// it together. Some are refused (sizes that do not divide); most are legal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/config/config_edit.h"
#include "sim/config/run_config.h"

namespace pipewright::testing {

struct ConfigWishes {
  const char* engine = "fast";
  // Pass times as numbers, so that the network is all that a link changes.
  bool given_times = false;
  int most_devices = 16;
};

struct RandomConfig {
  std::vector<ConfigEdit> edits;

  RunConfig config() const;
  // "" where nobody has set it.
  std::string Value(const std::string& path) const;
  void Set(const std::string& path, const std::string& value);
  // As a command line.
  std::string about() const;
};

// The same for the same seed and wishes.
RandomConfig AnyConfig(uint32_t seed, const ConfigWishes& wishes = {});

}  // namespace pipewright::testing

// The base of a sweep's points, as the verb makes it of a file or of flags.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/sweep/points.h"
#include "sim/config/run_config.h"

namespace pipewright::testing {

// The configuration of a text (YAML), "" for none, with edits of flags.
inline SweepBase BaseOf(const std::string& text,
                        const std::vector<ConfigEdit>& flags = {}) {
  return [=](const std::vector<ConfigEdit>& point) {
    return ReadConfig(text, text.empty() ? "" : "base.yaml", {flags, point});
  };
}

}  // namespace pipewright::testing

// The base of a sweep from the text of a configuration.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/analysis/sweep/points.h"
#include "sim/config/config_text.h"

namespace pipewright::testing {

// `layers` lie above the text and below the fields of a point.
inline SweepBase TextBase(const std::string& text, const std::string& source,
                          std::vector<std::vector<ConfigEdit>> layers = {}) {
  return
      [parsed = ConfigText::Parse(text, source), layers = std::move(layers)](
          const std::vector<ConfigEdit>& point) -> absl::StatusOr<RunConfig> {
        if (!parsed.ok()) return parsed.status();
        std::vector<std::vector<ConfigEdit>> all = layers;
        all.push_back(point);
        return parsed->With(all);
      };
}

}  // namespace pipewright::testing

// Checks of fields whose value is a text with rules of its own: a name, a law,
// an amount. They look at nothing but that text, so that `sweep` can refuse an
// axis before it runs a point.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "sim/config/run_config.h"

namespace pipewright {

// All of the following, names of engines, networks, schedules, models,
// systems, shapes, devices and profiles, and the law of lengths. A missing
// config.engine is `engine`. Files are not read, but for that of a device.
// Error: kInvalidArgument or kNotFound with field, value and what is allowed.
absl::Status CheckTexts(const RunConfig& config, const std::string& engine);

// The name of engine and network model alone.
absl::Status CheckEngineNames(const RunConfig& config,
                              const std::string& engine);

// strategy.global_batch, defined where it is read; so are the next two.
absl::Status CheckBatchText(const RunConfig& config);
// costs.jitter; whether there is a profile to draw from is not looked at.
absl::Status CheckJitterText(const RunConfig& config);
// slow.devices, slow.links and their laws; whether there are such devices and
// links is not looked at.
absl::Status CheckSlowTexts(const RunConfig& config);

}  // namespace pipewright

// system.params in a configuration: parameters that only some shapes have.
// One that the shape of the run does not have, but another does, is no error:
// a file may serve runs on several shapes. It is said to have no effect.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/config/run_config.h"
#include "sim/topology/registry.h"

namespace pipewright {

// Error: kInvalidArgument for a key that no shape has, with the nearest, and
// for a value that no shape with that key takes.
absl::Status CheckShapeParams(const RunConfig& config);

// What the number at `path` may be where it is one of a shape's own, "an
// integer from 1 to 8"; "" for other paths.
std::string ShapeParamNumbersAt(absl::string_view path);

// Puts the given values over those of the system. What its shape does not have
// is left out, be it from the configuration or from the system.
void OverlayShapeParams(const SystemChoice& given, ShapeParams* params);

// The shapes that have a parameter of that key.
std::vector<const ShapeInfo*> ShapesWithParam(absl::string_view key);

}  // namespace pipewright

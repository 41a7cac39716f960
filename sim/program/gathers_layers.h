// Tells if a Program's passes are cut into layers (lower_layers.cc).
#pragma once

#include "sim/program/lower.h"

namespace pipewright {

// Are weights gathered layer by layer?
bool GathersLayers(const LowerOptions& options);

}  // namespace pipewright

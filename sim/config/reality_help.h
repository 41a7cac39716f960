// What the fields of sections `slow` and `reliability` mean; for field_help.cc.
#pragma once

#include <vector>

#include "sim/config/field_help.h"

namespace pipewright {

std::vector<FieldHelp> RealityHelp();

}  // namespace pipewright

// What the fields of ExecutionChoice mean; for field_help.cc.
#pragma once

#include <vector>

#include "sim/config/field_help.h"

namespace pipewright {

std::vector<FieldHelp> ExecutionHelp();

}  // namespace pipewright

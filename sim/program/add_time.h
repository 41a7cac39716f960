// What an owner of ODC takes to add what a client pushes to it.
#pragma once

#include "sim/program/program.h"

namespace pipewright {

// Of a push with several peers SideOp::parameters are the bytes that each owner
// adds, for one client after the other, and most_per_s is how many of them a
// second (0: at once).
inline double AddSeconds(const SideOp& op) {
  return op.most_per_s > 0 ? op.parameters / op.most_per_s : 0;
}

}  // namespace pipewright

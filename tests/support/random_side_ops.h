// Side operations of every kind strewn over a Program, attached ones and those
// of hooks: part of random_program.h.
#pragma once

#include "sim/program/program.h"
#include "tests/support/random_schedule.h"

namespace pipewright {

// Operations of one rank are drawn for each class of replicas; what members of
// a group do is the same in all.
void AddRandomSideOps(Program& program, Random& random);

}  // namespace pipewright

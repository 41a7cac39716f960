// Programs of data-parallel replicas that differ (DpClass), made of Programs
// whose replicas are all alike: no step of Lower() knows classes.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

struct Program;

// `classes[k]`, of one class itself, is what each replica of class k runs:
// lowered for all replicas, as if they were all like it, and with options that
// differ in nothing but what a DpClass holds. `class_of_replica` names every
// class at least once; the name of the Program is the first class's.
//
// Error: kInvalidArgument where the classes cannot run together, because a
// rank of one holds other stages or because their groups differ.
// kFailedPrecondition where they would deadlock: the members of a group do not
// meet equally often and alike in all classes. kInternal: a bug, as
// VerifyProgram.
absl::StatusOr<Program> JoinClasses(std::vector<Program> classes,
                                    std::vector<int> class_of_replica);

}  // namespace pipewright

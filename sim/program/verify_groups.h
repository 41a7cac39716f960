// The part of VerifyProgram that is about groups.
#pragma once

#include "absl/status/status.h"

namespace pipewright {

struct Program;

// The members of each group meet equally often and alike: the ranks of one
// replica, and where the group spans replicas those of all classes too; who is
// no member never comes. kInternal.
absl::Status VerifyGroups(const Program& program);

// The part of it that compares classes: kFailedPrecondition, which says who
// does not meet whom.
absl::Status VerifyMeetingsOfClasses(const Program& program);

}  // namespace pipewright

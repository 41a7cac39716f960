// Numbers that are more likely an error of the measurement than the truth, as
// warnings.
#pragma once

#include <string>
#include <vector>

#include "sim/cost/profile.h"

namespace pipewright {

// Looks at all entries of `profile`; clocks and throttling of `source`, and
// whether it is a GPU (limits of an H100-class device apply) or a CPU.
void AppendRedFlags(const Profile& profile, const ProfileSource& source,
                    std::vector<std::string>* warnings);

}  // namespace pipewright

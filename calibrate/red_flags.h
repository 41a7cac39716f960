// Numbers that are more likely an error of the measurement than the truth, as
// warnings.
#pragma once

#include <string>
#include <vector>

#include "sim/profile/profile.h"

namespace pipewright {

// Looks at all entries of `profile` and at the clocks and the throttling of
// `source`, which also says whether it is a GPU (limits of an H100-class device
// apply) or a CPU. `rounds`: the device's states under load, one a round;
// without any, those of `source` before and after.
void AppendRedFlags(const Profile& profile, const ProfileSource& source,
                    const std::vector<ProfileState>& rounds,
                    std::vector<std::string>* warnings);

}  // namespace pipewright

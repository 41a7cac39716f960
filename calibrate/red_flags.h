// Numbers that are more likely an error of the measurement than the truth, as
// warnings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/profile/profile.h"

namespace pipewright {

// Looks at all entries of `profile` and at the clocks and the throttling of
// `source`, which also says which GPU or CPU it is: its limits apply
// (DeviceLimits), and none where they are not known. `rounds`: the device's
// states under load, one a round; without any, those of `source` before and
// after. `cache_bytes`: of the last level, 0: not known.
void AppendRedFlags(const Profile& profile, const ProfileSource& source,
                    const std::vector<ProfileState>& rounds,
                    int64_t cache_bytes, std::vector<std::string>* warnings);

}  // namespace pipewright

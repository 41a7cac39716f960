// Is what a profile has measured of the device that a system names?
#pragma once

#include <string>

#include "sim/profile/profile.h"

namespace pipewright {

// Are all sources of the profile the device that systems call `device` ("A100
// SXM4 80GB", CUDA: "NVIDIA A100-SXM4-80GB")? NVLink goes with it: cards on
// PCIe, and those of a superchip (GH200), are others. False where the profile
// has no source or the device no name.
bool IsOfDevice(const Profile& profile, const std::string& device);

}  // namespace pipewright

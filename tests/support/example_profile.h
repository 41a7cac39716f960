// A profile with one of everything, made up.
#pragma once

#include "sim/profile/profile.h"

namespace pipewright::testing {

Profile ExampleProfile();

}  // namespace pipewright::testing

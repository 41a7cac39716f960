// Schedules for programs outside of this repository: build one by its name,
// read and write it, prove that it is complete and cannot deadlock. Target
// pipewright::schedules.
#pragma once

#include "sim/schedule/registry.h"  // IWYU pragma: export
#include "sim/schedule/schedule.h"  // IWYU pragma: export
#include "sim/schedule/text.h"      // IWYU pragma: export
#include "sim/schedule/verify.h"    // IWYU pragma: export

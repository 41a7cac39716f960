// Runs every registered schedule with one set of sizes and times, for the page
// of `list schedules --html`.
#pragma once

#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/report/gallery.h"

namespace pipewright {

// pp 4 and 8 microbatches unless `config` says otherwise; the engine is fast.
// A schedule that refuses is an entry with its reason. Error: every one does.
absl::StatusOr<Gallery> CollectGallery(const RunConfig& config);

}  // namespace pipewright

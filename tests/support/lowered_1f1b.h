// A short 1F1B program whose passes take no time, with copies to the host and
// back among them or without.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/random_schedule.h"

namespace pipewright::testing {

inline absl::StatusOr<Program> Lowered(int pp, bool copies) {
  ScheduleParams params;
  params.pp = pp;
  params.microbatches = 4;
  absl::StatusOr<Schedule> built = BuildSchedule("1f1b", params);
  if (!built.ok()) return built.status();
  Random random(3);
  LowerOptions options;
  options.costs = PassCosts::Uniform(1, pp, {});
  return Lower(std::make_shared<const Schedule>(
                   copies ? WithCopies(*built, random) : *built),
               options);
}

}  // namespace pipewright::testing

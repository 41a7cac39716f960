// What the draws of one prepared run share: the schedule and the Program of
// each number of microbatches. Draws differ in lengths, so in factors on the
// times of passes and in which replica runs how many of them, and in nothing
// else.
//
// Safe for several threads. For one prepared run alone.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "sim/base/kept.h"
#include "sim/config/prepare.h"
#include "sim/program/lower.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

struct Program;

class DrawPlan {
 public:
  DrawPlan();
  ~DrawPlan();
  DrawPlan(const DrawPlan&) = delete;
  DrawPlan& operator=(const DrawPlan&) = delete;

  // The value for so many microbatches, as `make` builds it: a StatusOr.
  template <typename Make>
  absl::StatusOr<std::shared_ptr<const Schedule>> ScheduleOf(int microbatches,
                                                             const Make& make) {
    return schedules_.Get(absl::StrCat(microbatches), make);
  }

  // Program of a schedule; there is one for each number of microbatches. Its
  // noise is that of the draw that asked first.
  const absl::StatusOr<Program>& ProgramOf(
      const std::shared_ptr<const Schedule>& schedule,
      const LowerOptions& options);

  // Whether the two, which are this plan's, can be classes of one Program:
  // what JoinClasses says of them.
  absl::Status Join(const Program& first, const Program& other);

 private:
  Kept<absl::StatusOr<std::shared_ptr<const Schedule>>> schedules_;
  const std::unique_ptr<Kept<absl::StatusOr<Program>>> programs_;
  Kept<absl::Status> joins_;
};

// The functions of prepare.h for one of many draws; `plan` may be null.
absl::Status TakeDraw(int64_t more, PreparedRun* run, DrawPlan* plan);
absl::StatusOr<Program> LowerRun(const PreparedRun& run, DrawPlan* plan);

}  // namespace pipewright

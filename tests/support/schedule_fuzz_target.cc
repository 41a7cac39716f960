#include "tests/support/schedule_fuzz_target.h"

#include "sim/base/check.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"

namespace pipewright::testing {

void FuzzSchedule(absl::string_view content) {
  const auto schedule = ParseSchedule(content, "fuzz");
  if (!schedule.ok()) {
    PW_CHECK(schedule.status().code() == absl::StatusCode::kInvalidArgument);
    PW_CHECK(schedule.status().message().substr(0, 5) == "fuzz:");
    return;
  }
  const absl::Status status = VerifySchedule(*schedule);
  PW_CHECK(status.ok() ||
           status.code() == absl::StatusCode::kFailedPrecondition);
  const std::string text = ScheduleToText(*schedule);
  for (const std::string& form : {text, ScheduleToJson(*schedule)}) {
    const auto again = ParseSchedule(form, "again");
    PW_CHECK(again.ok());
    PW_CHECK(ScheduleToText(*again) == text);
  }
}

}  // namespace pipewright::testing

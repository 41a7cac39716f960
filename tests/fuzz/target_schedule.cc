#include "sim/base/check.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {

bool FuzzSchedule(absl::string_view input) {
  const auto schedule = ParseSchedule(input, "fuzz");
  if (!schedule.ok()) {
    PW_CHECK(schedule.status().code() == absl::StatusCode::kInvalidArgument);
    PW_CHECK(schedule.status().message().substr(0, 5) == "fuzz:");
    return false;
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
  return true;
}

}  // namespace pipewright::testing

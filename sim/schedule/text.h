// The text and JSON forms of a schedule file (DESIGN section 5):
//
//   pipewright-schedule 1
//   pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain
//   0: F0 F1 BW0 BW1
//   1: F0 BW0 F1 BW1
//
// Token: [a|b]KIND MB[.CHUNK][sSLICE] without blanks; (X&Y) is a joint pair.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

std::string ScheduleToText(const Schedule& schedule);
std::string ScheduleToJson(const Schedule& schedule);
// A row a rank, cells are tokens, comma separated; for spreadsheets.
std::string ScheduleToCsv(const Schedule& schedule);

// Reads the text or the JSON form (a first character '{' means JSON).
// `source` ("file.pws") begins every message: "source:LINE: ...". The result
// parses; whether it is a legal schedule is VerifySchedule's question.
// Error: kInvalidArgument with line, token and what is allowed.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view content,
                                       absl::string_view source);

}  // namespace pipewright

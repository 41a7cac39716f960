// The text and JSON forms of a schedule file (docs/architecture.md, Files):
//
//   pipewright-schedule 1
//   pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain
//   0: F0 F1 BW0 BW1
//   1: F0 BW0 F1 BW1
//
// Token: [a|b]KIND MB[.CHUNK][sSLICE] without blanks; (X&Y) is a joint pair.
// The header may also say `backward local` (a backward needs no other stage)
// or `backward none` (inference); both forms leave out the default, chain.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/transfers.h"

namespace pipewright {

std::string ScheduleToText(const Schedule& schedule);
std::string ScheduleToJson(const Schedule& schedule);
// A row a rank, cells are tokens, comma separated; for spreadsheets.
std::string ScheduleToCsv(const Schedule& schedule);

struct ScheduleFile {
  Schedule schedule;
  // [rank], where the file spells sends and receives out; else empty.
  std::vector<StepList> steps;
  std::vector<std::string> notes;  // how it was read, where that may surprise
};

// Reads any form, told apart by content: a first character '{' is JSON, a
// digit, '(' or ',' one of PyTorch's CSV files (torch_csv.h).
// `source` ("file.pws") begins every message: "source:LINE: ...". The result
// parses; whether it is a legal schedule is VerifyScheduleFile's question.
// Error: kInvalidArgument with line, token and what is allowed.
absl::StatusOr<ScheduleFile> ParseScheduleFile(absl::string_view content,
                                               absl::string_view source);

// Its schedule alone.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view content,
                                       absl::string_view source);

// VerifySchedule, and, where transfers are written out, whether they pair up
// and run to their end when they block no rank.
absl::Status VerifyScheduleFile(const ScheduleFile& file);

}  // namespace pipewright

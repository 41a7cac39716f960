#include "sim/base/check.h"
#include "sim/schedule/torch_csv.h"
#include "sim/schedule/verify_transfers.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {

bool FuzzTorchCsv(absl::string_view input) {
  const auto file = ParseTorchCsv(input, "fuzz");
  if (!file.ok()) {
    PW_CHECK(file.status().code() == absl::StatusCode::kInvalidArgument);
    PW_CHECK(file.status().message().substr(0, 5) == "fuzz:");
    return false;
  }
  const absl::Status status = VerifyScheduleFile(*file);
  if (!status.ok()) {
    PW_CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    return true;
  }
  for (const Semantics semantics :
       {Semantics::kRendezvous, Semantics::kNccl, Semantics::kBatched}) {
    const absl::Status run = CheckProgress(
        file->schedule,
        file->steps.empty() ? DefaultSteps(file->schedule, semantics)
                            : file->steps,
        semantics);
    PW_CHECK(run.ok() || run.code() == absl::StatusCode::kFailedPrecondition);
  }
  // What is legal is written and read back alike.
  for (const TorchFlavour flavour :
       {TorchFlavour::kComputeOnly, TorchFlavour::kComputeComms}) {
    std::vector<std::string> warnings;
    const auto csv = ScheduleToTorchCsv(file->schedule, flavour, &warnings);
    PW_CHECK(csv.ok() && warnings.empty());
    const auto again = ParseTorchCsv(*csv, "again");
    PW_CHECK(again.ok() && VerifyScheduleFile(*again).ok());
    PW_CHECK(ScheduleToText(again->schedule) == ScheduleToText(file->schedule));
  }
  return true;
}

}  // namespace pipewright::testing

#include "execute/mpi_party.h"

#include "sim/base/file.h"

namespace pipewright {

std::string MachineName() {
  return ReadFile("/proc/sys/kernel/random/boot_id").value_or("");
}

void PutStatus(const absl::Status& status, WireWriter* writer) {
  writer->Put(static_cast<int32_t>(status.code()));
  writer->PutText(status.message());
}

absl::Status GetStatus(WireReader* reader) {
  const auto code = static_cast<absl::StatusCode>(reader->Get<int32_t>());
  return absl::Status(code, reader->GetText());
}

void PutOutcome(const RankOutcome& outcome, WireWriter* writer) {
  PutStatus(outcome.status, writer);
  writer->PutText(outcome.blocked);
  writer->Put(outcome.position);
  writer->Put(outcome.late_s);
  writer->Put(outcome.preemptions);
  writer->Put(outcome.result.times);
  writer->PutAll(outcome.result.iteration_end_s);
  writer->PutAll(outcome.result.ops);
}

RankOutcome GetOutcome(WireReader* reader) {
  RankOutcome outcome;
  outcome.status = GetStatus(reader);
  outcome.blocked = reader->GetText();
  outcome.position = reader->Get<int64_t>();
  outcome.late_s = reader->Get<double>();
  outcome.preemptions = reader->Get<int64_t>();
  outcome.result.times = reader->Get<RankTimes>();
  outcome.result.iteration_end_s = reader->GetAll<double>();
  outcome.result.ops = reader->GetAll<TraceOp>();
  return outcome;
}

}  // namespace pipewright

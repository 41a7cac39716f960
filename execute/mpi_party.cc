#include "execute/mpi_party.h"

#include "absl/strings/str_split.h"
#include "sim/base/file.h"

namespace pipewright {
namespace {

// Of two texts that are not the same, of each the first line that the other has
// not there.
std::pair<std::string, std::string> FirstDifference(absl::string_view one,
                                                    absl::string_view other) {
  constexpr size_t kMostLetters = 60;
  const std::vector<std::string> ones = absl::StrSplit(one, '\n');
  const std::vector<std::string> others = absl::StrSplit(other, '\n');
  size_t line = 0;
  while (line < ones.size() && line < others.size() &&
         ones[line] == others[line]) {
    ++line;
  }
  const auto shown = [line](const std::vector<std::string>& lines) {
    const std::string text = line < lines.size() ? lines[line] : "";
    return text.size() <= kMostLetters
               ? absl::StrCat("'", text, "'")
               : absl::StrCat("'", text.substr(0, kMostLetters), "...'");
  };
  return {shown(ones), shown(others)};
}

}  // namespace

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

absl::StatusOr<std::string> Party::Agree(const absl::StatusOr<FirstWord>& own) {
  WireWriter prepared = Begin(Control::kPrepared);
  PutStatus(own.status(), &prepared);
  prepared.PutText(own.ok() ? own->same : "");
  if (job_.process() > 0) {
    job_.Send(0, MpiJob::kControl, prepared.bytes());
    return Verdict();
  }
  PW_ASSIGN_OR_RETURN(const auto all, Gather(Control::kPrepared, Patience()));
  absl::Status agreed = own.status();
  for (int process = 1; process < job_.processes(); ++process) {
    const auto found = all.find(process);
    if (found == all.end()) {
      all_there_ = false;
      agreed.Update(absl::UnavailableError(
          absl::StrCat(NameOf(process), ": no word for ", Patience(),
                       " s before the run; lost")));
      continue;
    }
    WireReader reader(found->second);
    const absl::Status its = GetStatus(&reader);
    // Mostly all have the same to say.
    agreed.Update(Prefix(NameOf(process), its));
    if (!agreed.ok()) continue;
    const std::string its_text = reader.GetText();
    if (its_text == own->same) continue;
    const auto [here, there] = FirstDifference(own->same, its_text);
    agreed = absl::InvalidArgumentError(
        absl::StrCat(NameOf(process), " was started for another run than ",
                     NameOf(0), ": ", there, ", not ", here));
  }
  absl::StatusOr<std::string> verdict = std::string();
  if (agreed.ok()) {
    verdict = own->decision;
  } else {
    verdict = agreed;
  }
  Judge(verdict);
  return verdict;
}

}  // namespace pipewright

#include "execute/run/party.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "execute/run/rank_run.h"
#include "execute/transport/message.h"
#include "execute/transport/steady_seconds.h"
#include "execute/transport/wire.h"
#include "sim/base/memory_claim.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Claims of memory as messages between processes.

void PutClaims(const std::vector<MemoryClaim>& claims, WireWriter* writer) {
  writer->Put(static_cast<uint64_t>(claims.size()));
  for (const MemoryClaim& claim : claims) {
    writer->PutText(claim.of);
    writer->PutText(claim.scope);
    writer->Put(claim.free_bytes);
    writer->PutAll(claim.bytes);
  }
}

std::vector<MemoryClaim> GetClaims(WireReader* reader) {
  std::vector<MemoryClaim> claims;
  const auto count = reader->Get<uint64_t>();
  while (claims.size() < count && reader->ok()) {
    MemoryClaim& claim = claims.emplace_back();
    claim.of = reader->GetText();
    claim.scope = reader->GetText();
    claim.free_bytes = reader->Get<double>();
    claim.bytes = reader->GetAll<double>();
  }
  return claims;
}

// Returns the first line of each of two unlike texts that the other does not
// have there.
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

constexpr size_t kMostInPiece = size_t{256} << 20;

}  // namespace

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

absl::StatusOr<std::string> Party::Agree(const absl::StatusOr<FirstWord>& own,
                                         const JudgeMemory& judge) {
  WireWriter prepared = Begin(Control::kPrepared);
  PutStatus(own.status(), &prepared);
  prepared.PutText(own.ok() ? own->same : "");
  std::vector<std::vector<MemoryClaim>> claims;
  if (own.ok()) {
    claims.push_back(own->memory);
    for (MemoryClaim& claim : claims[0]) {
      absl::StrAppend(&claim.scope, " ", MachineName());
    }
    PutClaims(claims[0], &prepared);
  }
  if (job_.process() > 0) {
    job_.Send(0, ProcessGroup::kControl, prepared.bytes());
    return Verdict();
  }
  PW_ASSIGN_OR_RETURN(const auto all, Gather(Control::kPrepared, Patience()));
  absl::Status agreed = own.status();
  for (int process = 1; process < job_.processes(); ++process) {
    const auto found = all.find(process);
    // It may also have left while another was awaited.
    if (found == all.end() || HasLeft(process)) {
      all_there_ = false;
      agreed.Update(absl::UnavailableError(
          absl::StrCat(NoWord(process), " before the run; lost")));
      continue;
    }
    WireReader reader(found->second);
    const absl::Status its = GetStatus(&reader);
    // Mostly all have the same to say.
    agreed.Update(Prefix(NameOf(process), its));
    if (!agreed.ok()) continue;
    const std::string its_text = reader.GetText();
    claims.push_back(GetClaims(&reader));
    if (its_text == own->same) continue;
    const auto [here, there] = FirstDifference(own->same, its_text);
    agreed = absl::InvalidArgumentError(
        absl::StrCat(NameOf(process), " was started for another run than ",
                     NameOf(0), ": ", there, ", not ", here));
  }
  if (agreed.ok() && judge != nullptr) {
    agreed = judge(SumClaims(claims));
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

Address Party::AddressOf(int process) const {
  return {process / program_->pp(), process % program_->pp()};
}

std::string Party::NameOf(int process) const {
  return program_ == nullptr ? absl::StrCat("process ", process)
                             : RankName(*program_, AddressOf(process));
}

absl::StatusOr<double> Party::Start(bool has_worker) {
  if (job_.process() > 0) {
    WireWriter ready = Begin(Control::kReady);
    ready.Put(has_worker);
    job_.Send(0, ProcessGroup::kControl, ready.bytes());
    PW_ASSIGN_OR_RETURN(const std::string go, Await(Control::kGo));
    WireReader reader(go);
    PW_RETURN_IF_ERROR(GetStatus(&reader));
    const auto epoch_s = reader.Get<double>();
    // Elsewhere the clocks agree to what this message took.
    return reader.GetText() == MachineName() ? epoch_s : SteadySeconds();
  }
  absl::Status all =
      has_worker
          ? absl::OkStatus()
          : absl::UnavailableError(absl::StrCat(NameOf(0), " did not start"));
  const absl::StatusOr<std::map<int, std::string>> ready =
      Gather(Control::kReady, Patience());
  if (!ready.ok()) return ready.status();
  for (int process = 1; process < job_.processes(); ++process) {
    const auto found = ready->find(process);
    // Who reports before it has run says why it does not.
    if (const auto early = reports_.find(process); early != reports_.end()) {
      WireReader reader(early->second);
      reader.Get<bool>();
      all.Update(Prefix(NameOf(process), GetOutcome(&reader).status));
    }
    if (found != ready->end() && WireReader(found->second).Get<bool>()) {
      continue;
    }
    all.Update(absl::UnavailableError(
        absl::StrCat(NameOf(process), ": did not start")));
  }
  WireWriter go = Begin(Control::kGo);
  const double epoch_s = SteadySeconds();
  PutStatus(all, &go);
  go.Put(epoch_s);
  go.PutText(MachineName());
  SendAll(go);
  PW_RETURN_IF_ERROR(all);
  return epoch_s;
}

void Party::Report(const RankOutcome& outcome, absl::string_view more,
                   bool leaves) {
  WireWriter report;
  report.Put(leaves);
  PutOutcome(outcome, &report);
  report.PutText(more);
  // Gradients and weights of several steps: more than one message takes.
  absl::string_view rest = report.bytes();
  do {
    const absl::string_view piece = rest.substr(0, kMostInPiece);
    rest.remove_prefix(piece.size());
    WireWriter message = Begin(Control::kReport);
    message.Put(/*last=*/rest.empty());
    job_.Send(0, ProcessGroup::kControl, message.bytes(), piece.data(),
              piece.size());
  } while (!rest.empty());
}

absl::StatusOr<std::vector<RankOutcome>> Party::Reports(
    RankOutcome own, std::string own_more, std::vector<std::string>* more) {
  // After a failure all know of it: who is still there says so soon.
  const double patience_s =
      own.status.ok() ? Patience() : std::max(1.0, timeout_s_ / 2);
  PW_ASSIGN_OR_RETURN(const auto reports, Gather(Control::kReport, patience_s));
  std::vector<RankOutcome> outcomes = {std::move(own)};
  more->assign(1, std::move(own_more));
  for (int process = 1; process < job_.processes(); ++process) {
    const auto found = reports.find(process);
    RankOutcome& outcome = outcomes.emplace_back();
    std::string& its_more = more->emplace_back();
    if (found == reports.end()) {
      all_there_ = false;
      outcome.status = absl::UnavailableError(
          absl::StrCat(NameOf(process), ": no report; lost"));
      outcome.blocked = absl::StrCat(NameOf(process), ": lost");
    } else {
      WireReader reader(found->second);
      if (reader.Get<bool>()) all_there_ = false;
      outcome = GetOutcome(&reader);
      its_more = reader.GetText();
      if (!reader.ok()) outcome.status = absl::InternalError("short report");
    }
    outcome.result.address = AddressOf(process);
  }
  return outcomes;
}

absl::StatusOr<std::string> Party::Watch(
    absl::string_view does,
    const std::function<absl::StatusOr<std::string>()>& work) {
  const auto why = [&]() -> std::string {
    const std::string ended = job_.ended_by();
    return ended.empty()
               ? ""
               : absl::StrCat(ended, "\n", NameOf(job_.process()), ": ", does);
  };
  absl::StatusOr<std::string> result = std::string();
  const absl::Status status = WithoutExceptions([&] {
    auto running = std::async(std::launch::async, work);
    while (running.wait_for(std::chrono::duration<double>(kLook_s)) !=
           std::future_status::ready) {
      if (const std::string text = why(); !text.empty()) {
        job_.EndAtOnce(text);
      }
    }
    result = running.get();
    return result.status();
  });
  if (const std::string text = why(); !text.empty()) {
    return absl::UnavailableError(text);
  }
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<std::string> Party::Conclude(
    const std::function<absl::StatusOr<std::string>()>& conclude) {
  return Watch("has ended and concludes the run for all", conclude);
}

void Party::TakeLeave(const RankOutcome& outcome, const absl::Status& status) {
  if (job_.process() > 0) return Report(outcome, "", /*leaves=*/true);
  all_there_ = false;
  Judge(status);
}

void Party::Judge(const absl::StatusOr<std::string>& conclusion) {
  WireWriter verdict = Begin(Control::kVerdict);
  verdict.Put(all_there_);
  PutStatus(conclusion.status(), &verdict);
  verdict.PutText(conclusion.ok() ? *conclusion : "");
  SendAll(verdict);
  if (!all_there_) job_.Abandon();
}

absl::StatusOr<std::string> Party::Verdict() {
  PW_ASSIGN_OR_RETURN(const std::string verdict, Await(Control::kVerdict));
  WireReader reader(verdict);
  if (!reader.Get<bool>()) job_.Abandon();
  PW_RETURN_IF_ERROR(GetStatus(&reader));
  return reader.GetText();
}

WireWriter Party::Begin(Control control) const {
  WireWriter writer;
  writer.Put(run_);
  writer.Put(control);
  return writer;
}

void Party::SendAll(const WireWriter& writer) {
  for (int process = 1; process < job_.processes(); ++process) {
    job_.Send(process, ProcessGroup::kControl, writer.bytes());
  }
}

bool Party::HasLeft(int process) const {
  return job_.HasLeft(process, ProcessGroup::kControl);
}

bool Party::IsSilent(int process, double patience_s) const {
  if (HasLeft(process)) return true;
  const double now_s = SteadySeconds();
  const double stands_s = pulse_.stands_since_s(process);
  return now_s - pulse_.heard_s(process) > patience_s ||
         (stands_s > 0 && now_s - stands_s > most_s_);
}

absl::StatusOr<std::optional<Party::Taken>> Party::Take(
    double patience_s, const std::function<bool()>& in_vain) {
  double next_s = SteadySeconds() + kLook_s;
  bool ends = false;
  // Not more often than is soon enough: it may ask every process.
  const auto looks = [&] {
    const double now_s = SteadySeconds();
    if (now_s < next_s) return false;
    next_s = now_s + kLook_s;
    ends = in_vain();
    return ends;
  };
  while (true) {
    ProcessGroup::Incoming incoming;
    switch (
        job_.Receive(ProcessGroup::kControl, patience_s, &incoming, looks)) {
      case Received::kMessage:
        if (ends) return std::nullopt;
        break;
      case Received::kEnded:
        return absl::UnavailableError(job_.ended_by());
      default:
        return std::nullopt;
    }
    WireReader reader(incoming.text());
    if (reader.Get<int64_t>() != run_) continue;
    Taken taken = {.from = incoming.from, .control = reader.Get<Control>()};
    taken.text =
        std::string(incoming.text().substr(sizeof(int64_t) + sizeof(Control)));
    return taken;
  }
}

absl::StatusOr<std::string> Party::Await(Control control) {
  if (control == Control::kVerdict && early_verdict_) return *early_verdict_;
  while (true) {
    PW_ASSIGN_OR_RETURN(const std::optional<Taken> taken,
                        Take(Patience() / 8, [this] { return HasLeft(0); }));
    if (taken && taken->control == control) return taken->text;
    if (taken && taken->control == Control::kVerdict) {
      // Process 0 has left before it came as far.
      early_verdict_ = taken->text;
      WireReader reader(*early_verdict_);
      reader.Get<bool>();
      PW_RETURN_IF_ERROR(GetStatus(&reader));
      return absl::InternalError(
          absl::StrCat(NameOf(0), ": a verdict before the run"));
    }
    if (taken || !IsSilent(0, Patience())) continue;
    job_.Abandon();
    return absl::UnavailableError(absl::StrCat(NoWord(0), "; lost"));
  }
}

std::string Party::NoWord(int process) const {
  return HasLeft(process) ? absl::StrCat(NameOf(process), ": has left")
                          : absl::StrCat(NameOf(process), ": no word for ",
                                         Patience(), " s");
}

absl::StatusOr<std::map<int, std::string>> Party::Gather(Control control,
                                                         double patience_s) {
  std::map<int, std::string> texts;
  const auto awaits = [&] {
    for (int process = 1; process < job_.processes(); ++process) {
      if (!texts.contains(process) && !reports_.contains(process) &&
          !IsSilent(process, patience_s)) {
        return true;
      }
    }
    return false;
  };
  while (awaits()) {
    PW_ASSIGN_OR_RETURN(const std::optional<Taken> taken,
                        Take(patience_s / 8, [&] { return !awaits(); }));
    if (!taken) continue;
    if (taken->control == Control::kReport) {
      pieces_[taken->from].append(taken->text, sizeof(bool));
      if (!WireReader(taken->text).Get<bool>()) continue;
      reports_[taken->from] = std::move(pieces_[taken->from]);
    } else if (taken->control == control) {
      texts[taken->from] = taken->text;
    }
  }
  if (control == Control::kReport) return std::move(reports_);
  return texts;
}

}  // namespace pipewright

// What a rank does when nothing comes.
//
// A rank that has waited for its time-out asks all others. Whoever waits too
// answers with what it has sent and taken so far; whoever waits for a date says
// that it will go on; whoever computes answers when it waits again, and that it
// still runs is known from elsewhere (Endpoint::RunsSince); whoever has ended
// has said so, and what it has sent. While somebody computes or will go on,
// waiting goes on, however long. Two rounds of answers with the same numbers:
// there was a time between them at which everybody waited. If by these numbers
// all that was sent to those who wait was taken, and they have no copies of
// their own under way, then nothing will ever come: a deadlock. Something that
// is under way for another time-out: lost. Neither an answer nor a sign of
// life: lost.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "execute/run/rank_run.h"
#include "execute/transport/message.h"
#include "execute/transport/steady_seconds.h"
#include "execute/transport/wire.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Who has ended still serves the others.
bool HasOneSided(const Program& program) {
  for (const RankProgram& rank : program.ranks) {
    for (const SideOp& op : rank.side_ops) {
      if (IsOneSided(op.kind)) return true;
    }
  }
  return false;
}

}  // namespace

RankWaits::RankWaits(const Program& program, Address self, Endpoint* endpoint,
                     const RankRunOptions& options,
                     std::function<absl::Status(RankMessage)> take,
                     std::function<std::string()> blocked)
    : program_(program),
      self_(self),
      endpoint_(*endpoint),
      options_(options),
      take_(std::move(take)),
      blocked_(std::move(blocked)) {
  traffic_.sent.resize(static_cast<size_t>(program.replicas) * program.pp());
}

void RankWaits::Tell(RankMessage::Kind kind, absl::string_view text) {
  for (const Address other : OtherRanks(program_, self_)) {
    endpoint_.Send(
        other,
        {.kind = kind, .number = question_, .payload = HostPayload(text)});
  }
}

absl::Status RankWaits::AwaitOthers() {
  ended_ = true;
  Tell(RankMessage::Kind::kDone, TrafficText(/*goes_on=*/false));
  if (!HasOneSided(program_)) return absl::OkStatus();
  while (done_.size() < OtherRanks(program_, self_).size()) {
    PW_RETURN_IF_ERROR(Wait());
  }
  return absl::OkStatus();
}

// The others get to know, where nobody ends them too.
absl::Status RankWaits::EndedFromOutside() {
  const std::string why = endpoint_.ended_by();
  Tell(RankMessage::Kind::kLost,
       absl::StrCat(RankName(program_, self_), ": ", why));
  return absl::UnavailableError(why);
}

absl::Status RankWaits::Poll() {
  endpoint_.GetsOn();
  RankMessage message;
  while (true) {
    switch (endpoint_.Receive(0, &message)) {
      case Received::kMessage:
        PW_RETURN_IF_ERROR(Take(std::move(message)));
        break;
      case Received::kEnded:
        return EndedFromOutside();
      default:
        return absl::OkStatus();
    }
  }
}

absl::Status RankWaits::WaitFor(double left_s) {
  endpoint_.GetsOn();
  Answer(/*goes_on=*/true);
  if (left_s <= 0) return absl::OkStatus();
  RankMessage message;
  endpoint_.Pending(1);
  const Received received =
      endpoint_.Receive(std::min(left_s, options_.timeout_s), &message);
  endpoint_.Pending(-1);
  if (received == Received::kEnded) return EndedFromOutside();
  if (received != Received::kMessage) return absl::OkStatus();
  return Take(std::move(message));
}

absl::Status RankWaits::Wait() {
  endpoint_.GetsOn();
  Answer(/*goes_on=*/false);
  RankMessage message;
  switch (endpoint_.Receive(options_.timeout_s, &message)) {
    case Received::kMessage:
      return Take(std::move(message));
    case Received::kStuck:
      if (!ended_) return absl::FailedPreconditionError(blocked_());
      // The others wait for each other; they say so.
      for (const Address other : OtherRanks(program_, self_)) {
        done_.insert(other);
      }
      return absl::OkStatus();
    case Received::kEnded:
      return EndedFromOutside();
    case Received::kTimeOut:
      break;
  }
  return AskOthers();
}

void RankWaits::SendTo(Address to, RankMessage message) {
  ++traffic_.sent[IndexOf(to)];
  endpoint_.Send(to, std::move(message));
}

RankWaits::Traffic RankWaits::TrafficOf(const Payload& payload) const {
  const std::string text = TextOf(payload);
  WireReader reader(text);
  Traffic traffic;
  traffic.taken = reader.Get<int64_t>();
  traffic.under_way = reader.Get<int64_t>();
  traffic.goes_on = reader.Get<bool>();
  traffic.sent = reader.GetAll<int64_t>();
  traffic.sent.resize(traffic_.sent.size());  // a replay's end says nothing
  return traffic;
}

std::string RankWaits::TrafficText(bool goes_on) const {
  WireWriter writer;
  writer.Put(traffic_.taken);
  writer.Put(traffic_.under_way);
  writer.Put(goes_on);
  writer.PutAll(traffic_.sent);
  return writer.bytes();
}

// Who has asked while this rank was busy, too.
void RankWaits::Answer(bool goes_on) {
  for (const auto& [who, question] : asked_) {
    endpoint_.Send(who, {.kind = RankMessage::Kind::kAnswer,
                         .number = question,
                         .payload = HostPayload(TrafficText(goes_on))});
  }
  asked_.clear();
}

size_t RankWaits::IndexOf(Address address) const {
  return static_cast<size_t>(address.replica) * program_.pp() + address.rank;
}

std::vector<Address> RankWaits::Unanswered() const {
  const bool served = HasOneSided(program_) && !ended_;
  std::vector<Address> silent;
  for (const Address other : OtherRanks(program_, self_)) {
    if (answers_.count(other) == 0 && (served || done_.count(other) == 0)) {
      silent.push_back(other);
    }
  }
  return silent;
}

// Until all have answered, or no longer.
absl::Status RankWaits::AwaitAnswers() {
  const double deadline_s =
      SteadySeconds() + std::max(1.0, options_.timeout_s / 4);
  const int64_t taken = taken_;
  while (!Unanswered().empty()) {
    Answer(/*goes_on=*/false);
    RankMessage message;
    const double left_s = deadline_s - SteadySeconds();
    if (left_s <= 0) break;
    const Received received = endpoint_.Receive(left_s, &message);
    if (received == Received::kEnded) return EndedFromOutside();
    if (received != Received::kMessage) break;
    PW_RETURN_IF_ERROR(Take(std::move(message)));
    if (taken_ != taken) break;  // something to go on with
  }
  return absl::OkStatus();
}

absl::Status RankWaits::GiveUp(const std::string& text) {
  Tell(RankMessage::Kind::kLost, text);
  return absl::UnavailableError(text);
}

// Has all been taken that was sent to those who wait?
bool RankWaits::NothingComes(const std::map<Address, Traffic>& traffic) const {
  for (const auto& [waits, its] : traffic) {
    if (its.under_way > 0) return false;
    const size_t index = IndexOf(waits);
    int64_t sent = 0;
    for (const auto& [from, each] : traffic) sent += each.sent[index];
    for (const auto& [from, each] : last_) {
      if (traffic.count(from) == 0) sent += each.sent[index];
    }
    if (sent != its.taken) return false;
  }
  return true;
}

// Nobody can tell a long pass from one that never ends.
absl::Status RankWaits::CheckPatience(Address other) {
  const double since_s = endpoint_.ComputesSince(other);
  const double most_s = std::max(1.0, options_.patience * options_.timeout_s);
  if (since_s <= 0 || SteadySeconds() - since_s <= most_s) {
    return absl::OkStatus();
  }
  const absl::Status status = GiveUp(absl::StrFormat(
      "%s lives, but has computed one thing for longer than %.6g s, %.6g times "
      "the time-out: given up",
      RankName(program_, other), most_s, options_.patience));
  if (options_.hopeless) options_.hopeless(status);
  return status;
}

absl::Status RankWaits::AskOthers() {
  const int64_t taken = taken_;
  std::map<Address, Traffic> before;
  for (const bool again : {false, true}) {
    ++question_;
    answers_.clear();
    Tell(RankMessage::Kind::kAsk, "");
    const double asked_s = SteadySeconds();
    PW_RETURN_IF_ERROR(AwaitAnswers());
    if (taken_ != taken) return absl::OkStatus();
    std::vector<std::string> silent;
    bool goes_on = false;
    for (const Address other : Unanswered()) {
      if (endpoint_.RunsSince(other, asked_s)) {
        PW_RETURN_IF_ERROR(CheckPatience(other));
        goes_on = true;
      } else {
        silent.push_back(RankName(program_, other));
      }
    }
    if (!silent.empty()) {
      return GiveUp(absl::StrCat(absl::StrJoin(silent, ", "),
                                 ": no answer within the time-out of ",
                                 options_.timeout_s, " s: lost"));
    }
    for (const auto& [other, traffic] : answers_) goes_on |= traffic.goes_on;
    if (goes_on) return absl::OkStatus();
    // Those that still need something see for themselves.
    if (ended_) return absl::OkStatus();
    answers_[self_] = traffic_;
    if (again && answers_ != before) return absl::OkStatus();
    before = answers_;
  }
  if (NothingComes(before)) {
    Tell(RankMessage::Kind::kDeadlock, "");
    return absl::FailedPreconditionError(blocked_());
  }
  if (before == stalled_) {
    return GiveUp(
        absl::StrCat("a message between ranks, or a copy, has been under way "
                     "for longer than the time-out of ",
                     options_.timeout_s, " s: lost"));
  }
  stalled_ = std::move(before);
  return absl::OkStatus();
}

absl::Status RankWaits::Take(RankMessage message) {
  switch (message.kind) {
    case RankMessage::Kind::kDone:
      done_.insert(message.from);
      answers_.erase(message.from);
      last_[message.from] = TrafficOf(message.payload);
      return absl::OkStatus();
    case RankMessage::Kind::kAsk:
      asked_.emplace_back(message.from, message.number);
      return absl::OkStatus();
    case RankMessage::Kind::kAnswer:
      if (message.number == question_) {
        answers_[message.from] = TrafficOf(message.payload);
      }
      return absl::OkStatus();
    case RankMessage::Kind::kDeadlock:
      return absl::FailedPreconditionError(blocked_());
    case RankMessage::Kind::kLost:
      return absl::UnavailableError(TextOf(message.payload));
    case RankMessage::Kind::kFailed:
      return absl::UnavailableError(
          absl::StrCat(RankName(program_, message.from),
                       " has failed: ", TextOf(message.payload)));
    default:
      break;
  }
  ++taken_;
  if (message.kind == RankMessage::Kind::kCopied ||
      message.kind == RankMessage::Kind::kCombined) {
    --traffic_.under_way;
  } else {
    ++traffic_.taken;
  }
  return take_(std::move(message));
}

}  // namespace pipewright

// Waiting for other ranks, and what a rank does when nothing comes.
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
std::vector<Address> RankRun::Others() const {
  std::vector<Address> others;
  for (int replica = 0; replica < program_.replicas; ++replica) {
    for (int rank = 0; rank < program_.pp(); ++rank) {
      const Address address = {replica, rank};
      if (!(address == self_)) others.push_back(address);
    }
  }
  return others;
}

void RankRun::Tell(RankMessage::Kind kind, absl::string_view text) {
  for (const Address other : Others()) {
    endpoint_.Send(
        other,
        {.kind = kind, .number = question_, .payload = HostPayload(text)});
  }
}

// Somebody may still pull from a rank that has ended.
absl::Status RankRun::AwaitOthers() {
  Tell(RankMessage::Kind::kDone, TrafficText(/*goes_on=*/false));
  if (!one_sided_) return absl::OkStatus();
  while (done_.size() < Others().size()) {
    PW_RETURN_IF_ERROR(Wait());
  }
  return absl::OkStatus();
}

// The others get to know, where nobody ends them too.
absl::Status RankRun::EndedFromOutside() {
  const std::string why = endpoint_.ended_by();
  Tell(RankMessage::Kind::kLost,
       absl::StrCat(RankName(program_, self_), ": ", why));
  return absl::UnavailableError(why);
}

absl::Status RankRun::Poll() {
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

// For a date, not for others.
absl::Status RankRun::WaitForWake() {
  Answer(/*goes_on=*/true);
  const double left_s = wake_s_ - clock_->Now() - kSpin_s;
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

absl::Status RankRun::Wait() {
  endpoint_.GetsOn();
  if (wake_s_ < std::numeric_limits<double>::infinity()) return WaitForWake();
  Answer(/*goes_on=*/false);
  RankMessage message;
  switch (endpoint_.Receive(options_.timeout_s, &message)) {
    case Received::kMessage:
      return Take(std::move(message));
    case Received::kStuck:
      if (!ended_) return absl::FailedPreconditionError(Blocked());
      // The others wait for each other; they say so.
      for (const Address other : Others()) {
        done_.insert({other.replica, other.rank});
      }
      return absl::OkStatus();
    case Received::kEnded:
      return EndedFromOutside();
    case Received::kTimeOut:
      break;
  }
  return AskOthers();
}

void RankRun::SendTo(Address to, RankMessage message) {
  ++traffic_.sent[IndexOf(to)];
  endpoint_.Send(to, std::move(message));
}

RankRun::Traffic RankRun::TrafficOf(const Payload& payload) const {
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

std::string RankRun::TrafficText(bool goes_on) const {
  WireWriter writer;
  writer.Put(traffic_.taken);
  writer.Put(traffic_.under_way);
  writer.Put(goes_on);
  writer.PutAll(traffic_.sent);
  return writer.bytes();
}

// Who has asked while this rank was busy, too.
void RankRun::Answer(bool goes_on) {
  for (const auto& [who, question] : asked_) {
    endpoint_.Send(who, {.kind = RankMessage::Kind::kAnswer,
                         .number = question,
                         .payload = HostPayload(TrafficText(goes_on))});
  }
  asked_.clear();
}

std::vector<Address> RankRun::Unanswered() const {
  std::vector<Address> silent;
  for (const Address other : Others()) {
    const RankKey key = {other.replica, other.rank};
    // Who has ended serves this one until it has ended too.
    const bool served = one_sided_ && !ended_;
    if (answers_.count(key) == 0 && (served || done_.count(key) == 0)) {
      silent.push_back(other);
    }
  }
  return silent;
}

// Until all have answered, or no longer.
absl::Status RankRun::AwaitAnswers() {
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

absl::Status RankRun::GiveUp(const std::string& text) {
  Tell(RankMessage::Kind::kLost, text);
  return absl::UnavailableError(text);
}

// Has all been taken that was sent to those who wait?
bool RankRun::NothingComes(const std::map<RankKey, Traffic>& traffic) const {
  for (const auto& [waits, its] : traffic) {
    if (its.under_way > 0) return false;
    const size_t index = IndexOf({waits.first, waits.second});
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
absl::Status RankRun::CheckPatience(Address other) {
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

absl::Status RankRun::AskOthers() {
  const int64_t taken = taken_;
  std::map<RankKey, Traffic> before;
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
    answers_[{self_.replica, self_.rank}] = traffic_;
    if (again && answers_ != before) return absl::OkStatus();
    before = answers_;
  }
  if (NothingComes(before)) {
    Tell(RankMessage::Kind::kDeadlock, "");
    return absl::FailedPreconditionError(Blocked());
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

// Does it speak of something that is there? Another process may be out of
// order.
bool RankRun::Knows(const RankMessage& message) const {
  size_t known = std::numeric_limits<int32_t>::max();
  if (message.kind == RankMessage::Kind::kArrive) known = meetings_.groups();
  if (message.kind == RankMessage::Kind::kPulled) {
    known = rank().side_ops.size();
  } else if (message.kind == RankMessage::Kind::kPull ||
             message.kind == RankMessage::Kind::kPush) {
    known = program_.OfReplica(message.from.replica)
                .ranks[message.from.rank]
                .side_ops.size();
  }
  return static_cast<size_t>(message.index) < known;
}

absl::Status RankRun::Take(RankMessage message) {
  if (!Knows(message)) {
    return absl::UnavailableError(
        absl::StrCat(RankName(program_, message.from),
                     " has sent what no rank of this run sends"));
  }
  const RankKey from = {message.from.replica, message.from.rank};
  switch (message.kind) {
    case RankMessage::Kind::kDone:
      done_.insert(from);
      answers_.erase(from);
      last_[from] = TrafficOf(message.payload);
      return absl::OkStatus();
    case RankMessage::Kind::kAsk:
      asked_.emplace_back(message.from, message.number);
      return absl::OkStatus();
    case RankMessage::Kind::kAnswer:
      if (message.number == question_) {
        answers_[from] = TrafficOf(message.payload);
      }
      return absl::OkStatus();
    case RankMessage::Kind::kDeadlock:
      return absl::FailedPreconditionError(Blocked());
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
  if (options_.record != nullptr && message.kind != RankMessage::Kind::kPull &&
      message.kind != RankMessage::Kind::kPush &&
      message.kind != RankMessage::Kind::kCopied) {
    RankMessage told = message;
    told.payload = {};
    options_.record->messages.push_back(std::move(told));
  }
  switch (message.kind) {
    case RankMessage::Kind::kToken:
    case RankMessage::Kind::kSendReady:
    case RankMessage::Kind::kTakeReady: {
      const double time_s = clock_->network_given()
                                ? message.time_s
                                : std::max(message.time_s, clock_->Now());
      Arrivals& tokens = message.kind == RankMessage::Kind::kToken ? tokens_
                         : message.kind == RankMessage::Kind::kSendReady
                             ? send_ready_
                             : take_ready_;
      tokens.Push(message.index, message.key,
                  {message.start_s, time_s, std::move(message.payload)});
      return absl::OkStatus();
    }
    case RankMessage::Kind::kArrive:
      meetings_.Arrive(message.index, message.number, message.from,
                       {.time_s = message.time_s,
                        .payload = std::move(message.payload),
                        .bytes = message.key});
      return absl::OkStatus();
    case RankMessage::Kind::kCombined:
      combined_.at({message.index, message.number}).ended = true;
      return absl::OkStatus();
    case RankMessage::Kind::kPull:
      SendTo(message.from,
             {.kind = RankMessage::Kind::kPulled, .index = message.index});
      return absl::OkStatus();
    case RankMessage::Kind::kPulled:
      ++pulled_[message.index];
      return absl::OkStatus();
    case RankMessage::Kind::kPush:
      return absl::OkStatus();
    case RankMessage::Kind::kCopied: {
      Copied copied = {
          .status = message.payload.bytes == 0
                        ? absl::OkStatus()
                        : absl::InternalError(TextOf(message.payload)),
          .time_s = message.time_s};
      if (message.number > 0) {
        ended_beside_[message.number] = std::move(copied);
      } else {
        copied_[message.index].push_back(std::move(copied));
      }
      return absl::OkStatus();
    }
    default:
      return absl::InternalError("a message of a kind that nobody sends");
  }
}

}  // namespace pipewright

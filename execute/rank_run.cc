#include "execute/rank_run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"
#include "sim/program/cursor.h"

namespace pipewright {
namespace {

Payload TextPayload(const std::string& text) {
  auto owner = std::make_shared<std::string>(text);
  const size_t bytes = owner->size();
  char* const data = owner->data();
  return {.data = std::shared_ptr<void>(std::move(owner), data),
          .bytes = bytes};
}

std::string TextOf(const Payload& payload) {
  return std::string(static_cast<const char*>(payload.data.get()),
                     payload.bytes);
}

bool HasOneSided(const Program& program) {
  for (const RankProgram& rank : program.ranks) {
    for (const SideOp& op : rank.side_ops) {
      if (IsOneSided(op.kind)) return true;
    }
  }
  return false;
}

std::string Name(Address address, int replicas) {
  return replicas == 1 ? absl::StrCat("rank ", address.rank)
                       : absl::StrCat("rank ", address.rank, " of replica ",
                                      address.replica);
}

}  // namespace

RankRun::RankRun(const Program& program, Address self,
                 const IsolatedTimes& times, Endpoint* endpoint, Worker* worker,
                 Clock* clock, RankRunOptions options)
    : program_(program),
      self_(self),
      times_(times),
      endpoint_(*endpoint),
      worker_(*worker),
      clock_(*clock),
      options_(std::move(options)),
      holds_(program.wait_rule != WaitRule::kBuffered),
      sequence_(program.ranks[self.rank]),
      hook_ends_(program.ranks[self.rank].hooks.size()) {
  for (const Group& group : program.groups) {
    members_.push_back(GroupMembers(program, group, self.replica));
    int mine = -1;
    for (size_t member = 0; member < members_.back().size(); ++member) {
      const Member& each = members_.back()[member];
      if (each.replica == self.replica && each.rank == self.rank) {
        mine = static_cast<int>(member);
      }
    }
    self_in_group_.push_back(mine);
  }
  met_.resize(program.groups.size());
}

absl::Status RankRun::Run() {
  for (int iteration = 0; iteration < program_.iterations; ++iteration) {
    sent_ = 0;
    for (const Start& start : program_.StartsOf(iteration)) {
      const absl::Status ran = RunStart(start);
      if (!ran.ok()) {
        if (ran.code() != absl::StatusCode::kFailedPrecondition &&
            ran.code() != absl::StatusCode::kUnavailable) {
          Tell(RankMessage::Kind::kFailed, std::string(ran.message()));
        }
        return ran;
      }
    }
    double end_s = compute_s_;
    for (const double stream_s : stream_s_) end_s = std::max(end_s, stream_s);
    ends_s_.push_back(end_s);
    if (iteration == 0) times_of_first_.last_end_s = pass_end_s_;
    PW_RETURN_IF_ERROR(worker_.EndIteration(iteration));
  }
  ended_ = true;
  return AwaitOthers();
}

absl::Status RankRun::RunStart(const Start& start) {
  start_ = start;
  sequence_.Begin(start);
  hook_ends_.assign(hook_ends_.size(), HookEnds());
  dropped_ = 0;
  position_ = sequence_.begin();
  PW_RETURN_IF_ERROR(worker_.BeginStart(start));
  while (true) {
    PW_RETURN_IF_ERROR(Poll());
    PW_ASSIGN_OR_RETURN(const bool progress, Step());
    if (progress) continue;
    if (Ended()) return absl::OkStatus();
    PW_RETURN_IF_ERROR(Wait());
  }
}

// Does the next thing that can be done. False when nothing can.
absl::StatusOr<bool> RankRun::Step() {
  PW_ASSIGN_OR_RETURN(const bool drained, DrainStreams());
  if (!steps_.empty()) return FinishHandshakes() || drained;
  if (position_ < sequence_.stop() || sequence_.holds()) {
    const bool at_stop = position_ == sequence_.stop();
    if (!at_stop || sequence_.item() == nullptr) {
      const Pass pass = (*rank().order)[position_];
      PW_ASSIGN_OR_RETURN(const bool ran, holds_&& IsComputePass(pass.kind())
                                              ? RunHeldBlock()
                                              : RunBlock());
      return ran || drained;
    }
  }
  if (sequence_.item() != nullptr) {
    PW_ASSIGN_OR_RETURN(const bool ran, RunItem());
    return ran || drained;
  }
  if (!start_.is_false) return drained;
  PW_ASSIGN_OR_RETURN(const bool took, DropNext());
  return took || drained;
}

bool RankRun::Ended() const {
  return position_ == sequence_.end() && sequence_.item() == nullptr &&
         !sequence_.holds() && steps_.empty() && pending_ == 0 &&
         (!start_.is_false || dropped_ == rank().dropped.size());
}

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

// Somebody may still pull from a rank that has ended.
absl::Status RankRun::AwaitOthers() {
  if (!HasOneSided(program_)) return absl::OkStatus();
  for (const Address other : Others()) {
    endpoint_.Send(other, {.kind = RankMessage::Kind::kDone});
  }
  while (done_ < static_cast<int>(Others().size())) {
    PW_RETURN_IF_ERROR(Wait());
  }
  return absl::OkStatus();
}

absl::Status RankRun::Poll() {
  RankMessage message;
  while (endpoint_.Receive(0, &message) == Received::kMessage) {
    PW_RETURN_IF_ERROR(Take(std::move(message)));
  }
  return absl::OkStatus();
}

absl::Status RankRun::Wait() {
  RankMessage message;
  switch (endpoint_.Receive(options_.timeout_s, &message)) {
    case Received::kMessage:
      return Take(std::move(message));
    case Received::kStuck:
      if (!ended_) return absl::FailedPreconditionError(Blocked());
      // The others wait for each other; they say so.
      done_ = static_cast<int>(Others().size());
      return absl::OkStatus();
    case Received::kTimeOut:
      break;
  }
  return AskOthers();
}

void RankRun::Tell(RankMessage::Kind kind, const std::string& text) {
  for (const Address other : Others()) {
    endpoint_.Send(other, {.kind = kind, .payload = TextPayload(text)});
  }
}

// Nothing has come for too long. Whoever waits too says so: when all do, the
// program deadlocks; who says nothing is lost.
absl::Status RankRun::AskOthers() {
  Tell(RankMessage::Kind::kBlocked, Blocked());
  const std::vector<Address> others = Others();
  const double deadline_s =
      SteadySeconds() + std::max(1.0, options_.timeout_s / 4);
  while (blocked_.size() < others.size()) {
    const double left_s = deadline_s - SteadySeconds();
    if (left_s <= 0) break;
    RankMessage message;
    const Received received = endpoint_.Receive(left_s, &message);
    if (received == Received::kTimeOut) break;
    if (received == Received::kStuck) break;
    const bool answer = message.kind == RankMessage::Kind::kBlocked ||
                        message.kind == RankMessage::Kind::kDone;
    PW_RETURN_IF_ERROR(Take(std::move(message)));
    if (!answer) return absl::OkStatus();  // something to go on with
  }
  std::vector<std::string> lines = {Blocked()};
  std::vector<std::string> silent;
  for (const Address other : others) {
    const auto known = blocked_.find({other.replica, other.rank});
    if (known == blocked_.end()) {
      silent.push_back(Name(other, program_.replicas));
    } else {
      lines.push_back(known->second);
    }
  }
  const std::string text = absl::StrJoin(lines, "\n");
  if (silent.empty()) return absl::FailedPreconditionError(text);
  return absl::UnavailableError(absl::StrCat(
      absl::StrJoin(silent, ", "), ": no answer within ", options_.timeout_s,
      " s (lost, or busy for longer than --timeout)\n", text));
}

absl::Status RankRun::Take(RankMessage message) {
  switch (message.kind) {
    case RankMessage::Kind::kToken:
    case RankMessage::Kind::kSendReady:
    case RankMessage::Kind::kTakeReady: {
      const double time_s = clock_.computed()
                                ? message.time_s
                                : std::max(message.time_s, clock_.Now());
      const TokenKey key = {message.index, message.key};
      Tokens& tokens = message.kind == RankMessage::Kind::kToken ? tokens_
                       : message.kind == RankMessage::Kind::kSendReady
                           ? send_ready_
                           : take_ready_;
      tokens[key].push_back(
          {message.start_s, time_s, std::move(message.payload)});
      return absl::OkStatus();
    }
    case RankMessage::Kind::kArrive: {
      const std::vector<Member>& members = members_[message.index];
      for (size_t member = 0; member < members.size(); ++member) {
        if (members[member].replica != message.from.replica ||
            members[member].rank != message.from.rank) {
          continue;
        }
        meetings_[{message.index, message.number}]
            .parts[static_cast<int>(member)] = {message.time_s,
                                                std::move(message.payload)};
      }
      return absl::OkStatus();
    }
    case RankMessage::Kind::kPull:
      endpoint_.Send(message.from, {.kind = RankMessage::Kind::kPulled,
                                    .index = message.index,
                                    .payload = worker_.ServePull(
                                        message.from, message.index)});
      return absl::OkStatus();
    case RankMessage::Kind::kPulled:
      pulled_[message.index].push_back(std::move(message.payload));
      return absl::OkStatus();
    case RankMessage::Kind::kPush:
      worker_.TakePush(message.from, message.index, std::move(message.payload));
      return absl::OkStatus();
    case RankMessage::Kind::kCopied:
      copied_[message.index].push_back(
          message.payload.bytes == 0
              ? absl::OkStatus()
              : absl::InternalError(TextOf(message.payload)));
      return absl::OkStatus();
    case RankMessage::Kind::kDone:
      ++done_;
      return absl::OkStatus();
    case RankMessage::Kind::kBlocked: {
      blocked_[{message.from.replica, message.from.rank}] =
          TextOf(message.payload);
      // An answer to whoever asks first; an answer to an answer would go on
      // for ever.
      if (message.number == 0) {
        endpoint_.Send(message.from, {.kind = RankMessage::Kind::kBlocked,
                                      .number = 1,
                                      .payload = TextPayload(Blocked())});
      }
      return absl::OkStatus();
    }
    case RankMessage::Kind::kFailed:
      return absl::UnavailableError(
          absl::StrCat(Name(message.from, program_.replicas),
                       " has failed: ", TextOf(message.payload)));
  }
  return absl::OkStatus();
}

std::string RankRun::Blocked() const {
  const std::string who = Name(self_, program_.replicas);
  if (ended_) return absl::StrCat(who, " has ended");
  const auto side_op = [&](const SideSequence::Item& item) {
    Op op = {.kind = rank().side_ops[item.side_op].kind,
             .rank = self_.rank,
             .side_op = item.side_op};
    return OpToString(program_, op);
  };
  std::vector<std::string> waits;
  const auto channel = [&](int32_t index, bool send, Pass pass) {
    const Channel& link = program_.channels[index];
    return absl::StrCat(send ? "its send to rank " : "what comes from rank ",
                        send ? link.to_rank : link.from_rank, " for ",
                        PassToString(*program_.schedule, pass));
  };
  if (!steps_.empty()) {
    for (const Handshake& each : steps_.front()) {
      waits.push_back(channel(each.channel, each.send, each.pass));
    }
  } else if (sequence_.item() != nullptr && position_ == sequence_.stop()) {
    waits.push_back(side_op(*sequence_.item()));
  } else if (position_ < sequence_.end()) {
    const Pass pass = (*rank().order)[position_];
    const Lane& lane = LaneOf(pass);
    waits.push_back(lane.input >= 0 && !Has(tokens_, lane.input, pass.key())
                        ? channel(lane.input, false, pass)
                        : PassToString(*program_.schedule, pass));
  } else if (start_.is_false && dropped_ < rank().dropped.size()) {
    const auto [index, pass] = rank().dropped[dropped_];
    waits.push_back(channel(index, false, pass));
  }
  for (int stream = 0; stream < kNumStreams; ++stream) {
    if (queues_[stream].empty()) continue;
    const Issued& head = queues_[stream].front();
    waits.push_back(absl::StrCat(
        StreamName(static_cast<Stream>(stream)), " stream: ",
        head.item.side_op < 0 ? PassToString(*program_.schedule, head.pass)
                              : side_op(head.item)));
  }
  return absl::StrCat(who, ", iteration ", start_.iteration, ", position ",
                      position_, ": waits for ", absl::StrJoin(waits, "; "));
}

void RankRun::Trace(TraceOp op) {
  if (!options_.trace) return;
  op.replica = self_.replica;
  op.iteration = start_.iteration;
  ops_.push_back(op);
}

}  // namespace pipewright

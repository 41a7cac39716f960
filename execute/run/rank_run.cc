#include "execute/run/rank_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "execute/transport/message.h"
#include "sim/base/status.h"
#include "sim/program/cursor.h"

namespace pipewright {
namespace {

std::vector<std::vector<Address>> GroupsOf(const Program& program,
                                           int32_t replica) {
  std::vector<std::vector<Address>> groups;
  for (size_t group = 0; group < program.groups.size(); ++group) {
    groups.push_back(GroupRanks(program, static_cast<int32_t>(group), replica));
  }
  return groups;
}

}  // namespace

RankRun::RankRun(const Program& program, Address self,
                 const IsolatedTimes& times, Endpoint* endpoint, Worker* worker,
                 std::shared_ptr<Clock> clock, RankRunOptions options)
    : program_(program),
      self_(self),
      times_(times),
      endpoint_(*endpoint),
      worker_(*worker),
      clock_(std::move(clock)),
      options_(std::move(options)),
      holds_(program.wait_rule != WaitRule::kBuffered),
      frees_(HasKind(*rank().order, PassKind::kFree)),
      sequence_(rank()),
      hook_ends_(rank().hooks.size()),
      meetings_(GroupsOf(program, self.replica), self),
      waits_(
          program, self, endpoint, options_,
          [this](RankMessage message) { return Take(std::move(message)); },
          [this] { return Blocked(); }) {}

absl::Status RankRun::Run() {
  const absl::Status ran = WithoutExceptions([this] { return RunAll(); });
  // Whoever finds out about another's failure says so himself; who is lost on
  // purpose says nothing.
  if (!ran.ok() && ran.code() != absl::StatusCode::kFailedPrecondition &&
      ran.code() != absl::StatusCode::kUnavailable &&
      ran.code() != absl::StatusCode::kAborted) {
    waits_.Tell(RankMessage::Kind::kFailed, ran.message());
  }
  return ran;
}

absl::Status RankRun::RunAll() {
  for (int iteration = 0; iteration < program_.iterations; ++iteration) {
    sent_ = 0;
    ends_s_.push_back(0);
    for (const Start& start : program_.StartsOf(iteration)) {
      PW_RETURN_IF_ERROR(RunStart(start));
    }
    EndedAt(iteration, compute_s_);
    for (const double stream_s : stream_s_) EndedAt(iteration, stream_s);
    if (iteration == 0) times_of_first_.last_end_s = pass_end_s_;
    PW_RETURN_IF_ERROR(CheckLateCame(iteration));
    PW_RETURN_IF_ERROR(worker_.EndIteration(iteration));
  }
  return waits_.AwaitOthers();
}

// A fault that has not acted would look harmless.
absl::Status RankRun::CheckLateCame(int iteration) const {
  for (const Faults::LateMessage& fault : options_.faults.late_messages) {
    if (fault.rank == self_.rank && fault.iteration == iteration &&
        fault.number >= sent_) {
      return BadValue("--fault-late", absl::StrCat("message ", fault.number),
                      sent_ == 0 ? "none, as the rank sends none"
                                 : absl::StrCat("0 to ", sent_ - 1,
                                                ", what the rank sends in "
                                                "that iteration"));
    }
  }
  return absl::OkStatus();
}

absl::Status RankRun::RunStart(const Start& start) {
  start_ = start;
  sequence_.Begin(start);
  hook_ends_.Begin();
  position_ = sequence_.begin();
  PW_RETURN_IF_ERROR(worker_.BeginStart(start));
  while (true) {
    PW_RETURN_IF_ERROR(waits_.Poll());
    wake_s_ = std::numeric_limits<double>::infinity();
    PW_ASSIGN_OR_RETURN(const bool progress, Step());
    if (progress) {
      TellProgress();
      continue;
    }
    if (Ended()) return absl::OkStatus();
    PW_RETURN_IF_ERROR(Wait());
  }
}

void RankRun::TellProgress() {
  if (options_.progress == nullptr) return;
  const double done = static_cast<double>(position_ - sequence_.begin());
  const double all = std::max<double>(
      1, static_cast<double>(sequence_.end() - sequence_.begin()));
  options_.progress->At((start_.iteration + done / all) / program_.iterations);
}

// Does the next thing that can be done. False when nothing can.
absl::StatusOr<bool> RankRun::Step() {
  PW_ASSIGN_OR_RETURN(const bool drained, DrainStreams());
  if (!steps_.empty()) return FinishHandshakes() || drained;
  bool ran = false;
  switch (sequence_.NextAt(position_)) {
    case SideSequence::Next::kEntry:
    case SideSequence::Next::kBlock: {
      const Pass pass = (*rank().order)[position_];
      const bool held = holds_ && EntryOf(pass.kind()) == Entry::kBlock;
      PW_ASSIGN_OR_RETURN(ran, held ? RunHeldBlock() : RunBlock());
      break;
    }
    case SideSequence::Next::kItem: {
      PW_ASSIGN_OR_RETURN(ran, RunItem());
      break;
    }
    case SideSequence::Next::kDrop: {
      PW_ASSIGN_OR_RETURN(ran, DropNext());
      break;
    }
    case SideSequence::Next::kEnd:
      break;
  }
  return ran || drained;
}

// Streams beside compute know no iterations: what is left on them runs beside
// the next one.
bool RankRun::Ended() const {
  if (sequence_.NextAt(position_) != SideSequence::Next::kEnd ||
      !steps_.empty()) {
    return false;
  }
  const bool wants_all = start_.is_false || start_.fails ||
                         start_.iteration + 1 == program_.iterations ||
                         worker_.WantsAllEnded(start_.iteration);
  return pending_ == 0 || !wants_all;
}

absl::Status RankRun::Wait() {
  if (wake_s_ == std::numeric_limits<double>::infinity()) return waits_.Wait();
  return waits_.WaitFor(wake_s_ - clock_->Now() - kSpin_s);
}

bool RankRun::Due(double date_s) {
  if (clock_->Reached(date_s)) return true;
  wake_s_ = std::min(wake_s_, date_s);
  return false;
}

void RankRun::EndedAt(int iteration, double end_s) {
  ends_s_[iteration] = std::max(ends_s_[iteration], end_s);
}

std::string RankRun::Blocked() const {
  const std::string who = RankName(program_, self_);
  if (waits_.ended()) return absl::StrCat(who, " has ended");
  const auto side_op = [&](const SideSequence::Item& item) {
    Op op = {.kind = rank().side_ops[item.side_op].kind,
             .rank = self_.rank,
             .side_op = item.side_op};
    return OpToString(program_, op);
  };
  std::vector<std::string> waits;
  const auto channel = [&](int32_t index, bool send, Pass pass) {
    const Channel& link = own().channels[index];
    return absl::StrCat(send ? "its send to rank " : "what comes from rank ",
                        send ? link.to_rank : link.from_rank, " for ",
                        PassToString(*own().schedule, pass));
  };
  if (!steps_.empty()) {
    for (const auto& [side, drop, ready_s] : steps_.front()) {
      waits.push_back(channel(side.channel, side.send, side.pass));
    }
  } else if (sequence_.item() != nullptr && position_ == sequence_.stop()) {
    waits.push_back(side_op(*sequence_.item()));
  } else if (position_ < sequence_.end()) {
    const Pass pass = (*rank().order)[position_];
    const Lane& lane = LaneOf(pass);
    waits.push_back(lane.input >= 0 && !tokens_.Has(lane.input, pass.key())
                        ? channel(lane.input, false, pass)
                        : PassToString(*own().schedule, pass));
  } else if (sequence_.drop() != nullptr) {
    const auto [index, pass] = *sequence_.drop();
    waits.push_back(channel(index, false, pass));
  }
  for (int stream = 0; stream < kNumStreams; ++stream) {
    if (queues_[stream].empty()) continue;
    const Issued& head = queues_[stream].front();
    waits.push_back(absl::StrCat(
        StreamName(static_cast<Stream>(stream)), " stream: ",
        head.item.side_op < 0 ? PassToString(*own().schedule, head.pass)
                              : side_op(head.item)));
  }
  return absl::StrCat(who, ", iteration ", start_.iteration, ", position ",
                      position_, ": waits for ", absl::StrJoin(waits, "; "));
}

absl::Status RankRun::Take(RankMessage message) {
  // Another process may be out of order.
  if (message.kind == RankMessage::Kind::kArrive &&
      static_cast<size_t>(message.index) >= meetings_.groups()) {
    return absl::UnavailableError(
        absl::StrCat(RankName(program_, message.from),
                     " has sent what no rank of this run sends"));
  }
  if (options_.record != nullptr &&
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
    case RankMessage::Kind::kCopied:
      ended_beside_[message.number] = {
          message.payload.bytes == 0
              ? absl::OkStatus()
              : absl::InternalError(TextOf(message.payload)),
          message.time_s};
      return absl::OkStatus();
    default:
      return absl::InternalError("a message of a kind that nobody sends");
  }
}

void RankRun::Trace(const Start& start, TraceOp op) {
  if (!options_.trace) return;
  op.replica = self_.replica;
  op.iteration = start.iteration;
  ops_.push_back(op);
}

}  // namespace pipewright

#include "execute/transport/nccl_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/transport/meetings.h"
#include "execute/transport/nccl_collective.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// These messages are about the run, so they do not wait for the data in front
// of them.
bool IsUrgent(RankMessage::Kind kind) {
  return kind == RankMessage::Kind::kLost ||
         kind == RankMessage::Kind::kFailed ||
         kind == RankMessage::Kind::kDeadlock;
}

}  // namespace

NcclEndpoint::NcclEndpoint(const Program& program, Address self,
                           Endpoint* control, NcclOptions options)
    : program_(program),
      self_(self),
      control_(*control),
      options_(options),
      plan_(PlanComms(program)) {}

NcclEndpoint::~NcclEndpoint() {
  if (thread_.joinable()) Disconnect(false).IgnoreError();
}

std::string NcclEndpoint::ended_by() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void NcclEndpoint::Tell(RankMessage::Kind kind, const std::string& text) {
  for (int replica = 0; replica < program_.replicas; ++replica) {
    for (int rank = 0; rank < program_.pp(); ++rank) {
      const Address other = {replica, rank};
      if (other == self_) continue;
      control_.Send(other, {.kind = kind, .payload = HostPayload(text)});
    }
  }
}

void NcclEndpoint::AbortAll() {
  for (auto& [index, comm] : comms_) comm->Abort();
  for (auto& [from, waiting] : waiting_) {
    for (const auto& incoming : waiting) {
      if (!incoming->complete) control_.Pending(-1);
    }
    waiting.clear();
  }
}

void NcclEndpoint::Fail(const absl::Status& status, bool tell) {
  if (!failure_.empty()) return;
  failure_ = absl::StrCat(RankName(program_, self_), ": ", status.message());
  if (tell) Tell(RankMessage::Kind::kLost, failure_);
  AbortAll();
}

NcclComm* NcclEndpoint::LinkOf(Address from, Address to) {
  const CommPlan link = {.members = {from, to}};
  const auto found = std::find(plan_.begin(), plan_.end(), link);
  PW_CHECK(found != plan_.end());
  return comms_.at(static_cast<size_t>(found - plan_.begin())).get();
}

void NcclEndpoint::Send(Address to, RankMessage message) {
  std::lock_guard lock(mutex_);
  const Payload payload = message.payload;
  if (to == self_ || !payload.on_device || payload.bytes == 0) {
    control_.Send(to, std::move(message));
    return;
  }
  message.payload.data = nullptr;
  control_.Send(to, std::move(message));
  if (!failure_.empty()) return;
  LinkOf(self_, to)->Enqueue(
      {.what = absl::StrCat("send of ", payload.bytes, " bytes to ",
                            RankName(program_, to)),
       .issue = [payload](const PwNccl& nccl, PwNcclComm* comm) {
         return nccl.send(comm, payload.data.get(), payload.bytes, 1);
       }});
  Pump();
}

void NcclEndpoint::Accept(RankMessage message) {
  const Place from = {message.from.replica, message.from.rank};
  heard_s_ = SteadySeconds();
  if (message.kind == RankMessage::Kind::kJoin) {
    if (message.payload.bytes == sizeof(PwNcclId)) {
      std::memcpy(&ids_[static_cast<size_t>(message.index)],
                  message.payload.data.get(), sizeof(PwNcclId));
    }
    return;
  }
  if (IsUrgent(message.kind)) {
    others_end_ = true;
    if (!connecting_) {
      ready_.push_back(std::move(message));
    } else if (failure_.empty()) {
      failure_ = absl::StrCat(RankName(program_, message.from),
                              " has failed: ", TextOf(message.payload));
      AbortAll();
    }
    return;
  }
  Waiting& waiting = waiting_[from];
  auto incoming = std::make_shared<Incoming>();
  incoming->message = std::move(message);
  Payload& payload = incoming->message.payload;
  incoming->complete =
      !payload.on_device || payload.bytes == 0 || payload.data != nullptr;
  waiting.push_back(incoming);
  if (incoming->complete) return Deliver(waiting);
  absl::StatusOr<Payload> memory =
      memory_ == nullptr ? absl::InternalError("data for a rank that has ended")
                         : memory_->TakeMemory(payload.bytes);
  control_.Pending(1);
  if (!memory.ok()) return Fail(memory.status(), /*tell=*/true);
  payload = *std::move(memory);
  LinkOf(incoming->message.from, self_)
      ->Enqueue(
          {.what = absl::StrCat("receive of ", payload.bytes, " bytes from ",
                                RankName(program_, incoming->message.from)),
           .issue =
               [payload](const PwNccl& nccl, PwNcclComm* comm) {
                 return nccl.receive(comm, payload.data.get(), payload.bytes,
                                     0);
               },
           .ended =
               [this, incoming, &waiting] {
                 incoming->complete = true;
                 Deliver(waiting);
                 control_.Pending(-1);
               }});
}

void NcclEndpoint::Deliver(Waiting& waiting) {
  while (!waiting.empty() && waiting.front()->complete) {
    RankMessage& message = waiting.front()->message;
    if (message.kind == RankMessage::Kind::kDone) {
      done_.insert({message.from.replica, message.from.rank});
    }
    ready_.push_back(std::move(message));
    waiting.pop_front();
  }
}

void NcclEndpoint::PumpControl() {
  RankMessage message;
  while (true) {
    const Received received = control_.Receive(0, &message);
    if (received == Received::kEnded) {
      return Fail(absl::UnavailableError(control_.ended_by()),
                  /*tell=*/false);
    }
    if (received != Received::kMessage) return;
    Accept(std::move(message));
  }
}

void NcclEndpoint::Pump() {
  if (!failure_.empty()) return;
  PumpControl();
  for (auto& [index, comm] : comms_) {
    const absl::Status pumped = comm->Pump(2 * options_.timeout_s);
    if (!pumped.ok()) return Fail(pumped, /*tell=*/true);
  }
}

Received NcclEndpoint::Receive(double timeout_s, RankMessage* message) {
  const double deadline_s = SteadySeconds() + timeout_s;
  int rests = 0;
  while (true) {
    bool alone = false;
    {
      std::lock_guard lock(mutex_);
      Pump();
      if (!ready_.empty()) {
        *message = std::move(ready_.front());
        ready_.pop_front();
        return Received::kMessage;
      }
      if (!failure_.empty()) return Received::kEnded;
      alone = !thread_.joinable() && Idle();
    }
    const double left_s = deadline_s - SteadySeconds();
    if (timeout_s <= 0 || left_s <= 0) return Received::kTimeOut;
    if (!alone) {
      RestAWhile(&rests);
      continue;
    }
    RankMessage taken;
    const Received received = control_.Receive(left_s, &taken);
    if (received == Received::kStuck) return received;
    if (received != Received::kMessage) continue;
    std::lock_guard lock(mutex_);
    Accept(std::move(taken));
  }
}

void NcclEndpoint::Combine(const std::shared_ptr<Collective>& collective) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  absl::StatusOr<NcclComm::Operation> operation =
      CombineOperation(collective, memory_);
  if (!operation.ok()) return Fail(operation.status(), /*tell=*/true);
  const auto found =
      std::find_if(plan_.begin(), plan_.end(), [&](const CommPlan& plan) {
        return plan.group == collective->group &&
               std::find(plan.members.begin(), plan.members.end(), self_) !=
                   plan.members.end();
      });
  PW_CHECK(found != plan_.end());
  control_.Pending(1);
  operation->ended = [this, collective] {
    ready_.push_back({.kind = RankMessage::Kind::kCombined,
                      .from = self_,
                      .index = collective->group,
                      .number = collective->meeting});
    control_.Pending(-1);
  };
  comms_.at(static_cast<size_t>(found - plan_.begin()))
      ->Enqueue(*std::move(operation));
  Pump();
}

}  // namespace pipewright

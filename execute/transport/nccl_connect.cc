// From no communicators to all of them, and back.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/transport/meetings.h"
#include "execute/transport/nccl_transport.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Short against a pass that is worth running (5 ms).
constexpr auto kRest = std::chrono::microseconds(50);
constexpr int kYields = 50;
// What a communicator is tried out with: 64 bytes of each member.
constexpr size_t kTrialBytes = 64;

}  // namespace

void NcclEndpoint::RestAWhile(int* rests) {
  if (++*rests <= kYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kRest);
  }
}

absl::Status NcclEndpoint::Connect(DeviceMemory* memory) {
  std::lock_guard lock(mutex_);
  if (memory == nullptr) {
    Tell(RankMessage::Kind::kFailed, "it has no worker");
    return absl::OkStatus();
  }
  memory_ = memory;
  connecting_ = true;
  const double deadline_s = SteadySeconds() + options_.timeout_s;
  absl::Status connected = Join(deadline_s);
  if (connected.ok()) connected = TryOut(memory);
  if (connected.ok()) connected = AwaitIdle(deadline_s);
  if (connected.ok()) {
    connected = memory->ReserveMemory(BlocksHeld(program_, self_.rank));
  }
  connecting_ = false;
  if (!connected.ok()) {
    Fail(connected, /*tell=*/true);
    return connected;
  }
  if (options_.own_thread) {
    thread_ = std::thread([this] {
      int rests = 0;
      while (true) {
        {
          std::lock_guard pump(mutex_);
          if (stops_) return;
          const absl::Status thrown = WithoutExceptions([this] {
            Pump();
            return absl::OkStatus();
          });
          if (!thrown.ok()) {
            WithoutExceptions([&] {
              Fail(thrown, /*tell=*/true);
              return absl::OkStatus();
            }).IgnoreError();
          }
        }
        RestAWhile(&rests);
      }
    });
  }
  return absl::OkStatus();
}

// In the order of the plan, on which all ranks agree: no member of the first
// communicator waits for another one.
absl::Status NcclEndpoint::Join(double deadline_s) {
  const PwNccl& nccl = *options_.nccl;
  const auto failed = [&nccl](const char* what) {
    return absl::UnavailableError(absl::StrCat(what, ": ", nccl.error()));
  };
  for (size_t index = 0; index < plan_.size(); ++index) {
    if (!(plan_[index].members[0] == self_)) continue;
    PwNcclId& id = ids_[index];
    if (nccl.make_id(&id) < 0) return failed("NCCL, a new communicator");
    for (size_t member = 1; member < plan_[index].members.size(); ++member) {
      control_.Send(plan_[index].members[member],
                    {.kind = RankMessage::Kind::kJoin,
                     .index = static_cast<int32_t>(index),
                     .payload = HostPayload({id.bytes, sizeof(id.bytes)})});
    }
  }
  for (size_t index = 0; index < plan_.size(); ++index) {
    const std::vector<Address>& members = plan_[index].members;
    const auto self = std::find(members.begin(), members.end(), self_);
    if (self == members.end()) continue;
    int rests = 0;
    while (!ids_.contains(index)) {
      PumpControl();
      if (!failure_.empty()) return absl::UnavailableError(failure_);
      if (SteadySeconds() > deadline_s) {
        return absl::UnavailableError(
            absl::StrCat(RankName(program_, members[0]),
                         ": no word on how to join it; lost"));
      }
      RestAWhile(&rests);
    }
    PwNcclComm* comm = nullptr;
    if (nccl.join(options_.device, &ids_.at(index),
                  static_cast<int>(members.size()),
                  static_cast<int>(self - members.begin()), &comm) < 0) {
      return failed("NCCL, joining");
    }
    comms_[index] = std::make_unique<NcclComm>(nccl, comm);
    PW_RETURN_IF_ERROR(AwaitState(comm, deadline_s));
  }
  return absl::OkStatus();
}

absl::Status NcclEndpoint::AwaitState(PwNcclComm* comm, double deadline_s) {
  int rests = 0;
  while (true) {
    const int state = options_.nccl->state(comm);
    if (state == 0) return absl::OkStatus();
    if (state < 0) {
      return absl::UnavailableError(
          absl::StrCat("NCCL, joining: ", options_.nccl->error()));
    }
    PumpControl();
    if (!failure_.empty()) return absl::UnavailableError(failure_);
    if (SteadySeconds() > deadline_s) {
      return absl::UnavailableError(
          absl::StrCat("NCCL, joining: not all members have come within ",
                       options_.timeout_s, " s"));
    }
    RestAWhile(&rests);
  }
}

absl::Status NcclEndpoint::TryOut(DeviceMemory* memory) {
  for (auto& [index, comm] : comms_) {
    const CommPlan& plan = plan_[index];
    PW_ASSIGN_OR_RETURN(const Payload block, memory->TakeMemory(kTrialBytes));
    NcclComm::Operation operation = {.what = "trial"};
    if (plan.group >= 0) {
      operation.issue = [block](const PwNccl& nccl, PwNcclComm* on) {
        return nccl.all_reduce(on, block.data.get(), block.data.get(),
                               kTrialBytes / sizeof(float));
      };
    } else {
      const bool sends = plan.members[0] == self_;
      operation.issue = [block, sends](const PwNccl& nccl, PwNcclComm* on) {
        return sends ? nccl.send(on, block.data.get(), kTrialBytes, 1)
                     : nccl.receive(on, block.data.get(), kTrialBytes, 0);
      };
    }
    comm->Enqueue(std::move(operation));
  }
  return absl::OkStatus();
}

bool NcclEndpoint::Idle() const {
  return std::all_of(comms_.begin(), comms_.end(),
                     [](const auto& each) { return each.second->idle(); });
}

absl::Status NcclEndpoint::AwaitIdle(double deadline_s) {
  int rests = 0;
  while (true) {
    Pump();
    if (!failure_.empty()) return absl::UnavailableError(failure_);
    if (Idle()) return absl::OkStatus();
    if (SteadySeconds() > deadline_s) {
      return absl::UnavailableError(absl::StrCat(
          "NCCL: a first transfer goes on for ", options_.timeout_s, " s"));
    }
    RestAWhile(&rests);
  }
}

absl::Status NcclEndpoint::Disconnect(bool well) {
  int rests = 0;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    heard_s_ = SteadySeconds();
  }
  while (well) {
    {
      std::lock_guard lock(mutex_);
      Pump();
      const size_t others =
          static_cast<size_t>(program_.replicas) * program_.pp() - 1;
      if (others_end_) well = false;
      if (!failure_.empty()) {
        status = absl::UnavailableError(failure_);
        well = false;
      } else if (done_.size() == others && Idle()) {
        break;
      } else if (SteadySeconds() - heard_s_ > 2 * options_.timeout_s) {
        status = absl::UnavailableError(
            absl::StrCat(RankName(program_, self_),
                         ": has ended and hears nothing of the others"));
        well = false;
      }
    }
    RestAWhile(&rests);
  }
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
    if (!well) AbortAll();
    memory_ = nullptr;
  }
  if (thread_.joinable()) thread_.join();
  return status;
}

}  // namespace pipewright

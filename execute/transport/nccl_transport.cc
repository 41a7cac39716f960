#include "execute/transport/nccl_transport.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "execute/transport/message.h"
#include "execute/transport/nccl_comm.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/check.h"
#include "sim/base/load_module.h"
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
  Waiting& waiting = waiting_[message.from];
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
      done_.insert(message.from);
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

namespace {

// Where a starter says a process's number, and its number within its machine:
// Open MPI; MPICH and Intel MPI; Slurm; torchrun.
constexpr struct {
  const char* number;
  const char* local;
} kStarters[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
                 {"PMI_RANK", "MPI_LOCALRANKID"},
                 {"SLURM_PROCID", "SLURM_LOCALID"},
                 {"RANK", "LOCAL_RANK"}};

}  // namespace

absl::StatusOr<int> GpuOf(int process, int gpus,
                          const EnvironmentVariable& variable) {
  for (const auto& [number_name, local_name] : kStarters) {
    const char* const number_text = variable(number_name);
    const char* const local_text = variable(local_name);
    int number = 0;
    int local = 0;
    // A shell that Slurm has started hands its own on to all that it starts.
    if (number_text == nullptr || local_text == nullptr ||
        !absl::SimpleAtoi(number_text, &number) || number != process ||
        !absl::SimpleAtoi(local_text, &local) || local < 0) {
      continue;
    }
    // A starter may show each process a GPU of its own and no other.
    if (gpus == 1) return 0;
    if (local < gpus) return local;
    return absl::InvalidArgumentError(
        absl::StrCat("process ", process, " is number ", local,
                     " of its machine (", local_name, "), where it sees ", gpus,
                     " GPUs; start one process a GPU, or show each its own "
                     "(CUDA_VISIBLE_DEVICES)"));
  }
  return process % gpus;
}

absl::StatusOr<int> GpuOfProcess(const PwNccl& nccl, int process) {
  const int gpus = nccl.device_count();
  if (gpus < 1) {
    return absl::UnavailableError(
        absl::StrCat("--transport nccl: no CUDA device", gpus < 0 ? ": " : "",
                     gpus < 0 ? nccl.error() : ""));
  }
  return GpuOf(process, gpus, [](const char* name) { return getenv(name); });
}

absl::StatusOr<const PwNccl*> LoadNccl() {
  PW_ASSIGN_OR_RETURN(
      void* const function,
      LoadModule({.library = "libpipewright_nccl.so",
                  .variable = "PIPEWRIGHT_NCCL_LIBRARY",
                  .function = "pw_nccl"},
                 "the NCCL transport is built where a CUDA toolkit and nccl.h "
                 "are found"));
  const PwNccl* const nccl =
      reinterpret_cast<const PwNccl* (*)(void)>(function)();
  if (nccl->abi != PW_NCCL_ABI) {
    return absl::UnavailableError(
        "libpipewright_nccl.so is of another version: build both from the "
        "same sources");
  }
  if (nccl->version() < 0) {
    return absl::UnavailableError(
        absl::StrCat(nccl->error(),
                     "; NCCL (libnccl.so.2) must be where the dynamic linker "
                     "looks, LD_LIBRARY_PATH may say where"));
  }
  return nccl;
}

// From no communicators to all of them, and back.

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

// libnccl: communicators (NCCL user guide, "Communicator Creation and
// Management Functions"). What they do together is in tests/emulation/nccl;
// members meet in a folder, so that threads and processes are the same to it.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "tests/emulation/libraries/nccl_comm.h"
#include "tests/emulation/nccl/text.h"
#include "tests/emulation/runtime/queue.h"
#include "tests/emulation/runtime/settings.h"

using emulated::GiveNccl;
using emulated::StateOf;
using emulated_nccl::Group;
using emulated_nccl::Member;
using emulated_nccl::Operation;
using emulated_nccl::Result;
using emulated_nccl::Text;

namespace emulated {
namespace {

// A call that does not block says so often that it goes on.
constexpr int kGoesOn = 2;

// A latency and the rate of a ring's link (NVLink 4: 450 GB/s each way, data
// sheet of the H100); made up as all times here.
constexpr double kLatency = 8e-6;
constexpr double kRate = 200e9;

thread_local std::string last_error;

// Seconds that a member waits for the others before that is a violation.
double Patience() {
  return static_cast<double>(Setting("EMULATION_PATIENCE", 60));
}

std::string FolderOf(const std::string& name) {
  const char* const rooms = std::getenv("EMULATION_ROOMS");
  return Text(rooms != nullptr
                  ? rooms
                  : std::filesystem::temp_directory_path().string().c_str(),
              "/emulated-", name);
}

std::string DeviceName(int device) {
  char bus[32] = "";
  cudaDeviceGetPCIBusId(bus, sizeof(bus), device);
  return Text("CUDA device ", bus);
}

double SecondsOf(const Operation& operation, int members) {
  double seconds = kLatency;
  for (const auto& call : operation.calls()) {
    const bool shards = call.kind == emulated_nccl::Kind::kAllGather ||
                        call.kind == emulated_nccl::Kind::kReduceScatter;
    const double passes = shards ? members - 1.0
                          : call.kind == emulated_nccl::Kind::kAllReduce
                              ? 2.0 * (members - 1) / members
                              : 1;
    seconds +=
        static_cast<double>(call.count * call.value_bytes) * passes / kRate;
  }
  return seconds;
}

// All machines of an emulated job are this one; Slurm's number of a node tells
// their GPUs apart.
std::string PlaceOf(int device) {
  const char* const node = std::getenv("SLURM_NODEID");
  if (node == nullptr) return DeviceName(device);
  return Text("node ", node, ", ", DeviceName(device));
}

ncclComm_t Make(const std::string& name, int members, int self,
                const ncclConfig_t* config) {
  auto* const comm = new ncclComm;
  comm->device = CurrentDevice();
  comm->blocking = config == nullptr || config->blocking != 0;
  comm->member = std::make_shared<Member>(
      name, emulated_nccl::FileBoard(FolderOf(name)), members, self,
      PlaceOf(comm->device),
      emulated_nccl::Rules{.violation =
                               [](const std::string& text) {
                                 Violation("NCCL: %s", text.c_str());
                               },
                           .calls_go_on = comm->blocking ? 0 : kGoesOn,
                           .with_data = !ClockOnly(),
                           .first = Seed(),
                           .patience_s = Patience()},
      [members](std::shared_ptr<Operation> operation, void* stream) {
        const std::string what = Text("NCCL ", operation->Name());
        const double seconds = SecondsOf(*operation, members);
        QueueMeeting(
            static_cast<cudaStream_t>(stream), what.c_str(), seconds,
            [operation](double now_s) { return operation->Step(now_s); },
            [operation] { return operation->met_s(); });
      });
  return comm;
}

// Until a call that blocks is over; kInProgress where that never comes.
Result Await(ncclComm_t comm) {
  const auto begun = std::chrono::steady_clock::now();
  while (true) {
    const Result state = StateOf(comm);
    if (state != Result::kInProgress) return state;
    const std::chrono::duration<double> waited =
        std::chrono::steady_clock::now() - begun;
    if (waited.count() > Patience()) {
      Violation("NCCL: member %d of %d of %s waits for others that never join",
                comm->member->self(), comm->member->members(),
                comm->member->name().c_str());
      return state;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

ncclResult_t AwaitOrGoOn(ncclComm_t comm) {
  if (!comm->blocking) return ncclInProgress;
  if (Group::Open()) {
    Group::AtEnd([comm] { return Await(comm); });
    return ncclSuccess;
  }
  return GiveNccl(Await(comm), comm);
}

}  // namespace

ncclResult_t GiveNccl(Result result, ncclComm_t comm) {
  if (result == Result::kInProgress && (comm == nullptr || comm->blocking)) {
    return ncclSystemError;
  }
  if (result != Result::kSuccess && result != Result::kInProgress) {
    last_error = comm == nullptr ? "" : comm->member->failure();
  }
  return static_cast<ncclResult_t>(result);
}

Result StateOf(ncclComm_t comm) {
  if (comm->split_into != nullptr) {
    Member::Part part;
    const Result split =
        comm->member->Split(comm->split_colour, comm->split_key, &part);
    if (split != Result::kSuccess) return split;
    ncclComm_t* const into = std::exchange(comm->split_into, nullptr);
    if (part.members > 0) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = comm->blocking ? 1 : 0;
      const int current = CurrentDevice();
      MakeCurrent(comm->device);
      *into = Make(part.name, part.members, part.self, &config);
      MakeCurrent(current);
      if (comm->blocking) return Await(*into);
    }
  }
  return comm->member->State();
}

}  // namespace emulated

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  std::random_device random;
  std::memset(id, 0, sizeof(*id));
  const std::string name = Text("nccl-", getpid(), "-", random(), random());
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int members,
                                    ncclUniqueId id, int self,
                                    ncclConfig_t* config) {
  if (made == nullptr || members < 1 || self < 0 || self >= members ||
      std::strncmp(id.internal, "nccl-", 5) != 0 ||
      (config != nullptr && config->magic != 0xcafebeef)) {
    return ncclInvalidArgument;
  }
  *made = emulated::Make(id.internal, members, self, config);
  return emulated::AwaitOrGoOn(*made);
}

ncclResult_t ncclCommInitRank(ncclComm_t* made, int members, ncclUniqueId id,
                              int self) {
  return ncclCommInitRankConfig(made, members, id, self, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key,
                           ncclComm_t* made, ncclConfig_t*) {
  if (comm == nullptr || made == nullptr ||
      (colour < 0 && colour != NCCL_SPLIT_NOCOLOR)) {
    return ncclInvalidArgument;
  }
  const Result state = StateOf(comm);
  if (state != Result::kSuccess || comm->split_into != nullptr) {
    return state == Result::kSuccess || state == Result::kInProgress
               ? ncclInvalidArgument
               : GiveNccl(state, comm);
  }
  *made = nullptr;
  comm->split_into = made;
  comm->split_colour = colour;
  comm->split_key = key;
  return emulated::AwaitOrGoOn(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (comm == nullptr || state == nullptr) return ncclInvalidArgument;
  if (comm->finalized) {
    *state = comm->member->Idle() ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
  }
  const Result found = StateOf(comm);
  // A communicator that blocks is never seen in progress.
  *state = found == Result::kInProgress && comm->blocking
               ? ncclSuccess
               : static_cast<ncclResult_t>(found);
  if (*state != ncclSuccess && *state != ncclInProgress) {
    GiveNccl(found, comm);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr || comm->finalized) return ncclInvalidArgument;
  comm->finalized = true;
  return comm->member->Idle() ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->member->Leave();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->member->Abort();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (comm == nullptr || count == nullptr) return ncclInvalidArgument;
  *count = comm->member->members();
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  if (comm == nullptr || device == nullptr) return ncclInvalidArgument;
  *device = comm->device;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (comm == nullptr || rank == nullptr) return ncclInvalidArgument;
  *rank = comm->member->self();
  return ncclSuccess;
}

const char* ncclGetLastError(ncclComm_t) {
  return emulated::last_error.c_str();
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "another error of the emulation";
  }
}

}  // extern "C"

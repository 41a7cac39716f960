// Built as libpipewright_nccl.so, which the program loads for `--transport
// nccl`. NCCL itself is looked up by name at run time, so that this library
// loads without it and can say what is missing. The CUDA runtime is that of
// libpipewright_cuda.so: there is one in a process.
//
// Sources: nccl.h of NCCL 2.28.9, and the NCCL user guide, "Group Calls",
// "Fault Tolerance" (communicators that do not block, abort) and "Using
// multiple NCCL communicators concurrently".
#include "execute/transport/nccl/module.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <time.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/python_folders.h"
#include "kernels/cuda/runtime.h"
#include "kernels/module.h"

// Communicators that do not block: since 2.14. P2P: since 2.7.
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0),
              "nccl.h is older than 2.14");
static_assert(sizeof(PwNcclId) == sizeof(ncclUniqueId));

struct PwNcclComm {
  ncclComm_t comm = nullptr;
  int device = 0;
  cudaStream_t stream = nullptr;
  std::deque<cudaEvent_t> marks;  // that have not been reached
  std::deque<cudaEvent_t> spare;
  int64_t reached = 0;
  cudaEvent_t clocks[2] = {};  // made at their first use
};

namespace {

thread_local std::string last_error;

int Fail(std::string text) {
  last_error = std::move(text);
  return -1;
}

struct Nccl {
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetVersion) version;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclReduce) reduce;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) end;
  // Since 2.13; null in an older one.
  const char* (*last_error)(ncclComm_t);
  std::string missing;
};

const Nccl& Real() {
  static const Nccl* const nccl = [] {
    auto* const found = new Nccl();
    void* library = nullptr;
    std::vector<std::string> names = {"libnccl.so.2"};
    for (std::string& path :
         pipewright::cuda::InPythonPackages("libnccl.so.2")) {
      names.push_back(std::move(path));
    }
    names.push_back("libnccl.so");
    for (const std::string& name : names) {
      library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
      const char* const why = dlerror();
      if (found->missing.empty()) found->missing = why == nullptr ? name : why;
    }
    if (library == nullptr) return found;
    found->missing.clear();
    const auto find = [&](const char* name, auto* function) {
      *function =
          reinterpret_cast<std::remove_reference_t<decltype(*function)>>(
              dlsym(library, name));
      if (*function == nullptr && found->missing.empty()) {
        found->missing = std::string("libnccl.so.2 has no ") + name;
      }
    };
    find("ncclGetErrorString", &found->error_string);
    find("ncclGetVersion", &found->version);
    find("ncclGetUniqueId", &found->unique_id);
    find("ncclCommInitRankConfig", &found->init);
    find("ncclCommGetAsyncError", &found->async_error);
    find("ncclGroupStart", &found->group_start);
    find("ncclGroupEnd", &found->group_end);
    find("ncclSend", &found->send);
    find("ncclRecv", &found->receive);
    find("ncclAllReduce", &found->all_reduce);
    find("ncclAllGather", &found->all_gather);
    find("ncclReduceScatter", &found->reduce_scatter);
    find("ncclBroadcast", &found->broadcast);
    find("ncclReduce", &found->reduce);
    find("ncclCommFinalize", &found->finalize);
    find("ncclCommDestroy", &found->destroy);
    find("ncclCommAbort", &found->end);
    found->last_error = reinterpret_cast<const char* (*)(ncclComm_t)>(
        dlsym(library, "ncclGetLastError"));
    return found;
  }();
  return *nccl;
}

// 0 for an operation that has ended well or still goes on.
int Check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return 0;
  std::string text = std::string(what) + ": " + Real().error_string(result);
  if (Real().last_error != nullptr) {
    const char* const more = Real().last_error(comm);
    if (more != nullptr && *more != '\0')
      text += std::string(" (") + more + ")";
  }
  return Fail(std::move(text));
}

struct Runtime {
  const PwCudaRuntime* cuda = nullptr;
  std::string missing;
};

const Runtime& Found() {
  static const Runtime* const runtime = [] {
    auto* const found = new Runtime();
    std::string path;
    void* const function = pipewright::OpenModule(
        "libpipewright_cuda.so", "PIPEWRIGHT_CUDA_LIBRARY", "pw_cuda_runtime",
        &path, &found->missing);
    if (function == nullptr) return found;
    const PwCudaRuntime* const cuda =
        reinterpret_cast<decltype(&pw_cuda_runtime)>(function)();
    if (cuda->abi == PW_CUDA_RUNTIME_ABI) {
      found->cuda = cuda;
    } else {
      found->missing = path +
                       " is of another version: build both from the "
                       "same sources";
    }
    return found;
  }();
  return *runtime;
}

// Not before HasCuda().
const PwCudaRuntime& Cuda() { return *Found().cuda; }

int HasCuda() {
  return Found().cuda != nullptr ? 0 : Fail("CUDA: " + Found().missing);
}

int CheckCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return 0;
  Cuda().get_last_error();
  return Fail(std::string(what) + ": " + Cuda().get_error_string(error));
}

int Loaded() {
  if (Real().missing.empty()) return 0;
  return Fail("NCCL: " + Real().missing);
}

int DeviceCount() {
  int count = 0;
  if (HasCuda() ||
      CheckCuda(Cuda().get_device_count(&count), "cudaGetDeviceCount")) {
    return -1;
  }
  return count;
}

int Version() {
  int version = 0;
  if (Loaded() || Check(Real().version(&version), "ncclGetVersion")) return -1;
  return version;
}

int MakeId(PwNcclId* id) {
  if (Loaded()) return -1;
  return Check(Real().unique_id(reinterpret_cast<ncclUniqueId*>(id)),
               "ncclGetUniqueId");
}

void Free(PwNcclComm* comm) {
  for (cudaEvent_t event : comm->marks) Cuda().event_destroy(event);
  for (cudaEvent_t event : comm->spare) Cuda().event_destroy(event);
  for (cudaEvent_t event : comm->clocks) {
    if (event != nullptr) Cuda().event_destroy(event);
  }
  if (comm->stream != nullptr) Cuda().stream_destroy(comm->stream);
  delete comm;
}

int Join(int device, const PwNcclId* id, int members, int self,
         PwNcclComm** comm) {
  *comm = nullptr;
  if (Loaded() || HasCuda()) return -1;
  if (CheckCuda(Cuda().set_device(device), "cudaSetDevice")) return -1;
  auto* const made = new PwNcclComm{.device = device};
  int lowest = 0;
  int highest = 0;
  // Its few blocks go before those of a pass that waits for multiprocessors.
  if (CheckCuda(Cuda().stream_priority_range(&lowest, &highest),
                "stream priorities") ||
      CheckCuda(
          Cuda().stream_create(&made->stream, cudaStreamNonBlocking, highest),
          "cudaStreamCreateWithPriority")) {
    Free(made);
    return -1;
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId unique;
  static_assert(sizeof(unique) == sizeof(*id));
  __builtin_memcpy(&unique, id, sizeof(unique));
  const int begun =
      Check(Real().init(&made->comm, members, unique, self, &config),
            "ncclCommInitRankConfig");
  if (begun < 0) {
    if (made->comm != nullptr) Real().end(made->comm);
    Free(made);
    return -1;
  }
  *comm = made;
  return 0;
}

int State(PwNcclComm* comm) {
  ncclResult_t state = ncclSuccess;
  if (Check(Real().async_error(comm->comm, &state), "ncclCommGetAsyncError",
            comm->comm)) {
    return -1;
  }
  if (state == ncclInProgress) return 1;
  return Check(state, "NCCL", comm->comm);
}

int BeginGroup() { return Check(Real().group_start(), "ncclGroupStart"); }
int EndGroup() { return Check(Real().group_end(), "ncclGroupEnd"); }

// Makes the calling thread work on the communicator's device.
int On(PwNcclComm* comm) {
  return CheckCuda(Cuda().set_device(comm->device), "cudaSetDevice");
}

int Send(PwNcclComm* comm, const void* from, size_t bytes, int to) {
  if (On(comm)) return -1;
  return Check(Real().send(from, bytes, ncclChar, to, comm->comm, comm->stream),
               "ncclSend", comm->comm);
}

int Receive(PwNcclComm* comm, void* into, size_t bytes, int from) {
  if (On(comm)) return -1;
  return Check(
      Real().receive(into, bytes, ncclChar, from, comm->comm, comm->stream),
      "ncclRecv", comm->comm);
}

int AllReduce(PwNcclComm* comm, const void* from, void* into, size_t count) {
  if (On(comm)) return -1;
  return Check(Real().all_reduce(from, into, count, ncclFloat32, ncclSum,
                                 comm->comm, comm->stream),
               "ncclAllReduce", comm->comm);
}

int AllGather(PwNcclComm* comm, const void* from, void* into, size_t count) {
  if (On(comm)) return -1;
  return Check(Real().all_gather(from, into, count, ncclFloat32, comm->comm,
                                 comm->stream),
               "ncclAllGather", comm->comm);
}

int ReduceScatter(PwNcclComm* comm, const void* from, void* into,
                  size_t count) {
  if (On(comm)) return -1;
  return Check(Real().reduce_scatter(from, into, count, ncclFloat32, ncclSum,
                                     comm->comm, comm->stream),
               "ncclReduceScatter", comm->comm);
}

int Broadcast(PwNcclComm* comm, const void* from, void* into, size_t count,
              int root) {
  if (On(comm)) return -1;
  return Check(Real().broadcast(from, into, count, ncclFloat32, root,
                                comm->comm, comm->stream),
               "ncclBroadcast", comm->comm);
}

int Reduce(PwNcclComm* comm, const void* from, void* into, size_t count,
           int root) {
  if (On(comm)) return -1;
  return Check(Real().reduce(from, into, count, ncclFloat32, ncclSum, root,
                             comm->comm, comm->stream),
               "ncclReduce", comm->comm);
}

int Copy(PwNcclComm* comm, void* to, const void* from, size_t bytes) {
  if (On(comm)) return -1;
  return CheckCuda(Cuda().memcpy_async(to, from, bytes,
                                       cudaMemcpyDeviceToDevice, comm->stream),
                   "cudaMemcpyAsync");
}

int Mark(PwNcclComm* comm) {
  if (On(comm)) return -1;
  if (comm->spare.empty()) {
    cudaEvent_t event = nullptr;
    if (CheckCuda(Cuda().event_create(&event, cudaEventDisableTiming),
                  "cudaEventCreate")) {
      return -1;
    }
    comm->spare.push_back(event);
  }
  cudaEvent_t event = comm->spare.back();
  if (CheckCuda(Cuda().event_record(event, comm->stream), "cudaEventRecord")) {
    return -1;
  }
  comm->spare.pop_back();
  comm->marks.push_back(event);
  return 0;
}

int64_t Reached(PwNcclComm* comm) {
  while (!comm->marks.empty()) {
    const cudaError_t error = Cuda().event_query(comm->marks.front());
    if (error == cudaErrorNotReady) {
      Cuda().get_last_error();
      break;
    }
    if (CheckCuda(error, "cudaEventQuery")) return -1;
    comm->spare.push_back(comm->marks.front());
    comm->marks.pop_front();
    ++comm->reached;
  }
  return comm->reached;
}

int Clock(PwNcclComm* comm, int end) {
  if (On(comm)) return -1;
  cudaEvent_t& event = comm->clocks[end];
  if (event == nullptr &&
      CheckCuda(Cuda().event_create(&event, cudaEventDefault),
                "cudaEventCreate")) {
    return -1;
  }
  return CheckCuda(Cuda().event_record(event, comm->stream), "cudaEventRecord");
}

int Elapsed(PwNcclComm* comm, double* seconds) {
  float milliseconds = 0;
  if (On(comm) ||
      CheckCuda(Cuda().event_elapsed_time(&milliseconds, comm->clocks[0],
                                          comm->clocks[1]),
                "cudaEventElapsedTime")) {
    return -1;
  }
  *seconds = 1e-3 * static_cast<double>(milliseconds);
  return 0;
}

void Abort(PwNcclComm* comm) {
  On(comm);
  Real().end(comm->comm);
  Free(comm);
}

void Leave(PwNcclComm* comm) {
  On(comm);
  // Finalizing does not block either. A member that does not come to it holds
  // up no other: aborting frees as well.
  const timespec rest = {.tv_sec = 0, .tv_nsec = 1'000'000};
  ncclResult_t state = Real().finalize(comm->comm);
  for (int wait = 0; wait < 5000 && (state == ncclInProgress); ++wait) {
    nanosleep(&rest, nullptr);
    if (Real().async_error(comm->comm, &state) != ncclSuccess) break;
  }
  if (state == ncclSuccess) {
    Real().destroy(comm->comm);
  } else {
    Real().end(comm->comm);
  }
  Free(comm);
}

const char* Error() { return last_error.c_str(); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const PwNccl* pw_nccl(void) {
  // Every communicator's stream needs a hardware queue beside those of compute
  // and copies. With the default of 8, two streams may share one, and a
  // transfer that waits for its other end would hold back another. CUDA reads
  // this at the first use of a device. A value that the user has set stays.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // As kernels/loader.cc does, which may come after the first use.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  static const PwNccl table = {
      .abi = PW_NCCL_ABI,
      .device_count = DeviceCount,
      .version = Version,
      .make_id = MakeId,
      .join = Join,
      .state = State,
      .begin_group = BeginGroup,
      .end_group = EndGroup,
      .send = Send,
      .receive = Receive,
      .all_reduce = AllReduce,
      .all_gather = AllGather,
      .reduce_scatter = ReduceScatter,
      .broadcast = Broadcast,
      .reduce = Reduce,
      .copy = Copy,
      .mark = Mark,
      .reached = Reached,
      .clock = Clock,
      .elapsed = Elapsed,
      .cut_off = Abort,
      .leave = Leave,
      .error = Error,
  };
  return &table;
}

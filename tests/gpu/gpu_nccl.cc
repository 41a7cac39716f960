// libpipewright_nccl.so on one GPU: a communicator of one member, to which it
// sends and from which it receives, and every collective. What it cannot show
// is anything between two GPUs.
//
//   gpu_nccl LIBRARY
//
// Exit 0: all hold; 1: not; 77: no CUDA device, or no NCCL here.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "execute/transport/nccl/module.h"
#include "kernels/loader.h"

namespace {

constexpr size_t kCount = 1 << 16;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr double kPatience_s = 60;

struct Bench {
  const PwNccl* nccl;
  const PwKernels* kernels;
  PwDevice* device;
  PwNcclComm* comm;
  int64_t marks = 0;
  int failed = 0;

  // Until `done`, or not for too long.
  bool Await(const std::function<int()>& ask) const {
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      const int answer = ask();
      if (answer == 0) return true;
      if (answer < 0) return false;
      const std::chrono::duration<double> waited =
          std::chrono::steady_clock::now() - start;
      if (waited.count() > kPatience_s) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  bool Settled() const {
    return Await([this] { return nccl->state(comm); });
  }

  // Calls, marks, awaits the mark and holds what came against what went.
  void Check(const char* name, void* into, const void* from,
             const std::function<int()>& call) {
    std::vector<float> sent(kCount);
    std::vector<float> come(kCount);
    double seconds = 0;
    bool good = kernels->zero(device, nullptr, into, kBytes) == PW_OK &&
                kernels->copy(device, nullptr, PW_DEVICE_TO_HOST, sent.data(),
                              from, kBytes) == PW_OK &&
                kernels->synchronize(device, nullptr) == PW_OK;
    good = good && nccl->clock(comm, 0) == 0 && call() == 0 && Settled() &&
           nccl->clock(comm, 1) == 0 && nccl->mark(comm) == 0;
    ++marks;
    good = good && Await([this] {
             const int64_t reached = nccl->reached(comm);
             return reached < 0 ? -1 : reached < marks ? 1 : 0;
           }) &&
           nccl->elapsed(comm, &seconds) == 0 && seconds > 0;
    good = good &&
           kernels->copy(device, nullptr, PW_DEVICE_TO_HOST, come.data(), into,
                         kBytes) == PW_OK &&
           kernels->synchronize(device, nullptr) == PW_OK;
    const bool same =
        good && std::memcmp(sent.data(), come.data(), kBytes) == 0;
    std::printf("%-8s %s, %.1f us %s\n", same ? "ok" : "FAILED", name,
                1e6 * seconds, good ? "" : nccl->error());
    failed += same ? 0 : 1;
  }
};

int Run(const PwNccl* nccl, const PwKernels* kernels, PwDevice* device) {
  PwNcclId id;
  Bench bench = {nccl, kernels, device, nullptr};
  if (nccl->make_id(&id) < 0 || nccl->join(0, &id, 1, 0, &bench.comm) < 0 ||
      !bench.Settled()) {
    std::printf("FAILED: joining: %s\n", nccl->error());
    return 1;
  }
  void* from = nullptr;
  void* into = nullptr;
  if (kernels->allocate(device, kBytes, &from) != PW_OK ||
      kernels->allocate(device, kBytes, &into) != PW_OK ||
      kernels->random(device, nullptr, PW_FP32, from, kCount, 1, 1) != PW_OK ||
      kernels->synchronize(device, nullptr) != PW_OK) {
    std::printf("FAILED: %s\n", kernels->error());
    return 1;
  }
  PwNcclComm* const comm = bench.comm;
  bench.Check("send and receive", into, from, [&] {
    return nccl->begin_group() < 0 || nccl->send(comm, from, kBytes, 0) < 0 ||
                   nccl->receive(comm, into, kBytes, 0) < 0 ||
                   nccl->end_group() < 0
               ? -1
               : 0;
  });
  bench.Check("all-reduce", into, from,
              [&] { return nccl->all_reduce(comm, from, into, kCount); });
  bench.Check("all-gather", into, from,
              [&] { return nccl->all_gather(comm, from, into, kCount); });
  bench.Check("reduce-scatter", into, from,
              [&] { return nccl->reduce_scatter(comm, from, into, kCount); });
  bench.Check("broadcast", into, from,
              [&] { return nccl->broadcast(comm, from, into, kCount, 0); });
  bench.Check("reduce", into, from,
              [&] { return nccl->reduce(comm, from, into, kCount, 0); });
  bench.Check("copy", into, from,
              [&] { return nccl->copy(comm, into, from, kBytes); });
  nccl->leave(comm);
  // One that is aborted while it is being made.
  PwNcclComm* second = nullptr;
  if (nccl->make_id(&id) < 0 || nccl->join(0, &id, 2, 0, &second) < 0) {
    std::printf("FAILED: a second communicator: %s\n", nccl->error());
    return 1;
  }
  std::printf("ok       waits for a member that never comes: state %d\n",
              nccl->state(second));
  nccl->cut_off(second);
  std::printf("ok       and is aborted\n");
  kernels->release(device, from);
  kernels->release(device, into);
  return bench.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::printf("usage: gpu_nccl LIBRARY\n");
    return 1;
  }
  void* const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  using Function = const PwNccl* (*)();
  const auto function = reinterpret_cast<Function>(
      library == nullptr ? nullptr : dlsym(library, "pw_nccl"));
  if (function == nullptr || function()->abi != PW_NCCL_ABI) {
    std::printf("FAILED: %s is not what it should be\n", arguments[1]);
    return 1;
  }
  const PwNccl* const nccl = function();
  const int version = nccl->version();
  if (version < 0) {
    std::printf("SKIP: %s\n", nccl->error());
    return 77;
  }
  char error[1024] = "";
  const PwKernels* const kernels =
      pw_load_kernels("cuda", error, sizeof(error));
  PwDevice* device = nullptr;
  if (kernels == nullptr) {
    const bool no_device = std::strncmp(error, "no CUDA device", 14) == 0;
    std::printf("%s: %s\n", no_device ? "SKIP" : "FAILED", error);
    return no_device ? 77 : 1;
  }
  if (kernels->open(0, &device) != PW_OK) {
    std::printf("FAILED: %s\n", kernels->error());
    return 1;
  }
  std::printf("NCCL %d\n", version);
  const int result = Run(nccl, kernels, device);
  kernels->close(device);
  return result;
}

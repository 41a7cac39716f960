#include "tests/support/fake_kernels.h"

#include <atomic>
#include <mutex>

namespace pipewright::testing {
namespace {

FakeDevice fake;
std::atomic<int> readings = 0;
std::atomic<int> releases = 0;
// Ranks call in threads of their own.
std::mutex adam_mutex;
std::vector<AdamCall> adam_calls;
FakeGraphs graphs;

int32_t Devices() { return fake.devices; }

PwStatus Info(PwDevice* device, PwDeviceInfo* info) {
  const PwStatus status = pw_cpu_kernels()->info(device, info);
  info->free_bytes = fake.free_bytes;
  info->capability = fake.capability;
  if (fake.cache_bytes >= 0) info->cache_bytes = fake.cache_bytes;
  info->fp8_gemm = fake.fp8_gemm;
  info->types = fake.types;
  return status;
}

PwStatus Elapsed(PwDevice*, PwEvent*, PwEvent*, double* seconds) {
  *seconds = fake.elapsed ? fake.elapsed() : fake.seconds;
  return PW_OK;
}

// All are the one CPU.
PwStatus Open(int32_t index, PwDevice** device) {
  if (index == fake.missing) return PW_NO_DEVICE;
  return pw_cpu_kernels()->open(0, device);
}

PwStatus Allocate(PwDevice* device, size_t bytes, void** memory) {
  if (bytes > fake.largest_block) return PW_NO_MEMORY;
  return pw_cpu_kernels()->allocate(device, bytes, memory);
}

PwStatus HoldStream(PwDevice*, PwStream*) {
  if (fake.hear) fake.hear("hold");
  return PW_OK;
}

PwStatus ReleaseStreams(PwDevice*) {
  if (fake.hear) fake.hear("release");
  return ++releases == fake.failing_release ? PW_FAILED : PW_OK;
}

PwStatus Synchronize(PwDevice*, PwStream*) {
  if (fake.hear) fake.hear("wait");
  return PW_OK;
}

PwStatus Gemm(PwDevice* device, PwStream* stream, const PwGemm* gemm,
              const void* a, const void* b, const void* bias, void* c) {
  if (fake.hear) fake.hear("gemm");
  if (fake.multiplies) fake.multiplies(*gemm, bias != nullptr);
  if (gemm->type == PW_BF16 && (fake.types >> PW_BF16 & 1) != 0) return PW_OK;
  return pw_cpu_kernels()->gemm(device, stream, gemm, a, b, bias, c);
}

PwStatus BeginGraph(PwDevice*, PwStream*) { return PW_OK; }

PwStatus EndGraph(PwDevice*, PwStream*, PwGraph** graph) {
  *graph = reinterpret_cast<PwGraph*>(&graphs);
  ++graphs.captured;
  return PW_OK;
}

PwStatus LaunchGraph(PwDevice*, PwStream*, PwGraph*) {
  ++graphs.launched;
  return PW_OK;
}

void DestroyGraph(PwDevice*, PwGraph*) { ++graphs.destroyed; }

PwStatus State(PwDevice*, PwDeviceState* state) {
  *state = {-1, -1, -1, -1, -1, 0, -1, -1};
  state->clock_mhz = 1000 + fake.clock_step_mhz * readings++;
  return PW_OK;
}

void Keep(const AdamCall& call) {
  const std::lock_guard<std::mutex> lock(adam_mutex);
  adam_calls.push_back(call);
}

PwStatus Adam(PwDevice* device, PwStream* stream, const PwAdam* adam,
              PwType type, int64_t count, const float* gradients, float* master,
              float* moment1, float* moment2, void* weights) {
  Keep({false, type, weights != nullptr});
  return pw_cpu_kernels()->adam(device, stream, adam, type, count, gradients,
                                master, moment1, moment2, weights);
}

PwStatus AdamHost(const PwAdam* adam, PwType type, int64_t count,
                  const float* gradients, float* master, float* moment1,
                  float* moment2, void* weights) {
  Keep({true, type, weights != nullptr});
  return pw_cpu_kernels()->adam_host(adam, type, count, gradients, master,
                                     moment1, moment2, weights);
}

}  // namespace

const std::vector<AdamCall>& AdamCalls() { return adam_calls; }
FakeGraphs GraphsOfFake() { return graphs; }

const PwKernels* FakeKernels(const FakeDevice& device) {
  fake = device;
  readings = 0;
  releases = 0;
  adam_calls.clear();
  graphs = {};
  static PwKernels table = *pw_cpu_kernels();
  table.device_count = Devices;
  table.info = Info;
  table.elapsed = Elapsed;
  table.open = Open;
  table.allocate = Allocate;
  table.hold_stream = HoldStream;
  table.release_streams = ReleaseStreams;
  table.synchronize = Synchronize;
  table.gemm = Gemm;
  table.name = fake.name;
  table.state = State;
  table.adam = Adam;
  table.adam_host = AdamHost;
  table.begin_graph = BeginGraph;
  table.end_graph = EndGraph;
  table.launch_graph = LaunchGraph;
  table.destroy_graph = DestroyGraph;
  return &table;
}

}  // namespace pipewright::testing

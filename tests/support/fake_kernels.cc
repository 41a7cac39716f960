#include "tests/support/fake_kernels.h"

namespace pipewright::testing {
namespace {

FakeDevice fake;

int32_t Devices() { return fake.devices; }

PwStatus Info(PwDevice* device, PwDeviceInfo* info) {
  const PwStatus status = pw_cpu_kernels()->info(device, info);
  info->free_bytes = fake.free_bytes;
  return status;
}

PwStatus Elapsed(PwDevice*, PwEvent*, PwEvent*, double* seconds) {
  *seconds = fake.seconds;
  return PW_OK;
}

}  // namespace

const PwKernels* FakeKernels(const FakeDevice& device) {
  fake = device;
  static PwKernels table = *pw_cpu_kernels();
  table.device_count = Devices;
  table.info = Info;
  table.elapsed = Elapsed;
  return &table;
}

}  // namespace pipewright::testing

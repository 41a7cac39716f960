#include "tests/support/kernel_rig.h"

#include <math.h>
#include <string.h>

namespace pipewright {
namespace {

constexpr size_t kGuard = 256;
constexpr uint8_t kGuardValue = 0xa5;

size_t Bytes(PwType type) { return type == PW_FP32 ? 4 : 2; }

uint16_t ToBf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if (isnan(value)) return 0x7fc0;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

float FromBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

double Rounded(double value, PwType type) {
  const float single = static_cast<float>(value);
  return type == PW_FP32 ? single : FromBf16(ToBf16(single));
}

KernelRig::KernelRig(const PwKernels* kernels, PwDevice* device)
    : kernels_(kernels), device_(device) {}

KernelRig::~KernelRig() {
  kernels_->synchronize(device_, nullptr);
  for (const Block& block : blocks_) kernels_->release(device_, block.memory);
}

void* KernelRig::Space(size_t bytes) {
  void* memory = nullptr;
  Ok(kernels_->allocate(device_, bytes + kGuard, &memory), "allocate");
  if (memory == nullptr) return nullptr;
  blocks_.push_back({memory, bytes});
  Fill(memory, bytes, 0xff);
  Fill(static_cast<char*>(memory) + bytes, kGuard, kGuardValue);
  return memory;
}

void* KernelRig::Space(int64_t count, PwType type) {
  return Space(count * pipewright::Bytes(type));
}

void KernelRig::Fill(void* memory, size_t bytes, uint8_t value) {
  const std::vector<uint8_t> content(bytes, value);
  Ok(kernels_->copy(device_, nullptr, PW_HOST_TO_DEVICE, memory, content.data(),
                    bytes),
     "copy to the device");
  Ok(kernels_->synchronize(device_, nullptr), "synchronize");
}

void KernelRig::Write(void* memory, const Values& values, PwType type) {
  std::vector<uint8_t> content(values.size() * pipewright::Bytes(type));
  for (size_t index = 0; index < values.size(); ++index) {
    const float single = static_cast<float>(values[index]);
    const uint16_t half = ToBf16(single);
    if (type == PW_FP32) {
      memcpy(&content[4 * index], &single, 4);
    } else {
      memcpy(&content[2 * index], &half, 2);
    }
  }
  Ok(kernels_->copy(device_, nullptr, PW_HOST_TO_DEVICE, memory, content.data(),
                    content.size()),
     "copy to the device");
  Ok(kernels_->synchronize(device_, nullptr), "synchronize");
}

void* KernelRig::Put(Values* values, PwType type) {
  for (double& value : *values) value = Rounded(value, type);
  void* memory = Space(values->size(), type);
  Write(memory, *values, type);
  return memory;
}

void* KernelRig::PutIds(const std::vector<int32_t>& ids) {
  void* memory = Space(ids.size() * sizeof(int32_t));
  Ok(kernels_->copy(device_, nullptr, PW_HOST_TO_DEVICE, memory, ids.data(),
                    ids.size() * sizeof(int32_t)),
     "copy to the device");
  Ok(kernels_->synchronize(device_, nullptr), "synchronize");
  return memory;
}

std::vector<uint8_t> KernelRig::Bytes(const void* memory, size_t bytes) {
  std::vector<uint8_t> content(bytes);
  Ok(kernels_->synchronize(device_, nullptr), "synchronize");
  Ok(kernels_->copy(device_, nullptr, PW_DEVICE_TO_HOST, content.data(), memory,
                    bytes),
     "copy to the host");
  Ok(kernels_->synchronize(device_, nullptr), "synchronize");
  return content;
}

Values KernelRig::Get(const void* memory, int64_t count, PwType type) {
  const std::vector<uint8_t> content =
      Bytes(memory, count * pipewright::Bytes(type));
  Values values(count);
  for (int64_t index = 0; index < count; ++index) {
    float single;
    uint16_t half;
    if (type == PW_FP32) {
      memcpy(&single, &content[4 * index], 4);
    } else {
      memcpy(&half, &content[2 * index], 2);
      single = FromBf16(half);
    }
    values[index] = single;
  }
  return values;
}

void KernelRig::Ok(PwStatus status, const std::string& what) {
  if (status == PW_OK) return;
  if (status == PW_INVALID) refused_ = true;
  if (problem_.empty()) {
    problem_ =
        what + ": status " + std::to_string(status) + ", " + kernels_->error();
  }
}

std::string KernelRig::Problem() {
  for (const Block& block : blocks_) {
    const char* end = static_cast<char*>(block.memory) + block.bytes;
    for (const uint8_t value : Bytes(end, kGuard)) {
      if (value != kGuardValue && problem_.empty()) {
        problem_ = "wrote behind a tensor of " + std::to_string(block.bytes) +
                   " bytes";
      }
    }
  }
  return problem_;
}

}  // namespace pipewright

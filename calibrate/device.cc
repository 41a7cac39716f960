#include "calibrate/device.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"

namespace pipewright {

absl::Status StatusOf(const PwKernels* kernels, PwStatus status,
                      absl::string_view what) {
  if (status == PW_OK) return absl::OkStatus();
  const std::string message =
      absl::StrCat(kernels->name, ": ", what, ": ", kernels->error());
  switch (status) {
    case PW_NO_MEMORY:
      return absl::ResourceExhaustedError(message);
    case PW_NO_DEVICE:
    case PW_MISSING:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(host_, other.host_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (host_) {
    device_->kernels()->release_host(device_->handle(), data_);
  } else {
    device_->kernels()->release(device_->handle(), data_);
  }
}

absl::StatusOr<std::unique_ptr<MeasuredDevice>> MeasuredDevice::Open(
    const PwKernels* kernels, int32_t index) {
  if (kernels->device_count() <= index) {
    const char* reason = kernels->error();
    return absl::UnavailableError(absl::StrCat("no ", kernels->name, " device",
                                               reason[0] == '\0' ? "" : ": ",
                                               reason));
  }
  PwDevice* handle = nullptr;
  PW_RETURN_IF_ERROR(
      StatusOf(kernels, kernels->open(index, &handle), "open the device"));
  auto device =
      std::unique_ptr<MeasuredDevice>(new MeasuredDevice(kernels, handle));
  PW_RETURN_IF_ERROR(device->Check(kernels->info(handle, &device->info_),
                                   "ask the device for its properties"));
  return device;
}

MeasuredDevice::~MeasuredDevice() { kernels_->close(handle_); }

bool MeasuredDevice::is_cpu() const {
  return std::strcmp(kernels_->name, "cpu") == 0;
}

absl::StatusOr<Buffer> MeasuredDevice::Allocate(size_t bytes) {
  void* data = nullptr;
  PW_RETURN_IF_ERROR(Check(kernels_->allocate(handle_, bytes, &data),
                           absl::StrCat("allocate ", bytes, " bytes")));
  return Buffer(this, data, bytes, false);
}

absl::StatusOr<Buffer> MeasuredDevice::AllocateHost(size_t bytes) {
  void* data = nullptr;
  PW_RETURN_IF_ERROR(
      Check(kernels_->allocate_host(handle_, bytes, &data),
            absl::StrCat("allocate ", bytes, " bytes of the host")));
  return Buffer(this, data, bytes, true);
}

absl::Status MeasuredDevice::Randomize(PwType type, void* data, size_t bytes,
                                       uint64_t seed, float scale) {
  return Check(kernels_->random(handle_, nullptr, type, data,
                                static_cast<int64_t>(bytes / BytesOf(type)),
                                seed, scale),
               "fill with random numbers");
}

absl::Status MeasuredDevice::Wait(PwStream* stream) const {
  return Check(kernels_->synchronize(handle_, stream), "wait for a stream");
}

ProfileState MeasuredDevice::State() const {
  PwDeviceState state = {};
  if (kernels_->state(handle_, &state) != PW_OK) return {};
  return {.clock_mhz = state.clock_mhz,
          .memory_clock_mhz = state.memory_clock_mhz,
          .max_clock_mhz = state.max_clock_mhz,
          .power_w = state.power_w,
          .temperature_c = state.temperature_c,
          .throttle = state.throttle,
          .pcie_generation = state.pcie_generation,
          .pcie_width = state.pcie_width};
}

Stopwatch::~Stopwatch() {
  for (PwEvent* event : events_) {
    device_->kernels()->destroy_event(device_->handle(), event);
  }
}

absl::Status Stopwatch::Start() {
  marks_ = 0;
  return device_->Check(
      device_->kernels()->hold_stream(device_->handle(), nullptr),
      "hold the stream");
}

absl::Status Stopwatch::Mark() {
  const PwKernels* kernels = device_->kernels();
  if (marks_ == events_.size()) {
    PwEvent* event = nullptr;
    PW_RETURN_IF_ERROR(device_->Check(
        kernels->create_event(device_->handle(), &event), "create an event"));
    events_.push_back(event);
  }
  return device_->Check(
      kernels->record(device_->handle(), nullptr, events_[marks_++]),
      "record an event");
}

absl::Status Stopwatch::Stop(std::vector<double>* seconds) {
  const PwKernels* kernels = device_->kernels();
  const absl::Status released = device_->Check(
      kernels->release_streams(device_->handle()), "release the stream");
  PW_RETURN_IF_ERROR(device_->Check(
      kernels->synchronize(device_->handle(), nullptr), "wait for the stream"));
  if (!released.ok()) return absl::DeadlineExceededError(released.message());
  seconds->clear();
  for (size_t mark = 1; mark < marks_; ++mark) {
    double elapsed = 0;
    PW_RETURN_IF_ERROR(
        device_->Check(kernels->elapsed(device_->handle(), events_[mark - 1],
                                        events_[mark], &elapsed),
                       "read an event"));
    seconds->push_back(elapsed);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ClockResolution(MeasuredDevice* device) {
  constexpr int kMarks = 32;
  Stopwatch watch(device);
  std::vector<double> seconds;
  PW_RETURN_IF_ERROR(watch.Start());
  for (int mark = 0; mark < kMarks; ++mark) PW_RETURN_IF_ERROR(watch.Mark());
  PW_RETURN_IF_ERROR(watch.Stop(&seconds));
  return Median(seconds);
}

size_t BytesOf(PwType type) {
  return type == PW_FP32 ? 4 : type == PW_BF16 ? 2 : 1;
}

absl::string_view TypeName(PwType type) {
  return type == PW_FP32 ? "fp32" : type == PW_BF16 ? "bf16" : "fp8";
}

absl::string_view TypeName(const PwModel& model) {
  return TypeName(model.fp8_linear != 0 ? PW_FP8 : model.type);
}

}  // namespace pipewright

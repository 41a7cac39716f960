// A device of a kernel backend with its memory, errors as statuses, and a
// stopwatch on its own clock: thread CPU time on the CPU, events on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/layer.h"
#include "sim/profile/profile.h"

namespace pipewright {

// PW_OK, or what the backend says: kResourceExhausted for PW_NO_MEMORY,
// kUnavailable for a missing device or library, kInternal else.
absl::Status StatusOf(const PwKernels* kernels, PwStatus status,
                      absl::string_view what);

class MeasuredDevice;

// Memory of a device or pinned memory of the host; freed with the object,
// which the device outlives.
class Buffer {
 public:
  Buffer() = default;
  Buffer(MeasuredDevice* device, void* data, size_t bytes, bool host)
      : device_(device), data_(data), bytes_(bytes), host_(host) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  template <class Element>
  Element* as() const {
    return static_cast<Element*>(data_);
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  MeasuredDevice* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool host_ = false;
};

class MeasuredDevice {
 public:
  // Error: kUnavailable when there is no device `index`.
  static absl::StatusOr<std::unique_ptr<MeasuredDevice>> Open(
      const PwKernels* kernels, int32_t index);
  ~MeasuredDevice();
  MeasuredDevice(const MeasuredDevice&) = delete;
  MeasuredDevice& operator=(const MeasuredDevice&) = delete;

  const PwKernels* kernels() const { return kernels_; }
  PwDevice* handle() const { return handle_; }
  const PwDeviceInfo& info() const { return info_; }
  bool is_cpu() const;

  absl::StatusOr<Buffer> Allocate(size_t bytes);
  absl::StatusOr<Buffer> AllocateHost(size_t bytes);
  // Fills with random numbers of `type` in [-scale, scale); never zeros: a GPU
  // multiplies them faster.
  absl::Status Randomize(PwType type, void* data, size_t bytes, uint64_t seed,
                         float scale);
  absl::Status Check(PwStatus status, absl::string_view what) const {
    return StatusOf(kernels_, status, what);
  }
  // Waits until all that is queued on `stream` has ended.
  absl::Status Wait(PwStream* stream) const;
  ProfileState State() const;

 private:
  MeasuredDevice(const PwKernels* kernels, PwDevice* handle)
      : kernels_(kernels), handle_(handle) {}

  const PwKernels* kernels_;
  PwDevice* handle_;
  PwDeviceInfo info_ = {};
};

// Marks between pieces of work on the device's own stream.
class Stopwatch {
 public:
  explicit Stopwatch(MeasuredDevice* device) : device_(device) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch();

  // Holds the stream, so that what is queued until Stop runs without gaps.
  absl::Status Start();
  absl::Status Mark();
  // Lets it run, waits and returns the seconds between each mark and the next.
  // Error: kDeadlineExceeded when the hold had ended by itself, so that the
  // timed work had gaps; all of it has ended then, too.
  absl::Status Stop(std::vector<double>* seconds);

 private:
  MeasuredDevice* device_;
  std::vector<PwEvent*> events_;
  size_t marks_ = 0;
};

// Seconds between two marks with nothing between them; shorter times cannot be
// told apart.
absl::StatusOr<double> ClockResolution(MeasuredDevice* device);

size_t BytesOf(PwType type);              // bytes an element
absl::string_view TypeName(PwType type);  // "fp32"
// The type of the model's passes as profiles name it: "fp8" where the linear
// layers compute in fp8.
absl::string_view TypeName(const PwModel& model);

}  // namespace pipewright

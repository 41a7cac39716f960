// Subjects that time copies by size: between host and device, each way alone
// and beside the other way, and inside the device, which gives its memory's
// bandwidth. On the CPU "the device" is another arena of the same memory, and a
// thread copies.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/device.h"
#include "calibrate/measure.h"
#include "calibrate/thread_group.h"

namespace pipewright {

// A thread that repeats one piece of work between Begin and End and times each;
// it runs beside passes on a CPU.
class Repeater {
 public:
  explicit Repeater(std::function<void()> work);
  ~Repeater();
  // Returns once the first piece of work runs.
  void Begin();
  // CPU seconds of the thread for each piece.
  std::vector<double> End();

 private:
  void Loop();

  std::function<void()> work_;
  Barrier start_{2};
  Barrier end_{2};
  std::atomic<bool> stop_{false};
  bool quit_ = false;
  std::vector<double> seconds_;
  std::thread thread_;
};

// Buffers of both sides, random numbers in them, and copies between them.
class CopyBench {
 public:
  static absl::StatusOr<std::shared_ptr<CopyBench>> Create(
      MeasuredDevice* device, int64_t max_bytes);
  ~CopyBench();

  // Takes other memory with other pages, because the time of a copy depends on
  // them.
  absl::Status Renew();
  // Seconds of a copy on the device's clock; `beside`: with the other
  // direction busy meanwhile.
  absl::StatusOr<double> Time(CopyDirection direction, int64_t bytes,
                              bool beside);
  // Queues copies on a stream of their own: on the CPU they are done on
  // return.
  absl::Status Queue(CopyDirection direction, int64_t bytes, int count);
  // Copies of `bytes` each way, not timed and not behind a hold: the driver
  // may load what it copies with.
  absl::Status WarmUp(int64_t bytes);
  int64_t max_bytes() const { return max_bytes_; }
  PwStream* stream(CopyDirection direction) const {
    return streams_[static_cast<size_t>(direction)];
  }

 private:
  CopyBench(MeasuredDevice* device, int64_t max_bytes)
      : device_(device), max_bytes_(max_bytes), watch_(device) {}
  absl::Status QueueOn(PwStream* stream, CopyDirection direction, int64_t bytes,
                       int count);
  size_t Advance(int64_t bytes);
  absl::StatusOr<double> TimeBesideOnCpu(CopyDirection direction,
                                         int64_t bytes);

  MeasuredDevice* device_;
  int64_t max_bytes_;
  Stopwatch watch_;
  Buffer host_[2];    // read, written
  Buffer inside_[2];  // the same on the device
  PwStream* streams_[3] = {};
  std::atomic<CopyDirection> opposite_{CopyDirection::kHostToDevice};
  std::atomic<int64_t> opposite_bytes_{0};
  int64_t place_ = 0;
  size_t opposite_place_ = 0;  // the repeater's
  std::unique_ptr<Repeater> repeater_;
};

// Bytes of the device that CopySubjects takes.
int64_t CopySubjectBytes(const MeasuredDevice& device, bool quick);

absl::StatusOr<std::vector<Subject>> CopySubjects(MeasuredDevice* device,
                                                  bool quick);

}  // namespace pipewright

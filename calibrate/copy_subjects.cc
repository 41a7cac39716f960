#include "calibrate/copy_subjects.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calibrate/machine.h"
#include "calibrate/measure.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
// On a GPU, so many bytes go untimed before the timed copy, in its direction.
// So the other direction is busy whichever of the two held streams starts
// first. They take some 20 us at PCIe 5.0's rate; at least one copy goes.
constexpr int64_t kLeadBytes = kMiB;
// The other direction gets so many times as many copies, because it may be
// faster.
constexpr int kBesideFactor = 4;

std::vector<int64_t> Sizes(const MeasuredDevice& device, bool quick) {
  if (quick) return {kMiB, 16 * kMiB};
  std::vector<int64_t> sizes = {64 * kKiB, kMiB, 8 * kMiB, 32 * kMiB};
  if (!device.is_cpu()) {
    sizes.insert(sizes.end(), {64 * kMiB, 256 * kMiB, 1024 * kMiB});
  }
  return sizes;
}

PwCopy KindOf(CopyDirection direction) {
  switch (direction) {
    case CopyDirection::kHostToDevice:
      return PW_HOST_TO_DEVICE;
    case CopyDirection::kDeviceToHost:
      return PW_DEVICE_TO_HOST;
    case CopyDirection::kDeviceToDevice:
      return PW_DEVICE_TO_DEVICE;
  }
  PW_CHECK(false);
}

CopyDirection OppositeOf(CopyDirection direction) {
  return direction == CopyDirection::kHostToDevice
             ? CopyDirection::kDeviceToHost
             : CopyDirection::kHostToDevice;
}

}  // namespace

Repeater::Repeater(std::function<void()> work)
    : work_(std::move(work)), thread_([this] { Loop(); }) {}

Repeater::~Repeater() {
  quit_ = true;
  start_.Wait();
  thread_.join();
}

void Repeater::Begin() {
  stop_ = false;
  start_.Wait();
}

std::vector<double> Repeater::End() {
  stop_ = true;
  end_.Wait();
  return seconds_;
}

void Repeater::Loop() {
  while (true) {
    start_.Wait();
    if (quit_) return;
    seconds_.clear();
    do {
      const double start = ThreadSeconds();
      work_();
      seconds_.push_back(ThreadSeconds() - start);
    } while (!stop_);
    end_.Wait();
  }
}

absl::StatusOr<std::shared_ptr<CopyBench>> CopyBench::Create(
    MeasuredDevice* device, int64_t max_bytes) {
  auto bench = std::shared_ptr<CopyBench>(new CopyBench(device, max_bytes));
  PW_RETURN_IF_ERROR(bench->Renew());
  for (PwStream*& stream : bench->streams_) {
    PW_RETURN_IF_ERROR(device->Check(
        device->kernels()->create_stream(device->handle(), 0, &stream),
        "create a stream"));
  }
  if (device->is_cpu()) {
    // The thread makes plain copies, because only one thread may use the
    // device.
    CopyBench* raw = bench.get();
    bench->repeater_ = std::make_unique<Repeater>([raw] {
      const bool out = raw->opposite_ == CopyDirection::kDeviceToHost;
      const auto piece = static_cast<size_t>(raw->opposite_bytes_.load());
      size_t& at = raw->opposite_place_;
      if (at + piece > static_cast<size_t>(raw->max_bytes_)) at = 0;
      std::memcpy((out ? raw->host_[1] : raw->inside_[1]).as<char>() + at,
                  (out ? raw->inside_[0] : raw->host_[0]).as<char>() + at,
                  piece);
      at += piece;
    });
  }
  return bench;
}

absl::Status CopyBench::Renew() {
  const auto bytes = static_cast<size_t>(max_bytes_);
  for (int side = 0; side < 2; ++side) {
    // The old buffers go first: a second set may not fit.
    host_[side] = Buffer();
    inside_[side] = Buffer();
    PW_ASSIGN_OR_RETURN(host_[side], device_->AllocateHost(bytes));
    PW_ASSIGN_OR_RETURN(inside_[side], device_->Allocate(bytes));
    PW_RETURN_IF_ERROR(
        device_->Randomize(PW_FP32, inside_[side].data(), bytes, 3, 1));
    PW_RETURN_IF_ERROR(device_->Check(
        device_->kernels()->copy(device_->handle(), nullptr, PW_DEVICE_TO_HOST,
                                 host_[side].data(), inside_[side].data(),
                                 bytes),
        "copy"));
  }
  return device_->Wait(nullptr);
}

CopyBench::~CopyBench() {
  repeater_.reset();
  for (PwStream* stream : streams_) {
    if (stream != nullptr) {
      device_->kernels()->destroy_stream(device_->handle(), stream);
    }
  }
}

// The next place for `bytes` in buffers that hold many of them, so that no
// copy finds its data in a core's own cache.
size_t CopyBench::Advance(int64_t bytes) {
  if (place_ + bytes > max_bytes_) place_ = 0;
  const int64_t place = place_;
  place_ += bytes;
  return static_cast<size_t>(place);
}

absl::Status CopyBench::Queue(CopyDirection direction, int64_t bytes,
                              int count) {
  return QueueOn(stream(direction), direction, bytes, count);
}

absl::Status CopyBench::QueueOn(PwStream* stream, CopyDirection direction,
                                int64_t bytes, int count) {
  const bool from_host = direction == CopyDirection::kHostToDevice;
  const bool to_host = direction == CopyDirection::kDeviceToHost;
  for (int index = 0; index < count; ++index) {
    const size_t at = Advance(bytes);
    PW_RETURN_IF_ERROR(
        device_->Check(device_->kernels()->copy(
                           device_->handle(), stream, KindOf(direction),
                           (to_host ? host_[1] : inside_[1]).as<char>() + at,
                           (from_host ? host_[0] : inside_[0]).as<char>() + at,
                           static_cast<size_t>(bytes)),
                       "copy"));
  }
  return absl::OkStatus();
}

absl::Status CopyBench::WarmUp(int64_t bytes) {
  for (const CopyDirection direction :
       {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice,
        CopyDirection::kDeviceToDevice}) {
    PW_RETURN_IF_ERROR(Queue(direction, bytes, 1));
    PW_RETURN_IF_ERROR(device_->Wait(stream(direction)));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> CopyBench::TimeBesideOnCpu(CopyDirection direction,
                                                  int64_t bytes) {
  opposite_ = OppositeOf(direction);
  opposite_bytes_ = bytes;
  repeater_->Begin();
  absl::StatusOr<double> seconds = Time(direction, bytes, false);
  repeater_->End();
  return seconds;
}

absl::StatusOr<double> CopyBench::Time(CopyDirection direction, int64_t bytes,
                                       bool beside) {
  PW_CHECK(bytes <= max_bytes_);
  if (beside && device_->is_cpu()) return TimeBesideOnCpu(direction, bytes);
  const PwKernels* kernels = device_->kernels();
  const CopyDirection opposite = OppositeOf(direction);
  const int lead =
      beside ? static_cast<int>(std::max<int64_t>(1, kLeadBytes / bytes)) : 0;
  PW_RETURN_IF_ERROR(watch_.Start());
  if (beside) {
    PW_RETURN_IF_ERROR(device_->Check(
        kernels->hold_stream(device_->handle(), stream(opposite)),
        "hold the other stream"));
    PW_RETURN_IF_ERROR(Queue(opposite, bytes, kBesideFactor * (lead + 1)));
  }
  PW_RETURN_IF_ERROR(QueueOn(nullptr, direction, bytes, lead));
  PW_RETURN_IF_ERROR(watch_.Mark());
  PW_RETURN_IF_ERROR(QueueOn(nullptr, direction, bytes, 1));
  PW_RETURN_IF_ERROR(watch_.Mark());
  std::vector<double> seconds;
  const absl::Status stopped = watch_.Stop(&seconds);
  if (beside) PW_RETURN_IF_ERROR(device_->Wait(stream(opposite)));
  PW_RETURN_IF_ERROR(stopped);
  return seconds[0];
}

int64_t CopySubjectBytes(const MeasuredDevice& device, bool quick) {
  return 2 * Sizes(device, quick).back();
}

absl::StatusOr<std::vector<Subject>> CopySubjects(MeasuredDevice* device,
                                                  bool quick) {
  const std::vector<int64_t> sizes = Sizes(*device, quick);
  PW_ASSIGN_OR_RETURN(auto bench, CopyBench::Create(device, sizes.back()));
  if (!device->is_cpu()) {
    for (const int64_t bytes : sizes) {
      PW_RETURN_IF_ERROR(bench->WarmUp(bytes));
    }
  }
  auto renewed = std::make_shared<int>(-1);
  std::vector<Subject> subjects;
  for (const CopyDirection direction :
       {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice,
        CopyDirection::kDeviceToDevice}) {
    std::vector<CopyEntry> entries;
    for (const int64_t bytes : sizes) {
      entries.push_back({.direction = direction, .bytes = bytes});
      if (direction == CopyDirection::kDeviceToDevice) continue;
      entries.push_back(
          {.direction = direction, .bytes = bytes, .beside_opposite = true});
    }
    Subject subject;
    subject.name = absl::StrCat("copies ", CopyName(direction));
    subject.share = 0.5;
    for (const CopyEntry& entry : entries) {
      subject.series.push_back(
          EntrySeries(entry, &Profile::copies, &CopyEntry::time));
    }
    if (direction == CopyDirection::kDeviceToDevice) {
      // The largest copy gives the bandwidth of the memory, which reads and
      // writes each byte.
      Series& largest = subject.series.back();
      const auto put = largest.put;
      const bool cpu = device->is_cpu();
      const double moved = 2 * static_cast<double>(sizes.back());
      largest.put = [put, cpu, moved](const Distribution& measured,
                                      Profile* profile) {
        put(measured, profile);
        if (!cpu)
          profile->device_memory_bytes_per_s = moved / measured.median_s;
      };
    }
    subject.visit = [bench, entries](std::vector<double>* samples) {
      samples->clear();
      for (const CopyEntry& entry : entries) {
        PW_ASSIGN_OR_RETURN(
            const double seconds,
            bench->Time(entry.direction, entry.bytes, entry.beside_opposite));
        samples->push_back(seconds);
      }
      return absl::OkStatus();
    };
    subject.begin_round = [bench, renewed](int round) {
      if (*renewed == round) return absl::OkStatus();
      *renewed = round;
      return bench->Renew();
    };
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

}  // namespace pipewright

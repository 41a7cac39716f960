// A pass on a GPU beside copies on streams of their own, or beside transfers
// with other GPUs: both sides alone and beside each other, on the device's
// clock. Part of interference_subjects.cc.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/copy_subjects.h"
#include "calibrate/device.h"
#include "calibrate/part_bench.h"
#include "calibrate/transfer_subjects.h"

namespace pipewright {

// Bytes of a copy or transfer beside a pass of a GPU.
inline constexpr int64_t kGpuPiece = 16 << 20;

// Runs a pass of the bench. What the pass needs beforehand is not measured.
class PassRunner {
 public:
  PassRunner(MeasuredDevice* device, std::shared_ptr<PartBench> bench)
      : device_(device), bench_(std::move(bench)) {}

  absl::Status Prepare(ProfilePass pass);
  absl::Status Run(ProfilePass pass) { return bench_->Run(pass, layer_); }
  MeasuredDevice* device() const { return device_; }

 private:
  MeasuredDevice* device_;
  std::shared_ptr<PartBench> bench_;
  int layer_ = 0;
};

// Whichever side is timed, the other outlasts it. The samples are ratios of
// both sides: time beside the other over time alone.
class GpuVisit {
 public:
  GpuVisit(PassRunner* runner, CopyBench* copies)
      : runner_(runner),
        device_(runner->device()),
        copies_(copies),
        watch_(device_) {}

  absl::Status VisitCopies(ProfilePass pass,
                           const std::vector<CopyDirection>& directions,
                           std::vector<double>* samples);
  // This GPU is the first of `transport`; see Transport::begin.
  absl::Status VisitTransfers(ProfilePass pass, const Transport& transport,
                              TransferKind kind, std::vector<double>* samples);

 private:
  // So many pieces of so many bytes.
  struct Pieces {
    int64_t bytes = 0;
    int count = 0;
  };

  absl::Status WarmUp();
  absl::Status Hold(const std::vector<CopyDirection>& directions);
  absl::Status Wait(const std::vector<CopyDirection>& directions);
  static Pieces Covering(double pieces, int64_t piece, int64_t most_bytes);
  absl::StatusOr<double> Time(ProfilePass pass,
                              const std::vector<CopyDirection>& directions,
                              double pieces);
  absl::StatusOr<double> TimeCopies(
      ProfilePass pass, const std::vector<CopyDirection>& directions,
      double copy_alone, double pass_alone, bool beside);
  absl::StatusOr<double> TimeBeside(ProfilePass pass,
                                    const Transport& transport,
                                    TransferKind kind, const Pieces& pieces);
  absl::StatusOr<double> TimeTransfers(ProfilePass pass,
                                       const Transport& transport,
                                       TransferKind kind, const Pieces& pieces,
                                       int passes);

  PassRunner* runner_;
  MeasuredDevice* device_;
  CopyBench* copies_;
  bool warm_ = false;
  Stopwatch watch_;
};

}  // namespace pipewright

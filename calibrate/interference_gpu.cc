#include "calibrate/interference_gpu.h"

#include <algorithm>
#include <cmath>

#include "sim/base/status.h"

namespace pipewright {
namespace {

using enum ProfilePass;

// Launches that are queued behind a hold on one stream; the driver takes about
// a thousand (kernels/cuda/hold.cu).
constexpr int kMostQueued = 256;
// Transfers begin while the pass is still held, so they outlast it by more
// than copies, which are held too.
constexpr double kTransfersOverPass = 3;

}  // namespace

absl::Status PassRunner::Prepare(ProfilePass pass) {
  layer_ = (layer_ + 1) % bench_->layers();
  if (pass == kForward) return absl::OkStatus();
  PW_RETURN_IF_ERROR(bench_->Run(kForward, layer_));
  if (pass == kBackwardInput) return absl::OkStatus();
  return bench_->Run(kBackwardInput, layer_);
}

absl::Status GpuVisit::VisitCopies(ProfilePass pass,
                                   const std::vector<CopyDirection>& directions,
                                   std::vector<double>* samples) {
  PW_RETURN_IF_ERROR(WarmUp());
  PW_ASSIGN_OR_RETURN(const double pass_alone, Time(pass, {}, 0));
  PW_ASSIGN_OR_RETURN(const double copy_alone,
                      copies_->Time(directions[0], kGpuPiece, false));
  const double covering = 1 + std::ceil(2 * pass_alone / copy_alone);
  PW_ASSIGN_OR_RETURN(const double pass_beside,
                      Time(pass, directions, covering));
  PW_ASSIGN_OR_RETURN(
      const double pieces_alone,
      TimeCopies(pass, directions, copy_alone, pass_alone, false));
  PW_ASSIGN_OR_RETURN(
      const double pieces_beside,
      TimeCopies(pass, directions, copy_alone, pass_alone, true));
  *samples = {pass_beside / pass_alone, pieces_beside / pieces_alone};
  return absl::OkStatus();
}

absl::Status GpuVisit::VisitTransfers(ProfilePass pass,
                                      const Transport& transport,
                                      TransferKind kind,
                                      std::vector<double>* samples) {
  PW_RETURN_IF_ERROR(WarmUp());
  const int64_t most_bytes = transport.sizes.back();
  const int64_t piece = std::min(kGpuPiece, most_bytes);
  PW_ASSIGN_OR_RETURN(const double pass_alone, Time(pass, {}, 0));
  PW_ASSIGN_OR_RETURN(const double piece_alone, transport.run(kind, piece, 1));
  const Pieces covering =
      Covering(1 + std::ceil(kTransfersOverPass * pass_alone / piece_alone),
               piece, most_bytes);
  PW_ASSIGN_OR_RETURN(const double pass_beside,
                      TimeBeside(pass, transport, kind, covering));
  // Together they take about as long as one pass.
  const Pieces some = {
      .bytes = piece,
      .count = static_cast<int>(std::clamp<double>(
          std::floor(pass_alone / piece_alone), 1, kMostQueued))};
  const int passes =
      1 + static_cast<int>(std::ceil(kTransfersOverPass * some.count *
                                     piece_alone / pass_alone));
  PW_ASSIGN_OR_RETURN(const double pieces_alone,
                      TimeTransfers(pass, transport, kind, some, 0));
  PW_ASSIGN_OR_RETURN(const double pieces_beside,
                      TimeTransfers(pass, transport, kind, some, passes));
  *samples = {pass_beside / pass_alone, pieces_beside / pieces_alone};
  return absl::OkStatus();
}

// Runs once and without a hold, because first launches load kernels.
absl::Status GpuVisit::WarmUp() {
  if (warm_) return absl::OkStatus();
  PW_RETURN_IF_ERROR(runner_->Prepare(kBackwardWeight));
  PW_RETURN_IF_ERROR(runner_->Run(kBackwardWeight));
  PW_RETURN_IF_ERROR(device_->Wait(nullptr));
  PW_RETURN_IF_ERROR(copies_->WarmUp(kGpuPiece));
  warm_ = true;
  return absl::OkStatus();
}
absl::Status GpuVisit::Hold(const std::vector<CopyDirection>& directions) {
  for (const CopyDirection direction : directions) {
    PW_RETURN_IF_ERROR(
        device_->Check(device_->kernels()->hold_stream(
                           device_->handle(), copies_->stream(direction)),
                       "hold a stream"));
  }
  return absl::OkStatus();
}
absl::Status GpuVisit::Wait(const std::vector<CopyDirection>& directions) {
  for (const CopyDirection direction : directions) {
    PW_RETURN_IF_ERROR(
        device_->Check(device_->kernels()->synchronize(
                           device_->handle(), copies_->stream(direction)),
                       "wait for a stream"));
  }
  return absl::OkStatus();
}

// Beside a long pass the transfers are fewer and larger: as many bytes in all,
// and no more launches than a held stream takes.
GpuVisit::Pieces GpuVisit::Covering(double pieces, int64_t piece,
                                    int64_t most_bytes) {
  const double larger = std::min(
      std::ceil(pieces / kMostQueued),
      std::floor(static_cast<double>(most_bytes) / static_cast<double>(piece)));
  const int64_t bytes = piece * std::max<int64_t>(1, std::lround(larger));
  const double count = std::ceil(pieces * static_cast<double>(piece) /
                                 static_cast<double>(bytes));
  return {bytes, static_cast<int>(std::min<double>(kMostQueued, count))};
}

absl::StatusOr<double> GpuVisit::Time(
    ProfilePass pass, const std::vector<CopyDirection>& directions,
    double pieces) {
  const Pieces queued = Covering(pieces, kGpuPiece, copies_->max_bytes());
  PW_RETURN_IF_ERROR(runner_->Prepare(pass));
  PW_RETURN_IF_ERROR(watch_.Start());
  PW_RETURN_IF_ERROR(Hold(directions));
  for (const CopyDirection direction : directions) {
    PW_RETURN_IF_ERROR(copies_->Queue(direction, queued.bytes, queued.count));
  }
  PW_RETURN_IF_ERROR(watch_.Mark());
  PW_RETURN_IF_ERROR(runner_->Run(pass));
  PW_RETURN_IF_ERROR(watch_.Mark());
  std::vector<double> seconds;
  const absl::Status stopped = watch_.Stop(&seconds);
  PW_RETURN_IF_ERROR(Wait(directions));
  PW_RETURN_IF_ERROR(stopped);
  return seconds[0];
}

// The copies in the first direction take about as long as one pass.
absl::StatusOr<double> GpuVisit::TimeCopies(
    ProfilePass pass, const std::vector<CopyDirection>& directions,
    double copy_alone, double pass_alone, bool beside) {
  const PwKernels* kernels = device_->kernels();
  const int count =
      std::clamp(static_cast<int>(pass_alone / copy_alone), 1, kMostQueued);
  PW_RETURN_IF_ERROR(runner_->Prepare(pass));
  PW_RETURN_IF_ERROR(watch_.Start());
  PW_RETURN_IF_ERROR(Hold(directions));
  PwEvent* events[2] = {};
  for (PwEvent*& event : events) {
    PW_RETURN_IF_ERROR(device_->Check(
        kernels->create_event(device_->handle(), &event), "create an event"));
  }
  PwStream* stream = copies_->stream(directions[0]);
  PW_RETURN_IF_ERROR(device_->Check(
      kernels->record(device_->handle(), stream, events[0]), "record"));
  for (const CopyDirection direction : directions) {
    PW_RETURN_IF_ERROR(copies_->Queue(direction, kGpuPiece, count));
  }
  PW_RETURN_IF_ERROR(device_->Check(
      kernels->record(device_->handle(), stream, events[1]), "record"));
  const double wanted = beside ? 2 * count * copy_alone : 0;
  for (double queued = 0; queued < wanted; queued += pass_alone) {
    PW_RETURN_IF_ERROR(runner_->Run(pass));
  }
  std::vector<double> unused;
  const absl::Status stopped = watch_.Stop(&unused);
  PW_RETURN_IF_ERROR(Wait(directions));
  double seconds = 0;
  PW_RETURN_IF_ERROR(device_->Check(
      kernels->elapsed(device_->handle(), events[0], events[1], &seconds),
      "read an event"));
  for (PwEvent* event : events) {
    kernels->destroy_event(device_->handle(), event);
  }
  PW_RETURN_IF_ERROR(stopped);
  return seconds / count;
}

// The pass is held until transfers are under way on all devices.
absl::StatusOr<double> GpuVisit::TimeBeside(ProfilePass pass,
                                            const Transport& transport,
                                            TransferKind kind,
                                            const Pieces& pieces) {
  // This one comes before the hold, because NCCL waits for the device at the
  // first transfer of a kind and size.
  PW_RETURN_IF_ERROR(transport.run(kind, pieces.bytes, 1).status());
  PW_RETURN_IF_ERROR(runner_->Prepare(pass));
  PW_RETURN_IF_ERROR(watch_.Start());
  PW_RETURN_IF_ERROR(watch_.Mark());
  PW_RETURN_IF_ERROR(runner_->Run(pass));
  PW_RETURN_IF_ERROR(watch_.Mark());
  const absl::Status begun = transport.begin(kind, pieces.bytes, pieces.count);
  std::vector<double> seconds;
  const absl::Status stopped = watch_.Stop(&seconds);
  // The transfers have to be ended before another visit.
  if (!absl::IsDeadlineExceeded(stopped)) PW_RETURN_IF_ERROR(stopped);
  PW_RETURN_IF_ERROR(begun);
  PW_RETURN_IF_ERROR(transport.end().status());
  PW_RETURN_IF_ERROR(stopped);
  return seconds[0];
}

// Seconds of one piece beside so many passes, which are under way before it.
absl::StatusOr<double> GpuVisit::TimeTransfers(ProfilePass pass,
                                               const Transport& transport,
                                               TransferKind kind,
                                               const Pieces& pieces,
                                               int passes) {
  PW_RETURN_IF_ERROR(runner_->Prepare(pass));
  PW_RETURN_IF_ERROR(device_->Wait(nullptr));
  for (int index = 0; index < passes; ++index) {
    PW_RETURN_IF_ERROR(runner_->Run(pass));
  }
  PW_RETURN_IF_ERROR(transport.begin(kind, pieces.bytes, pieces.count));
  PW_ASSIGN_OR_RETURN(const double seconds, transport.end());
  PW_RETURN_IF_ERROR(device_->Wait(nullptr));
  return seconds;
}

}  // namespace pipewright

#include "calibrate/interference_subjects.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "calibrate/entries.h"
#include "calibrate/machine.h"
#include "calibrate/thread_group.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using enum ProfilePass;

constexpr ProfilePass kMatrixPasses[] = {kForward, kBackwardInput,
                                         kBackwardWeight};
constexpr int64_t kHostPiece = 1 << 20;  // bytes of a copy or transfer beside
constexpr int64_t kGpuPiece = 16 << 20;
// Launches that are queued behind a hold on one stream; the driver takes about
// a thousand (kernels/cuda/hold.cu).
constexpr int kMostQueued = 256;

// What runs beside on a CPU: on threads, from begin to end.
struct Background {
  std::function<void()> begin;
  std::function<std::vector<double>()> end;  // seconds of each piece
};

Background CopyBackground(const std::vector<std::shared_ptr<Repeater>>& all) {
  return {[all] {
            for (const auto& repeater : all) repeater->Begin();
          },
          [all] {
            std::vector<double> seconds;
            for (const auto& repeater : all) {
              const std::vector<double> some = repeater->End();
              seconds.insert(seconds.end(), some.begin(), some.end());
            }
            return seconds;
          }};
}

// A thread that copies between two blocks of its own.
std::shared_ptr<Repeater> Copier() {
  auto blocks =
      std::make_shared<std::pair<std::vector<char>, std::vector<char>>>();
  // Many pieces, so that they do not stay in a core's own cache.
  constexpr size_t kPieces = 16;
  blocks->first.assign(kPieces * kHostPiece, 'a');
  blocks->second.assign(kPieces * kHostPiece, 'b');
  auto place = std::make_shared<size_t>(0);
  return std::make_shared<Repeater>([blocks, place] {
    const size_t at = *place * static_cast<size_t>(kHostPiece);
    *place = (*place + 1) % kPieces;
    std::copy_n(blocks->first.begin() + static_cast<std::ptrdiff_t>(at),
                kHostPiece,
                blocks->second.begin() + static_cast<std::ptrdiff_t>(at));
  });
}

Background TransferBackground(const std::shared_ptr<ThreadGroup>& group,
                              TransferKind kind) {
  return {[group, kind] { group->Begin(kind, kHostPiece); },
          [group] { return group->End(); }};
}

// Runs a pass of the bench, with what it needs before it unmeasured.
class PassRunner {
 public:
  PassRunner(MeasuredDevice* device, std::shared_ptr<PartBench> bench)
      : device_(device), bench_(std::move(bench)) {}

  absl::Status Prepare(ProfilePass pass) {
    layer_ = (layer_ + 1) % bench_->layers();
    if (pass == kForward) return absl::OkStatus();
    PW_RETURN_IF_ERROR(bench_->Run(kForward, layer_));
    if (pass == kBackwardInput) return absl::OkStatus();
    return bench_->Run(kBackwardInput, layer_);
  }
  absl::Status Run(ProfilePass pass) { return bench_->Run(pass, layer_); }
  absl::StatusOr<double> Time(ProfilePass pass) {
    PW_RETURN_IF_ERROR(Prepare(pass));
    const double start = ThreadSeconds();
    PW_RETURN_IF_ERROR(Run(pass));
    return ThreadSeconds() - start;
  }
  MeasuredDevice* device() const { return device_; }

 private:
  MeasuredDevice* device_;
  std::shared_ptr<PartBench> bench_;
  int layer_ = 0;
};

// Alone, then beside, on a CPU. Thread times: what a pass waits for a core is
// no interference, and would be most of the time on a machine with neighbours.
absl::Status VisitOnCpu(PassRunner* runner, ProfilePass pass,
                        const Background& background,
                        std::vector<double>* samples) {
  PW_ASSIGN_OR_RETURN(const double alone, runner->Time(pass));
  background.begin();
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * alone));
  const double beside_alone = MedianOf(background.end());
  background.begin();
  const absl::StatusOr<double> beside = runner->Time(pass);
  const double beside_with = MedianOf(background.end());
  PW_RETURN_IF_ERROR(beside.status());
  *samples = {*beside / alone, beside_with / beside_alone};
  return absl::OkStatus();
}

// Copies on streams of their own and a pass on the device's, both held until
// all is queued. Whichever side is timed, the other outlasts it.
class GpuVisit {
 public:
  GpuVisit(PassRunner* runner, CopyBench* copies)
      : runner_(runner),
        device_(runner->device()),
        copies_(copies),
        watch_(device_) {}

  absl::Status Visit(ProfilePass pass,
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

 private:
  // Once, and not behind a hold: first launches load kernels.
  absl::Status WarmUp() {
    if (warm_) return absl::OkStatus();
    PW_RETURN_IF_ERROR(runner_->Prepare(kBackwardWeight));
    PW_RETURN_IF_ERROR(runner_->Run(kBackwardWeight));
    PW_RETURN_IF_ERROR(device_->Wait(nullptr));
    PW_RETURN_IF_ERROR(copies_->WarmUp(kGpuPiece));
    warm_ = true;
    return absl::OkStatus();
  }
  absl::Status Hold(const std::vector<CopyDirection>& directions) {
    for (const CopyDirection direction : directions) {
      PW_RETURN_IF_ERROR(
          device_->Check(device_->kernels()->hold_stream(
                             device_->handle(), copies_->stream(direction)),
                         "hold a stream"));
    }
    return absl::OkStatus();
  }
  absl::Status Wait(const std::vector<CopyDirection>& directions) {
    for (const CopyDirection direction : directions) {
      PW_RETURN_IF_ERROR(
          device_->Check(device_->kernels()->synchronize(
                             device_->handle(), copies_->stream(direction)),
                         "wait for a stream"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Time(ProfilePass pass,
                              const std::vector<CopyDirection>& directions,
                              double pieces) {
    // Beside a long pass fewer and larger ones: as many bytes, and no more
    // launches than a held stream takes.
    const auto larger = std::min(
        std::ceil(pieces / kMostQueued),
        std::floor(static_cast<double>(copies_->max_bytes()) / kGpuPiece));
    const int64_t bytes = kGpuPiece * std::max<int64_t>(1, std::lround(larger));
    const int count = static_cast<int>(std::min<double>(
        kMostQueued, std::ceil(pieces * kGpuPiece / double(bytes))));
    PW_RETURN_IF_ERROR(runner_->Prepare(pass));
    PW_RETURN_IF_ERROR(watch_.Start());
    PW_RETURN_IF_ERROR(Hold(directions));
    for (const CopyDirection direction : directions) {
      PW_RETURN_IF_ERROR(copies_->Queue(direction, bytes, count));
    }
    PW_RETURN_IF_ERROR(watch_.Mark());
    PW_RETURN_IF_ERROR(runner_->Run(pass));
    PW_RETURN_IF_ERROR(watch_.Mark());
    std::vector<double> seconds;
    PW_RETURN_IF_ERROR(watch_.Stop(&seconds));
    PW_RETURN_IF_ERROR(Wait(directions));
    return seconds[0];
  }

  // Of about one pass's time of copies in the first direction.
  absl::StatusOr<double> TimeCopies(
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
    PW_RETURN_IF_ERROR(watch_.Stop(&unused));
    PW_RETURN_IF_ERROR(Wait(directions));
    double seconds = 0;
    PW_RETURN_IF_ERROR(device_->Check(
        kernels->elapsed(device_->handle(), events[0], events[1], &seconds),
        "read an event"));
    for (PwEvent* event : events) {
      kernels->destroy_event(device_->handle(), event);
    }
    return seconds / count;
  }

  PassRunner* runner_;
  MeasuredDevice* device_;
  CopyBench* copies_;
  bool warm_ = false;
  Stopwatch watch_;
};

// Ratios to four digits, as text has them.
double Rounded(double ratio) {
  double rounded = ratio;
  PW_CHECK(absl::SimpleAtod(absl::StrFormat("%.4g", ratio), &rounded));
  return rounded;
}

Subject MatrixSubject(ProfilePass pass, Beside beside) {
  InterferenceEntry entry;
  entry.pass = pass;
  entry.beside = beside;
  const std::string key = KeyOf(entry);
  const auto has = [key](const Profile& profile) {
    const InterferenceEntry* found = FindEntry(profile.interference, key);
    return found != nullptr && found->pass_low > 0 && found->beside_low > 0;
  };
  // Not has() until both sides are there: 0 stands for what is not.
  entry.pass_low = entry.beside_low = 0;
  Subject subject;
  subject.name = key;
  subject.share = 0.3;
  subject.series.push_back(
      {key,
       [entry](const Distribution& ratio, Profile* profile) {
         InterferenceEntry* found = FindOrAdd(&profile->interference, entry);
         found->pass_slowdown = Rounded(ratio.median_s);
         found->pass_low = Rounded(ratio.confidence_low_s);
         found->pass_high = Rounded(ratio.confidence_high_s);
       },
       has});
  subject.series.push_back(
      {absl::StrCat(key, ", its slow-down"),
       [entry](const Distribution& ratio, Profile* profile) {
         InterferenceEntry* found = FindOrAdd(&profile->interference, entry);
         found->beside_slowdown = Rounded(ratio.median_s);
         found->beside_low = Rounded(ratio.confidence_low_s);
         found->beside_high = Rounded(ratio.confidence_high_s);
       },
       has});
  return subject;
}

// So many pieces in turn that none is in the cache when it comes again.
int64_t GpuBytes(const MeasuredDevice& device) {
  const int64_t pieces =
      (2 * device.info().cache_bytes + kGpuPiece - 1) / kGpuPiece;
  return std::max<int64_t>(2, pieces) * kGpuPiece;
}

std::vector<CopyDirection> DirectionsOf(Beside beside) {
  switch (beside) {
    case Beside::kD2H:
      return {CopyDirection::kDeviceToHost};
    case Beside::kH2D:
      return {CopyDirection::kHostToDevice};
    case Beside::kBothCopies:
      return {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice};
    case Beside::kSendRecv:
    case Beside::kCollective:
      return {};
  }
  PW_CHECK(false);
}

}  // namespace

int64_t InterferenceBytes(const MeasuredDevice& device) {
  return device.is_cpu() ? 0 : 2 * GpuBytes(device);
}

absl::StatusOr<std::vector<Subject>> InterferenceSubjects(
    MeasuredDevice* device, std::shared_ptr<PartBench> bench) {
  auto runner = std::make_shared<PassRunner>(device, std::move(bench));
  std::vector<Subject> subjects;
  if (!device->is_cpu()) {
    PW_ASSIGN_OR_RETURN(auto copies,
                        CopyBench::Create(device, GpuBytes(*device)));
    auto visit = std::make_shared<GpuVisit>(runner.get(), copies.get());
    for (const ProfilePass pass : kMatrixPasses) {
      for (const Beside beside :
           {Beside::kD2H, Beside::kH2D, Beside::kBothCopies}) {
        Subject subject = MatrixSubject(pass, beside);
        subject.visit =
            [runner, copies, visit, pass,
             directions = DirectionsOf(beside)](std::vector<double>* samples) {
              return visit->Visit(pass, directions, samples);
            };
        subjects.push_back(std::move(subject));
      }
    }
    return subjects;
  }
  const auto out = Copier();
  const auto in = Copier();
  const auto group = std::make_shared<ThreadGroup>(2, kHostPiece);
  const Background backgrounds[kNumBeside] = {
      CopyBackground({out}), CopyBackground({in}), CopyBackground({out, in}),
      TransferBackground(group, TransferKind::kSendRecv),
      TransferBackground(group, TransferKind::kAllReduce)};
  for (const ProfilePass pass : kMatrixPasses) {
    for (int beside = 0; beside < kNumBeside; ++beside) {
      Subject subject = MatrixSubject(pass, static_cast<Beside>(beside));
      subject.visit = [runner, pass, background = backgrounds[beside]](
                          std::vector<double>* samples) {
        return VisitOnCpu(runner.get(), pass, background, samples);
      };
      subjects.push_back(std::move(subject));
    }
  }
  return subjects;
}

}  // namespace pipewright

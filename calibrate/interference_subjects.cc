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
#include "calibrate/interference_gpu.h"
#include "calibrate/machine.h"
#include "calibrate/measure.h"
#include "calibrate/thread_group.h"
#include "sim/base/check.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using enum ProfilePass;

constexpr ProfilePass kMatrixPasses[] = {kForward, kBackwardInput,
                                         kBackwardWeight};
constexpr int64_t kHostPiece = 1 << 20;  // bytes copied or sent on a CPU

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

absl::StatusOr<double> TimeOnCpu(PassRunner* runner, ProfilePass pass) {
  PW_RETURN_IF_ERROR(runner->Prepare(pass));
  const double start = ThreadSeconds();
  PW_RETURN_IF_ERROR(runner->Run(pass));
  return ThreadSeconds() - start;
}

double MedianEnd(const Background& background) {
  const std::vector<double> seconds = background.end();
  PW_CHECK(!seconds.empty());
  return Median(seconds);
}

// Times both sides alone and then beside each other, on a CPU. It takes thread
// times: waiting for a core is no interference, and would be most of the time
// on a machine with neighbours.
absl::Status VisitOnCpu(PassRunner* runner, ProfilePass pass,
                        const Background& background,
                        std::vector<double>* samples) {
  PW_ASSIGN_OR_RETURN(const double alone, TimeOnCpu(runner, pass));
  background.begin();
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * alone));
  const double beside_alone = MedianEnd(background);
  background.begin();
  const absl::StatusOr<double> beside = TimeOnCpu(runner, pass);
  const double beside_with = MedianEnd(background);
  PW_RETURN_IF_ERROR(beside.status());
  *samples = {*beside / alone, beside_with / beside_alone};
  return absl::OkStatus();
}

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
  // has() is false until both sides are there; 0 stands for a missing side.
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

// So many pieces take turns that none is in the cache at its next turn.
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

// Send-recv runs between the fewest ranks, a pair; collectives run between the
// most.
const Transport* TransportFor(const std::vector<Transport>& transports,
                              Beside beside) {
  const Transport* chosen = nullptr;
  for (const Transport& transport : transports) {
    if (transport.begin == nullptr) continue;
    if (chosen == nullptr ||
        (beside == Beside::kSendRecv ? transport.ranks < chosen->ranks
                                     : transport.ranks > chosen->ranks)) {
      chosen = &transport;
    }
  }
  return chosen;
}

absl::StatusOr<std::vector<Subject>> SubjectsOnGpu(
    const std::shared_ptr<PassRunner>& runner,
    const std::vector<Transport>& transports) {
  MeasuredDevice* const device = runner->device();
  PW_ASSIGN_OR_RETURN(auto copies,
                      CopyBench::Create(device, GpuBytes(*device)));
  auto visit = std::make_shared<GpuVisit>(runner.get(), copies.get());
  std::vector<Subject> subjects;
  for (const ProfilePass pass : kMatrixPasses) {
    for (int index = 0; index < kNumBeside; ++index) {
      const auto beside = static_cast<Beside>(index);
      Subject subject = MatrixSubject(pass, beside);
      if (std::vector<CopyDirection> directions = DirectionsOf(beside);
          !directions.empty()) {
        subject.visit = [runner, copies, visit, pass,
                         directions](std::vector<double>* samples) {
          return visit->VisitCopies(pass, directions, samples);
        };
      } else {
        const Transport* const transport = TransportFor(transports, beside);
        if (transport == nullptr) continue;
        const TransferKind kind = beside == Beside::kSendRecv
                                      ? TransferKind::kSendRecv
                                      : TransferKind::kAllReduce;
        subject.visit = [runner, copies, visit, pass, kind,
                         transport = *transport](std::vector<double>* samples) {
          return visit->VisitTransfers(pass, transport, kind, samples);
        };
      }
      subjects.push_back(std::move(subject));
    }
  }
  return subjects;
}

}  // namespace

int64_t InterferenceBytes(const MeasuredDevice& device) {
  return device.is_cpu() ? 0 : 2 * GpuBytes(device);
}

absl::StatusOr<std::vector<Subject>> InterferenceSubjects(
    MeasuredDevice* device, const PassSet& passes,
    std::shared_ptr<const bool> brief,
    const std::vector<Transport>& transports) {
  auto runner = std::make_shared<PassRunner>(device, passes.example);
  if (!device->is_cpu()) return SubjectsOnGpu(runner, transports);
  const auto small = std::make_shared<PassRunner>(device, passes.small);
  std::vector<Subject> subjects;
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
      subject.visit = [runner, small, brief, pass,
                       background =
                           backgrounds[beside]](std::vector<double>* samples) {
        const bool is_brief = brief != nullptr && *brief;
        return VisitOnCpu(is_brief ? small.get() : runner.get(), pass,
                          background, samples);
      };
      subjects.push_back(std::move(subject));
    }
  }
  return subjects;
}

}  // namespace pipewright

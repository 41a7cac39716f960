#include "calibrate/session.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "calibrate/copy_subjects.h"
#include "calibrate/device.h"
#include "calibrate/interference_subjects.h"
#include "calibrate/kernel_subjects.h"
#include "calibrate/machine.h"
#include "calibrate/measure.h"
#include "calibrate/memory_subjects.h"
#include "calibrate/pass_subjects.h"
#include "calibrate/red_flags.h"
#include "calibrate/transfer_subjects.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/base/version.h"

namespace pipewright {
namespace {

// All that a calibration measures beside the passes: optimizer, memory,
// copies, transfers, interference.

// A pass, and two threads that transfer.
constexpr unsigned kInterferenceThreads = 3;

// Bytes of the device for copies and what runs beside passes, without the
// optimizer's.
int64_t SideBytes(const MeasuredDevice& device, bool quick) {
  return CopySubjectBytes(device, quick) +
         (quick ? 0 : InterferenceBytes(device));
}

// The benches of `passes` are for the interference matrix. The transfers of
// `transports` are measured; without any, those of threads on a CPU and none on
// a GPU. What cannot be measured here goes to `warnings`.
absl::StatusOr<std::vector<Subject>> SideSubjects(
    MeasuredDevice* device, const PassSet& passes,
    std::shared_ptr<const bool> brief, const std::vector<Transport>& transports,
    bool quick, std::vector<std::string>* warnings) {
  std::vector<Subject> all;
  const auto append = [&all](std::vector<Subject> some) {
    std::move(some.begin(), some.end(), std::back_inserter(all));
  };
  PW_ASSIGN_OR_RETURN(
      std::vector<Subject> optimizers,
      OptimizerSubjects(device, passes.example->shape().model.type,
                        passes.example->parameters()));
  append(std::move(optimizers));
  PW_ASSIGN_OR_RETURN(std::vector<Subject> copies, CopySubjects(device, quick));
  append(std::move(copies));
  const std::vector<Transport> measured =
      transports.empty() && device->is_cpu() ? ThreadTransports() : transports;
  for (const Transport& transport : measured) {
    append(TransferSubjects(transport, quick, measured.size() == 1));
  }
  if (quick) return all;
  all.push_back(HostMemorySubject());
  PW_ASSIGN_OR_RETURN(std::vector<Subject> interference,
                      InterferenceSubjects(device, passes, brief, measured));
  append(std::move(interference));
  const unsigned cores = std::thread::hardware_concurrency();
  if (device->is_cpu() && cores < kInterferenceThreads) {
    warnings->push_back(absl::StrCat(
        "a pass beside two transferring threads, or beside copies both ways, "
        "needs ",
        kInterferenceThreads, " cores, there are ", cores,
        ": those slow-downs are of threads that took turns"));
  }
  return all;
}

// The type of activations and weights; with fp8 the linear layers compute in
// fp8.
struct Types {
  PwType type = PW_FP32;
  bool fp8 = false;
};

absl::StatusOr<Types> TypesOf(const std::string& name,
                              const PwDeviceInfo& info) {
  const auto has = [&info](PwType type) {
    return (info.types >> type & 1) != 0;
  };
  if (name.empty()) {
    const bool gpu = info.capability > 0;
    return Types{gpu && has(PW_BF16) ? PW_BF16 : PW_FP32};
  }
  std::vector<std::string> known;
  for (const PwType type : {PW_FP32, PW_BF16}) {
    if (!has(type)) continue;
    known.push_back(std::string(TypeName(type)));
    if (name == TypeName(type)) return Types{type};
  }
  if (info.fp8_gemm != 0) {
    known.push_back(std::string(TypeName(PW_FP8)));
    if (name == TypeName(PW_FP8)) {
      return Types{has(PW_BF16) ? PW_BF16 : PW_FP32, true};
    }
  }
  return UnknownName("--type", name, known);
}

ProfileSource SourceOf(const MeasuredDevice& device) {
  const PwDeviceInfo& info = device.info();
  ProfileSource source;
  source.kind = "calibrate";
  source.version = kVersion;
  source.date = UtcDate();
  source.backend = device.kernels()->name;
  source.device = info.name;
  source.driver = info.driver;
  source.libraries = info.libraries;
  source.system = SystemName();
  source.cores = info.cores;
  source.memory_bytes = info.memory_bytes;
  source.before = device.State();
  return source;
}

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A GPU's state with work queued, after `seconds` of it; a CPU's as it is.
absl::StatusOr<ProfileState> StateUnderLoad(MeasuredDevice* device,
                                            PartBench* bench, double seconds) {
  if (device->is_cpu()) return device->State();
  constexpr int kQueued = 8;  // enough to outlast the question
  ProfileState state;
  const double start = Now();
  do {
    for (int index = 0; index < kQueued; ++index) {
      const int layer = index % bench->layers();
      for (const ProfilePass pass :
           {ProfilePass::kForward, ProfilePass::kBackwardInput,
            ProfilePass::kBackwardWeight}) {
        PW_RETURN_IF_ERROR(bench->Run(pass, layer));
      }
    }
    state = device->State();
    PW_RETURN_IF_ERROR(device->Wait(nullptr));
  } while (Now() - start < seconds);
  return state;
}

// Subjects that still lack samples.
std::vector<Subject> Missing(std::vector<Subject> subjects,
                             const Profile& done) {
  subjects.erase(std::remove_if(subjects.begin(), subjects.end(),
                                [&done](const Subject& subject) {
                                  return std::all_of(
                                      subject.series.begin(),
                                      subject.series.end(),
                                      [&done](const Series& series) {
                                        return series.has(done);
                                      });
                                }),
                 subjects.end());
  return subjects;
}

// Samples of two devices must not become one distribution.
absl::Status CheckResume(const Profile& done, const ProfileSource& now,
                         absl::string_view type) {
  const auto check = [](absl::string_view field, absl::string_view then,
                        absl::string_view today) -> absl::Status {
    if (then == today) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: ", field, " of the interrupted run is '", then,
                     "', now it is '", today,
                     "'; allowed: the same (without --resume it starts anew)"));
  };
  for (const ProfileSource& source : done.sources) {
    PW_RETURN_IF_ERROR(check("backend", source.backend, now.backend));
    PW_RETURN_IF_ERROR(check("device", source.device, now.device));
    PW_RETURN_IF_ERROR(check("libraries", source.libraries, now.libraries));
  }
  for (const PassEntry& entry : done.passes) {
    PW_RETURN_IF_ERROR(check("type", entry.type, type));
  }
  return absl::OkStatus();
}

void AppendNoise(const Measured& measured, const StoppingRule& rule,
                 std::vector<std::string>* warnings) {
  warnings->insert(warnings->end(), measured.lost.begin(), measured.lost.end());
  if (measured.imprecise.empty()) return;
  warnings->push_back(absl::StrFormat(
      "%d medians are known less well than to %.3g %% (the noisiest things "
      "measured: calibrate show)",
      measured.imprecise.size(), 100 * rule.precision));
}

}  // namespace

absl::StatusOr<CalibrateResult> Calibrate(const PwKernels* kernels,
                                          const CalibrateOptions& options,
                                          const CalibrateHooks& hooks) {
  const double start = Now();
  PW_ASSIGN_OR_RETURN(const auto device, MeasuredDevice::Open(kernels, 0));
  PW_ASSIGN_OR_RETURN(const Types types, TypesOf(options.type, device->info()));
  ProfileSource source = SourceOf(*device);
  if (!options.transport_library.empty()) {
    absl::StrAppend(&source.libraries, ", ", options.transport_library);
  }
  PW_RETURN_IF_ERROR(CheckResume(options.done, source,
                                 TypeName(types.fp8 ? PW_FP8 : types.type)));
  PW_RETURN_IF_ERROR(Prefix(
      "--merge", MergeProfiles(options.older, {.sources = {source}}).status()));
  ShapeOptions shapes = options.grid;
  shapes.fp8 = types.fp8;
  PW_ASSIGN_OR_RETURN(const Grid grid,
                      MakeGrid(options.model, types.type, shapes));
  for (const PassEntry& entry : options.done.passes) {
    if (entry.model == grid.model) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: the interrupted run was of another model than ",
                     options.model.name,
                     "; allowed: the same (without --resume it starts anew)"));
  }
  PW_ASSIGN_OR_RETURN(
      const BenchMemory memory,
      EstimatePassMemory(device.get(), grid,
                         SideBytes(*device, options.grid.quick)));
  const MachineLoad before = CurrentLoad();
  source.warnings = options.warnings;
  source.warnings.insert(source.warnings.end(), grid.warnings.begin(),
                         grid.warnings.end());
  if (types.fp8 && device->info().fp8_gemm == 2) {
    source.warnings.push_back(
        absl::StrCat("fp8 is emulated here: times say nothing of a device "
                     "that has it; all else is in ",
                     TypeName(types.type)));
  }

  MeasureOptions measure;
  measure.rounds = options.rounds;
  measure.budget_s = options.budget_s;
  measure.refuses = options.refuses;
  PW_ASSIGN_OR_RETURN(measure.resolution, ClockResolution(device.get()));
  // A GPU's visits take milliseconds.
  const auto brief = std::make_shared<bool>(device->is_cpu());
  PW_ASSIGN_OR_RETURN(PassSet passes,
                      PassSubjects(device.get(), grid, memory, brief));
  PW_ASSIGN_OR_RETURN(
      std::vector<Subject> side,
      SideSubjects(device.get(), passes, brief, options.transports,
                   options.grid.quick, &source.warnings));
  std::vector<Subject> subjects = std::move(passes.subjects);
  std::vector<Subject> kernel_subjects =
      KernelSubjects(device.get(), passes.layers, passes.heads);
  std::move(kernel_subjects.begin(), kernel_subjects.end(),
            std::back_inserter(subjects));
  std::move(side.begin(), side.end(), std::back_inserter(subjects));

  Profile profile = options.done;
  profile.complete = false;
  std::vector<ProfileState> states;
  const auto saved = [&](const Profile& sofar) -> absl::Status {
    PW_ASSIGN_OR_RETURN(source.after,
                        StateUnderLoad(device.get(), passes.example.get(), 0));
    states.push_back(source.after);
    Profile partial = sofar;
    partial.sources.push_back(source);
    partial.sources.back().seconds = Now() - start;
    return hooks.save(partial);
  };
  CalibrateResult result;
  for (const Subject& subject : subjects) {
    result.series += subject.series.size();
  }
  const std::vector<Subject> missing = Missing(subjects, profile);
  if (!missing.empty()) {
    PW_ASSIGN_OR_RETURN(
        source.before,
        StateUnderLoad(device.get(), passes.example.get(), options.heat_s));
    states.push_back(source.before);
    measure.spent_s = options.spent_s + Now() - start;
    const auto go_whole = [&brief] { *brief = false; };
    PW_ASSIGN_OR_RETURN(
        Measured measured,
        MeasureAll(missing, measure,
                   {Now, hooks.stop, hooks.progress, hooks.estimated,
                    *brief ? std::function<void()>(go_whole) : nullptr, saved},
                   std::move(profile)));
    if (*brief) {
      source.warnings.push_back(
          "the budget was short: passes were timed over two layers in turn and "
          "interference with a small microbatch");
    }
    profile = std::move(measured.profile);
    result.interrupted = measured.interrupted;
    AppendNoise(measured, measure.rule, &source.warnings);
    source.seconds = Now() - start;
    AppendLoadWarnings(before, CurrentLoad(), source.seconds, &source.warnings);
    AppendRedFlags(profile, source, states, device->info().cache_bytes,
                   &source.warnings);
    profile.sources.push_back(source);
  }
  for (const Subject& subject : subjects) {
    result.missing += static_cast<size_t>(std::count_if(
        subject.series.begin(), subject.series.end(),
        [&profile](const Series& series) { return !series.has(profile); }));
  }
  profile.complete = !result.interrupted;
  result.profile = std::move(profile);
  return result;
}

}  // namespace pipewright

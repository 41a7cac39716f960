// Memory of what `pipewright execute` runs, of all classes of replicas.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "execute/report/execute_report.h"
#include "execute/report/run_to_train.h"
#include "execute/train/memory_pool.h"
#include "execute/train/run_memory.h"
#include "kernels/cpu/free_memory.h"
#include "kernels/loader.h"
#include "sim/base/status.h"
#include "sim/config/framework_memory.h"
#include "sim/memory/activations.h"
#include "sim/memory/executor_memory.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/report/memory_report.h"
#include "sim/schedule/schedule.h"

namespace pipewright {
namespace {

// What is on the host of an optimizer there, [rank]; empty without one.
std::vector<OffloadedStates> HostStatesOf(const PreparedRun& run,
                                          const ExecutorSpec& spec) {
  std::vector<OffloadedStates> states;
  if (!spec.host_optimizer) return states;
  const Schedule& schedule = *run.schedule.lowered;
  const int shards =
      TraitsOf(run.lower.data_parallel).shards_step ? run.lower.replicas : 1;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    states.push_back(ExecutorHostStates(
        CountHostSubgroups(schedule, run.lower.offload, rank, shards), spec));
  }
  return states;
}

void TakeMemoryOfClass(const std::string& device, PreparedRun* run) {
  if (!run->prepared_model) return;
  TrainingSpec& training = run->prepared_model->training;
  const TrainingSpec given = training;
  ExecutorSpec spec;
  if (run->sequences) {
    // As ModelToTrain has it.
    const DealtSamples samples = DealtSamplesOf(*run->sequences);
    spec.positions = training.sequence;
    spec.longest_sample = samples.longest;
    training.microbatch_size = 1;
    training.sequence = samples.most_tokens;
  }
  const Schedule& schedule = *run->schedule.lowered;
  spec.gpu = device == "cuda";
  spec.type_bytes = spec.gpu ? 2 : 4;
  spec.fp8 = training.precision == Precision::kFp8;
  // Stages run again whole or not at all.
  if (training.recompute != Recompute::kFull) {
    training.recompute = Recompute::kNone;
  }
  spec.by_layer = GathersLayers(run->lower);
  ExecutedModel versions;
  SetWeightVersions(schedule, &versions);
  spec.keeps_versions = versions.keeps_versions;
  spec.ties_table = run->prepared_model->spec.tied_embeddings;
  spec.keeps_last_step = run->lower.optimizer == OptimizerMode::kPostValidated;
  spec.host_optimizer = run->lower.offload.active();
  TakeMemoryFramework(ExecutorMemory(spec), HostStatesOf(*run, spec), run);
  training = given;
}

// One run of each class; without classes the run itself.
std::vector<const PreparedRun*> ClassesOf(const PreparedRun& run) {
  if (run.classes.empty()) return {&run};
  std::vector<const PreparedRun*> classes;
  for (const PreparedClass& own : run.classes) classes.push_back(own.run.get());
  return classes;
}

// (*most)[rank] becomes `value`, if it was less.
void RaiseTo(double value, size_t rank, std::vector<double>* most) {
  if (most->size() <= rank) most->resize(rank + 1);
  (*most)[rank] = std::max((*most)[rank], value);
}

}  // namespace

void TakeExecutorMemory(const std::string& device, PreparedRun* run) {
  TakeMemoryOfClass(device, run);
  // Here it is that of the longest.
  std::erase_if(run->warnings, [](const std::string& warning) {
    return absl::StrContains(warning, kMemoryOfBase);
  });
  for (PreparedClass& own : run->classes) {
    PreparedRun alike = *own.run;
    TakeMemoryOfClass(device, &alike);
    own.run = std::make_shared<const PreparedRun>(std::move(alike));
  }
}

absl::Status ExecutorMemoryVerdict(const PreparedRun& run) {
  const MemoryReport* neediest = nullptr;
  for (const PreparedRun* const own : ClassesOf(run)) {
    if (!own->memory || MemoryVerdict(*own->memory).ok()) continue;
    const auto needed = [](const MemoryReport& report) {
      return report.memory->ranks[report.memory->WorstRank()].needed();
    };
    if (neediest == nullptr || needed(*own->memory) > needed(*neediest)) {
      neediest = &*own->memory;
    }
  }
  return neediest == nullptr ? absl::OkStatus() : MemoryVerdict(*neediest);
}

absl::StatusOr<std::vector<MemoryClaim>> ClaimsOf(
    const PreparedRun& run, const Program& program, const ExecutedModel& model,
    const PwKernels* kernels, const TrainingOptions& training,
    const std::vector<int>& replayed, int process) {
  RunMemoryOptions options = {
      .own = replayed, .in_turn = !replayed.empty(), .processes = process >= 0};
  const std::vector<const PreparedRun*> classes = ClassesOf(run);
  for (int replica = 0; replica < program.replicas; ++replica) {
    const size_t its = program.ClassOf(replica);
    const PreparedRun& alike = *classes[its < classes.size() ? its : 0];
    for (int rank = 0; rank < program.pp(); ++rank) {
      const auto index = static_cast<int>(options.ranks.size());
      DeviceAndHost& needs = options.ranks.emplace_back();
      if (!alike.memory) continue;
      const RankMemory& memory = alike.memory->memory->ranks[rank];
      needs = {memory.needed(), memory.peak_host()};
      if (replayed.empty() && (process < 0 || process == index)) {
        options.own.push_back(index);
      }
    }
  }
  PW_ASSIGN_OR_RETURN(
      RunMemory memory,
      EstimateRunMemory(program, model, kernels, training, options));
  const bool gpu = kernels != pw_cpu_kernels();
  std::vector<MemoryClaim> claims;
  const auto claim = [&](std::string of, std::string scope, double free_bytes,
                         bool device, bool host) {
    MemoryClaim& made = claims.emplace_back();
    made = {std::move(of), std::move(scope), free_bytes, {}};
    for (const DeviceAndHost& part : memory.parts) {
      made.bytes.push_back(static_cast<double>((device ? part.device : 0) +
                                               (host ? part.host : 0)));
    }
  };
  for (const MemoryLimit& limit : MemoryLimits()) {
    claim(limit.name, limit.scope, static_cast<double>(limit.free_bytes), !gpu,
          true);
  }
  if (gpu) {
    PwDevice* opened = nullptr;
    PW_RETURN_IF_ERROR(KernelStatus(
        *kernels, kernels->open(training.device_index, &opened), "device"));
    PwDeviceInfo info{};
    const absl::Status known =
        KernelStatus(*kernels, kernels->info(opened, &info), "device");
    kernels->close(opened);
    PW_RETURN_IF_ERROR(known);
    // No two processes have one.
    claim(info.name, absl::StrCat("process ", process),
          static_cast<double>(info.free_bytes), true, false);
  }
  return claims;
}

absl::Status RunMemoryVerdict(const std::vector<MemoryNeed>& needs, int ranks,
                              double* needed_bytes) {
  constexpr const char* kDoing[kNumRunParts] = {
      "train", "are compared with the float64 reference",
      "are compared with the sequential run"};
  constexpr const char* kLeftOutBy[kNumRunParts] = {"", "--no-reference",
                                                    "--no-check"};
  if (!needs.empty()) *needed_bytes = needs[0].most_bytes();
  for (const MemoryNeed& need : needs) {
    const size_t part = need.WorstPart();
    const int here = need.processes > 1 ? need.processes : ranks;
    std::string allowed;
    for (size_t flag = 1; flag < need.bytes.size(); ++flag) {
      // It helps if training fits, and then what is compared before it.
      if (need.bytes[0] > kUsableMemory * need.free_bytes) break;
      if (need.bytes[flag] <= kUsableMemory * need.free_bytes) continue;
      absl::StrAppend(&allowed, allowed.empty() ? "" : " and ",
                      kLeftOutBy[flag]);
    }
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", or ",
                    "a smaller model (model.layers, model.hidden, "
                    "model.vocabulary), --microbatch-size, --sequence or --dp");
    PW_RETURN_IF_ERROR(
        CheckMemory(absl::StrCat(here, here == 1 ? " rank" : " ranks",
                                 need.processes > 1 ? " on one machine" : "",
                                 ", while they ", kDoing[part], ","),
                    need.bytes[part], need.free_bytes, need.of, allowed));
  }
  return absl::OkStatus();
}

// Without kernels nothing has bytes, so the passes of the schedule count.
void PredictMemory(const PreparedRun& run, ExecuteReport* report) {
  for (const PreparedRun* const own : ClassesOf(run)) {
    if (report->clock == ClockKind::kPaced || !own->memory) {
      const std::vector<double> peaks = PeakActivations(
          *own->schedule.lowered, own->lower.costs.held_until_weight);
      for (size_t rank = 0; rank < peaks.size(); ++rank) {
        RaiseTo(peaks[rank], rank, &report->predicted_peak_activations);
      }
      continue;
    }
    size_t rank = 0;
    for (const RankMemory& memory : own->memory->memory->ranks) {
      RaiseTo(memory.peak_microbatches, rank,
              &report->predicted_peak_activations);
      RaiseTo(static_cast<double>(memory.peak()), rank,
              &report->predicted_peak_bytes);
      RaiseTo(static_cast<double>(memory.peak_host()), rank,
              &report->predicted_peak_host_bytes);
      ++rank;
    }
  }
}

}  // namespace pipewright

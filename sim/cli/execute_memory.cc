#include "sim/cli/execute_memory.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "execute/train/training.h"
#include "sim/base/status.h"
#include "sim/cli/execute_replicas.h"
#include "sim/config/framework_memory.h"
#include "sim/memory/activations.h"
#include "sim/memory/executor_memory.h"
#include "sim/program/gathers_layers.h"
#include "sim/report/memory_report.h"
#include "sim/schedule/schedule.h"

namespace pipewright {
namespace {

// [rank]
std::vector<OffloadedStates> HostStatesOf(const PreparedRun& run,
                                          const ExecutorSpec& spec) {
  std::vector<OffloadedStates> states;
  const Schedule& schedule = *run.schedule.lowered;
  const OptimizerOffload& offload = run.lower.offload;
  const int shards =
      TraitsOf(run.lower.data_parallel).shards_step ? run.lower.replicas : 1;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    states.push_back(ExecutorHostStates(
        CountHostSubgroups(schedule, offload, rank, shards), spec));
  }
  return states;
}

void TakeMemoryOfClass(const std::string& device, PreparedRun* run) {
  if (!run->prepared_model) return;
  TrainingSpec& training = run->prepared_model->training;
  const TrainingSpec given = training;
  ExecutorSpec spec;
  if (run->sequences) {
    // As TakeLengths has it.
    spec.positions = training.sequence;
    spec.longest_sample = LongestSample(*run->sequences);
    training.microbatch_size = 1;
    training.sequence = MostTokens(*run->sequences);
  }
  const Schedule& schedule = *run->schedule.lowered;
  spec.gpu = device == "cuda";
  spec.type_bytes = spec.gpu ? 2 : 4;
  spec.fp8 = training.precision == Precision::kFp8;
  spec.recompute = training.recompute == Recompute::kFull ||
                   schedule.Has(PassKind::kRecompute);
  spec.by_layer = GathersLayers(run->lower);
  ExecutedModel versions;
  SetWeightVersions(schedule, &versions);
  spec.keeps_versions = versions.keeps_versions;
  spec.ties_table = run->prepared_model->spec.tied_embeddings;
  spec.keeps_last_step = run->lower.optimizer == OptimizerMode::kPostValidated;
  spec.host_optimizer = run->lower.offload.active();
  if (spec.host_optimizer) {
    TakeMemoryFramework(ExecutorMemory(spec), HostStatesOf(*run, spec), run);
  } else {
    TakeMemoryFramework(ExecutorMemory(spec), run);
  }
  training = given;
}

// Those that a device of the run may have.
std::vector<const PreparedRun*> ClassesOf(const PreparedRun& run) {
  if (run.classes.empty()) return {&run};
  std::vector<const PreparedRun*> classes;
  for (const PreparedClass& own : run.classes) classes.push_back(own.run.get());
  return classes;
}

void RaiseTo(const std::vector<double>& values, std::vector<double>* most) {
  most->resize(std::max(most->size(), values.size()));
  for (size_t rank = 0; rank < values.size(); ++rank) {
    (*most)[rank] = std::max((*most)[rank], values[rank]);
  }
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

// Without kernels nothing has bytes, so the passes of the schedule count.
void PredictMemory(const PreparedRun& run, ExecuteReport* report) {
  for (const PreparedRun* const own : ClassesOf(run)) {
    if (report->clock == ClockKind::kPaced || !own->memory) {
      RaiseTo(PeakActivations(*own->schedule.lowered,
                              own->lower.costs.held_until_weight),
              &report->predicted_peak_activations);
      continue;
    }
    std::vector<double> activations;
    std::vector<double> bytes;
    std::vector<double> on_host;
    for (const RankMemory& rank : own->memory->memory->ranks) {
      activations.push_back(rank.peak_microbatches);
      bytes.push_back(static_cast<double>(rank.peak()));
      on_host.push_back(static_cast<double>(rank.peak_host()));
    }
    RaiseTo(activations, &report->predicted_peak_activations);
    RaiseTo(bytes, &report->predicted_peak_bytes);
    RaiseTo(on_host, &report->predicted_peak_host_bytes);
  }
}

}  // namespace pipewright

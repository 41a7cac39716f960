// A run on its way into a file of a training framework: what the emitters of
// all targets share. Parts of foreign_args.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/foreign/foreign_args.h"
#include "sim/model/model.h"
#include "sim/model/training.h"

namespace pipewright {

struct Emission {
  // As given; run.config has the defaults of strategy.framework, too.
  const RunConfig& config;
  const PreparedRun& run;
  const ModelSpec& model;
  const TrainingSpec& training;
  std::string csv;             // file with the order of passes; "": none
  std::set<std::string> held;  // fields that the target's own words say
  EmittedArgs out;

  const StrategyChoice& strategy() const { return run.config.strategy; }
  // Samples of a step.
  int64_t batch() const {
    return int64_t{*strategy().microbatches} * training.microbatch_size *
           training.dp;
  }
  void Hold(std::initializer_list<const char*> paths) {
    held.insert(paths.begin(), paths.end());
  }
  void HoldModel();  // all of it
  // Comment lines for the fields that are not held.
  std::string Comments() const;
};

// What a target cannot say, if `holds`.
struct Unsayable {
  bool holds;
  std::string what;
};
// Error: kInvalidArgument with the first of `all` that holds.
absl::Status RefuseUnsayable(absl::string_view target,
                             const std::vector<Unsayable>& all);

// True if both have the same parameters and operations, whatever the sequence
// and layers of multi-token prediction.
bool IsSameModel(const ModelSpec& one, const ModelSpec& other);

// Flags of Megatron-LM, "--bf16" or "--num-layers 32".
struct MegatronFlags {
  std::vector<std::string> model;
  std::vector<std::string> parallel;
};
absl::StatusOr<MegatronFlags> MegatronFlagsOf(Emission* emission,
                                              absl::string_view target);
// "torchrun", with the devices if all of the system take part.
std::string TorchrunLine(Emission* emission);

// Each sets `out` and `held`. Error: kInvalidArgument for what the target
// cannot say.
absl::Status EmitMegatron(Emission* emission);
absl::Status EmitTitan(Emission* emission, ForeignForm form);
absl::Status EmitDeepSpeed(Emission* emission);
absl::Status EmitBridge(Emission* emission);

}  // namespace pipewright

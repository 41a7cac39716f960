// A model of a few small layers under any schedule: what tests of the executor
// train.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "execute/train/executed_model.h"
#include "execute/train/training.h"
#include "sim/model/model.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"

namespace pipewright::testing {

// Layers that take next to no time.
ExecutedModel SmallModel(PwStyle style, int stages, int slices);

// The same model as sim/model knows it, with two layers a stage.
ModelSpec SpecOf(const ExecutedModel& model);

struct SmallTraining {
  std::shared_ptr<const Schedule> schedule;
  ExecutedModel model;
  Program program;
  TrainingOptions options;
};

// Two steps of `schedule` on dp x pp ranks with two microbatches a rank.
// `data_parallel` where stages have several copies.
// Error: the schedule's.
absl::StatusOr<SmallTraining> MakeSmallTraining(
    const std::string& schedule, int pp, int dp, WaitRule wait_rule,
    int iterations = 2, DataParallel data_parallel = DataParallel::kDdp);

// Losses, gradients and weights of all ranks as bytes.
std::string BitsOf(const TrainedRun& trained);

}  // namespace pipewright::testing

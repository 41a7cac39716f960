// The steps of Prepare; for sim/config only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/cost/pass_costs.h"
#include "sim/model/model.h"
#include "sim/program/program.h"
#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Sizes once it is clear where they come from.
struct RunSizes {
  int pp = 1;
  int vpp = 1;
  int dp = 1;
  int microbatches = 1;
  int slices = 1;
};

// What was given but changes nothing, and what is likely not meant.
void WarnOfIdleOptions(const RunConfig& config, const RunSizes& sizes,
                       const Schedule& schedule, bool has_model,
                       std::vector<std::string>* warnings);

// Pass times of every stage. Where none are given all are 1 s, with a
// warning. Error: some but not all of F, B, W; a list of the wrong length.
absl::StatusOr<PassCosts> PrepareCosts(const RunConfig& config,
                                       const RunSizes& sizes,
                                       std::vector<std::string>* warnings);

// What planners see of them.
PlanCosts PlanCostsOf(const RunConfig& config, const RunSizes& sizes,
                      const PassCosts& costs, double hop_s);

// The preset with the fields on top, or nothing where no model is given.
// Error: a field missing, layers that pp * vpp does not divide.
absl::StatusOr<std::optional<ModelSpec>> PrepareModel(const RunConfig& config,
                                                      const RunSizes& sizes);

// Tokens of a microbatch; nothing where neither a model nor the strategy
// tells.
std::optional<double> MicrobatchTokens(const RunConfig& config,
                                       const std::optional<ModelSpec>& model);

// The tokens of one sequence and the part of a layer's work that is causal
// attention, from the model; both 0 where nothing tells.
SequenceShape SequenceShapeOf(const RunConfig& config,
                              const std::optional<ModelSpec>& model);

// Bytes of one transfer over a hop: as given, or, with a model, those of a
// slice of a microbatch; 0 where nothing tells.
double PrepareHopBytes(const RunConfig& config, const RunSizes& sizes,
                       const std::optional<ModelSpec>& model);

// Bytes of the gradients of each stage, empty where nothing tells.
std::vector<double> GradientBytes(const RunConfig& config,
                                  const RunSizes& sizes,
                                  const std::optional<ModelSpec>& model);
// What these gradients weigh as parameters, relative to them.
double ParametersPerGradientByte(const RunConfig& config);

struct PreparedNetwork {
  Network network;
  std::string name;
  std::string system;  // its name, "" without one
  double hop_s = 0;    // of one transfer, the slowest hop; what planners see
};
// Error: p2p with a system, a system too small, no bytes for its links.
absl::StatusOr<PreparedNetwork> PrepareNetwork(
    const RunConfig& config, const RunSizes& sizes, double hop_bytes,
    absl::string_view engine, std::vector<std::string>* warnings);

}  // namespace pipewright

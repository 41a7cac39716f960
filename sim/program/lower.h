// Schedule, costs and strategy in, Program out: small named steps, each of
// which adds one thing.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/cost/jitter.h"
#include "sim/cost/pass_costs.h"
#include "sim/program/program.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

enum class OptimizerMode {
  kNone,           // iterations follow each other with no barrier
  kSynchronised,   // gradient norm over all ranks, then every rank steps
  kPostValidated,  // every rank steps on what it knows, checked afterwards
                   // (zero-bubble paper, sec. 4)
};

enum class DataParallel {
  kNone,
  kDdp,    // all-reduce of a chunk's gradients after its last backward
  kZero1,  // reduce-scatter there, all-gather before its next first forward
};

struct LowerOptions {
  PassCosts costs;
  Network network;
  WaitRule wait_rule = WaitRule::kBuffered;
  // Activations, or their gradient, of one hop; never divided.
  double hop_bytes = 0;
  DataParallel data_parallel = DataParallel::kNone;
  int replicas = 1;  // data-parallel degree
  // Bytes of one stage, [stage]: gradients for the reduction, parameters for
  // the gather.
  std::vector<double> gradient_bytes;
  std::vector<double> parameter_bytes;
  // False: reductions wait for the last pass of the rank's whole iteration.
  // SYNC passes stand where they stand.
  bool overlap_gradients = true;
  // Bytes of the activations of one microbatch that O and L move, [stage];
  // empty: their times in `costs` stand.
  std::vector<double> activation_bytes;
  OptimizerMode optimizer = OptimizerMode::kNone;
  // Noise on passes and optimizer steps; null: none. With it no period is
  // constant.
  std::shared_ptr<const Jitter> jitter;
  // 0: as many as the period needs, at most 8; with jitter 8.
  int iterations = 0;
};

// `schedule` must have passed VerifySchedule. Errors: kInvalidArgument where
// options do not fit (a list of the wrong length, a mapping of another size).
absl::StatusOr<Program> Lower(std::shared_ptr<const Schedule> schedule,
                              const LowerOptions& options);

}  // namespace pipewright

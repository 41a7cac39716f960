#include "tests/support/random_program.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/dp_classes.h"
#include "sim/program/time_steps.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"
#include "tests/support/random_side_ops.h"

namespace pipewright {
namespace {

// The costs of stages, and what else a class of replicas has of its own.
void DrawCosts(const Schedule& schedule, Random& random, LowerOptions* lower) {
  lower->costs.stages.clear();
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    lower->costs.stages.push_back({.forward_s = 1 + random.Time(4),
                                   .backward_input_s = 1 + random.Time(6),
                                   .backward_weight_s = 1 + random.Time(8),
                                   .offload_s = random.Time(6),
                                   .load_s = random.Time(6)});
  }
  lower->costs.microbatch_factor.clear();
  if (random.Chance(30)) {
    for (int index = 0; index < schedule.microbatches_per_direction();
         ++index) {
      lower->costs.microbatch_factor.push_back(0.5 + random.Time(1));
    }
  }
  lower->costs.optimizer_s = random.Time(3);
  lower->hop_bytes = random.Int(1, 40);
}

// Sometimes factors of single lanes.
void DrawLaneFactors(DpClass& own, Random& random) {
  if (random.Chance(50)) return;
  const int tables = random.Int(1, 3);
  for (int table = 0; table < tables; ++table) {
    std::vector<double>& factors = own.lane_factors.emplace_back();
    for (int index = 0; index < own.schedule->microbatches_per_direction();
         ++index) {
      factors.push_back(random.Int(1, 8) / 4.0);
    }
  }
  for (RankProgram& rank : own.ranks) {
    for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
      if (!IsComputePass(Pass::KindOf(lane)) || random.Chance(30)) continue;
      rank.lanes[lane].factors = random.Int(0, tables - 1);
    }
  }
}

// A Program of several classes, if it can have them. `row`: of the schedule in
// the registry; numbers of microbatches may differ.
absl::StatusOr<Program> LowerClasses(size_t row, const Schedule& schedule,
                                     LowerOptions lower, int most_classes,
                                     Random& random) {
  const int count = random.Int(1, std::min(most_classes, lower.replicas));
  std::vector<Program> classes;
  for (int index = 0; index < count; ++index) {
    Schedule own = schedule;
    if (index > 0) {
      const int pp = schedule.pp();
      const bool uneven = random.Chance(70);
      PW_ASSIGN_OR_RETURN(own, AnySchedule(row, pp,
                                           uneven ? pp * random.Int(1, 4)
                                                  : schedule.microbatches));
      if (random.Chance(25)) own = WithJointPairs(own, random);
      own.unit = schedule.unit;
      DrawCosts(own, random, &lower);
    }
    PW_ASSIGN_OR_RETURN(
        Program made,
        Lower(std::make_shared<const Schedule>(std::move(own)), lower));
    DrawLaneFactors(made, random);
    classes.push_back(std::move(made));
  }
  std::vector<int> class_of_replica;
  for (int replica = 0; replica < lower.replicas; ++replica) {
    class_of_replica.push_back(replica < count ? replica
                                               : random.Int(0, count - 1));
  }
  // Not always the first replica of the first class in front.
  for (int replica = lower.replicas - 1; replica > 0; --replica) {
    std::swap(class_of_replica[replica],
              class_of_replica[random.Int(0, replica)]);
  }
  return JoinClasses(std::move(classes), std::move(class_of_replica));
}

}  // namespace

ShapeParams SmallFabric(int nodes, int devices_per_node, int nics_per_node) {
  ShapeParams params;
  params.name = "small-fabric";
  params.shape = nodes == 1 ? "node" : "nic-switch";
  params.nodes = nodes;
  params.devices_per_node = devices_per_node;
  params.nics_per_node = nics_per_node;
  params.pcie_per_switch = 1;
  params.nvlink = {.bytes_per_s = 64, .latency_s = 0.125, .source = "test"};
  params.nic = {.bytes_per_s = 16, .latency_s = 0.25, .source = "test"};
  params.pcie = {.bytes_per_s = 8, .latency_s = 0.125, .source = "test"};
  return params;
}

absl::StatusOr<RandomProgram> MakeRandomProgram(uint32_t seed,
                                                const RandomOptions& options) {
  Random random(seed);
  absl::StatusOr<RandomProgram> made = MakeRandomProgram(random, options);
  if (made.ok()) made->about = absl::StrCat("seed ", seed, " ", made->about);
  return made;
}

absl::StatusOr<RandomProgram> MakeRandomProgram(Random& random,
                                                const RandomOptions& options) {
  const int pp = random.Int(1, 5);
  const int microbatches = pp * random.Int(2, 4);
  const size_t row = AnyRow(random);
  PW_ASSIGN_OR_RETURN(Schedule schedule, AnySchedule(row, pp, microbatches));
  RandomProgram out;
  out.about =
      absl::StrCat(schedule.name, " pp ", pp, " microbatches ", microbatches);
  if (random.Chance(25)) {
    schedule = WithJointPairs(schedule, random);
    out.about += " joint";
  } else if (options.copies && random.Chance(30)) {
    schedule = WithCopies(schedule, random);
    out.about += " copies";
  }

  LowerOptions lower;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    lower.costs.stages.push_back({.forward_s = 1 + random.Time(4),
                                  .backward_input_s = 1 + random.Time(6),
                                  .backward_weight_s = 1 + random.Time(8),
                                  .offload_s = random.Time(6),
                                  .load_s = random.Time(6)});
    lower.gradient_bytes.push_back(random.Int(1, 64));
    lower.parameter_bytes.push_back(random.Int(1, 32));
  }
  if (random.Chance(30)) {
    for (int index = 0; index < schedule.microbatches_per_direction();
         ++index) {
      lower.costs.microbatch_factor.push_back(0.5 + random.Time(1));
    }
  }
  if (random.Chance(30)) lower.costs.pair_factor = random.Int(2, 5) / 4.0;
  if (schedule.slices > 1) {
    for (int slice = 0; slice < schedule.slices; ++slice) {
      lower.costs.slice_factor.push_back(0.5 + 0.25 * slice);
    }
  }
  lower.costs.optimizer_s = random.Time(3);
  lower.costs.validation_s = random.Time(1);
  lower.replicas = random.Int(1, options.most_replicas);
  lower.data_parallel = static_cast<DataParallel>(random.Int(0, 4));
  lower.shard_blocks = static_cast<ShardBlocks>(random.Int(0, 2));
  schedule.unit = random.Int(1, 5);
  lower.optimizer = static_cast<OptimizerMode>(random.Int(0, 2));
  lower.iterations = random.Int(1, 3);
  if (lower.optimizer == OptimizerMode::kPostValidated && random.Chance(60)) {
    lower.validation = static_cast<ValidationPlace>(random.Int(0, 1));
    lower.costs.rollback_s = random.Time(6);
    for (int iteration = 0; iteration < 2; ++iteration) {
      if (!random.Chance(50)) continue;
      lower.failing_steps.push_back(iteration);
      lower.iterations = iteration + 4;
    }
  }
  lower.hop_bytes = random.Int(1, 40);
  if (schedule.update_every > 0) {
    lower.optimizer = OptimizerMode::kNone;
    lower.failing_steps.clear();
    lower.iterations = random.Int(1, 4);
    lower.costs.prediction_s = random.Time(2);
    lower.data_parallel =
        schedule.update_every == 1 ? DataParallel::kNone : DataParallel::kDdp;
  }
  if (options.holding_rules && schedule.update_every == 0 &&
      random.Chance(40)) {
    lower.wait_rule =
        random.Chance(50) ? WaitRule::kRendezvous : WaitRule::kBatched;
    // Refused: batches that take time steps, with steps in vain.
    if (!lower.failing_steps.empty() && WalksSteps(schedule, lower.wait_rule)) {
      lower.wait_rule = WaitRule::kRendezvous;
    }
    // Drawn before, so that seeds stay what they are.
    if (static_cast<int>(lower.hop_bytes) % 3 == 0 &&
        lower.failing_steps.empty()) {
      lower.wait_rule = WaitRule::kStepped;
    }
  }
  if (options.cluster && random.Chance(60)) {
    const int per_rank = random.Chance(50) ? 1 : random.Int(2, 3);
    const int devices = 2 * ((pp * lower.replicas * per_rank + 1) / 2);
    const int nodes = random.Chance(50) ? 2 : 1;
    PW_ASSIGN_OR_RETURN(
        Cluster cluster,
        BuildCluster(SmallFabric(nodes, devices / nodes, nodes == 1 ? 0 : 1)));
    lower.network.cluster = std::make_shared<Cluster>(std::move(cluster));
    PW_ASSIGN_OR_RETURN(
        RankMapping mapping,
        RankMapping::FromOrder(random.Chance(50) ? "dp-pp" : "pp-dp", pp,
                               lower.replicas, devices, per_rank));
    lower.network.mapping = std::make_shared<RankMapping>(std::move(mapping));
    if (random.Chance(50)) {
      lower.activation_bytes.assign(schedule.stages(), random.Int(1, 30));
    }
    // Drawn before, so that seeds stay what they are.
    if (static_cast<int>(lower.hop_bytes) % 2 == 0) {
      lower.network.context_parallel = per_rank;
    }
    absl::StrAppend(&out.about, " nodes ", nodes, " devices of a rank ",
                    per_rank, " contexts ", lower.network.context_parallel);
  } else {
    lower.network.hop_s = random.Time(3);
  }
  absl::StrAppend(&out.about, " replicas ", lower.replicas, " dp ",
                  static_cast<int>(lower.data_parallel), " optimizer ",
                  static_cast<int>(lower.optimizer), " false starts ",
                  lower.failing_steps.size(), " ",
                  WaitRuleName(lower.wait_rule));
  if (options.most_classes > 1) {
    PW_ASSIGN_OR_RETURN(
        out.program,
        LowerClasses(row, schedule, lower, options.most_classes, random));
    absl::StrAppend(&out.about, " classes ", out.program.num_classes());
  } else {
    PW_ASSIGN_OR_RETURN(
        out.program,
        Lower(std::make_shared<const Schedule>(std::move(schedule)), lower));
  }
  if (options.side_operations) {
    AddRandomSideOps(out.program, random);
    PW_RETURN_IF_ERROR(VerifyProgram(out.program));
  }
  return out;
}

}  // namespace pipewright

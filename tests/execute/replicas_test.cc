// Replicas that differ: layers gathered one by one, owners that are read and
// written one-sided, packed samples, against the sequential run.
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "execute/train/training.h"
#include "execute/train/units.h"
#include "sim/program/dp_classes.h"
#include "sim/program/program.h"
#include "tests/support/lowering.h"
#include "tests/support/small_training.h"

namespace pipewright::replicas_test {
namespace {

using testing::SmallModel;

struct Replicas {
  std::string schedule = "1f1b";
  int pp = 1;
  int vpp = 1;
  std::vector<int> microbatches = {2, 2};  // on each replica
  DataParallel mode = DataParallel::kOdc;
  ShardBlocks blocks = ShardBlocks::kLayer;
  bool reshards = true;
  bool one_stream = true;
  bool recompute = false;
  OptimizerMode optimizer = OptimizerMode::kSynchronised;
  // [microbatch, replica after replica]
  std::vector<std::vector<int64_t>> lengths;
  bool weighs_microbatches = false;
};

struct Trainable {
  Program program;
  ExecutedModel model;
  TrainingOptions options;
};

Trainable Make(const Replicas& replicas) {
  Trainable made;
  std::vector<Program> classes;
  std::vector<int> class_of_replica;
  for (const int microbatches : replicas.microbatches) {
    const auto schedule =
        Registered(replicas.schedule, replicas.pp, microbatches, replicas.vpp);
    const int stages = schedule->stages();
    LowerOptions lower;
    lower.costs = PassCosts::Uniform(
        replicas.pp, replicas.vpp,
        {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
    lower.gradient_bytes.assign(stages, 4);
    lower.parameter_bytes.assign(stages, 4);
    lower.data_parallel = replicas.mode;
    lower.shard_blocks = replicas.blocks;
    lower.layers.stages.assign(stages, std::vector<LayerShare>(2));
    lower.layers.reshard_after_forward = replicas.reshards;
    lower.layers.one_stream = replicas.one_stream;
    lower.replicas = static_cast<int>(replicas.microbatches.size());
    lower.optimizer = replicas.optimizer;
    lower.iterations = 2;
    classes.push_back(Lowered(schedule, lower));
    class_of_replica.push_back(static_cast<int>(classes.size()) - 1);
  }
  absl::StatusOr<Program> joined =
      JoinClasses(std::move(classes), std::move(class_of_replica));
  INFO(joined.status());
  REQUIRE(joined.ok());
  made.program = *std::move(joined);
  made.model = SmallModel(PW_LLAMA, replicas.pp * replicas.vpp, 1);
  made.model.recompute = replicas.recompute;
  made.model.clip_norm = 1;
  if (!replicas.lengths.empty()) {
    made.model.lengths = replicas.lengths;
    made.model.batch = 1;
    made.model.sequence = 0;
    for (size_t index = 0; index < replicas.lengths.size(); ++index) {
      made.model.sequence =
          std::max(made.model.sequence,
                   made.model.TokensOf(static_cast<int64_t>(index)));
    }
  }
  if (!made.program.ranks[0].layers.empty()) {
    made.model.stages = SplitIntoLayers(made.model.stages);
  }
  made.options.worker =
      WorkerOptionsFor(made.program, replicas.mode, replicas.optimizer);
  made.options.execute.faults.weighs_microbatches =
      replicas.weighs_microbatches;
  return made;
}

TrainedRun Train(const Trainable& made) {
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(made.program, made.model, pw_cpu_kernels(), made.options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

bool Agrees(const Replicas& replicas) {
  const TrainingCheck check = Train(Make(replicas)).check;
  INFO("loss " << check.loss_error << " first " << check.first_gradient_error
               << " gradients " << check.gradient_error << " weights "
               << check.weight_error << " missing " << check.missing);
  CHECK(check.losses.size() == 2);
  // So that a test that fails says by how much.
  UNSCOPED_INFO("loss " << check.loss_error << " first "
                        << check.first_gradient_error << " gradients "
                        << check.gradient_error << " weights "
                        << check.weight_error << " missing " << check.missing);
  return check.ok();
}

TEST_CASE(
    "replicas: layers gathered one by one train what the sequential run "
    "trains",
    "[execute][replicas]") {
  for (const DataParallel mode : {DataParallel::kFsdp, DataParallel::kOdc}) {
    for (const bool reshards : {true, false}) {
      for (const bool one_stream : {true, false}) {
        INFO(TraitsOf(mode).name << " reshards " << reshards << " one stream "
                                 << one_stream);
        CHECK(Agrees({.pp = 2,
                      .microbatches = {3, 3},
                      .mode = mode,
                      .reshards = reshards,
                      .one_stream = one_stream}));
      }
    }
    INFO(TraitsOf(mode).name);
    CHECK(Agrees({.schedule = "gpipe",
                  .microbatches = {2, 2, 2},
                  .mode = mode,
                  .recompute = true}));
    CHECK(Agrees(
        {.schedule = "zb-h1", .pp = 2, .microbatches = {4, 4}, .mode = mode}));
    CHECK(Agrees({.schedule = "interleaved-1f1b",
                  .pp = 2,
                  .vpp = 2,
                  .microbatches = {4, 4},
                  .mode = mode}));
    CHECK(Agrees({.microbatches = {2, 2},
                  .mode = mode,
                  .optimizer = OptimizerMode::kNone}));
  }
}

TEST_CASE("replicas: as many microbatches as each has", "[execute][replicas]") {
  for (const DataParallel mode :
       {DataParallel::kOdc, DataParallel::kDdp, DataParallel::kZero1}) {
    INFO(TraitsOf(mode).name);
    CHECK(Agrees({.pp = 2,
                  .microbatches = {3, 1, 2},
                  .mode = mode,
                  .blocks = ShardBlocks::kPass}));
  }
  CHECK(Agrees({.microbatches = {1, 4, 2, 3}}));
}

// With an owner that looks rarely.
TEST_CASE("replicas: passes go on while a push is under way",
          "[execute][replicas]") {
  for (const bool one_stream : {true, false}) {
    Trainable made = Make({.schedule = "gpipe", .one_stream = one_stream});
    made.options.execute.clock = ClockKind::kReal;
    made.options.execute.trace = true;
    made.options.worker.owner_poll_s = 0.05;
    const TrainedRun trained = Train(made);
    INFO("one stream " << one_stream);
    CHECK(trained.check.ok());
    int pushes = 0;
    int beside = 0;
    for (const TraceOp& push : trained.run.ops) {
      if (push.kind != OpKind::kPush) continue;
      ++pushes;
      // Pushes of a pass's second layer, while its first has its backward.
      for (const TraceOp& pass : trained.run.ops) {
        beside += pass.kind == OpKind::kPass && pass.replica == push.replica &&
                          pass.start_s < push.start_s &&
                          push.start_s < pass.end_s && pass.end_s < push.end_s
                      ? 1
                      : 0;
      }
    }
    // Pushes of two layers, two microbatches, two steps and two replicas.
    CHECK(pushes == 16);
    CHECK(beside > 0);
  }
}

// Three microbatches of very different tokens on two replicas.
Replicas Packed(DataParallel mode) {
  return {.microbatches = {2, 1},
          .mode = mode,
          .blocks = ShardBlocks::kPass,
          .lengths = {{5, 3}, {2}, {24, 7, 1}}};
}

TEST_CASE("replicas: gradients count by tokens, not by microbatches",
          "[execute][replicas]") {
  for (const DataParallel mode : {DataParallel::kOdc, DataParallel::kDdp}) {
    INFO(TraitsOf(mode).name);
    Replicas replicas = Packed(mode);
    CHECK(Agrees(replicas));
    replicas.pp = 2;
    CHECK(Agrees(replicas));
    // The fault that frameworks have had.
    replicas.weighs_microbatches = true;
    CHECK_FALSE(Agrees(replicas));
  }
}

TEST_CASE("replicas: packed samples of one replica to the bit",
          "[execute][replicas]") {
  Replicas replicas = {.schedule = "zb-h1",
                       .pp = 2,
                       .microbatches = {4},
                       .mode = DataParallel::kNone,
                       .lengths = {{5, 3}, {2}, {24, 7, 1}, {9}}};
  const TrainingCheck check = Train(Make(replicas)).check;
  CHECK(check.bits_owed);
  CHECK(check.same_bits);
}

TEST_CASE("replicas: samples of a microbatch do not see each other",
          "[execute][replicas]") {
  // Sum over the tokens of the first microbatch.
  const auto loss = [](std::vector<int64_t> lengths) {
    const auto tokens = static_cast<double>(
        std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    Replicas replicas = {.microbatches = {1},
                         .mode = DataParallel::kNone,
                         .lengths = {std::move(lengths)}};
    return Train(Make(replicas)).check.losses[0] * tokens;
  };
  // Ids follow from their places, and a sample of n tokens takes n + 1 places:
  // the last sample of both has the same ids behind samples that differ.
  const double behind_one = loss({9, 4}) - loss({9});
  const double behind_two = loss({4, 4, 4}) - loss({4, 4});
  CHECK(behind_one == Approx(behind_two).epsilon(1e-9));
  // The same tokens where they do see those before.
  const double seeing = loss({14}) - loss({10});
  CHECK(std::abs(seeing - behind_one) > 1e-4 * behind_one);
}

// Layers have no scratch memory of their own, and what is on the host counts.
TEST_CASE("replicas: memory of layers is that of their stages",
          "[execute][replicas][memory]") {
  const TrainedRun whole =
      Train(Make({.mode = DataParallel::kFsdp, .blocks = ShardBlocks::kPass}));
  const TrainedRun layers = Train(Make({.mode = DataParallel::kFsdp}));
  const TrainedRun odc = Train(Make({.mode = DataParallel::kOdc}));
  // But for two sums of a norm that each layer has.
  CHECK(layers.resident_bytes[0] ==
        Approx(whole.resident_bytes[0]).margin(256));
  CHECK(odc.resident_bytes[0] == layers.resident_bytes[0]);
  // Sums of a shard are a half, and an owner has three times that and buffers.
  CHECK(whole.owner_bytes[0] > 0);
  CHECK(layers.owner_bytes[0] == Approx(whole.owner_bytes[0]).margin(8));
  CHECK(odc.owner_bytes[0] > 4 * layers.owner_bytes[0]);
}

// Weights that are not there are zeros, and nobody's result is right.
TEST_CASE("replicas: a layer that is not gathered is noticed",
          "[execute][replicas]") {
  for (const DataParallel mode : {DataParallel::kFsdp, DataParallel::kOdc}) {
    for (const PassKind kind : {PassKind::kForward, PassKind::kBackwardFull}) {
      INFO(TraitsOf(mode).name << " " << PassKindName(kind));
      Trainable made = Make({.mode = mode});
      // The gathers of one layer, of all replicas.
      for (int index = 0; index < made.program.num_classes(); ++index) {
        DpClass& own =
            index == 0 ? made.program : made.program.more_classes[index - 1];
        for (LaneHook& hook : own.ranks[0].hooks) {
          if (hook.place == LaneHook::Place::kBefore) {
            hook.side_ops[Pass::LaneOf(kind, 1, 0)] = -1;
          }
        }
      }
      CHECK_FALSE(Train(made).check.ok());
    }
  }
}

}  // namespace
}  // namespace pipewright::replicas_test

// The parts of a ModelWorker, each built alone.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "execute/train/model_worker.h"
#include "execute/train/optimizer_steps.h"
#include "execute/train/owners.h"
#include "execute/train/worker_device.h"
#include "execute/train/worker_stages.h"
#include "sim/program/program.h"
#include "tests/support/small_training.h"

namespace pipewright::worker_parts_test {
namespace {

using testing::SmallTraining;

SmallTraining Train(int pp, int dp, DataParallel data_parallel) {
  absl::StatusOr<SmallTraining> training = testing::MakeSmallTraining(
      "1f1b", pp, dp, WaitRule::kBuffered, 2, data_parallel);
  REQUIRE(training.ok());
  return *std::move(training);
}

void OpenCpu(WorkerDevice* device) {
  REQUIRE(device->Open(pw_cpu_kernels(), 0, {}, 0, 1).ok());
}

// Stages of a rank on the CPU.
struct Rank {
  Rank(const SmallTraining& training, Address self)
      : stages(training.program, self, training.model,
               training.options.worker.sharded_step) {
    OpenCpu(&device);
    REQUIRE(stages.Create(device, Stage::States::kHere).ok());
  }
  Stage& stage() const { return *stages.all().begin()->second; }

  WorkerDevice device;
  WorkerStages stages;
};

Payload Floats(const WorkerDevice& device, int64_t count, float value) {
  Payload payload =
      device.memory().TakeForMessages(static_cast<size_t>(count) * 4).value();
  std::fill_n(static_cast<float*>(payload.data.get()), count, value);
  return payload;
}

int32_t FirstOp(const RankProgram& rank, OpKind kind) {
  for (size_t op = 0; op < rank.side_ops.size(); ++op) {
    if (rank.side_ops[op].kind == kind) return static_cast<int32_t>(op);
  }
  return -1;
}

TEST_CASE("worker parts: a device copies for messages and tells what failed",
          "[execute]") {
  WorkerDevice device;
  CHECK_FALSE(device.is_open());
  OpenCpu(&device);
  std::vector<float> values = {1, 2, 3};
  Payload copy;
  REQUIRE(device.CopyOut(values.data(), 12, &copy).ok());
  CHECK(std::memcmp(copy.data.get(), values.data(), 12) == 0);
  CHECK(device.memory().messages_peak() == 12);
  CHECK(device.memory().used() == 0);
  REQUIRE(device.Accumulate(3, copy.data.get(), values.data(), "sum").ok());
  CHECK(values == std::vector<float>{2, 4, 6});
  bool ran = false;
  REQUIRE(device
              .Timed([&] {
                ran = true;
                return absl::OkStatus();
              })
              .ok());
  CHECK(ran);
  const absl::Status failed = absl::InternalError("no");
  CHECK(device.Timed([&] { return failed; }).status() == failed);
}

TEST_CASE("worker parts: a rank has its units and steps its replica's shard",
          "[execute]") {
  const SmallTraining training = Train(2, 2, DataParallel::kZero1);
  Rank rank(training, {1, 1});
  REQUIRE(rank.stages.all().size() == 1);
  CHECK(rank.stages.OfUnit(0).empty());
  CHECK(rank.stages.OfUnit(1) == std::vector<Stage*>{&rank.stage()});
  const int64_t all = rank.stage().parameters();
  CHECK(rank.stages.OwnShard(rank.stage()) == std::pair(all / 2, all));
  CHECK(rank.stages.UnitOf(rank.stages.rank().order->front()) == 1);
  REQUIRE(rank.stages.ForgetOthers(rank.stage()).ok());
  CHECK(rank.stage().master()[0] == 0);
  CHECK(std::any_of(rank.stage().master() + all / 2,
                    rank.stage().master() + all,
                    [](float value) { return value != 0; }));
}

TEST_CASE("worker parts: payloads wait for their pass; forwards are counted",
          "[execute]") {
  constexpr auto kInput = PassPayloads::Box::kInput;
  constexpr auto kOutput = PassPayloads::Box::kOutput;
  PassPayloads payloads;
  const Pass forward(PassKind::kForward, 3);
  const Pass backward(PassKind::kBackwardFull, 3);
  const Payload given = HostPayload("given");
  payloads.Put(kInput, forward, 1, given);
  CHECK_FALSE(payloads.Take(kInput, backward, 1).has_value());
  CHECK_FALSE(payloads.Take(kInput, forward, 2).has_value());
  CHECK(payloads.Take(kInput, forward, 1)->data == given.data);
  CHECK_FALSE(payloads.Take(kInput, forward, 1).has_value());
  payloads.Put(kOutput, backward, 1, given);
  CHECK_FALSE(payloads.Take(kInput, backward, 1).has_value());
  CHECK(payloads.Take(kOutput, backward, 1)->data == given.data);

  CHECK(payloads.CountForward(forward, 1) == 0);
  payloads.BeginFalseStart();
  CHECK(payloads.CountForward(forward, 1) == 1);
  CHECK(payloads.CountForward(forward, 0) == 0);
  payloads.Put(kInput, forward, 1, given);
  payloads.BeginAgain();
  CHECK(payloads.CountForward(forward, 1) == 1);
  CHECK(payloads.CountForward(forward, 0) == 0);
  CHECK_FALSE(payloads.Take(kInput, forward, 1).has_value());
}

TEST_CASE("worker parts: work beside compute ends in order before the stream",
          "[execute]") {
  WorkerDevice device;
  OpenCpu(&device);
  REQUIRE(device.OpenBeside(Stream::kD2H, "stream").ok());
  REQUIRE(device.OpenBeside(Stream::kD2H, "stream").ok());
  std::vector<int> ran;  // by one thread
  std::vector<absl::StatusCode> told;
  for (int work = 0; work < 20; ++work) {
    device.StartBeside(
        Stream::kD2H,
        [&ran, work](PwStream*) {
          ran.push_back(work);
          return work == 7 ? absl::InternalError("no") : absl::OkStatus();
        },
        [&told](const absl::Status& status) { told.push_back(status.code()); });
  }
  CHECK_FALSE(device.ends());
  device.EndBeside();
  CHECK(device.ends());
  REQUIRE(told.size() == 20);
  for (int work = 0; work < 20; ++work) {
    CHECK(ran[work] == work);
    CHECK((told[work] == absl::StatusCode::kInternal) == (work == 7));
  }
}

TEST_CASE("worker parts: a norm is of all ranks' sums and decides on clipping",
          "[execute]") {
  ExecutedModel model;
  model.clip_norm = 5;
  GradientNorm norm;
  norm.TakeFull({NormSums{9, 0}.ToPayload(), NormSums{16, 0}.ToPayload()});
  CHECK(norm.value() == 5);
  CHECK(norm.ClipScale(model, 0) == 1);
  CHECK_FALSE(norm.Fails(model, 0));
  norm.full = {100, 0};
  CHECK(norm.ClipScale(model, 0) == 0.5f);
  CHECK(norm.Fails(model, 0));
  norm.full = {1, 1};
  CHECK(norm.Fails(model, 0));
}

TEST_CASE("worker parts: reduced shards add up until a step has taken them",
          "[execute]") {
  const SmallTraining training = Train(1, 2, DataParallel::kZero1);
  Rank rank(training, {1, 0});
  GradientSums gradients(rank.stages, rank.device);
  gradients.Open();
  const auto [begin, end] = rank.stages.OwnShard(rank.stage());
  const int64_t count = end - begin;
  CHECK(gradients.bytes() == static_cast<size_t>(count) * 4);
  REQUIRE(rank.stage().ZeroGradients().ok());
  for (int block = 0; block < 2; ++block) {
    REQUIRE(gradients
                .Add(0, {Floats(rank.device, count, 1),
                         Floats(rank.device, count, 2)})
                .ok());
  }
  CHECK(rank.stage().gradients()[begin] == 0);
  NormSums sums;
  REQUIRE(gradients.AddNorm(&sums).ok());
  CHECK(rank.stage().gradients()[begin] == 6);
  CHECK(rank.stage().gradients()[end - 1] == 6);
  CHECK(rank.stage().gradients()[begin - 1] == 0);
  CHECK(sums.squares == 36.0 * static_cast<double>(count));
  gradients.Forget();
  REQUIRE(gradients.Refresh({0, 0}).ok());
  CHECK(rank.stage().gradients()[begin] == 0);
  rank.stage().gradients()[begin] = 1;
  REQUIRE(gradients.Refresh({0, 0}).ok());
  CHECK(rank.stage().gradients()[begin] == 1);
  REQUIRE(gradients.Add(0, {Floats(rank.device, count, 4)}).ok());
  REQUIRE(gradients.Assemble().ok());
  CHECK(rank.stage().gradients()[begin] == 4);
}

TEST_CASE("worker parts: held activations and blocks of passes are watched",
          "[execute]") {
  const SmallTraining training = Train(1, 1, DataParallel::kDdp);
  Rank rank(training, {0, 0});
  WorkerMemory memory(rank.stages, rank.device);
  memory.Measure();
  const size_t resident = rank.device.memory().used();
  REQUIRE(memory.Reserve().ok());
  const Pass forward(PassKind::kForward, 0);
  memory.BeginBlock(&forward, 1);
  Payload out;
  REQUIRE(rank.stage().Forward({0, 0}, 0, 0, false, {}, &out).ok());
  memory.EndBlock(&forward, 1);
  WorkerRecord record;
  memory.Tell(&record);
  CHECK(record.resident_bytes == resident);
  CHECK(record.peak_activations == 1);
  REQUIRE(record.memory.size() == 1);
  CHECK(record.memory[0].after ==
        static_cast<double>(resident + rank.stage().HeldBytes()));
  CHECK(static_cast<double>(record.peak_bytes) >= record.memory[0].after);
}

TEST_CASE("worker parts: an owner shows its weights and takes what is pushed",
          "[execute][replicas]") {
  const SmallTraining training = Train(1, 2, DataParallel::kZero1);
  Rank rank(training, {1, 0});
  OwnerClient client(rank.stages, rank.device);
  WorkerOptions options = training.options.worker;
  REQUIRE(client.Open(options).ok());
  CHECK_FALSE(client.is_open());
  CHECK(client.bytes() == 0);
  options.owners = MakeOwners(training.program, training.model,
                              pw_cpu_kernels(), 0, nullptr, 1)
                       .value();
  REQUIRE(client.Open(options).ok());
  CHECK(client.is_open());
  OwnerMemory& own = options.owners->of[1];
  const auto [begin, end] = rank.stages.OwnShard(rank.stage());
  CHECK(std::equal(own.weights(0), own.weights(0) + (end - begin),
                   rank.stage().master() + begin));
  GradientSums gradients(rank.stages, rank.device);
  gradients.Open();
  own.sums(0)[0] = 3;
  REQUIRE(client
              .TakeSums([&](int unit, float* sums) {
                gradients.TakeSums(unit, sums);
              })
              .ok());
  CHECK(own.sums(0)[0] == 0);
  REQUIRE(gradients.Assemble().ok());
  CHECK(rank.stage().gradients()[begin] == 3);
}

TEST_CASE("worker parts: a step uses the norm, and what it used is kept",
          "[execute]") {
  const SmallTraining training = Train(1, 1, DataParallel::kDdp);
  Rank rank(training, {0, 0});
  GradientSums gradients(rank.stages, rank.device);
  OwnerClient owners(rank.stages, rank.device);
  WorkerOptions options = training.options.worker;
  options.keeps_first_step = true;
  options.snapshot_iterations = {1};
  WorkerRecord record;
  OptimizerSteps steps(rank.stages, gradients, owners, rank.device, options,
                       &record);
  REQUIRE(steps.Open().ok());
  REQUIRE(rank.stage().ZeroGradients().ok());
  rank.stage().gradients()[0] = 2;
  REQUIRE(steps.KnowPartialNorm().ok());
  CHECK(steps.norm().value() == 2);
  CHECK(steps.norm().ClipScale(training.model, 0) == 0.5f);
  const float before = rank.stage().master()[0];
  const int32_t op = FirstOp(rank.stages.rank(), OpKind::kOptimizer);
  REQUIRE(steps.Run(op, {}).ok());
  CHECK(rank.stage().master()[0] < before);
  CHECK_FALSE(steps.norm().has_partial);
  REQUIRE(record.first_step.size() == 1);
  CHECK(record.first_step[0].gradients[0] == 2);
  CHECK(record.first_step[0].weights[0] == before);
  REQUIRE(steps.EndIteration(0).ok());
  CHECK(record.snapshots.empty());
  REQUIRE(steps.EndIteration(1).ok());
  REQUIRE(record.snapshots.size() == 1);
  CHECK(record.snapshots[0].weights[0] == rank.stage().master()[0]);
}

}  // namespace
}  // namespace pipewright::worker_parts_test

// Where a rank's memory comes from, and when.
#include "execute/train/memory_pool.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "execute/train/model_worker.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/small_training.h"

namespace pipewright::memory_pool_test {
namespace {

int allocations = 0;

PwStatus CountedAllocate(PwDevice* device, size_t bytes, void** memory) {
  ++allocations;
  return pw_cpu_kernels()->allocate(device, bytes, memory);
}

template <typename... Arguments>
PwStatus Nothing(Arguments...) {
  return PW_OK;
}

// The CPU's, with its allocations counted. Blocks are taken before a kernel is
// called, so what takes long does nothing.
const PwKernels* CountingKernels() {
  static const PwKernels kernels = [] {
    PwKernels table = *pw_cpu_kernels();
    table.allocate = CountedAllocate;
    table.gemm = Nothing;
    table.norm_forward = Nothing;
    table.norm_backward = Nothing;
    table.rotary = Nothing;
    table.attention_forward = Nothing;
    table.attention_backward = Nothing;
    table.activation_forward = Nothing;
    table.activation_backward = Nothing;
    table.cross_entropy_forward = Nothing;
    table.cross_entropy_backward = Nothing;
    return table;
  }();
  allocations = 0;
  return &kernels;
}

std::shared_ptr<PwDevice> OpenDevice(const PwKernels* kernels) {
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  return {device, [kernels](PwDevice* opened) { kernels->close(opened); }};
}

TEST_CASE("execute: blocks are cut from slabs and do not overlap",
          "[execute]") {
  const PwKernels* const kernels = CountingKernels();
  const auto pool = std::make_shared<MemoryPool>(kernels, OpenDevice(kernels));
  std::vector<Payload> blocks;
  for (int index = 0; index < 60; ++index) {
    absl::StatusOr<Payload> block = pool->Take(100000 + index);
    REQUIRE(block.ok());
    CHECK(reinterpret_cast<uintptr_t>(block->data.get()) % 64 == 0);
    std::memset(block->data.get(), index, block->bytes);
    blocks.push_back(*std::move(block));
  }
  CHECK(allocations <= 4);
  for (int index = 0; index < 60; ++index) {
    const auto* const bytes =
        static_cast<const char*>(blocks[index].data.get());
    CHECK((bytes[0] == index && bytes[blocks[index].bytes - 1] == index));
  }
  const size_t used = 60 * 100000 + 59 * 60 / 2;
  CHECK(pool->used() == used);
  // A large one has memory of its own.
  const int before = allocations;
  absl::StatusOr<Payload> large = pool->Take(size_t{40} << 20);
  REQUIRE(large.ok());
  CHECK(allocations == before + 1);
  CHECK(pool->peak() == used + large->bytes);
  blocks.clear();
  CHECK(pool->used() == large->bytes);
  // What has returned is used again.
  REQUIRE(pool->Take(100000).ok());
  CHECK(allocations == before + 1);
}

TEST_CASE("execute: a step allocates nothing that its schedule foretells",
          "[execute][long]") {
  for (const char* name : {"gpipe", "zb-h2", "1f1b", "seq1f1b"}) {
    for (const bool recompute : {false, true}) {
      INFO(name << (recompute ? ", recomputed" : ""));
      absl::StatusOr<testing::SmallTraining> training =
          testing::MakeSmallTraining(name, 1, 1, WaitRule::kBuffered, 1);
      REQUIRE(training.ok());
      // Blocks too large for a slab: each is an allocation.
      training->model.batch = 1024;
      training->model.recompute = recompute;
      const PwKernels* const kernels = CountingKernels();
      absl::StatusOr<std::unique_ptr<ModelWorker>> worker =
          ModelWorker::Create(training->program, {0, 0}, training->model,
                              kernels, 0, training->options.worker);
      REQUIRE(worker.ok());
      REQUIRE((*worker)->WarmUp().ok());
      const int before = allocations;
      REQUIRE(before > 8);
      REQUIRE((*worker)->BeginStart({}).ok());
      for (const Pass pass : training->schedule->order(0)) {
        if (pass.kind() == PassKind::kSync) continue;
        REQUIRE((*worker)->RunPass(pass, pass.chunk()).ok());
      }
      CHECK(allocations == before);
    }
  }
}

// The neighbours keep what they are sent as long as they may.
TEST_CASE("execute: what a step sends is foretold as well", "[execute][long]") {
  const std::pair<const char*, std::vector<int>> ranks_of[] = {
      {"gpipe", {1}},
      {"zb-h2", {0, 1, 2}},
      {"1f1b", {1}},
      {"interleaved-1f1b", {0, 2}}};
  for (const auto& [name, ranks] : ranks_of) {
    for (const int rank : ranks) {
      INFO(name << ", rank " << rank);
      absl::StatusOr<testing::SmallTraining> training =
          testing::MakeSmallTraining(name, 3, 1, WaitRule::kBuffered, 1);
      REQUIRE(training.ok());
      // Each block is an allocation.
      training->model.batch = 3072;
      REQUIRE(training->model.BoundaryBytes() > size_t{8} << 20);
      const PwKernels* const kernels = CountingKernels();
      absl::StatusOr<std::unique_ptr<ModelWorker>> worker =
          ModelWorker::Create(training->program, {0, rank}, training->model,
                              kernels, 0, training->options.worker);
      REQUIRE(worker.ok());
      REQUIRE((*worker)->WarmUp().ok());
      const Schedule& schedule = *training->schedule;
      const auto other = std::make_shared<MemoryPool>(
          pw_cpu_kernels(), OpenDevice(pw_cpu_kernels()));
      const int before = allocations;
      REQUIRE((*worker)->BeginStart({}).ok());
      std::map<std::pair<int, int>, Payload> forwards;  // stage, microbatch
      std::vector<Payload> gradients;
      for (const Pass pass : schedule.order(rank)) {
        if (pass.kind() == PassKind::kSync) continue;
        const int stage = schedule.placement.StageOf(rank, pass.chunk());
        const bool forward = pass.kind() == PassKind::kForward;
        const bool backward = IsBackward(pass.kind());
        const bool first = stage == 0;
        const bool last = stage == schedule.stages() - 1;
        if ((forward && !first) || (backward && !last)) {
          (*worker)->TakeInput(
              pass, stage,
              other->Take(training->model.BoundaryBytes()).value());
        }
        REQUIRE((*worker)->RunPass(pass, stage).ok());
        if (forward && !last) {
          forwards[{stage, pass.microbatch()}] =
              (*worker)->GiveOutput(pass, stage);
        }
        if (backward) forwards.erase({stage, pass.microbatch()});
        if (backward && !first) {
          gradients.push_back((*worker)->GiveOutput(pass, stage));
          // The rank before has run its own backward of an earlier one.
          const size_t behind = name == std::string("gpipe") ? 6 : 2;
          if (gradients.size() > behind) gradients.erase(gradients.begin());
        }
      }
      CHECK(allocations == before);
    }
  }
}

TEST_CASE("execute: older weights have their memory before the run",
          "[execute]") {
  absl::StatusOr<testing::SmallTraining> training =
      testing::MakeSmallTraining("pipedream-2bw", 2, 1, WaitRule::kBuffered, 4);
  REQUIRE(training.ok());
  SetWeightVersions(*training->schedule, &training->model);
  REQUIRE(training->model.weight_delay == 1);
  // Each set of weights is an allocation.
  training->model.shape.hidden = 512;
  training->model.shape.head_dim = 128;
  training->model.shape.ffn = 1024;
  training->options.worker.snapshot_iterations.clear();
  const PwKernels* const kernels = CountingKernels();
  absl::StatusOr<std::unique_ptr<ModelWorker>> worker =
      ModelWorker::Create(training->program, {0, 1}, training->model, kernels,
                          0, training->options.worker);
  REQUIRE(worker.ok());
  REQUIRE((*worker)->WarmUp().ok());
  const auto other = std::make_shared<MemoryPool>(pw_cpu_kernels(),
                                                  OpenDevice(pw_cpu_kernels()));
  int32_t step = -1;
  const std::vector<SideOp>& side_ops = training->program.ranks[1].side_ops;
  for (size_t index = 0; index < side_ops.size(); ++index) {
    if (side_ops[index].kind == OpKind::kOptimizer) {
      step = static_cast<int32_t>(index);
    }
  }
  REQUIRE(step >= 0);
  const int before = allocations;
  for (int iteration = 0; iteration < 4; ++iteration) {
    REQUIRE((*worker)->BeginStart({.iteration = iteration}).ok());
    for (const Pass pass : training->schedule->order(1)) {
      if (pass.kind() == PassKind::kSync) continue;
      if (pass.kind() == PassKind::kForward) {
        (*worker)->TakeInput(
            pass, 1, other->Take(training->model.BoundaryBytes()).value());
      }
      REQUIRE((*worker)->RunPass(pass, 1).ok());
      if (IsBackward(pass.kind())) (*worker)->GiveOutput(pass, 1);
    }
    REQUIRE((*worker)->RunSideOp(step, {.iteration = iteration}).ok());
  }
  CHECK(allocations == before);
}

}  // namespace
}  // namespace pipewright::memory_pool_test

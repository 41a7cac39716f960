// Where a rank's memory comes from, and when.
#include "execute/memory_pool.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "execute/model_worker.h"
#include "sim/schedule/registry.h"
#include "tests/support/small_training.h"

namespace pipewright {
namespace {

int allocations = 0;

PwStatus CountedAllocate(PwDevice* device, size_t bytes, void** memory) {
  ++allocations;
  return pw_cpu_kernels()->allocate(device, bytes, memory);
}

// The CPU's, with its allocations counted.
const PwKernels* CountingKernels() {
  static const PwKernels kernels = [] {
    PwKernels table = *pw_cpu_kernels();
    table.allocate = CountedAllocate;
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
          "[execute]") {
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

}  // namespace
}  // namespace pipewright

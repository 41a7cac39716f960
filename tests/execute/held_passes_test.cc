// A pass is queued whole behind a held stream, as calibration queues it. On a
// GPU whatever waits for the device meanwhile waits for the hold's time-out:
// here such a call fails at once.
#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <set>

#include "execute/train/training.h"
#include "sim/program/program.h"
#include "tests/support/small_training.h"

namespace pipewright::held_passes_test {
namespace {

struct HeldState {
  int holds = 0;
  int releases = 0;
  int waits_while_held = 0;     // for the device
  int pageable_while_held = 0;  // copies of memory that is not pinned
  int allocations_while_held = 0;
  std::set<const PwDevice*> held;  // devices of the ranks
  bool times_out = false;          // a release says that the hold had ended
  std::map<const void*, size_t> pinned;
};

// Each rank has a device: another may wait for its own while one is held.
std::mutex state_mutex;
HeldState state;
bool watching = false;

const PwKernels& Plain() { return *pw_cpu_kernels(); }

PwStatus Hold(PwDevice* device, PwStream*) {
  const std::lock_guard<std::mutex> lock(state_mutex);
  ++state.holds;
  state.held.insert(device);
  return PW_OK;
}

PwStatus ReleaseHeld(PwDevice* device) {
  const std::lock_guard<std::mutex> lock(state_mutex);
  ++state.releases;
  state.held.erase(device);
  return state.times_out ? PW_FAILED : PW_OK;
}

PwStatus SynchronizeHeld(PwDevice* device, PwStream* stream) {
  {
    const std::lock_guard<std::mutex> lock(state_mutex);
    if (state.held.count(device) > 0) ++state.waits_while_held;
  }
  return Plain().synchronize(device, stream);
}

PwStatus CopyHeld(PwDevice* device, PwStream* stream, PwCopy kind, void* to,
                  const void* from, size_t bytes) {
  if (kind != PW_DEVICE_TO_DEVICE) {
    const std::lock_guard<std::mutex> lock(state_mutex);
    const void* const host = kind == PW_HOST_TO_DEVICE ? from : to;
    const auto after = state.pinned.upper_bound(host);
    const bool pinned = after != state.pinned.begin() &&
                        static_cast<const char*>(host) + bytes <=
                            static_cast<const char*>(std::prev(after)->first) +
                                std::prev(after)->second;
    if (state.held.count(device) > 0 && !pinned) ++state.pageable_while_held;
  }
  return Plain().copy(device, stream, kind, to, from, bytes);
}

PwStatus AllocateHostHeld(PwDevice* device, size_t bytes, void** memory) {
  const PwStatus status = Plain().allocate_host(device, bytes, memory);
  const std::lock_guard<std::mutex> lock(state_mutex);
  if (state.held.count(device) > 0) ++state.allocations_while_held;
  if (status == PW_OK) state.pinned[*memory] = bytes;
  return status;
}

void ReleaseHostHeld(PwDevice* device, void* memory) {
  {
    const std::lock_guard<std::mutex> lock(state_mutex);
    state.pinned.erase(memory);
  }
  Plain().release_host(device, memory);
}

PwStatus AllocateHeld(PwDevice* device, size_t bytes, void** memory) {
  {
    const std::lock_guard<std::mutex> lock(state_mutex);
    if (state.held.count(device) > 0 && watching)
      ++state.allocations_while_held;
  }
  return Plain().allocate(device, bytes, memory);
}

const PwKernels* HeldKernels() {
  static const PwKernels* const table = [] {
    static PwKernels own = Plain();
    own.hold_stream = Hold;
    own.release_streams = ReleaseHeld;
    own.synchronize = SynchronizeHeld;
    own.copy = CopyHeld;
    own.allocate = AllocateHeld;
    own.allocate_host = AllocateHostHeld;
    own.release_host = ReleaseHostHeld;
    return &own;
  }();
  return table;
}

// Passes that ran, and what the kernels saw of them.
struct HeldRun {
  HeldState seen;
  int64_t passes = 0;
  bool ok = false;
};

HeldRun TrainHeld(const std::string& schedule, ClockKind clock,
                  bool times_out = false) {
  state = {};
  state.times_out = times_out;
  watching = true;
  testing::SmallTraining small =
      testing::MakeSmallTraining(schedule, 2, 1, WaitRule::kBuffered).value();
  small.options.execute.clock = clock;
  small.options.worker.token = std::make_shared<std::mutex>();
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(small.program, small.model, HeldKernels(), small.options);
  watching = false;
  INFO(trained.status());
  REQUIRE(trained.ok());
  return {.seen = state,
          .passes = small.program.num_passes() * small.program.iterations,
          .ok = trained->check.ok()};
}

TEST_CASE("execute: a pass is queued whole before it starts", "[execute]") {
  for (const char* const schedule : {"1f1b", "zb-h1", "zb-v"}) {
    INFO(schedule);
    const HeldRun run = TrainHeld(schedule, ClockKind::kVirtual);
    CHECK(run.ok);
    CHECK(run.seen.holds == run.passes);
    CHECK(run.seen.releases == run.passes);
    CHECK(run.seen.waits_while_held == 0);
    CHECK(run.seen.pageable_while_held == 0);
    CHECK(run.seen.allocations_while_held == 0);
  }
}

TEST_CASE("execute: the real clock holds nothing", "[execute]") {
  const HeldRun run = TrainHeld("1f1b", ClockKind::kReal);
  CHECK(run.ok);
  CHECK(run.seen.holds == 0);
}

TEST_CASE("execute: a hold that times out is the last of its rank",
          "[execute]") {
  const HeldRun run = TrainHeld("1f1b", ClockKind::kVirtual, true);
  CHECK(run.ok);
  // Two ranks.
  CHECK(run.seen.holds == 2);
}

}  // namespace
}  // namespace pipewright::held_passes_test

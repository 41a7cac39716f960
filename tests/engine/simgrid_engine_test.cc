// SimGrid = fast where nothing is shared, = fair sharing where it is.
#include "sim/engine/simgrid_engine.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>

#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/program/lower.h"
#include "sim/schedule/registry.h"
#include "sim/trace/trace.h"
#include "tests/support/queue_transport.h"
#include "tests/support/random_program.h"

namespace pipewright::simgrid_engine_test {
namespace {

// Relative agreement of engines (docs/architecture.md, Tests).
constexpr double kSame = 1e-9;

bool Near(double a, double b) {
  return std::abs(a - b) <= kSame * std::max({1e-3, std::abs(a), std::abs(b)});
}

void CheckNear(const RunSummary& a, const RunSummary& b) {
  REQUIRE(a.row_of_replica.size() == b.row_of_replica.size());
  REQUIRE(a.iterations() == b.iterations());
  for (int iteration = 0; iteration < a.iterations(); ++iteration) {
    CHECK(Near(a.iteration_end_s[iteration], b.iteration_end_s[iteration]));
  }
  for (size_t replica = 0; replica < a.row_of_replica.size(); ++replica) {
    const std::vector<RankTimes>& mine = a.times[a.row_of_replica[replica]];
    const std::vector<RankTimes>& theirs = b.times[b.row_of_replica[replica]];
    for (size_t rank = 0; rank < mine.size(); ++rank) {
      INFO("replica " << replica << " rank " << rank);
      CHECK(Near(mine[rank].first_start_s, theirs[rank].first_start_s));
      CHECK(Near(mine[rank].last_end_s, theirs[rank].last_end_s));
      CHECK(Near(mine[rank].busy_s, theirs[rank].busy_s));
    }
  }
}

TEST_CASE("engine: simgrid equals fast without contention", "[engine]") {
  int compared = 0;
  int deadlocks = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    absl::StatusOr<RandomProgram> made =
        MakeRandomProgram(seed, {.cluster = false});
    if (!made.ok()) continue;
    INFO(made->about);
    const absl::StatusOr<RunSummary> fast = RunFast(made->program, {});
    const absl::StatusOr<RunSummary> simgrid = RunSimgrid(made->program, {});
    INFO(simgrid.status());
    REQUIRE(fast.ok() == simgrid.ok());
    if (!fast.ok()) {
      CHECK(simgrid.status().code() == fast.status().code());
      ++deadlocks;
      continue;
    }
    CHECK(simgrid->flows == 0);
    CHECK(simgrid->execs > 0);
    CheckNear(*simgrid, *fast);
    ++compared;
  }
  CHECK(compared > 100);
  CHECK(deadlocks > 0);
}

TEST_CASE("engine: events equal fast without contention", "[engine]") {
  int compared = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    absl::StatusOr<RandomProgram> made =
        MakeRandomProgram(seed, {.cluster = false});
    if (!made.ok()) continue;
    INFO(made->about);
    const absl::StatusOr<RunSummary> fast = RunFast(made->program, {});
    const absl::StatusOr<RunSummary> events = RunOnQueue(made->program);
    INFO(events.status());
    REQUIRE(fast.ok() == events.ok());
    if (!fast.ok()) continue;
    CheckNear(*events, *fast);
    ++compared;
  }
  CHECK(compared > 1000);
}

TEST_CASE("engine: simgrid shares links as progressive filling does",
          "[engine]") {
  int compared = 0;
  int shared = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, {});
    if (!made.ok() || made->program.network.cluster == nullptr) continue;
    INFO(made->about);
    const absl::StatusOr<RunSummary> queue = RunOnQueue(made->program);
    const absl::StatusOr<RunSummary> fluid = RunOnFluidClock(made->program, {});
    INFO(fluid.status());
    REQUIRE(queue.ok() == fluid.ok());
    if (!queue.ok()) continue;
    CheckNear(*fluid, *queue);
    const absl::StatusOr<RunSummary> flows =
        RunOnFluidClock(made->program, {.time_lone_transfers = false});
    REQUIRE(flows.ok());
    CheckNear(*flows, *queue);
    const absl::StatusOr<RunSummary> simgrid = RunSimgrid(made->program, {});
    INFO(simgrid.status());
    REQUIRE(simgrid.ok());
    CheckNear(*simgrid, *queue);
    // Which transfers of the iteration behind the last one still begin is a
    // matter of rounding where ranks end together.
    CHECK(std::abs(flows->flows - queue->flows) <=
          static_cast<int64_t>(0.02 * static_cast<double>(queue->flows)));
    CHECK(fluid->flows <= flows->flows);
    ++compared;
    shared += fluid->flows > 0 ? 1 : 0;
  }
  CHECK(compared > 80);
  CHECK(shared > 30);
}

struct Activities {
  double execs = 0;
  double comms = 0;
};

// What the operations of a run are to SimGrid: an overlapped pair is one Exec,
// and all members of a collective have one Comm.
Activities ActivitiesOf(const Program& program, const FullTrace& trace) {
  Activities all;
  for (const TraceOp& op : trace.ops()) {
    const DpClass& own = program.OfReplica(op.replica);
    const auto sends = [&](int32_t channel) {
      const Channel& over = own.channels[channel];
      all.comms += over.from_rank != over.to_rank ? 1 : 0;
    };
    if (op.kind == OpKind::kPass) {
      all.execs += op.joint ? 0.5 : 1;
      const int32_t output = own.ranks[op.rank].lanes[op.pass.lane()].output;
      if (output >= 0) sends(output);
    }
    if (op.kind == OpKind::kOffload || op.kind == OpKind::kLoad) ++all.comms;
    if (op.side_op < 0) continue;
    const SideOp& side_op = own.ranks[op.rank].side_ops[op.side_op];
    for (const int32_t output : side_op.outputs) sends(output);
    if (IsCollective(op.kind)) {
      const Group& group = program.groups[side_op.group];
      all.comms += 1.0 / (static_cast<double>(group.ranks.size()) *
                          group.ReplicasOf(program.replicas));
    } else if (IsOneSided(op.kind) || UsesHost(op.kind)) {
      ++all.comms;
    } else {
      all.execs += op.kind == OpKind::kWait ? 0 : 1;
    }
  }
  return all;
}

TEST_CASE("engine: SimGrid runs an activity for each operation", "[engine]") {
  int compared = 0;
  int moved = 0;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, {});
    // Of several iterations, part of one more has run.
    if (!made.ok() || made->program.iterations > 1) continue;
    INFO(made->about);
    FullTrace trace;
    if (!RunOnQueue(made->program, &trace).ok()) continue;
    const Activities expected = ActivitiesOf(made->program, trace);
    const absl::StatusOr<RunSummary> simgrid = RunSimgrid(made->program, {});
    REQUIRE(simgrid.ok());
    CHECK(static_cast<double>(simgrid->execs) == Approx(expected.execs));
    CHECK(static_cast<double>(simgrid->comms) == Approx(expected.comms));
    ++compared;
    moved += simgrid->comms > 0 ? 1 : 0;
  }
  CHECK(compared > 80);
  CHECK(moved > 60);
}

}  // namespace
}  // namespace pipewright::simgrid_engine_test

// How times of a run answer to the numbers that go in: repeated, slowed down,
// sped up, run for longer (docs/architecture.md, Tests).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "tests/support/lowering.h"
#include "tests/support/queue_transport.h"
#include "tests/support/random_program.h"

namespace pipewright::scaling_test {
namespace {

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

void AppendDouble(double value, std::string* out) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  absl::StrAppend(out, absl::Hex(bits), " ");
}

// Everything that an engine tells, to the last bit.
std::string Bytes(const absl::StatusOr<RunSummary>& summary,
                  const FullTrace& trace) {
  if (!summary.ok()) return summary.status().ToString();
  std::string out;
  for (const double end_s : summary->iteration_end_s) {
    AppendDouble(end_s, &out);
  }
  for (const std::vector<RankTimes>& row : summary->times) {
    for (const RankTimes& rank : row) {
      AppendDouble(rank.first_start_s, &out);
      AppendDouble(rank.last_end_s, &out);
      AppendDouble(rank.busy_s, &out);
    }
  }
  absl::StrAppend(&out, summary->steady, " ", summary->passes, " ",
                  summary->simulated_ops, " ", summary->flows, " ",
                  summary->timers, "\n");
  for (const TraceOp& op : trace.ops()) {
    AppendDouble(op.start_s, &out);
    AppendDouble(op.end_s, &out);
    absl::StrAppend(&out, op.bytes, " ", OpKindName(op.kind), " ",
                    StreamName(op.stream), " ", op.joint, " ", op.replica, " ",
                    op.rank, " ", op.iteration, " ", op.stage, " ", op.channel,
                    " ", op.side_op, " ", op.pass.bits(), "\n");
  }
  return out;
}

TEST_CASE("engine: two runs are the same to the byte", "[engine]") {
  int compared = 0;
  for (uint32_t seed = 5000; seed < 5400; ++seed) {
    const auto made = MakeRandomProgram(seed, {});
    if (!made.ok()) continue;
    INFO(made->about);
    const auto fast = [&] {
      FullTrace trace;
      return Bytes(RunFast(made->program, {.trace = &trace}), trace);
    };
    const std::string first = fast();
    CHECK(first == fast());
    // A sink changes no time.
    const auto traced = RunFast(made->program, {});
    if (traced.ok()) {
      CHECK(first.substr(0, first.find('\n')) ==
            Bytes(traced, FullTrace()).substr(0, first.find('\n')));
    }
    if (seed % 8 != 0) continue;
    const auto simgrid = [&] {
      FullTrace trace;
      return Bytes(RunSimgrid(made->program, {.trace = &trace}), trace);
    };
    CHECK(simgrid() == simgrid());
    ++compared;
  }
  CHECK(compared > 20);
}

// One duration of a program made longer: a lane, a side operation, a hop.
void SlowOne(Program& program, uint32_t number) {
  std::vector<double*> durations = {&program.network.hop_s};
  for (RankProgram& rank : program.ranks) {
    for (Lane& lane : rank.lanes) {
      if (lane.passes > 0) durations.push_back(&lane.seconds);
    }
    for (SideOp& op : rank.side_ops) durations.push_back(&op.seconds);
  }
  double& slowed = *durations[number % durations.size()];
  slowed = slowed * 1.5 + 0.25;
}

TEST_CASE("engine: a slower operation shortens no run without contention",
          "[engine]") {
  int compared = 0;
  int longer = 0;
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    const auto made = MakeRandomProgram(seed, {});
    if (!made.ok()) continue;
    Program slower = made->program;
    SlowOne(slower, seed * 2654435761u >> 8);
    const auto before = RunFast(made->program, {});
    const auto after = RunFast(slower, {});
    INFO(made->about);
    REQUIRE(before.ok() == after.ok());
    if (!before.ok()) continue;
    ++compared;
    REQUIRE(before->iterations() == after->iterations());
    for (int iteration = 0; iteration < before->iterations(); ++iteration) {
      CHECK(after->iteration_end_s[iteration] >=
            before->iteration_end_s[iteration]);
    }
    for (size_t row = 0; row < before->times.size(); ++row) {
      for (size_t rank = 0; rank < before->times[row].size(); ++rank) {
        CHECK(after->times[row][rank].last_end_s >=
              before->times[row][rank].last_end_s);
      }
    }
    longer += after->iteration_end_s != before->iteration_end_s ? 1 : 0;
  }
  CHECK(compared > 700);
  CHECK(longer > 300);
}

// `speed` times every bandwidth and compute speed, and 1/speed of every
// latency.
Program Faster(const Program& program, double speed) {
  Program out = program;
  out.network.hop_s /= speed;
  for (RankProgram& rank : out.ranks) {
    for (Lane& lane : rank.lanes) lane.seconds /= speed;
    for (SideOp& op : rank.side_ops) op.seconds /= speed;
  }
  if (program.network.cluster != nullptr) {
    const auto old = program.network.cluster;
    std::vector<Link> links = old->links();
    for (Link& link : links) {
      link.bytes_per_s *= speed;
      link.latency_s /= speed;
    }
    out.network.cluster = std::make_shared<Cluster>(
        old->name(), old->devices(), std::move(links),
        [old](int from, int to, std::vector<LinkId>* route) {
          *route = old->Route(from, to);
        },
        [old](int device, std::vector<LinkId>* route) {
          *route = old->DeviceToHost(device);
        },
        [old](int device, std::vector<LinkId>* route) {
          *route = old->HostToDevice(device);
        });
  }
  return out;
}

// `a` takes `factor` times as long as `b`; flows that share may round.
void CheckScaled(const RunSummary& a, const RunSummary& b, double factor,
                 double tolerance) {
  REQUIRE(a.iterations() == b.iterations());
  const auto near = [&](double mine, double theirs) {
    return std::abs(mine - factor * theirs) <= tolerance * std::abs(mine);
  };
  for (int iteration = 0; iteration < a.iterations(); ++iteration) {
    CHECK(near(a.iteration_end_s[iteration], b.iteration_end_s[iteration]));
  }
  for (size_t row = 0; row < a.times.size(); ++row) {
    for (size_t rank = 0; rank < a.times[row].size(); ++rank) {
      const RankTimes& mine = a.times[row][rank];
      const RankTimes& theirs = b.times[row][rank];
      CHECK(near(mine.first_start_s, theirs.first_start_s));
      CHECK(near(mine.last_end_s, theirs.last_end_s));
      CHECK(near(mine.busy_s, theirs.busy_s));
    }
  }
}

TEST_CASE("engine: everything twice as fast takes half the time", "[engine]") {
  int compared = 0;
  int64_t flows = 0;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    const auto made = MakeRandomProgram(seed, {});
    if (!made.ok()) continue;
    INFO(made->about);
    const Program faster = Faster(made->program, 2);
    const auto fast = RunFast(made->program, {});
    if (!fast.ok()) continue;
    const auto fast_twice = RunFast(faster, {});
    REQUIRE(fast_twice.ok());
    CheckScaled(*fast, *fast_twice, 2, 0);
    if (made->program.network.cluster == nullptr || seed % 2 != 0) continue;
    const auto simgrid = RunSimgrid(made->program, {});
    const auto simgrid_twice = RunSimgrid(faster, {});
    REQUIRE(simgrid.ok());
    REQUIRE(simgrid_twice.ok());
    CheckScaled(*simgrid, *simgrid_twice, 2, kSame);
    flows += simgrid->flows;
    ++compared;
  }
  CHECK(compared > 50);
  CHECK(flows > 500);
}

// Microseconds or hours a pass: dates are doubles, and an engine that counts
// in absolute picoseconds would stall on the long runs.
TEST_CASE("engine: the unit of time does not matter", "[engine]") {
  int compared = 0;
  for (uint32_t seed = 2; seed <= 200; seed += 2) {
    const auto made = MakeRandomProgram(seed, {});
    if (!made.ok() || made->program.network.cluster == nullptr) continue;
    const auto simgrid = RunSimgrid(made->program, {});
    if (!simgrid.ok()) continue;
    ++compared;
    for (const double speed : {1e6, 1.0 / 4096}) {
      INFO(made->about << " speed " << speed);
      const auto scaled = RunSimgrid(Faster(made->program, speed), {});
      INFO(scaled.status());
      REQUIRE(scaled.ok());
      CheckScaled(*simgrid, *scaled, speed, 1e-6);
    }
  }
  CHECK(compared > 20);
}

TEST_CASE("engine: sharing a link makes no run faster", "[engine]") {
  int slower = 0;
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    const auto made = MakeRandomProgram(seed, {});
    if (!made.ok() || made->program.network.cluster == nullptr) continue;
    INFO(made->about);
    const auto fast = RunFast(made->program, {});
    const auto shared = RunOnQueue(made->program);
    REQUIRE(fast.ok() == shared.ok());
    if (!fast.ok()) continue;
    for (int iteration = 0; iteration < fast->iterations(); ++iteration) {
      CHECK(shared->iteration_end_s[iteration] >=
            fast->iteration_end_s[iteration] * (1 - kSame));
    }
    for (int replica = 0; replica < made->program.replicas; ++replica) {
      for (int rank = 0; rank < made->program.pp(); ++rank) {
        CHECK(shared->times[replica][rank].last_end_s >=
              fast->times[fast->row_of_replica[replica]][rank].last_end_s *
                  (1 - kSame));
      }
    }
    slower += shared->iteration_s() > fast->iteration_s() * (1 + kSame) ? 1 : 0;
  }
  CHECK(slower > 100);
}

TEST_CASE("engine: a period called steady stays", "[engine]") {
  int steady = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    auto made = MakeRandomProgram(seed, {.side_operations = false});
    if (!made.ok()) continue;
    INFO(made->about);
    made->program.iterations = 8;
    made->program.until_steady = true;
    const auto found = RunFast(made->program, {});
    if (!found.ok() || !found->steady) continue;
    ++steady;
    made->program.iterations = 24;
    made->program.until_steady = false;
    const auto later = RunFast(made->program, {});
    REQUIRE(later.ok());
    CHECK(found->iteration_s() == Approx(later->iteration_s()).epsilon(kSame));
  }
  CHECK(steady > 1000);
}

}  // namespace
}  // namespace pipewright::scaling_test

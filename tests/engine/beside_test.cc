// Programs whose passes and copies, transfers and collectives slow each other
// down: times by hand, and the same in both engines.
#include <catch2/catch.hpp>
#include <memory>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::beside_test {
namespace {

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

std::shared_ptr<const InterferenceMatrix> Matrix() {
  auto matrix = std::make_shared<InterferenceMatrix>();
  for (int pass = 0; pass < 3; ++pass) {
    for (int beside = 0; beside < kNumBeside; ++beside) {
      matrix->entries[pass][beside] = {.pass = 1.1 + 0.1 * pass,
                                       .beside = 1.2 + 0.1 * beside};
    }
  }
  matrix->entries[0][static_cast<int>(Beside::kD2H)] = {1.25, 1.5};
  matrix->entries[0][static_cast<int>(Beside::kSendRecv)] = {1.5, 1.25};
  matrix->entries[1][static_cast<int>(Beside::kSendRecv)] = {2, 3};
  return matrix;
}

LowerOptions Options(int stages, const StageCosts& costs) {
  LowerOptions options;
  options.costs.stages.assign(stages, costs);
  options.interference = Matrix();
  options.iterations = 1;
  return options;
}

const TraceOp* Find(const FullTrace& trace, OpKind kind, PassKind pass,
                    int microbatch, int rank = 0) {
  for (const TraceOp& op : trace.ops()) {
    if (op.kind == kind && op.rank == rank && op.pass.kind() == pass &&
        op.pass.microbatch() == microbatch) {
      return &op;
    }
  }
  return nullptr;
}

void RunBoth(const Program& program, FullTrace* trace) {
  EngineOptions options;
  options.trace = trace;
  const auto fast = RunFast(program, options);
  REQUIRE(fast.ok());
  const auto simgrid = RunSimgrid(program, {});
  REQUIRE(simgrid.ok());
  CHECK(simgrid->iteration_end_s.back() ==
        Approx(fast->iteration_end_s.back()).epsilon(kSame));
}

}  // namespace

TEST_CASE("interference: an offload and the next forward, by hand",
          "[engine]") {
  const auto schedule = Parsed(
      "pp 1 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
      "0: F0 O0 F1 L0 BW1 BW0\n");
  Program program = Lowered(schedule, Options(1, {.forward_s = 10,
                                                  .backward_input_s = 6,
                                                  .backward_weight_s = 2,
                                                  .offload_s = 4,
                                                  .load_s = 3}));
  FullTrace trace;
  RunBoth(program, &trace);
  const TraceOp* offload = Find(trace, OpKind::kOffload, PassKind::kOffload, 0);
  REQUIRE(offload != nullptr);
  // 4 s of copying at 1 / 1.5 from 10 on; 4.8 of F1 are done then.
  CHECK(offload->start_s == Approx(10).epsilon(kSame));
  CHECK(offload->end_s == Approx(16).epsilon(kSame));
  const TraceOp* forward = Find(trace, OpKind::kPass, PassKind::kForward, 1);
  REQUIRE(forward != nullptr);
  CHECK(forward->end_s == Approx(21.2).epsilon(kSame));
  // BW is three quarters B: 1.2 and 1.3 beside a load of 1.3.
  const TraceOp* load = Find(trace, OpKind::kLoad, PassKind::kLoad, 0);
  REQUIRE(load != nullptr);
  CHECK(load->end_s == Approx(21.2 + 3 * 1.3).epsilon(kSame));
  const TraceOp* backward =
      Find(trace, OpKind::kPass, PassKind::kBackwardFull, 1);
  REQUIRE(backward != nullptr);
  const double pace = 0.75 * 1.2 + 0.25 * 1.3;
  CHECK(backward->end_s == Approx(21.2 + 3.9 + 8 - 3.9 / pace).epsilon(kSame));
}

TEST_CASE("interference: a transfer slows the passes of both ends",
          "[engine]") {
  const auto schedule = Parsed(
      "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
      "0: F0 F1 BW0 BW1\n"
      "1: F0 BW0 F1 BW1\n");
  LowerOptions options = Options(
      2, {.forward_s = 10, .backward_input_s = 5, .backward_weight_s = 5});
  options.network.hop_s = 2;
  FullTrace trace;
  RunBoth(Lowered(schedule, options), &trace);
  // Rank 0's F1 runs beside F0's activations: 2 s at 1 / 1.25.
  const TraceOp* first = Find(trace, OpKind::kPass, PassKind::kForward, 0, 1);
  REQUIRE(first != nullptr);
  CHECK(first->start_s == Approx(12.5).epsilon(kSame));
  const TraceOp* second = Find(trace, OpKind::kPass, PassKind::kForward, 1, 0);
  REQUIRE(second != nullptr);
  CHECK(second->end_s == Approx(12.5 + 10 - 2.5 / 1.5).epsilon(kSame));
}

TEST_CASE("interference: slowdowns of 1 change nothing", "[engine]") {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    RandomOptions random;
    random.cluster = false;
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, random);
    if (!made.ok()) continue;
    INFO(made->about);
    Program& program = made->program;
    program.until_steady = false;
    program.iterations = 2;
    const auto plain = RunFast(program, {});
    program.interference = std::make_shared<InterferenceMatrix>();
    const auto still = RunFast(program, {});
    REQUIRE(plain.ok() == still.ok());
    if (!plain.ok()) continue;
    CHECK(still->iteration_end_s.back() ==
          Approx(plain->iteration_end_s.back()).epsilon(kSame));
  }
}

TEST_CASE("interference: both engines slow down alike", "[engine]") {
  int slower = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    RandomOptions random;
    random.cluster = false;
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, random);
    if (!made.ok()) continue;
    INFO(made->about);
    Program& program = made->program;
    program.until_steady = false;
    program.iterations = 2;
    const auto plain = RunFast(program, {});
    program.interference = Matrix();
    const auto fast = RunFast(program, {});
    const auto simgrid = RunSimgrid(program, {});
    REQUIRE(fast.ok() == simgrid.ok());
    if (!fast.ok() || !plain.ok()) continue;
    for (int iteration = 0; iteration < 2; ++iteration) {
      CHECK(simgrid->iteration_end_s[iteration] ==
            Approx(fast->iteration_end_s[iteration]).epsilon(kSame));
    }
    slower += fast->iteration_end_s.back() >
                      plain->iteration_end_s.back() * (1 + kSame)
                  ? 1
                  : 0;
  }
  CHECK(slower > 10);
}

}  // namespace pipewright::beside_test

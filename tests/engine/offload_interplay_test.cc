// Activations on the host together with recomputation, gradients that cross the
// same PCIe root and network card, and the interference of a profile: one
// timeline by hand.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "sim/cost/interference.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/memory/activations.h"
#include "sim/topology/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::offload_interplay_test {
namespace {

// A forward beside a copy to the host takes half as long again, any pass beside
// a collective twice as long.
Profile Measured() {
  Profile profile;
  profile.interference.push_back({.pass = ProfilePass::kForward,
                                  .beside = Beside::kD2H,
                                  .pass_slowdown = 1.5});
  for (const ProfilePass pass :
       {ProfilePass::kForward, ProfilePass::kBackwardInput,
        ProfilePass::kBackwardWeight}) {
    profile.interference.push_back(
        {.pass = pass, .beside = Beside::kCollective, .pass_slowdown = 2});
  }
  return profile;
}

struct Interplay {
  bool staged = true;  // messages go by way of the host
  bool interferes = true;
  bool recomputes = true;
};

double Seconds(const Interplay& of) {
  const auto schedule =
      Parsed(std::string("pp 1 vpp 2 microbatches 1 slices 1 replicas 1 "
                         "placement loop\n"
                         "0: F0.0 O0.0 F0.1 FREE0.0 BW0.1 L0.0 ") +
             (of.recomputes ? "R0.0 " : "") + "BW0.0");
  LowerOptions options;
  options.costs = PassCosts::Uniform(1, 2,
                                     {.forward_s = 8,
                                      .backward_input_s = 4,
                                      .backward_weight_s = 4,
                                      .recompute_s = 8});
  options.replicas = 2;
  options.data_parallel = DataParallel::kDdp;
  options.gradient_bytes = {0, 64};
  options.activation_bytes = {16, 16};
  options.iterations = 1;
  if (of.interferes) {
    options.interference = std::make_shared<InterferenceMatrix>(
        *InterferenceMatrix::Of(Measured()));
  }
  // A device and a card a node; PCIe 8 B/s, the card 16 B/s, no latencies.
  ShapeParams params = SmallFabric(2, 1, 1);
  params.nic.latency_s = 0;
  params.pcie = {.bytes_per_s = 8, .latency_s = 0};
  if (of.staged) params.own["network_staging"] = "host";
  options.network = NetworkOf(
      std::make_shared<Cluster>(BuildCluster(params).value()), {0, 1}, 1, 2);
  const Program program = Lowered(schedule, options);
  const absl::StatusOr<RunSummary> ran = RunSimgrid(program, {});
  INFO(ran.status());
  REQUIRE(ran.ok());
  const absl::StatusOr<RunSummary> clock = RunOnFluidClock(program, {});
  REQUIRE(clock.ok());
  CHECK(clock->iteration_end_s[0] ==
        Approx(ran->iteration_end_s[0]).epsilon(1e-9));
  // The order alone: both chunks, the first gone when BW0.1 runs; what runs
  // again is not kept meanwhile.
  CHECK(PeakActivations(*schedule, 1)[0] == (of.recomputes ? 0.5 : 1));
  return ran->iteration_end_s[0];
}

TEST_CASE("offload: recomputation, gradients on the same root, interference",
          "[engine][offload]") {
  // F0.0 until 4. O of 16 B takes 2 s, beside which F0.1 makes 4/3 of its 4 s:
  // it ends at 6 + 8/3, BW0.1 4 s later.
  const double backward_s = 6 + 8.0 / 3 + 4;
  // Then three flows go down to each device: its load, what it sends by way of
  // the host's card, what it receives. 16 B at 8/3 B/s take 6 s.
  const double loaded_s = backward_s + 6;
  // The sum has 48 of its 64 B left, at 4 B/s: 12 s. R beside it takes 8 s,
  // BW0.0 makes 2 of its 4 s in the other 4.
  CHECK(Seconds({}) == Approx(loaded_s + 12 + 2).epsilon(1e-9));
  // GPUDirect: the load takes 2 s, the sum 4 s over the card alone; of R 1 s
  // is done by then.
  CHECK(Seconds({.staged = false}) ==
        Approx(backward_s + 4 + 3 + 4).epsilon(1e-9));
  // No R: BW0.0 begins where it did, and is done before the sum is.
  CHECK(Seconds({.recomputes = false}) == Approx(loaded_s + 12).epsilon(1e-9));
  // Without interference F0.1 ends at 8; R and BW0.0 take 4 s each, within the
  // sum's 12.
  CHECK(Seconds({.interferes = false}) == Approx(12 + 6 + 12).epsilon(1e-9));
}

}  // namespace
}  // namespace pipewright::offload_interplay_test

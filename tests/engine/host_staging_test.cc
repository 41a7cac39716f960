// Messages that go by way of the host's memory share the PCIe links of copies,
// those that a NIC reads from a device do not: worked by hand on DGX A100,
// whose devices stand in pairs behind a PCIe switch of 31.5 GB/s.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"
#include "tests/support/run_binary.h"
#include "tests/support/shapes.h"

namespace pipewright::host_staging_test {
namespace {

constexpr double kBytes = 10.5e9;    // a third of a second's 31.5 GB
constexpr double kMargin_s = 20e-6;  // links have latencies of about 1 us

Cluster Machine(const std::string& staging) {
  ShapeParams params = FindSystem("dgx-a100").value();
  params.nodes = 2;
  if (!staging.empty()) params.own["network_staging"] = staging;
  return BuildCluster(params).value();
}

// Ranks on devices 0 and 1, behind one switch, and on device 8 of another node.
Program Copies(const std::string& staging, bool to_host, bool message) {
  LowerOptions options;
  options.costs = PassCosts::Uniform(3, 1, {});
  options.iterations = 1;
  options.network =
      NetworkOf(std::make_shared<Cluster>(Machine(staging)), {0, 1, 8}, 3, 1);
  Program program = Lowered(Registered("gpipe", 3, 1), options);
  for (const int rank : {0, 1}) {
    AttachOp(program, rank, 0,
             {.kind = to_host ? OpKind::kCopyOut : OpKind::kCopyIn,
              .stream = Stream::kMasterCopy,
              .bytes = kBytes});
  }
  if (message) {
    AttachOp(program, 2, 0,
             {.kind = OpKind::kPull,
              .stream = Stream::kReceive,
              .bytes = kBytes,
              .peer = 0});
  }
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  return program;
}

// The ends of both copies, then of the message.
std::vector<double> Ends(const Program& program, const std::string& engine) {
  FullTrace trace;
  const absl::StatusOr<RunSummary> ran =
      engine == "fast"    ? RunFast(program, {.trace = &trace})
      : engine == "fluid" ? RunOnFluidClock(program, {.trace = &trace})
                          : RunSimgrid(program, {.trace = &trace});
  INFO(ran.status());
  REQUIRE(ran.ok());
  std::vector<double> ends(2, -1);
  for (const TraceOp& op : trace.ops()) {
    if (IsHostCopy(op.kind)) ends[op.rank] = op.end_s;
    if (op.kind == OpKind::kPull) ends.push_back(op.end_s);
  }
  return ends;
}

void CheckEnds(const std::vector<double>& ends,
               const std::vector<double>& expected) {
  REQUIRE(ends.size() == expected.size());
  for (size_t index = 0; index < ends.size(); ++index) {
    CHECK(ends[index] == Approx(expected[index]).margin(kMargin_s).epsilon(0));
  }
}

TEST_CASE("host staging: its routes cross the host on both sides",
          "[engine][topology][offload]") {
  using Strings = std::vector<std::string>;
  const Cluster direct = Machine("");
  const Cluster staged = Machine("host");
  CHECK(testing::LinkNames(direct, direct.Route(3, 9)) ==
        Strings{"node0/nic3/up", "node1/nic1/down"});
  CHECK(testing::LinkNames(staged, staged.Route(3, 9)) ==
        Strings{"node0/pcie1/to-host", "node0/host-memory",
                "node0/pcie1/to-device", "node0/nic3/up", "node1/nic1/down",
                "node1/pcie0/to-host", "node1/host-memory",
                "node1/pcie0/to-device"});
  // Inside a node nothing changes.
  CHECK(staged.Route(3, 5) == direct.Route(3, 5));
  // NIC 1 of 2 stands with device 4, whose switch is the third.
  ShapeParams params = FindSystem("dgx-a100").value();
  params.nodes = 2;
  params.nics_per_node = 2;
  params.own["network_staging"] = "host";
  const Cluster few = BuildCluster(params).value();
  CHECK(testing::LinkNames(few, few.Route(7, 8)) ==
        Strings{"node0/pcie3/to-host", "node0/host-memory",
                "node0/pcie2/to-device", "node0/nic1/up", "node1/nic0/down",
                "node1/pcie0/to-host", "node1/host-memory",
                "node1/pcie0/to-device"});
}

TEST_CASE("host staging: two copies and a message have a third each",
          "[engine][offload]") {
  // A message of the switch crosses it up to the host and down to the NIC.
  for (const bool to_host : {true, false}) {
    INFO("to the host " << to_host);
    for (const std::string engine : {"fluid", "simgrid"}) {
      INFO(engine);
      // Nobody else: half each, 15.75 GB/s.
      CheckEnds(Ends(Copies("host", to_host, false), engine),
                {2.0 / 3, 2.0 / 3});
    }
    CheckEnds(Ends(Copies("host", to_host, true), "simgrid"), {1, 1, 1});
    // GPUDirect: half each beside a NIC of 25 GB/s that nothing else uses.
    CheckEnds(Ends(Copies("none", to_host, true), "simgrid"),
              {2.0 / 3, 2.0 / 3, 0.42});
    CheckEnds(Ends(Copies("", to_host, true), "simgrid"),
              {2.0 / 3, 2.0 / 3, 0.42});
    // Nothing is shared.
    CheckEnds(Ends(Copies("host", to_host, true), "fast"),
              {1.0 / 3, 1.0 / 3, 0.42});
  }
}

TEST_CASE("host staging: without PCIe it is refused", "[topology][offload]") {
  ShapeParams params = testing::SampleParams("nic-switch", 2, 4);
  params.pcie = {};
  params.own["network_staging"] = "host";
  CHECK(BuildCluster(params).status().message() ==
        "params.network_staging: host is not allowed; allowed: none without "
        "PCIe (system.pcie.bandwidth), which messages would cross");
}

TEST_CASE("cli: host-staged messages slow copies, and fast says it knows not",
          "[cli][offload]") {
  const auto run = [](const std::string& engine, const std::string& staging) {
    return testing::RunBinary(
        {"simulate",  "--schedule",
         "1f1b",      "--pp",
         "8",         "--microbatches",
         "8",         "--dp",
         "2",         "--data-parallel",
         "ddp",       "--model",
         "llama3-8b", "--system",
         "dgx-a100",  "--analytic",
         "--offload", "full",
         "--memory",  "1000GiB",
         "--engine",  engine,
         "--set",     "system.params.network_staging=" + staging,
         "--json"});
  };
  const testing::BinaryResult staged = run("fast", "host");
  INFO(staged.err);
  CHECK(staged.exit_code == 0);
  CHECK(staged.err.find("network_staging") != std::string::npos);
  CHECK(run("fast", "none").err.find("network_staging") == std::string::npos);
  const testing::BinaryResult shared = run("simgrid", "host");
  INFO(shared.err);
  CHECK(shared.exit_code == 0);
  CHECK(shared.err.find("network_staging") == std::string::npos);
}

}  // namespace
}  // namespace pipewright::host_staging_test

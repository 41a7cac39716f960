// The mapping that evens out the memory of hosts.
#include "sim/topology/mapping.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::host_balance_test {
namespace {

using testing::Json;

TEST_CASE("host balance: each node has first and last ranks",
          "[topology][offload]") {
  // The example of PipeOffload's appendix: 16 ranks on two nodes of 8.
  const std::vector<int> device_of = HostBalancedDevices(16, 1, 8, 1).value();
  for (int rank = 0; rank < 16; ++rank) {
    INFO("rank " << rank);
    CHECK(device_of[rank] / 8 == (rank >= 4 && rank < 12 ? 1 : 0));
  }
  // Ranks that follow each other are neighbours: pairs behind a switch.
  CHECK(device_of ==
        std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 4, 5, 6, 7});
  // Two devices a rank, two replicas: four nodes of four ranks.
  const std::vector<int> pairs = HostBalancedDevices(8, 2, 8, 2).value();
  CHECK(pairs == std::vector<int>{0, 2, 8, 10, 12, 14, 4, 6, 16, 18, 24, 26, 28,
                                  30, 20, 22});
  // Every node has the same of ranks that hold pp, pp - 1, ..., 1.
  const std::vector<int> four = HostBalancedDevices(32, 1, 8, 1).value();
  std::vector<int> held(4);
  for (int rank = 0; rank < 32; ++rank) held[four[rank] / 8] += 32 - rank;
  CHECK(held == std::vector<int>(4, 132));
  // A node holds the whole pipeline.
  CHECK(HostBalancedDevices(3, 2, 8, 1).value() ==
        std::vector<int>{0, 1, 2, 3, 4, 5});
  for (const int pp : {12, 20}) {
    CHECK(absl::StrContains(
        HostBalancedDevices(pp, 1, 8, 1).status().message(),
        "with order host-balance at most the 8 ranks of a node, or a multiple "
        "of them where they are an even number"));
  }
  CHECK_FALSE(HostBalancedDevices(9, 1, 3, 1).ok());
  // The third rank would have been on devices 6 to 8, of two nodes.
  CHECK(absl::StrContains(
      HostBalancedDevices(4, 1, 8, 3).status().message(),
      "with order host-balance a divisor of the 8 devices of a node"));
}

TEST_CASE("cli: host-balance needs less memory of the fullest host",
          "[cli][offload]") {
  const auto run = [](const std::string& mapping) {
    const testing::BinaryResult result = testing::RunBinary(
        {"simulate", "--model", "llama3-8b", "--system", "dgx-a100",
         "--analytic", "--schedule", "1f1b", "--pp", "16", "--microbatches",
         "32", "--offload", "full", "--engine", "fast", "--mapping", mapping,
         "--json"});
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return Json::parse(result.out);
  };
  const Json even = run("host-balance");
  const Json plain = run("pp-dp");
  const std::vector<double> host =
      even["peak_host_bytes"].get<std::vector<double>>();
  REQUIRE(host.size() == 16);
  CHECK(host == plain["peak_host_bytes"].get<std::vector<double>>());
  double outer = 0;
  double inner = 0;
  double first = 0;
  double all = 0;
  for (int rank = 0; rank < 16; ++rank) {
    (rank >= 4 && rank < 12 ? inner : outer) += host[rank];
    if (rank < 8) first += host[rank];
    all += host[rank];
  }
  CHECK(even["memory"]["host_needed_bytes"].get<double>() ==
        Approx(std::max(outer, inner)));
  CHECK(plain["memory"]["host_needed_bytes"].get<double>() ==
        Approx(std::max(first, all - first)));
  CHECK(even["memory"]["host_needed_bytes"].get<double>() <
        plain["memory"]["host_needed_bytes"].get<double>());
}

}  // namespace
}  // namespace pipewright::host_balance_test

// experiments/scale/w1.yaml, small: against a loop written for it alone where
// nobody shares a link, and one network model against the other where many do.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"
#include "tests/support/w1_by_hand.h"

namespace pipewright::scale_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::W1ByHand;

Json ReportOf(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {
      "simulate", testing::SourcePath("experiments/scale/w1.yaml"), "--json"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const BinaryResult run = RunBinary(words);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return Json::parse(run.out);
}

double StepOf(const std::vector<std::string>& arguments) {
  return ReportOf(arguments).at("iteration_s").get<double>();
}

TEST_CASE("scale: w1 without neighbours equals a loop written for it",
          "[experiments]") {
  W1ByHand by_hand;
  for (int rank = 0; rank < by_hand.ranks; ++rank) {
    // Two nodes of eight devices; two links of 1 us either way.
    by_hand.hop_s.push_back(2e-6 +
                            16.0 * (1 << 20) / (rank % 8 == 7 ? 25e9 : 450e9));
    by_hand.copy_s.push_back((64e6 + (rank == 0    ? 16e3
                                      : rank == 15 ? 4e3
                                                   : 0)) /
                             25e9);
  }
  const std::vector<std::string> alone = {
      "--dp",      "1",     "--nodes", "2",
      "--mapping", "pp-dp", "--set",   "system.pcie_per_switch=1"};
  const double expected_s = by_hand.Run();
  for (const char* engine : {"fluid", "simgrid"}) {
    std::vector<std::string> words = alone;
    words.insert(words.end(), {"--engine", engine});
    CHECK(StepOf(words) == Approx(expected_s).epsilon(1e-12));
  }
  // What it is made of is seen: a thousandth less of a copy, hop or pass.
  W1ByHand copies = by_hand;
  copies.copy_s[15] *= 0.999;
  W1ByHand hops = by_hand;
  hops.hop_s[7] *= 0.999;
  W1ByHand passes = by_hand;
  passes.weight_s *= 0.999;
  for (const W1ByHand& other : {copies, hops, passes}) {
    CHECK(std::abs(other.Run() / expected_s - 1) > 1e-7);
  }
  // Two devices on a PCIe switch are slower.
  CHECK(StepOf({"--dp", "1", "--nodes", "2", "--mapping", "pp-dp"}) >
        1.001 * expected_s);
}

TEST_CASE("scale: small w1, fluid and simgrid", "[experiments]") {
  for (const char* mapping : {"dp-pp", "pp-dp"}) {
    for (const char* jitter : {"none", "uniform:5%"}) {
      INFO(mapping << " " << jitter);
      const std::vector<std::string> words = {
          "--dp",      "4",     "--nodes",  "8",
          "--mapping", mapping, "--jitter", jitter};
      std::vector<std::string> simgrid = words;
      simgrid.insert(simgrid.end(), {"--engine", "simgrid"});
      std::vector<std::string> other = words;
      other.insert(other.end(), {"--engine", "fluid"});
      const Json fluid = ReportOf(other);
      CHECK(fluid.at("ops") == 3072);
      CHECK(fluid.at("offload").at("ranks").at(3).at("offloaded") == 64);
      CHECK(StepOf(simgrid) ==
            Approx(fluid.at("iteration_s").get<double>()).epsilon(1e-12));
    }
  }
}

}  // namespace
}  // namespace pipewright::scale_test

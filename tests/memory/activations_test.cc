#include "sim/memory/activations.h"

#include <catch2/catch.hpp>

#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"

namespace pipewright::activations_test {
namespace {

std::vector<double> Peaks(const std::string& orders, double held) {
  const auto schedule =
      ParseSchedule("pipewright-schedule 1\n" + orders + "\n", "f");
  REQUIRE(schedule.ok());
  return PeakActivations(*schedule, held);
}

TEST_CASE("memory: 1F1B with 8 ranks holds exactly 8 to 1", "[memory]") {
  ScheduleParams params;
  params.pp = 8;
  params.microbatches = 24;
  const auto schedule = BuildSchedule("1f1b", params);
  REQUIRE(schedule.ok());
  CHECK(PeakActivations(*schedule, 1) ==
        std::vector<double>{8, 7, 6, 5, 4, 3, 2, 1});
}

TEST_CASE("memory: a split backward leaves what W needs", "[memory]") {
  const std::string orders =
      "pp 1 vpp 1 microbatches 3\n0: F0 B0 F1 B1 F2 B2 W0 W1 W2";
  CHECK(Peaks(orders, 0) == std::vector<double>{1});
  CHECK(Peaks(orders, 0.25) == std::vector<double>{1.5});
  CHECK(Peaks(orders, 1) == std::vector<double>{3});
}

TEST_CASE("memory: chunks and slices count their share", "[memory]") {
  CHECK(Peaks("pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 BW0.1 BW0.0", 1) ==
        std::vector<double>{1});
  CHECK(Peaks("pp 1 vpp 1 microbatches 1 slices 4\n"
              "0: F0s0 F0s1 F0s2 F0s3 BW0s3 BW0s2 BW0s1 BW0s0",
              1) == std::vector<double>{1});
  CHECK(Peaks("pp 1 vpp 1 microbatches 1 slices 4\n0: F0s0 BW0s0", 1) ==
        std::vector<double>{0.25});
}

TEST_CASE("memory: offloaded activations do not count", "[memory]") {
  CHECK(Peaks("pp 1 vpp 1 microbatches 3\n"
              "0: F0 O0 FREE0 F1 O1 FREE1 F2 BW2 L1 BW1 L0 BW0",
              1) == std::vector<double>{1});
  // An O alone gives nothing back, and its L brings nothing.
  CHECK(Peaks("pp 1 vpp 1 microbatches 3\n"
              "0: F0 O0 FREE0 F1 O1 F2 L1 L0 BW2 BW1 BW0",
              1) == std::vector<double>{3});
}

TEST_CASE("memory: a joint pair holds its forward while it frees the other",
          "[memory]") {
  const std::string header = "pp 1 vpp 1 microbatches 2\n0: F0 ";
  CHECK(Peaks(header + "BW0 F1 BW1", 1) == std::vector<double>{1});
  CHECK(Peaks(header + "(BW0&F1) BW1", 1) == std::vector<double>{2});
  CHECK(Peaks(header + "(F1&BW0) BW1", 1) == std::vector<double>{2});
}

}  // namespace
}  // namespace pipewright::activations_test

#include "sim/cost/collective_time.h"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "tests/support/oracle.h"

namespace pipewright {
namespace {

using Json = nlohmann::json;

TEST_CASE("cost: collectives equal the tuner's model in every case",
          "[cost][oracle]") {
  const std::map<std::string, NcclCollective> collectives = {
      {"AR", NcclCollective::kAllReduce},
      {"AG", NcclCollective::kAllGather},
      {"RS", NcclCollective::kReduceScatter}};
  const std::map<std::string, NcclGeneration> generations = {
      {"volta", NcclGeneration::kVolta},
      {"ampere", NcclGeneration::kAmpere},
      {"hopper", NcclGeneration::kHopper},
      {"blackwell", NcclGeneration::kBlackwell}};
  int compared = 0;
  for (const Json& row : testing::LoadOracle("nccl_cost_cases")) {
    const Json& params = row["params"];
    const int nodes = params["nNodes"].get<int>();
    const NcclGroup group{
        .ranks = params["nRanks"].get<int>(),
        .nodes = nodes,
        .channels = params["nCh"].get<int>(),
        .channel_GBps = params[nodes > 2 ? "bwInter" : "bwIntra"].get<double>(),
        .generation = generations.at(params["cc"].get<std::string>())};
    const NcclCollective collective =
        collectives.at(row["coll"].get<std::string>());
    const double bytes = row["bytes"].get<double>();
    INFO(row.dump());
    for (const auto& [name, expected] : row["table"].items()) {
      const std::vector<std::string> parts = absl::StrSplit(name, '/');
      CHECK(NcclSeconds(collective, parts[0], parts[1], group, bytes) ==
            Approx(1e-6 * expected["time_us"].get<double>()).epsilon(1e-9));
      ++compared;
    }
    CHECK(NcclSeconds(collective, group, bytes) ==
          Approx(1e-6 * row["best_time_us"].get<double>()).epsilon(1e-9));
  }
  CHECK(compared > 300);
}

TEST_CASE("cost: a large ring collective tends to its bus bandwidth",
          "[cost]") {
  const NcclGroup group{
      .ranks = 8, .nodes = 1, .channels = 12, .channel_GBps = 20};
  const double bytes = 64e9;
  CHECK(NcclSeconds(NcclCollective::kAllReduce, group, bytes) ==
        Approx(2 * 7.0 / 8 * bytes / 240e9).epsilon(0.001));
  CHECK(NcclSeconds(NcclCollective::kAllGather, group, bytes) ==
        Approx(7.0 / 8 * bytes / 240e9).epsilon(0.001));
  CHECK(NcclSeconds(NcclCollective::kAllReduce, {.ranks = 1}, bytes) == 0);
}

}  // namespace
}  // namespace pipewright

#include "sim/cost/collective_time.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "absl/strings/str_split.h"
#include "tests/support/json.h"
#include "tests/support/oracle.h"

namespace pipewright::collective_time_test {
namespace {

using testing::Json;

TEST_CASE("cost: collectives equal the tuner's model in every case",
          "[cost][oracle]") {
  const std::map<std::string, CollectiveKind> collectives = {
      {"AR", CollectiveKind::kAllReduce},
      {"AG", CollectiveKind::kAllGather},
      {"RS", CollectiveKind::kReduceScatter}};
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
    const CollectiveKind collective =
        collectives.at(row["coll"].get<std::string>());
    const double bytes = row["bytes"].get<double>();
    INFO(row.dump());
    for (const auto& [name, expected] : row["table"].items()) {
      const std::vector<std::string> parts = absl::StrSplit(name, '/');
      CHECK(NcclSeconds(collective, parts[0], parts[1], group, bytes) ==
            Approx(1e-6 * expected["time_us"].get<double>()).epsilon(1e-9));
      ++compared;
    }
    CHECK(TimeOfCollective(collective, bytes, group.ranks, group)->seconds ==
          Approx(1e-6 * row["best_time_us"].get<double>()).epsilon(1e-9));
  }
  CHECK(compared > 300);
}

TEST_CASE("cost: a large ring collective tends to its bus bandwidth",
          "[cost]") {
  const NcclGroup group{
      .ranks = 8, .nodes = 1, .channels = 12, .channel_GBps = 20};
  const double bytes = 64e9;
  CHECK(
      TimeOfCollective(CollectiveKind::kAllReduce, bytes, 8, group)->seconds ==
      Approx(2 * 7.0 / 8 * bytes / 240e9).epsilon(0.001));
  CHECK(
      TimeOfCollective(CollectiveKind::kAllGather, bytes, 8, group)->seconds ==
      Approx(7.0 / 8 * bytes / 240e9).epsilon(0.001));
  CHECK(
      TimeOfCollective(CollectiveKind::kAllReduce, bytes, 1, group)->seconds ==
      0);
}

TEST_CASE("cost: a collective is measured where its members are, else of links",
          "[cost]") {
  const auto entry = [](const std::string& transport, int64_t nodes,
                        double seconds) {
    return TransferEntry{.operation = "all_reduce",
                         .transport = transport,
                         .ranks = 4,
                         .bytes = 1000,
                         .time = {.count = 9, .median_s = seconds},
                         .nodes = nodes};
  };
  Profile profile;
  profile.transfers = {entry("nccl", 1, 1), entry("nccl", 2, 2),
                       entry("threads", 4, 3)};
  // Two rings that divide the buffer: 2 * 3/4 of 500 bytes at 100 bytes/s and
  // six steps of 0.25 s.
  const RingLinks rings = {.latency_s = 0.25,
                           .edge_bytes_per_s = 100,
                           .ring_bytes_per_s = 100,
                           .rings = 2};
  using From = CollectiveTime::From;
  const auto time = [&](const MeasuredMembers* measured,
                        CollectiveKind kind = CollectiveKind::kAllReduce,
                        int members = 4) {
    return *TimeOfCollective(kind, 1000, members, rings, measured);
  };
  CHECK(time(nullptr).from == From::kRing);
  CHECK(time(nullptr).seconds == Approx(7.5 + 1.5));
  MeasuredMembers measured = {.profile = &profile, .nodes = 1};
  CHECK(time(&measured).from == From::kMeasured);
  CHECK(time(&measured).seconds == 1);
  measured.nodes = 2;
  CHECK(time(&measured).seconds == 2);
  measured.nodes = 4;
  CHECK(time(&measured).seconds == 3);
  measured.transport = "nccl";
  CHECK(time(&measured).from == From::kRing);
  measured.nodes = 0;
  CHECK(time(&measured).from == From::kMeasured);
  // Another kind, another number of members, one alone, no bytes.
  CHECK(time(&measured, CollectiveKind::kAllGather).from == From::kRing);
  CHECK(time(&measured, CollectiveKind::kAllReduce, 3).from == From::kRing);
  CHECK(time(&measured, CollectiveKind::kAllReduce, 1).seconds == 0);
  CHECK(time(&measured, CollectiveKind::kBarrier).from != From::kMeasured);
  // Nobody knows.
  CHECK_FALSE(
      TimeOfCollective(CollectiveKind::kAllGather, 1000, 4, {}, &measured)
          .has_value());
}

}  // namespace
}  // namespace pipewright::collective_time_test

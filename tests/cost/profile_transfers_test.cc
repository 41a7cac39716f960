// Times of transfers that a profile has, between sizes and numbers of ranks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "sim/cost/profile_shape.h"

namespace pipewright::profile_transfers_test {
namespace {

Distribution Exactly(double seconds) {
  return {.count = 10, .median_s = seconds};
}

}  // namespace

TEST_CASE("cost: transfers lie between measured sizes", "[cost]") {
  Profile profile;
  profile.transfers = {{.operation = "send_recv",
                        .ranks = 2,
                        .bytes = 1000,
                        .time = Exactly(1e-5)},
                       {.operation = "send_recv",
                        .ranks = 2,
                        .bytes = 100000,
                        .time = Exactly(1e-4)}};
  CHECK_FALSE(TransferSeconds(profile, "send_recv", 4, 1000).has_value());
  CHECK(TransferSeconds(profile, "send_recv", 2, 1000)->seconds == 1e-5);
  const auto between = TransferSeconds(profile, "send_recv", 2, 10000);
  CHECK(between->seconds == Approx(std::sqrt(1e-5 * 1e-4)));
  CHECK(between->inside);
  const auto below = TransferSeconds(profile, "send_recv", 2, 10);
  CHECK(below->seconds == 1e-5);
  CHECK_FALSE(below->inside);
  CHECK(TransferSeconds(profile, "send_recv", 2, 200000)->seconds ==
        Approx(2e-4));
}

TEST_CASE("cost: transfers lie between measured numbers of ranks", "[cost]") {
  Profile profile;
  for (const int64_t ranks : {2, 8}) {
    for (const int64_t bytes : {1000, 100000}) {
      profile.transfers.push_back(
          {.operation = "all_reduce",
           .transport = "nccl",
           .ranks = ranks,
           .bytes = bytes,
           .time = Exactly(1e-9 * static_cast<double>(ranks * bytes))});
    }
  }
  CHECK_FALSE(TransferSeconds(profile, "all_reduce", 2, 1000)->between_ranks);
  const auto four = TransferSeconds(profile, "all_reduce", 4, 10000);
  REQUIRE(four.has_value());
  // In proportion to both, which are straight lines in logarithms.
  CHECK(four->seconds == Approx(4e-5));
  CHECK(four->between_ranks);
  CHECK(four->inside);
  CHECK_FALSE(TransferSeconds(profile, "all_reduce", 6, 10)->inside);
  // Beyond the largest may be other links.
  CHECK_FALSE(TransferSeconds(profile, "all_reduce", 16, 1000).has_value());
  CHECK_FALSE(TransferSeconds(profile, "all_gather", 4, 1000).has_value());
}

TEST_CASE("cost: transfers of one transport are not mixed with another's",
          "[cost]") {
  const auto entry = [](const std::string& transport, int64_t ranks,
                        int64_t bytes, double seconds) {
    return TransferEntry{.operation = "send_recv",
                         .transport = transport,
                         .ranks = ranks,
                         .bytes = bytes,
                         .time = Exactly(seconds)};
  };
  Profile profile;
  profile.transfers = {
      entry("nccl", 2, 1000, 1e-5), entry("nccl", 2, 100000, 1e-4),
      entry("threads", 2, 10000, 1), entry("mpi", 2, 10000, 2)};
  for (int order = 0; order < 4; ++order) {
    CHECK(TransferSeconds(profile, "send_recv", 2, 10000)->seconds ==
          Approx(std::sqrt(1e-5 * 1e-4)));
    std::rotate(profile.transfers.begin(), profile.transfers.begin() + 1,
                profile.transfers.end());
  }
  profile.transfers.erase(profile.transfers.begin(),
                          profile.transfers.begin() + 2);
  CHECK(TransferSeconds(profile, "send_recv", 2, 10000)->seconds == 2);
  // Measured over as many is better than between.
  profile.transfers = {entry("nccl", 2, 1000, 1), entry("nccl", 8, 1000, 1),
                       entry("mpi", 4, 1000, 5)};
  CHECK(TransferSeconds(profile, "send_recv", 4, 1000)->seconds == 5);
}

}  // namespace pipewright::profile_transfers_test

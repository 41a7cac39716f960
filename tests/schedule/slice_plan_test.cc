// Slices: their work, their lengths, and the dynamic programming against
// trying every way to cut.
#include "schedules/slice_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/verify.h"

namespace pipewright::slice_plan_test {
namespace {

double TotalTime(const std::vector<int>& lengths, int ranks, int microbatches,
                 const SliceTime& time) {
  double sum = 0;
  double longest = 0;
  int context = 0;
  for (const int length : lengths) {
    const double seconds = time(length, context);
    sum += seconds;
    longest = std::max(longest, seconds);
    context += length;
  }
  return microbatches * sum + (ranks - 1) * longest;
}

// Every way to cut `units`: a bit for each place between two of them.
double BruteForce(int units, int slices, int ranks, int microbatches,
                  const SliceTime& time) {
  double best = std::numeric_limits<double>::infinity();
  for (int cuts = 0; cuts < 1 << (units - 1); ++cuts) {
    std::vector<int> lengths = {1};
    for (int place = 0; place + 1 < units; ++place) {
      if ((cuts >> place & 1) != 0) {
        lengths.push_back(1);
      } else {
        ++lengths.back();
      }
    }
    if (slices > 0 && static_cast<int>(lengths.size()) != slices) continue;
    best = std::min(best, TotalTime(lengths, ranks, microbatches, time));
  }
  return best;
}

TEST_CASE("slices: the plan is as good as trying every cut", "[schedule]") {
  std::mt19937 random(11);
  for (int round = 0; round < 120; ++round) {
    const int units = 1 + static_cast<int>(random() % 9);
    const int slices = static_cast<int>(random() % (units + 1));
    const int ranks = 1 + static_cast<int>(random() % 6);
    const int microbatches = 1 + static_cast<int>(random() % 5);
    // Any times at all, or those of a sequence with a fixed part.
    std::vector<double> table(100);
    for (double& entry : table) entry = 1.0 + random() % 16;
    const bool any = round % 2 == 0;
    const SequenceShape sequence = {.tokens = units,
                                    .attention = random() % 5 / 4.0};
    const double fixed = random() % 4 / 16.0;
    const SliceTime time = [&](int length, int context) {
      return any ? table[length * 10 + context]
                 : fixed + SliceWork(sequence, context, context + length);
    };
    INFO("round " << round << " units " << units << " slices " << slices
                  << " ranks " << ranks << " microbatches " << microbatches);
    const std::vector<int> lengths =
        PlanSlices(units, slices, ranks, microbatches, time);
    CHECK(std::accumulate(lengths.begin(), lengths.end(), 0) == units);
    CHECK(*std::min_element(lengths.begin(), lengths.end()) >= 1);
    if (slices > 0) CHECK(static_cast<int>(lengths.size()) == slices);
    CHECK(TotalTime(lengths, ranks, microbatches, time) ==
          Approx(BruteForce(units, slices, ranks, microbatches, time))
              .epsilon(1e-8));
  }
}

TEST_CASE("slices: work adds up, and later tokens cost more", "[schedule]") {
  const SequenceShape sequence = {.tokens = 4096, .attention = 0.25};
  CHECK(SliceWork(sequence, 0, 4096) == Approx(1));
  // 0.75 / 2 + 0.25 / 4 and what is left.
  CHECK(SliceWork(sequence, 0, 2048) == Approx(0.4375));
  CHECK(SliceWork(sequence, 2048, 4096) == Approx(0.5625));
  const std::vector<double> factors =
      SliceFactors(sequence, EqualSlices(4096, 4));
  CHECK(std::accumulate(factors.begin(), factors.end(), 0.0) == Approx(4));
  // Factors of equal lengths, whether or not they are whole tokens.
  for (int slice = 0; slice < 4; ++slice) {
    CHECK(EqualSliceFactor(0.25, slice, 4) == Approx(factors[slice]));
  }
  CHECK(std::is_sorted(factors.begin(), factors.end()));
  CHECK(EqualSlices(10, 4) == std::vector<int64_t>{3, 3, 2, 2});
}

TEST_CASE("slices: balanced ones differ by no more than a few tokens' work",
          "[schedule]") {
  for (const double attention : {0.0, 0.1, 0.5, 1.0}) {
    for (const int slices : {1, 2, 4, 7, 64}) {
      INFO("attention " << attention << " slices " << slices);
      const SequenceShape sequence = {.tokens = 65536, .attention = attention};
      const std::vector<int64_t> lengths = BalancedSlices(sequence, slices);
      REQUIRE(static_cast<int>(lengths.size()) == slices);
      CHECK(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) ==
            65536);
      CHECK(std::is_sorted(lengths.rbegin(), lengths.rend()));
      // Each is rounded down to a token; the first takes what was left.
      const double dearest_token = SliceWork(sequence, 65535, 65536);
      for (const double factor : SliceFactors(sequence, lengths)) {
        CHECK(std::abs(factor / slices - 1.0 / slices) <=
              slices * dearest_token + 1e-12);
      }
    }
  }
  // Without attention they are equal.
  CHECK(BalancedSlices({.tokens = 4096, .attention = 0}, 4) ==
        std::vector<int64_t>{1024, 1024, 1024, 1024});
  // More slices than room for their work: a token each.
  CHECK(BalancedSlices({.tokens = 3, .attention = 0.9}, 3) ==
        std::vector<int64_t>{1, 1, 1});
}

TEST_CASE("slices: claims of sliced schedules hold with several slices",
          "[schedule]") {
  int bubbles = 0;
  int peaks_compared = 0;
  for (const char* name : {"seq1f1b", "slimpipe", "terapipe"}) {
    const ScheduleInfo& info = *FindSchedule(name)->info;
    for (const int pp : {1, 2, 3, 4, 8}) {
      for (const int vpp : {1, 2, 4}) {
        for (const int slices : {2, 3, 4, 8, 16}) {
          for (const int microbatches : {1, 2, 4, 7, 8}) {
            for (const double hop : {0.0, 0.5}) {
              ScheduleParams params;
              params.pp = pp;
              params.vpp = vpp;
              params.microbatches = microbatches;
              params.slices = slices;
              params.costs = {.forward = 16,
                              .backward_input = 16,
                              .backward_weight = 16,
                              .hop = hop,
                              .given = true};
              const auto schedule = BuildSchedule(name, params);
              if (!schedule.ok()) continue;
              INFO(name << " pp " << pp << " vpp " << vpp << " slices "
                        << slices << " microbatches " << microbatches);
              CHECK(VerifySchedule(*schedule) == absl::OkStatus());
              CHECK(schedule->slices == slices);
              const auto times = Replay(*schedule, params.costs);
              REQUIRE(times.ok());
              const std::vector<double> peaks = PeakActivations(*schedule, 1);
              for (const Claim& claim : info.claims) {
                if (!claim.domain(params)) continue;
                INFO(claim.formula);
                if (claim.metric == Claim::Metric::kPeakActivations) {
                  ++peaks_compared;
                  for (int rank = 0; rank < pp; ++rank) {
                    CHECK(peaks[rank] == Approx(claim.value(params, rank)));
                  }
                  continue;
                }
                ++bubbles;
                const double span = claim.metric == Claim::Metric::kBubbleGlobal
                                        ? times->span_global
                                        : times->span_per_rank;
                CHECK(span - 48.0 * microbatches ==
                      Approx(claim.value(params, 0)).margin(1e-9));
              }
            }
          }
        }
      }
    }
  }
  CHECK(bubbles > 300);
  CHECK(peaks_compared > 300);
}

// Slices are not alike, but every rank runs the same in the same order, so the
// dearest one decides.
TEST_CASE("slices: terapipe ends when its plan says", "[schedule]") {
  for (const double attention : {0.0, 0.4, 1.0}) {
    for (const double overhead : {0.0, 0.05}) {
      ScheduleParams params;
      params.pp = 6;
      params.microbatches = 3;
      params.sequence.attention = attention;
      params.own = {{"overhead", absl::StrCat(overhead)}};
      params.costs = {.forward = 1, .backward_input = 1, .backward_weight = 1};
      const ScheduleInfo& info = *FindSchedule("terapipe")->info;
      const auto factors = info.slice_factor(params);
      REQUIRE(factors.ok());
      params.costs.slice_factor = *factors;
      const auto schedule = BuildSchedule("terapipe", params);
      REQUIRE(schedule.ok());
      REQUIRE(schedule->slices == static_cast<int>(factors->size()));
      const auto times = Replay(*schedule, params.costs);
      REQUIRE(times.ok());
      double sum = 0;
      double dearest = 0;
      for (const double factor : *factors) {
        sum += 3 * factor / schedule->slices;
        dearest = std::max(dearest, 3 * factor / schedule->slices);
      }
      CHECK(times->span_global == Approx(3 * sum + 5 * dearest));
      // With a price on each, fewer slices.
      CHECK((schedule->slices == 16) == (overhead == 0 && attention == 0));
    }
  }
}

}  // namespace
}  // namespace pipewright::slice_plan_test

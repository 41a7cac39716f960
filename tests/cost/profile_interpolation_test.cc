#include "sim/cost/profile_interpolation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "sim/base/statistics.h"
#include "sim/base/worst.h"
#include "sim/cost/profile_shape.h"

namespace pipewright::profile_interpolation_test {
namespace {

ProfileModel Llama() {
  return {.style = "llama",
          .hidden = 4096,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn = 14336,
          .vocabulary = 128256};
}

// A device of our own making: launches, a rate that small matrices do not
// reach, attention slower at short sequences, streams.
double DeviceSeconds(const GridPoint& point) {
  const double tokens = point.where[0] * point.where[1] / point.where[2];
  const double rate = 700e12 * tokens / (tokens + 200);
  const double attention = 500e12 * point.where[1] / (point.where[1] + 500);
  return 15e-6 + point.work[0] / rate + point.work[1] / attention +
         40 * point.work[2] / 3e12;
}

std::vector<GridPoint> Grid(ProfilePass pass, double noise, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, noise);
  std::vector<GridPoint> points;
  for (const int64_t microbatch : {1, 2, 4}) {
    for (const int64_t sequence : {1024, 2048, 4096, 8192}) {
      for (const int64_t tp : {1, 2, 4}) {
        points.push_back(PointOf(ProfilePart::kLayer, pass, Llama(), microbatch,
                                 sequence, tp));
        points.back().seconds =
            DeviceSeconds(points.back()) * std::exp(normal(random));
      }
    }
  }
  return points;
}

}  // namespace

TEST_CASE("cost: a measured shape is read back as it is", "[cost]") {
  const std::vector<GridPoint> points = Grid(ProfilePass::kForward, 0.02, 1);
  const Interpolation grid(points);
  for (const GridPoint& point : points) {
    const Interpolated value = grid.At(point.work, point.where);
    CHECK(value.measured);
    CHECK(value.inside);
    CHECK(value.error == 0);
    CHECK(value.seconds == point.seconds);
  }
}

TEST_CASE("cost: times that are sums of work are met between points",
          "[cost]") {
  std::vector<GridPoint> points;
  const auto seconds = [](const GridPoint& point) {
    return 2e-5 + point.work[0] / 5e14 + point.work[1] / 3e14;
  };
  for (const int64_t microbatch : {1, 4}) {
    for (const int64_t sequence : {512, 2048, 8192}) {
      points.push_back(PointOf(ProfilePart::kLayer, ProfilePass::kForward,
                               Llama(), microbatch, sequence, 1));
      points.back().seconds = seconds(points.back());
    }
  }
  const Interpolation grid(points);
  GridPoint wanted =
      PointOf(ProfilePart::kLayer, ProfilePass::kForward, Llama(), 2, 4096, 1);
  const Interpolated value = grid.At(wanted.work, wanted.where);
  CHECK_FALSE(value.measured);
  CHECK(value.inside);
  CHECK(value.seconds == Approx(seconds(wanted)).epsilon(1e-9));
  CHECK(value.error < 1e-6);
}

TEST_CASE("cost: points left out of a realistic grid are met within 5 percent",
          "[cost]") {
  for (const ProfilePass pass :
       {ProfilePass::kForward, ProfilePass::kBackwardInput,
        ProfilePass::kBackwardWeight, ProfilePass::kBackwardFull}) {
    for (const uint32_t seed : {1u, 2u, 3u}) {
      const Interpolation grid(Grid(pass, 0.01, seed));
      CHECK(MedianMagnitude(grid.left_out()) < 0.05);
      double worst = 0;
      for (const double error : grid.left_out()) {
        worst = WorseOf(worst, std::abs(error));
      }
      CHECK(worst < 0.25);
    }
  }
}

TEST_CASE("cost: the error estimate of a new shape is of the error's size",
          "[cost]") {
  const Interpolation grid(Grid(ProfilePass::kForward, 0.01, 7));
  int inside = 0;
  int shapes = 0;
  for (const int64_t microbatch : {1, 2, 3}) {
    for (const int64_t sequence : {1536, 3072, 6144}) {
      for (const int64_t tp : {1, 2, 4}) {
        const GridPoint point =
            PointOf(ProfilePart::kLayer, ProfilePass::kForward, Llama(),
                    microbatch, sequence, tp);
        const Interpolated value = grid.At(point.work, point.where);
        REQUIRE(value.error > 0);
        CHECK(value.error < 0.15);
        const double error = value.seconds / DeviceSeconds(point) - 1;
        // Twice a standard deviation.
        inside += std::abs(error) <= 2 * value.error ? 1 : 0;
        ++shapes;
      }
    }
  }
  CHECK(inside >= shapes * 85 / 100);
}

TEST_CASE("cost: one point scales by its work and knows no error", "[cost]") {
  GridPoint point = PointOf(ProfilePart::kLayer, ProfilePass::kBackwardWeight,
                            Llama(), 1, 1024, 1);
  point.seconds = 1e-3;
  const Interpolation grid({point});
  CHECK(grid.left_out().empty());
  const GridPoint wanted = PointOf(
      ProfilePart::kLayer, ProfilePass::kBackwardWeight, Llama(), 2, 1024, 1);
  const Interpolated value = grid.At(wanted.work, wanted.where);
  CHECK(value.error < 0);
  CHECK_FALSE(value.inside);
  CHECK(value.seconds >= 1e-3);
  CHECK(value.seconds <= 2e-3 * (1 + 1e-12));
}

TEST_CASE("cost: a point that is left out has no part in its prediction",
          "[cost]") {
  // Seconds as the work, but for the last: the other two give it 4, not its 3.
  // All three together are met by a constant and less work.
  const Interpolation grid({{{1}, {1}, 1}, {{2}, {2}, 2}, {{4}, {4}, 3}});
  REQUIRE(grid.left_out().size() == 3);
  CHECK(grid.left_out()[2] == Approx(4.0 / 3 - 1).epsilon(1e-12));
}

TEST_CASE("cost: outside of the grid the error grows with every doubling",
          "[cost]") {
  // Two points that miss each other by 1/11 and 1/10.
  const Interpolation grid({{{1}, {1}, 1}, {{2}, {2}, 2.2}});
  REQUIRE(grid.left_out().size() == 2);
  CHECK(grid.left_out()[0] == Approx(1.1 - 1));
  CHECK(grid.left_out()[1] == Approx(1 / 1.1 - 1));
  const auto error = [&grid](double place) {
    return grid.At({place}, {place}).error;
  };
  CHECK(error(1.5) >= 1.0 / 11);
  CHECK(error(1.5) <= 1.0 / 10);
  // Above and below.
  for (const double doublings : {1.0, 2.0, 3.0}) {
    const double factor = std::exp2(doublings);
    for (const double place : {2 * factor, 1 / factor}) {
      INFO("at " << place);
      CHECK_FALSE(grid.At({place}, {place}).inside);
      CHECK(error(place) >= (1 + doublings) / 11);
      CHECK(error(place) <= (1 + doublings) / 10);
    }
  }
}

}  // namespace pipewright::profile_interpolation_test

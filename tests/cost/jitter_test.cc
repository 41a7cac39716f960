#include "sim/cost/jitter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

namespace pipewright::jitter_test {

TEST_CASE("cost: draws are uniform and depend on every word", "[cost]") {
  std::set<double> seen;
  double sum = 0;
  double square = 0;
  constexpr int kDraws = 20000;
  for (int index = 0; index < kDraws; ++index) {
    const double draw = UniformDraw(7, index / 100, index % 100, 3);
    CHECK((draw > 0 && draw < 1));
    seen.insert(draw);
    sum += draw;
    square += draw * draw;
  }
  CHECK(seen.size() == kDraws);
  // Means of 20000 draws: four standard errors.
  CHECK(sum / kDraws == Approx(0.5).margin(4 * 0.2887 / std::sqrt(kDraws)));
  CHECK(square / kDraws == Approx(1.0 / 3).margin(0.01));
  const double one = UniformDraw(1, 2, 3, 4);
  CHECK(one == UniformDraw(1, 2, 3, 4));
  CHECK(one != UniformDraw(2, 2, 3, 4));
  CHECK(one != UniformDraw(1, 3, 2, 4));
  CHECK(one != UniformDraw(1, 2, 4, 3));
}

TEST_CASE("cost: quantiles lie straight between those that were kept",
          "[cost]") {
  const std::vector<double> quantiles = {0.9, 1.0, 1.4};
  CHECK(QuantileAt(quantiles, 0) == 0.9);
  CHECK(QuantileAt(quantiles, 0.25) == Approx(0.95));
  CHECK(QuantileAt(quantiles, 0.5) == 1.0);
  CHECK(QuantileAt(quantiles, 0.75) == Approx(1.2));
  CHECK(QuantileAt(quantiles, 1) == 1.4);
  CHECK(QuantileAt({}, 0.3) == 1);
}

TEST_CASE("cost: the normal quantile inverts the normal distribution",
          "[cost]") {
  for (const double x : {-6.0, -3.0, -1.0, -0.1, 0.0, 0.5, 1.96, 4.0}) {
    const double probability = std::erfc(-x / std::sqrt(2.0)) / 2;
    CHECK(NormalQuantile(probability) == Approx(x).margin(1e-8));
  }
}

TEST_CASE("cost: jitter is drawn for a pass, not for a call", "[cost]") {
  Jitter jitter;
  jitter.seed = 5;
  jitter.passes.resize(2);
  jitter.passes[0][static_cast<int>(PassKind::kForward)] = {0.5, 1, 2};
  const Pass pass(PassKind::kForward, 3);
  const double factor = jitter.OfPass(0, 0, 1, 0, pass);
  CHECK(factor >= 0.5);
  CHECK(factor <= 2);
  CHECK(jitter.OfPass(0, 0, 1, 0, pass) == factor);
  CHECK(jitter.OfPass(0, 0, 1, 0, pass.WithJoint(true)) == factor);
  CHECK(jitter.OfPass(1, 0, 1, 0, pass) != factor);
  CHECK(jitter.OfPass(0, 1, 1, 0, pass) != factor);
  CHECK(jitter.OfPass(0, 0, 2, 0, pass) != factor);
  CHECK(jitter.OfPass(0, 0, 1, 0, Pass(PassKind::kForward, 4)) != factor);
  // Stage 1 was measured without noise.
  CHECK(jitter.OfPass(0, 0, 1, 1, pass) == 1);
  Jitter normal;
  normal.sigma = 0.03;
  double sum = 0;
  double square = 0;
  constexpr int kDraws = 5000;
  for (int microbatch = 0; microbatch < kDraws; ++microbatch) {
    const double logarithm = std::log(
        normal.OfPass(0, 0, 0, 0, Pass(PassKind::kBackwardInput, microbatch)));
    sum += logarithm;
    square += logarithm * logarithm;
  }
  CHECK(sum / kDraws == Approx(0).margin(4 * 0.03 / std::sqrt(kDraws)));
  CHECK(std::sqrt(square / kDraws) == Approx(0.03).epsilon(0.05));
}

}  // namespace pipewright::jitter_test

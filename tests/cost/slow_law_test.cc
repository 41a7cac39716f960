// Laws by which devices are slow: what they draw, and what is no law.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/cost/slow_law.h"

namespace pipewright::slow_law_test {
namespace {

constexpr uint64_t kStream = 1;

std::vector<double> Drawn(const std::string& text, int count, uint64_t seed) {
  const absl::StatusOr<SlowLaw> law = ParseSlowLaw(text);
  INFO(text << " " << law.status());
  REQUIRE(law.ok());
  CHECK(law->text == text);
  std::vector<double> factors;
  for (int index = 0; index < count; ++index) {
    factors.push_back(law->Factor(seed, kStream, index));
  }
  return factors;
}

TEST_CASE("slow law: a share of all has the factor", "[cost][slow]") {
  constexpr int kCount = 100000;
  const std::vector<double> factors = Drawn("fixed:1.44@1%", kCount, 3);
  const auto slow = std::count(factors.begin(), factors.end(), 1.44);
  CHECK(slow + std::count(factors.begin(), factors.end(), 1.0) == kCount);
  // Five standard deviations of the binomial law.
  CHECK(std::abs(slow - 1000) < 5 * std::sqrt(1000 * 0.99));
  // Others with another seed, the same with the same.
  CHECK(Drawn("fixed:1.44@1%", kCount, 4) != factors);
  CHECK(Drawn("fixed:1.44@1%", kCount, 3) == factors);
  const std::vector<double> all = Drawn("fixed:1.2", 10, 1);
  CHECK(std::count(all.begin(), all.end(), 1.2) == 10);
}

TEST_CASE("slow law: uniform between its ends", "[cost][slow]") {
  const std::vector<double> factors = Drawn("uniform:0.9-1.3", 20000, 1);
  const auto [least, most] =
      std::minmax_element(factors.begin(), factors.end());
  CHECK(*least >= 0.9);
  CHECK(*least < 0.901);
  CHECK(*most <= 1.3);
  CHECK(*most > 1.299);
  double mean = 0;
  for (const double factor : factors) mean += factor / 20000;
  CHECK(mean == Approx(1.1).epsilon(0.003));
}

TEST_CASE("slow law: lognormal with its median and deviation", "[cost][slow]") {
  const std::vector<double> factors = Drawn("lognormal:20%", 40000, 1);
  double mean = 0;
  double square = 0;
  for (const double factor : factors) {
    mean += std::log(factor) / 40000;
    square += std::log(factor) * std::log(factor) / 40000;
  }
  CHECK(std::abs(mean) < 0.005);
  CHECK(std::sqrt(square) == Approx(0.2).epsilon(0.02));
  const std::vector<double> some = Drawn("lognormal:20%@25%", 40000, 1);
  const auto same = std::count(some.begin(), some.end(), 1.0);
  CHECK(std::abs(same - 30000) < 500);
}

TEST_CASE("slow law: what is no law is named", "[cost][slow]") {
  for (const char* text :
       {"", "1.44", "fixed:", "fixed:0", "fixed:-1", "fixed:2000", "fixed:nan",
        "fixed:1.44@", "fixed:1.44@0%", "fixed:1.44@101%", "fixed:1.44@1",
        "fixed:1.44@1%@1%", "uniform:1", "uniform:2-1", "uniform:1-2-3",
        "lognormal:3", "lognormal:0%", "lognormal:101%", "normal:3%"}) {
    const absl::StatusOr<SlowLaw> law = ParseSlowLaw(text);
    INFO(text);
    REQUIRE(law.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(law.status().message(), "allowed: fixed:FACTOR"));
  }
}

}  // namespace
}  // namespace pipewright::slow_law_test

// Coverage of intervals with a family of runs left out, by hand.
#include "sim/analysis/reproduce/left_out.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/analysis/reproduce/steps.h"

namespace pipewright::left_out_test {
namespace {

// Estimated 1 s, between 1/2 and 2 s: half-widths are binary orders.
Comparison Row(double measured, const char* model, const char* device) {
  Comparison row;
  row.published = absl::StrCat(measured);
  row.simulated = 1;
  row.step = StepFacts{.kind = "a kind", .low = 0.5, .high = 2};
  row.step->model = model;
  row.step->device = device;
  row.step->framework = "one";
  return row;
}

TEST_CASE("left out: an interval is scaled by all other families", "[papers]") {
  std::vector<Comparison> rows;
  // Ten of one model lie at a quarter of the half-width, one of another model
  // at half of it.
  for (int count = 0; count < 10; ++count) {
    rows.push_back(
        Row(count % 2 == 0 ? std::exp2(0.25) : std::exp2(-0.25), "near", "d"));
  }
  rows.push_back(Row(std::exp2(0.5), "far", "d"));
  rows.push_back(Row(1, "none", "d"));
  rows.back().step->high = rows.back().step->low = 0;  // has no interval
  std::vector<const Comparison*> all;
  for (const Comparison& row : rows) all.push_back(&row);
  CHECK(HalfWidthsAway(rows[0]) == Approx(0.25).epsilon(1e-4));
  CHECK(HalfWidthsAway(rows[10]) == Approx(0.5).epsilon(1e-4));
  const std::vector<LeftOutSummary> kinds =
      SummarizeLeftOut(all, {"a kind", "no kind"});
  REQUIRE(kinds.size() == 3);
  const LeftOutSummary& kind = kinds[0];
  CHECK(kind.rows == 11);
  CHECK(kind.inside == 11);
  CHECK(kind.half_width == Approx(0.75));
  const auto of = [&](StepFamily family) {
    return kind.left_out[static_cast<int>(family)];
  };
  // Without "near" the scale is a half, without "far" a quarter: "far" is
  // outside of what the others give.
  CHECK(of(StepFamily::kModel).inside == 10);
  CHECK(of(StepFamily::kModel).half_width ==
        Approx((10 * (std::exp2(0.5) - std::exp2(-0.5)) +
                (std::exp2(0.25) - std::exp2(-0.25))) /
               22)
            .epsilon(1e-3));
  // Nothing else is there to shape it: as given.
  CHECK(of(StepFamily::kDevice).inside == 11);
  CHECK(of(StepFamily::kFramework).half_width == Approx(0.75));
  CHECK(kinds[1].rows == 0);
  CHECK(kinds[2].kind == "all");
  CHECK(kinds[2].rows == 11);
}

TEST_CASE("left out: nine of ten with one more to come", "[papers]") {
  // ceil(0.9 * 10) of nine is the largest, of nineteen the eighteenth.
  std::vector<double> away;
  for (int count = 1; count <= 9; ++count) away.push_back(count);
  CHECK(ScaleOf(away) == 9);
  for (int count = 10; count <= 19; ++count) away.push_back(count);
  CHECK(ScaleOf(away) == 18);
  CHECK(ScaleOf({3}) == 3);
}

// The goals of the project name three of them.
TEST_CASE("left out: the least of an honest interval", "[papers]") {
  CHECK(LeastInside(10) == 7);
  CHECK(LeastInside(20) == 15);
  CHECK(LeastInside(30) == 23);
  CHECK(LeastInside(0) == 0);
  // 900 - 1.96 sqrt(90), and no probability that is too small for a number.
  CHECK(LeastInside(1000) == 881);
}

TEST_CASE("left out: every measured step has its families", "[papers]") {
  const auto rows = ReproduceSteps("torchtitan", "fast");
  REQUIRE(rows.ok());
  for (const Comparison& row : *rows) {
    CHECK(row.step->framework == "torchtitan");
    CHECK_FALSE(row.step->model.empty());
    CHECK_FALSE(row.step->device.empty());
  }
  CHECK(SummarizeSteps(*rows).left_out.size() == StepGoals().size() + 1);
}

}  // namespace
}  // namespace pipewright::left_out_test

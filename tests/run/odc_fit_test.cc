// A fit of `reproduce odc` says when nothing within its bounds meets the table.
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/analysis/reproduce/odc.h"

namespace pipewright::odc_fit_test {
namespace {

absl::StatusOr<double> SquareOf(double value) { return value * value; }

TEST_CASE("odc: a fit that ends at a bound says so", "[papers]") {
  const odc::BoundedFit inside = odc::FitWithin(1, 100, 144, SquareOf).value();
  CHECK_FALSE(inside.at_bound);
  CHECK(inside.at == Approx(12).epsilon(1e-4));
  const odc::BoundedFit above = odc::FitWithin(1, 100, 1e6, SquareOf).value();
  CHECK(above.at_bound);
  CHECK(above.at == 100);
  const odc::BoundedFit below = odc::FitWithin(1, 100, 0.25, SquareOf).value();
  CHECK(below.at_bound);
  CHECK(below.at == 1);
  CHECK_FALSE(odc::FitWithin(1, 100, 2, [](double) -> absl::StatusOr<double> {
                return absl::InternalError("no");
              }).ok());
}

}  // namespace
}  // namespace pipewright::odc_fit_test

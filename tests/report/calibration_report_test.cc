// What `calibrate show` says of a profile that is written down here.
#include "sim/report/calibration_report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"

namespace pipewright {
namespace {

Profile WithKernels() {
  Profile profile;
  KernelEntry product;
  product.name = "gemm.forward";
  product.shape = {4096, 4096, 4096};
  product.type = "bf16";
  product.time.median_s = 200e-6;
  product.flops = 2.0 * 4096 * 4096 * 4096;
  product.implementation = "some plan";
  KernelEntry norm;
  norm.name = "rms_norm.forward";
  norm.shape = {4096, 4096};
  norm.type = "bf16";
  norm.time.median_s = 20e-6;
  norm.bytes = 60e6;
  profile.kernels = {product, norm};
  return profile;
}

TEST_CASE("calibration report: what single kernels achieve", "[report]") {
  const std::string text = CalibrationReport(WithKernels(), false);
  INFO(text);
  // 137.4 GFLOP in 200 us.
  CHECK(absl::StrContains(text, "687 TFLOP/s  some plan"));
  CHECK(absl::StrContains(text, "3 TBps"));
  const auto json =
      nlohmann::json::parse(CalibrationReport(WithKernels(), true));
  REQUIRE(json["kernels"].size() == 2);
  CHECK(json["kernels"][0]["flops_per_s"].get<double>() ==
        Approx(687.19e12).epsilon(1e-4));
  CHECK(json["kernels"][0]["bytes_per_s"].is_null());
  CHECK(json["kernels"][1]["bytes_per_s"].get<double>() == Approx(3e12));
}

}  // namespace
}  // namespace pipewright

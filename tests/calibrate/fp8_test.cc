// A calibration whose layers are in fp8: what is measured in which type.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "calibrate/session.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/tiny_calibration.h"

namespace pipewright::fp8_test {
namespace {

using testing::FakeKernels;
using testing::TinyCalibration;

const CalibrateHooks kNoHooks = {
    .stop = [] { return false; },
    .save = [](const Profile&) { return absl::OkStatus(); }};

// `rest`: what a device that computes in `types` takes for all but the linear
// layers, and the bytes of one.
void CheckFp8(int32_t types, const std::string& rest, double rest_bytes) {
  INFO("rest in " << rest);
  CalibrateOptions options = TinyCalibration();
  options.type = "fp8";
  const Profile profile =
      Calibrate(FakeKernels({.types = types}), options, kNoHooks)
          .value()
          .profile;
  CHECK(profile.complete);
  CHECK(profile.passes.size() == 13);
  for (const PassEntry& entry : profile.passes) CHECK(entry.type == "fp8");
  for (const SplitEntry& entry : profile.splits) CHECK(entry.type == "fp8");
  const auto& warnings = profile.sources.at(0).warnings;
  CHECK(std::any_of(warnings.begin(), warnings.end(),
                    [](const std::string& warning) {
                      return absl::StartsWith(warning, "fp8 is emulated here");
                    }));
  std::set<std::string> keys;
  for (const KernelEntry& entry : profile.kernels) {
    INFO(KeyOf(entry));
    keys.insert(KeyOf(entry));
    // A byte for what a product takes, and what is not in fp8 as it is.
    if (KeyOf(entry) == "gemm.forward 16x32x96 fp8") {
      CHECK(entry.bytes == 16 * 32 + 32 * 96 + rest_bytes * 16 * 96);
    }
    if (KeyOf(entry) == "gemm.backward_input 16x32x96 fp8") {
      CHECK(entry.bytes == 16 * 96 + 32 * 96 + rest_bytes * 16 * 32);
    }
    if (KeyOf(entry) == "gemm.backward_weight 16x32x96 fp8") {
      CHECK(entry.bytes == 16 * (32 + 96) + 8 * 32 * 96);
    }
  }
  for (const std::string& key :
       {std::string("gemm.forward 16x32x96 fp8"),
        std::string("gemm.backward_input 16x32x96 fp8"),
        std::string("gemm.backward_weight 16x32x96 fp8"),
        "gemm.forward 16x32x32 " + rest,
        "attention.causal.forward 1x16x2x2x16 " + rest,
        "quantize 16x32 " + rest, "quantize.weights 8192 " + rest}) {
    INFO(key);
    CHECK(keys.count(key) == 1);
  }
  // Matrices of a layer and of the head, of one shape each in its own type.
  CHECK(keys.size() == 3 * 5 + 8 + 2);
  CHECK(ReadProfile(WriteProfile(profile), "p").ok());
  options.done = profile;
  options.type = "fp32";
  CHECK(absl::StrContains(
      Calibrate(FakeKernels({.types = types}), options, kNoHooks)
          .status()
          .message(),
      "--resume: type of the interrupted run is 'fp8', now it is 'fp32'"));
}

TEST_CASE("calibrate: layers in fp8, all else as without", "[calibrate]") {
  CheckFp8(1 << PW_FP32, "fp32", 4);
  CheckFp8(1 << PW_FP32 | 1 << PW_BF16, "bf16", 2);
}

// Libraries choose by both, so products alone have what the passes' have.
TEST_CASE("calibrate: products have the scales and the biases of the passes",
          "[calibrate]") {
  for (const bool gpt : {true, false}) {
    for (const bool fp8 : {true, false}) {
      CalibrateOptions options = TinyCalibration();
      options.model.gated = !gpt;
      if (fp8) options.type = "fp8";
      int wrong = 0;
      const auto look = [&](const PwGemm& gemm, bool bias) {
        const bool layer = gemm.outputs != options.model.vocabulary;
        const bool forward = gemm.pass == PW_GEMM_FORWARD;
        for (const float* scale : {gemm.a_scale, gemm.b_scale}) {
          if ((scale != nullptr) != (gemm.type == PW_FP8)) ++wrong;
        }
        if ((gemm.type == PW_FP8) != (fp8 && layer)) ++wrong;
        if (bias != (gpt && layer && forward)) ++wrong;
      };
      // No matrix of a layer has as many rows as the head's.
      options.model.vocabulary = 48;
      CHECK(
          Calibrate(FakeKernels({.multiplies = look}), options, kNoHooks).ok());
      INFO("gpt " << gpt << ", fp8 " << fp8);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("calibrate: fp8 is refused where the device or the model has none",
          "[calibrate]") {
  CalibrateOptions options = TinyCalibration();
  options.type = "fp8";
  const absl::Status status =
      Calibrate(FakeKernels({.fp8_gemm = 0}), options, kNoHooks).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), "unknown --type 'fp8'"));
  options.grid.sequences = {24};
  CHECK(absl::StrContains(
      Calibrate(FakeKernels({}), options, kNoHooks).status().message(),
      "fp8: tokens of one device, 24, must be a multiple of 16"));
}

}  // namespace
}  // namespace pipewright::fp8_test

// Training whose linear layers are in fp8 against the sequential run in fp8.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"
#include "tests/support/small_training.h"

namespace pipewright::fp8_test {
namespace {

TrainedRun Train(const std::string& schedule, int dp, bool fp8,
                 const PwKernels* kernels = pw_cpu_kernels()) {
  testing::SmallTraining training =
      testing::MakeSmallTraining(schedule, 2, dp, WaitRule::kBuffered).value();
  training.model.sequence = training.model.shape.sequence = 32;
  training.model.shape.fp8_linear = fp8 ? 1 : 0;
  // So that the copies of one step are not those of the next.
  training.model.adam.learning_rate = 1e-2f;
  SetWeightVersions(*training.schedule, &training.model);
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(training.program, training.model, kernels, training.options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

TEST_CASE("execute: fp8 trains as without a pipeline", "[execute]") {
  // Weights of one step, of several at a time, predicted ones.
  for (const char* schedule :
       {"1f1b", "zb-h1", "dualpipe-v", "pipedream-2bw", "pipeoptim"}) {
    INFO(schedule);
    const TrainedRun eight = Train(schedule, 1, true);
    CHECK(eight.check.ok());
    CHECK((!eight.check.same_order || eight.check.same_bits));
    // It is another arithmetic, and not much of another.
    const TrainedRun whole = Train(schedule, 1, false);
    REQUIRE(whole.check.losses.size() == eight.check.losses.size());
    for (size_t step = 0; step < whole.check.losses.size(); ++step) {
      CHECK(eight.check.losses[step] != whole.check.losses[step]);
      CHECK(eight.check.losses[step] ==
            Approx(whole.check.losses[step]).epsilon(0.02));
    }
  }
  const TrainedRun copies = Train("1f1b", 2, true);
  CHECK_FALSE(copies.check.same_order);
  INFO("loss " << copies.check.loss_error << ", first gradient "
               << copies.check.first_gradient_error << " of "
               << copies.check.tolerance << ", gradient "
               << copies.check.gradient_error << " of "
               << copies.check.later_tolerance << ", weight "
               << copies.check.weight_error << " of "
               << copies.check.weight_tolerance);
  CHECK(copies.check.ok());
}

PwStatus InfoWithoutFp8(PwDevice* device, PwDeviceInfo* info) {
  const PwStatus status = pw_cpu_kernels()->info(device, info);
  info->fp8_gemm = 0;
  return status;
}

TEST_CASE("execute: fp8 is refused where the device has none", "[execute]") {
  testing::SmallTraining training =
      testing::MakeSmallTraining("1f1b", 2, 1, WaitRule::kBuffered).value();
  training.model.sequence = training.model.shape.sequence = 32;
  training.model.shape.fp8_linear = 1;
  PwKernels kernels = *pw_cpu_kernels();
  kernels.info = InfoWithoutFp8;
  const absl::Status status =
      TrainThreads(training.program, training.model, &kernels, training.options)
          .status();
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), "strategy.precision: "));
  CHECK(absl::StrContains(status.message(), " has no fp8; allowed: bf16"));
}

TEST_CASE("execute: --precision fp8 trains in fp8", "[cli]") {
  const auto execute = [](const std::string& precision) {
    return testing::RunBinary(absl::StrSplit(
        absl::StrCat("execute --schedule 1f1b --pp 2 --microbatches 2 --model "
                     "gpt-tiny --set model.hidden=64 --set "
                     "model.ffn_hidden=256 --sequence 16 --steps 2 --json "
                     "--precision ",
                     precision),
        ' '));
  };
  const testing::BinaryResult eight = execute("fp8");
  INFO(eight.err);
  REQUIRE(eight.exit_code == 0);
  const testing::BinaryResult sixteen = execute("bf16");
  REQUIRE(sixteen.exit_code == 0);
  const auto losses = [](const testing::BinaryResult& result) {
    return testing::Json::parse(result.out)
        .at("execute")
        .at("check")
        .at("losses");
  };
  const auto type = [](const testing::BinaryResult& result) {
    return testing::Json::parse(result.out).at("execute").at("type");
  };
  CHECK(type(eight) == "fp8");
  // What a CPU has instead.
  CHECK(type(sixteen) == "fp32");
  REQUIRE(losses(eight).size() == 2);
  CHECK(losses(eight) != losses(sixteen));
}

}  // namespace
}  // namespace pipewright::fp8_test

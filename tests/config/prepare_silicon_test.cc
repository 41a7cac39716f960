// Which tables of measured rates an estimate takes, own tables and own devices.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/base/error_parts.h"
#include "sim/config/prepare.h"
#include "sim/cost/silicon.h"
#include "tests/support/run_binary.h"

namespace pipewright::prepare_silicon_test {
namespace {

RunConfig WithSilicon(const std::string& device, const std::string& silicon) {
  RunConfig config;
  config.model.preset = "llama3-8b";
  config.schedule.name = "1f1b";
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.costs.analytic = true;
  config.costs.analytic_device = device;
  if (!silicon.empty()) config.costs.analytic_silicon = silicon;
  return config;
}

double ForwardOf(const RunConfig& config) {
  const auto run = Prepare(config);
  INFO(run.status());
  REQUIRE(run.ok());
  return run->lower.costs.stages[1].forward_s;
}

TEST_CASE("prepare: which tables of measured rates are taken", "[config]") {
  const auto taken = [](const std::string& device, const std::string& choice) {
    const auto run = Prepare(WithSilicon(device, choice));
    INFO(run.status());
    REQUIRE(run.ok());
    return run->costs.analytic->silicon != nullptr;
  };
  for (const char* device : {"h100", "h200", "b200", "b300", "gb200", "gb300",
                             "h800", "h100-nvl", "h100-96gb"}) {
    INFO(device);
    CHECK(taken(device, ""));
    CHECK(taken(device, "auto"));
    CHECK(taken(device, "shipped"));
    CHECK_FALSE(taken(device, "none"));
  }
  for (const char* device : {"a100-40gb", "a100-80gb", "a100-pcie"}) {
    INFO(device);
    CHECK_FALSE(taken(device, ""));
    CHECK(taken(device, "shipped"));
  }
  for (const char* device : {"mi300x", "h20", "l40s"}) {
    INFO(device);
    CHECK_FALSE(taken(device, ""));
    const auto refused = Prepare(WithSilicon(device, "shipped"));
    REQUIRE_FALSE(refused.ok());
    CHECK(PartsOf(refused.status()).field == "costs.analytic.silicon");
    // Without tables the curves are what they are with them switched off.
    CHECK(ForwardOf(WithSilicon(device, "")) ==
          ForwardOf(WithSilicon(device, "none")));
  }
  CHECK(ForwardOf(WithSilicon("a100-80gb", "")) ==
        ForwardOf(WithSilicon("a100-80gb", "none")));
  CHECK(ForwardOf(WithSilicon("h100", "")) !=
        ForwardOf(WithSilicon("h100", "none")));
  const auto typo = Prepare(WithSilicon("h100", "shiped"));
  REQUIRE_FALSE(typo.ok());
  CHECK(PartsOf(typo.status()).field == "costs.analytic.silicon");
}

TEST_CASE("prepare: a lasting load is slower than a short one", "[config]") {
  RunConfig config = WithSilicon("b200", "");
  const double lasting = ForwardOf(config);
  config.costs.analytic_clock = ClockRate::kBurst;
  const double burst = ForwardOf(config);
  CHECK(lasting > 1.1 * burst);
  CHECK(lasting < 1.7 * burst);
  // The curves know no clock.
  config = WithSilicon("b200", "none");
  const double curve = ForwardOf(config);
  config.costs.analytic_clock = ClockRate::kBurst;
  CHECK(ForwardOf(config) == curve);
}

TEST_CASE("prepare: a user's tables and device file are taken", "[config]") {
  const testing::TemporaryFolder folder;
  // One product of 1 s at any shape near it: far slower than any device.
  const std::string tables = folder.Write(
      "own.csv",
      "pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
      "8192,4096,4096,1000000,5\n");
  CHECK(ForwardOf(WithSilicon("mi300x", tables)) > 1);
  const std::string twice = folder.Write(
      "twice.csv",
      "pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
      "8,8,8,1,5\n8,8,8,1,5\n");
  const auto refused = Prepare(WithSilicon("h100", twice));
  REQUIRE_FALSE(refused.ok());
  CHECK(PartsOf(refused.status()).file == twice);
  CHECK(PartsOf(refused.status()).line == 5);
  CHECK_FALSE(Prepare(WithSilicon("h100", twice + ".gone")).ok());

  const std::string text = *DeviceFileText("h100");
  const std::string own = folder.Write(
      "own.textproto",
      absl::StrReplaceAll(text, {{"name: \"h100\"", "name: \"mine\""},
                                 {"silicon: \"h100\"\n", ""},
                                 {"value: 989.4e12", "value: 494.7e12"}}));
  const double half = ForwardOf(WithSilicon(own, ""));
  CHECK(half > 1.5 * ForwardOf(WithSilicon("h100", "none")));
  const std::string bad = folder.Write(
      "bad.textproto",
      absl::StrReplaceAll(text, {{"bf16_flops {", "fp4_flops {"}}));
  const auto without = Prepare(WithSilicon(bad, ""));
  REQUIRE_FALSE(without.ok());
  CHECK(absl::StrContains(without.status().message(), "bf16_flops"));
  CHECK(PartsOf(without.status()).file == bad);
}

}  // namespace
}  // namespace pipewright::prepare_silicon_test

// Scaled times: the run is that of a configuration with the products in their
// place, bit for bit, and what a run has no time for is refused.
#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "sim/analysis/explain/explain.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/time_scales.h"
#include "sim/run/simulated_run.h"

namespace pipewright::what_if_test {
namespace {

RunConfig Zb(int vpp = 1) {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = vpp == 1 ? "zb-h1" : "zb-v";
  config.strategy.pp = 4;
  config.strategy.microbatches = 9;
  config.costs.forward_s = 18.522e-3;
  config.costs.backward_input_s = 18.086e-3;
  config.costs.backward_weight_s = 9.337e-3;
  config.costs.p2p_s = 0.601e-3;
  return config;
}

TimeScales Scales(const std::string& text) {
  const auto scales = ParseTimeScales("--what-if", text);
  INFO(scales.status());
  REQUIRE(scales.ok());
  return *scales;
}

// Whole reports as JSON, so that every number is compared.
std::string Scaled(const RunConfig& config, const std::string& text) {
  RunContext context;
  auto prepared = PrepareScaled(config, Scales(text), &context);
  INFO(prepared.status());
  REQUIRE(prepared.ok());
  const auto run = Simulate(*std::move(prepared));
  REQUIRE(run.ok());
  return ReportToJson(run->report);
}
std::string Plain(const RunConfig& config) {
  RunContext context;
  const auto run = Simulate(config, &context);
  INFO(run.status());
  REQUIRE(run.ok());
  return ReportToJson(run->report);
}

TEST_CASE("explain: a what-if is the run with the scaled times, bit for bit",
          "[explain]") {
  for (const int vpp : {1, 2}) {
    for (const char* engine : {"fast", "simgrid"}) {
      RunConfig config = Zb(vpp);
      config.engine = engine;
      RunConfig by_hand = config;
      *by_hand.costs.backward_weight_s *= 0.8;
      *by_hand.costs.p2p_s *= 2;
      CHECK(Scaled(config, "W*0.8,p2p*2") == Plain(by_hand));
      CHECK(Scaled(config, "W*0.8,p2p*2") != Plain(config));
      CHECK(Scaled(config, "F*1") == Plain(config));
    }
  }
}

TEST_CASE("explain: a stage of a what-if is a list of times by stage",
          "[explain]") {
  const RunConfig config = Zb();
  RunConfig by_hand = config;
  const auto list = [](std::optional<double>* uniform, double factor) {
    std::vector<double> out(4, **uniform * factor);
    out[3] *= 0.9;
    uniform->reset();
    return out;
  };
  CostChoice& costs = by_hand.costs;
  costs.stage_forward_s = list(&costs.forward_s, 1);
  costs.stage_backward_input_s = list(&costs.backward_input_s, 1);
  costs.stage_backward_weight_s = list(&costs.backward_weight_s, 0.8);
  *costs.p2p_s *= 2;
  CHECK(Scaled(config, "W*0.8,p2p*2,stage3*0.9") == Plain(by_hand));
}

TEST_CASE("explain: links of a system are scaled as --set would", "[explain]") {
  RunConfig config = Zb();
  config.costs.p2p_s.reset();
  config.costs.hop_bytes = 64 << 20;
  config.system.preset = "dgx-h100";
  RunContext context;
  const ShapeParams system = context.System("dgx-h100").value();
  RunConfig by_hand = config;
  by_hand.system.nvlink = {system.nvlink.bytes_per_s / 2,
                           system.nvlink.latency_s * 2};
  by_hand.system.nic = {system.nic.bytes_per_s / 2, system.nic.latency_s * 2};
  by_hand.system.pcie = {system.pcie.bytes_per_s / 2,
                         system.pcie.latency_s * 2};
  const auto step = [](const std::string& report) {
    return report.substr(report.find("\"iteration_s\""), 60);
  };
  CHECK(step(Scaled(config, "network*2")) == step(Plain(by_hand)));
  CHECK(step(Scaled(config, "network*2")) != step(Plain(config)));
}

TEST_CASE("explain: a what-if that means nothing is refused", "[explain]") {
  const auto parse = [](const std::string& text) {
    return std::string(ParseTimeScales("--what-if", text).status().message());
  };
  CHECK(absl::StrContains(parse("X*2"), "p2p, network"));
  CHECK(absl::StrContains(parse("W"), "NAME*FACTOR"));
  CHECK(absl::StrContains(parse("W*-1"), "factor >= 0"));
  CHECK(absl::StrContains(parse("W*nan"), "factor >= 0"));
  CHECK(absl::StrContains(parse("W*2,W*3"), "each name once"));
  const auto prepare = [](const RunConfig& config, const std::string& text) {
    RunContext context;
    return std::string(
        PrepareScaled(config, Scales(text), &context).status().message());
  };
  CHECK(absl::StrContains(prepare(Zb(), "stage4*2"), "stages 0..3"));
  CHECK(absl::StrContains(prepare(Zb(), "network*2"), "no system"));
  CHECK(absl::StrContains(prepare(Zb(), "O*2"), "not given"));
  RunConfig free = Zb();
  free.costs.p2p_s.reset();
  CHECK(absl::StrContains(prepare(free, "p2p*2"), "--p2p"));
}

TEST_CASE("explain: a what-if of a time that the run has not is refused",
          "[explain]") {
  const auto explain = [](const char* schedule, const char* text) {
    RunContext context;
    RunConfig config = Zb();
    config.schedule.name = schedule;
    return Explain(config, {.what_if = Scales(text), .sensitivities = false},
                   &context)
        .status();
  };
  for (const auto& [schedule, text, names] :
       {std::tuple("zb-h1", "BW*2", "F, B, W, p2p"),
        std::tuple("1f1b", "R*2", "F, BW, p2p"),
        std::tuple("1f1b", "W*2,optimizer*2", "F, BW, p2p")}) {
    const absl::Status refused = explain(schedule, text);
    INFO(refused);
    CHECK(ExitCode(refused) == 2);
    CHECK(absl::StrContains(refused.message(), names));
  }
  CHECK(explain("zb-h1", "B*2,W*2,p2p*2,stage1*2").ok());
  CHECK(explain("1f1b", "B*2,W*2,BW*2").ok());
}

TEST_CASE("explain: the largest sensitivity comes first", "[explain]") {
  RunContext context;
  RunConfig config = Zb();
  config.schedule.name = "1f1b";
  const auto explained = Explain(config, {}, &context);
  INFO(explained.status());
  REQUIRE(explained.ok());
  REQUIRE(explained->sensitivities.size() > 3);
  for (size_t row = 1; row < explained->sensitivities.size(); ++row) {
    const Sensitivity& before = explained->sensitivities[row - 1];
    const Sensitivity& after = explained->sensitivities[row];
    CHECK(std::abs(before.longer_s - before.shorter_s) >=
          std::abs(after.longer_s - after.shorter_s));
  }
  for (const Sensitivity& row : explained->sensitivities) {
    INFO(row.name);
    CHECK(row.shorter_s <= explained->step.step_s);
    CHECK(row.longer_s >= explained->step.step_s);
  }
}

}  // namespace
}  // namespace pipewright::what_if_test

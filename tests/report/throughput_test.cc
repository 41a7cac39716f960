#include "sim/report/throughput.h"

#include <catch2/catch.hpp>
#include <memory>

#include "absl/strings/match.h"
#include "sim/base/json.h"
#include "sim/report/cost_report.h"
#include "sim/report/html.h"

namespace pipewright::throughput_test {
namespace {

Throughput ByHand() {
  return {.tokens_per_s = 2000,
          .devices = 4,
          .flops = TokenFlops{.model = 6e11, .recomputed = 2e11},
          .peak = DevicePeak{.name = "1000 TFLOP/s, toy bf16", .flops = 1e15},
          .price_per_device_hour = 1.8};
}

TEST_CASE("throughput: rates by hand", "[report]") {
  const Throughput throughput = ByHand();
  CHECK(*throughput.tflops_per_device() == Approx(300));
  CHECK(*throughput.mfu() == Approx(0.3));
  CHECK(*throughput.hardware_tflops_per_device() == Approx(400));
  CHECK(*throughput.hfu() == Approx(0.4));
  // 500000 s of four devices.
  CHECK(*throughput.cost_per_1e9_tokens() == Approx(1000));
}

TEST_CASE("throughput: nothing is printed that is not known", "[report]") {
  Throughput throughput = ByHand();
  throughput.flops.reset();
  throughput.price_per_device_hour.reset();
  Json out;
  AddThroughput(throughput, &out);
  CHECK(out["tokens_per_s"] == 2000);
  CHECK(out["devices"] == 4);
  for (const char* key :
       {"mfu", "tflops_per_device", "flops_formula", "cost_per_1e9_tokens"}) {
    INFO(key);
    CHECK(!out.contains(key));
  }
  CHECK(!absl::StrContains(ThroughputToText(throughput), "MFU"));
  throughput.flops = TokenFlops{.model = 1};
  CHECK(!throughput.hardware_tflops_per_device());
  throughput.tokens_per_s = 0;
  throughput.price_per_device_hour = 1;
  CHECK(!throughput.cost_per_1e9_tokens());
}

TEST_CASE("throughput: the formula is named", "[report]") {
  Throughput throughput = ByHand();
  throughput.flops->is_causal = true;
  throughput.flops->has_experts = true;
  Json out;
  AddThroughput(throughput, &out);
  const auto formula = out["flops_formula"].get<std::string>();
  CHECK(absl::StrContains(formula, "causal attention counted in full"));
  CHECK(absl::StrContains(formula, "experts"));
  CHECK(out["causal_attention_halved"] == false);
  CHECK(out["peak_of"] == "1000 TFLOP/s, toy bf16");
  const std::string text = ThroughputToText(throughput);
  const std::string card = ThroughputCard(throughput);
  CHECK(absl::StrContains(text, formula));
  // A page explains its words once, at the end.
  CHECK(!absl::StrContains(card, formula));
  for (const std::string& part : {text, card}) {
    CHECK(absl::StrContains(part, "30.00 %"));
    CHECK(absl::StrContains(part, "1000.00"));
  }
}

TEST_CASE("cost report: shares of operations sum to one", "[report]") {
  ModelSpec model = FindModel("llama3-8b").value();
  model.frozen_layers = 3;
  TrainingSpec training;
  training.tp = 2;
  training.sequence_parallel = true;
  training.sequence = 4096;
  const StageLayout layout = EvenLayout(model, training, 2, 1).value();
  AnalyticOptions options;
  options.device = FindDevice("h100").value();
  options.network = {.nvlink_bytes_per_s = 450e9, .nic_bytes_per_s = 50e9};
  const BlockPrices prices(std::make_shared<const Inventory>(model, training),
                           options);
  const PassCosts costs = AnalyticCosts(prices, layout, {0, 1});
  const CostReport report = ReportCosts(prices, layout, costs);
  double share = 0;
  double seconds = 0;
  for (const OpCost& row : report.ops) {
    share += row.share;
    seconds += row.blocks * (row.seconds + row.comm_seconds);
  }
  CHECK(share == Approx(1));
  // The same times as those of the stages.
  double stages_s = 0;
  for (const StageCosts& stage : costs.stages) {
    stages_s +=
        stage.forward_s + stage.backward_input_s + stage.backward_weight_s;
  }
  CHECK(seconds == Approx(stages_s));
  const Json json = CostsToJson(report);
  CHECK(json["device"] == "h100");
  CHECK(json["ops"].size() == report.ops.size());
  CHECK(json["stages"].size() == 2);
  CHECK(absl::StrContains(CostSection(report), "qkv"));
}

}  // namespace
}  // namespace pipewright::throughput_test

// Products of shards and launches of the host, against the tables of the
// experiments that measured them. rebuilt_constants_test.cc has the constants.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/cost/host_time.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"
#include "sim/cost/silicon.h"
#include "sim/model/ops_builder.h"
#include "tests/support/experiment_csv.h"

namespace pipewright::measured_constants_test {
namespace {

using testing::ExperimentRow;
using testing::ExperimentRows;
using testing::NumberIn;

// Kernels of layers in PyTorch, which has five products of the input of
// attention and of the feed-forward; profiled in short runs.
TEST_CASE("measured: products of a shard in PyTorch are apart", "[cost]") {
  struct Case {
    const char* name;
    const char* launch;
    const char* tokens;
    const char* model;
    int samples;
  };
  const auto rows = ExperimentRows("torch_layers/h100_second_kernels.csv");
  double worst_fused = 0;
  for (const Case& each :
       {Case{"llama3-70b tp8", "eager", "1x8192", "llama3-70b", 1},
        Case{"llama3-70b tp8", "compiled", "4x8192", "llama3-70b", 4},
        Case{"llama3-405b tp8", "eager", "2x8192", "llama3-405b", 2}}) {
    INFO(each.name << " " << each.tokens);
    double forward_s = 0;
    double backward_s = 0;
    double least_s = 1;  // least for keys and values
    double queries_s = 1;
    for (const ExperimentRow& row : rows) {
      if (row.at("case") != each.name || row.at("launch") != each.launch ||
          row.at("precision") != "bf16" || row.at("tokens") != each.tokens ||
          !absl::StrContains(row.at("kernel"), "nvjet")) {
        continue;
      }
      const double seconds = NumberIn(row, "seconds");
      if (row.at("pass") == "backward") {
        backward_s += seconds;
        continue;
      }
      forward_s += seconds;
      const double count = NumberIn(row, "count");
      if (count == 2) least_s = std::min(least_s, seconds);
      if (count == 1) queries_s = std::min(queries_s, seconds);
    }
    AnalyticOptions options = {.device = *FindDevice("h100"),
                               .silicon = Silicon::Shipped("h100")};
    options.sustained = false;
    TrainingSpec training;
    training.sequence = 8192;
    training.microbatch_size = each.samples;
    training.tp = 8;
    training.sequence_parallel = true;
    const ModelSpec model = *FindModel(each.model);
    const auto of = [&](FrameworkKernels kernels, OpPass pass,
                        absl::string_view name) {
      options.kernels = kernels;
      double seconds = 0;
      for (const ModelOp& op :
           BlockOps(model, training, BlockKind::kDenseLayer, 0)) {
        if (op.kind != OpClass::kGemm || (!name.empty() && op.name != name)) {
          continue;
        }
        seconds += EstimateKernel(options, training, true, op, pass).seconds;
      }
      return seconds;
    };
    const auto compiled = FrameworkKernels::kCompiled;
    CHECK(of(compiled, OpPass::kForward, "") ==
          Approx(forward_s).epsilon(0.08));
    // With what B adds up, which other kernels do.
    CHECK(of(compiled, OpPass::kBackwardInput, "") +
              of(compiled, OpPass::kBackwardWeight, "") ==
          Approx(backward_s).epsilon(0.06));
    if (queries_s == 1) continue;
    const double qkv_s = queries_s + least_s;
    CHECK(of(compiled, OpPass::kForward, "qkv") == Approx(qkv_s).epsilon(0.06));
    worst_fused = std::max(
        worst_fused,
        1 - of(FrameworkKernels::kFused, OpPass::kForward, "qkv") / qkv_s);
  }
  // One product for all three would be too fast.
  CHECK(worst_fused > 0.15);
}

// Launches of a layer of Megatron-LM's tiny models as the run has it.
double LaunchesOf(const ExperimentRow& row) {
  ModelSpec model;
  model.layers = 12;
  model.hidden = 512;
  model.heads = 8;
  model.ffn_hidden = 2048;
  model.vocabulary = 50304;
  model.sequence = model.positions =
      static_cast<int64_t>(NumberIn(row, "sequence"));
  model.layer_norm = model.bias = model.qkv_bias = true;
  TrainingSpec training;
  training.tp = static_cast<int>(NumberIn(row, "tp"));
  training.cp = static_cast<int>(NumberIn(row, "cp"));
  training.sequence_parallel = training.tp > 1;
  training.sequence = model.sequence;
  training.microbatch_size = static_cast<int>(NumberIn(row, "microbatch_size"));
  if (row.at("precision") != "bf16") {
    training.precision = Precision::kFp8Tensorwise;
  }
  training.execution.overlap_tensor = NumberIn(row, "overlap_tensor") > 0;
  AnalyticOptions options;
  options.device = *FindDevice(row.at("device"));
  options.launch_s = LaunchSecondsOf(options.device, FrameworkKernels::kFused);
  double launches = 0;
  for (const ModelOp& op :
       BlockOps(model, training, BlockKind::kDenseLayer, 0)) {
    for (const OpPass pass :
         {OpPass::kForward, OpPass::kBackwardInput, OpPass::kBackwardWeight}) {
      launches += HostLaunches(options, training, op, pass);
    }
  }
  return launches;
}

// The device is idle for nine tenths of these runs.
TEST_CASE("measured: a launch in a process of Megatron-LM", "[cost]") {
  std::map<std::string, std::vector<double>> all;
  std::map<std::string, std::vector<double>> longest;
  for (const ExperimentRow& row : ExperimentRows("megatron_host/runs.csv")) {
    const double pp = NumberIn(row, "pp");
    // A virtual stage of one layer (vp1), or all layers of a rank.
    const double layers = NumberIn(row, "layers") / pp;
    const double bubble =
        (pp - 1) * (absl::StrContains(row.at("test"), "_vp1") ? 1 : layers);
    const double passes = NumberIn(row, "microbatches") * layers + bubble;
    const double launch =
        std::log(NumberIn(row, "seconds_least") / passes / LaunchesOf(row));
    all[row.at("device")].push_back(launch);
    if (passes > 100) longest[row.at("device")].push_back(launch);
  }
  CHECK(all.size() == 2);
  double squares = 0;
  double count = 0;
  for (const auto& [device, launches] : longest) {
    INFO(device);
    REQUIRE(launches.size() == 2);
    CHECK(LaunchSecondsOf(*FindDevice(device), FrameworkKernels::kFused) ==
          Approx(std::exp((launches[0] + launches[1]) / 2)).epsilon(0.02));
    double sum = 0;
    for (const double launch : all[device]) sum += launch;
    const double mean = sum / static_cast<double>(all[device].size());
    for (const double launch : all[device]) {
      squares += (launch - mean) * (launch - mean);
    }
    count += static_cast<double>(all[device].size()) - 1;
  }
  CHECK(1.645 * std::sqrt(squares / count) ==
        Approx(kMegatronHostError).margin(0.03));
}

}  // namespace
}  // namespace pipewright::measured_constants_test

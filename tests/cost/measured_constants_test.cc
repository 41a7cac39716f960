// Constants of estimates, computed again from the tables of the experiments
// that gave them.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "sim/cost/contention.h"
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

// What a copy on that H100 moves, read and written (experiments/h100).
constexpr double kStream = 3.0e12;

double QuantileOf(std::vector<double> values, double part) {
  REQUIRE_FALSE(values.empty());
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part *
                                    static_cast<double>(values.size() - 1))];
}

double MedianOf(const std::vector<double>& values) {
  return QuantileOf(values, 0.5);
}

// "NAME N x K x TOKENS, WAY" in the case of a weight gradient.
TEST_CASE("measured: the part of a sum of gradients that is not hidden",
          "[cost]") {
  std::map<std::string, std::map<std::string, double>> products;
  std::map<std::string, double> values;
  for (const ExperimentRow& row :
       ExperimentRows("torch_layers/h100_steps.csv")) {
    if (row.at("what") != "weight gradient") continue;
    const std::vector<std::string> parts =
        absl::StrSplit(row.at("case"), absl::MaxSplits(", ", 1));
    products[parts[0]][parts[1]] = NumberIn(row, "seconds");
    const std::vector<std::string> words = absl::StrSplit(parts[0], ' ');
    const size_t last = words.size() - 1;
    const double tokens = std::stod(words[last]);
    values[parts[0]] = NumberIn(row, "bytes_or_flops") / 2 / tokens;
  }
  CHECK(products.size() == 30);
  std::vector<double> shares;
  for (const auto& [name, seconds] : products) {
    const double added_s = seconds.at("added in fp32") - seconds.at("bf16");
    shares.push_back(added_s / (6 * values.at(name) / kStream));
  }
  CHECK(MedianOf(shares) == Approx(kGradientSumPart).margin(0.01));
  std::vector<double> off;
  off.reserve(shares.size());
  for (const double share : shares) {
    off.push_back(std::abs(share - kGradientSumPart));
  }
  CHECK(QuantileOf(off, 0.9) < kGradientSumError);
  CHECK(QuantileOf(off, 0.9) > 0.8 * kGradientSumError);
}

TEST_CASE("measured: groups on Hopper wait for a part of their traffic",
          "[cost]") {
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Key, std::map<std::string, ExperimentRow>> groups;
  for (const ExperimentRow& row :
       ExperimentRows("torch_layers/h100_grouped.csv")) {
    groups[{row.at("case"), row.at("product"), row.at("type"), row.at("pass")}]
          [row.at("way")] = row;
  }
  std::vector<double> shares;
  std::vector<double> errors;
  for (const auto& [key, ways] : groups) {
    const auto& [name, product, type, pass] = key;
    const auto& forward = groups.at({name, product, type, "F"});
    const auto one =
        ways.contains("one") ? ways.find("one") : forward.find("one");
    if (one == forward.end() || one == ways.end()) continue;
    const double one_s = NumberIn(one->second, "seconds");
    for (const char* const way : {"loop", "streams", "grouped"}) {
      if (!ways.contains(way)) continue;
      const ExperimentRow& row = ways.at(way);
      const double experts = NumberIn(row, "experts");
      const double rows = experts * NumberIn(row, "rows");
      const double n = NumberIn(row, "n");
      const double k = NumberIn(row, "k");
      const double width = type == "bf16" ? 2 : 1;
      const double weights = experts * n * k;
      const double bytes =
          pass == "F"   ? width * (weights + rows * k) + 2 * rows * n
          : pass == "B" ? width * (weights + rows * n) + 2 * rows * k
                        : width * rows * (n + k) + 2 * weights;
      const double seconds = NumberIn(row, "seconds");
      shares.push_back((seconds - one_s) / (bytes / kStream));
      errors.push_back(std::abs(std::log(
          (one_s + kHopperGroupedTraffic * bytes / kStream) / seconds)));
    }
  }
  CHECK(shares.size() == 165);
  CHECK(MedianOf(shares) == Approx(kHopperGroupedTraffic).margin(0.01));
  CHECK(QuantileOf(errors, 0.9) == Approx(kHopperGroupedError).margin(0.01));
}

TEST_CASE("measured: layers beside a mover of data", "[cost]") {
  double logs = 0;
  int count = 0;
  for (const ExperimentRow& row : ExperimentRows("beside/h100.csv")) {
    const std::string& asked = row.at("gb_per_s_asked");
    if (!absl::StartsWith(row.at("beside"), "llama3-8b") ||
        row.at("blocks") != "16" || (asked != "50" && asked != "350")) {
      continue;
    }
    logs += std::log(NumberIn(row, "times"));
    ++count;
  }
  REQUIRE(count == 8);
  CHECK(std::exp(logs / count) == Approx(kHopperContention).margin(0.002));
  DeviceSpec device;
  device.architecture = "hopper";
  device.multiprocessors = kHopperMultiprocessors;
  CHECK(ContentionOf(device) == Approx(kHopperContention));
  // 78 multiprocessors (H20): 0.31 of a pass is lost.
  device.multiprocessors = 78;
  CHECK(ContentionOf(device) ==
        Approx(1 / (1 - 0.1837 * 132 / 78)).margin(0.01));
  device.architecture = "blackwell";
  CHECK(ContentionOf(device) == kContention);
}

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

TEST_CASE("measured: a sum by row numbers over its traffic", "[cost]") {
  double sum_s = 0;
  for (const ExperimentRow& row :
       ExperimentRows("torch_layers/h100_second_kernels.csv")) {
    if (absl::StartsWith(row.at("case"), "qwen3") &&
        row.at("pass") == "forward" &&
        absl::StrContains(row.at("kernel"), "indexFuncLargeIndex")) {
      sum_s += NumberIn(row, "seconds");
    }
  }
  const double bytes = 2 * 2.0 * 8 * 4096 * 2048;
  CHECK(sum_s / (bytes / kStream) == Approx(kScatteredSum).epsilon(0.01));
}

}  // namespace
}  // namespace pipewright::measured_constants_test

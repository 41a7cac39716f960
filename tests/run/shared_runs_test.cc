// What runs share through a RunContext changes none of their numbers, and is
// shared only where it is the same.
#include <catch2/catch.hpp>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/kept.h"
#include "sim/base/shared_texts.h"
#include "sim/cost/block_prices.h"
#include "sim/model/ops.h"
#include "sim/report/report.h"
#include "sim/run/simulated_run.h"
#include "tests/support/run_binary.h"

namespace pipewright::shared_runs_test {
namespace {

// llama3-8b estimated on `dgx-h100`, 1f1b, pp 4, 8 microbatches.
RunConfig Estimated() {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "1f1b";
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.model.preset = "llama3-8b";
  config.system.preset = "dgx-h100";
  config.costs.analytic = true;
  return config;
}

// Each differs from the first in one thing.
std::vector<RunConfig> Different() {
  std::vector<RunConfig> configs;
  const auto add = [&configs](const auto& change) {
    RunConfig config = Estimated();
    change(config);
    configs.push_back(std::move(config));
  };
  add([](RunConfig&) {});
  add([](RunConfig& config) { config.strategy.tp = 2; });
  add([](RunConfig& config) { config.strategy.microbatch_size = 2; });
  add([](RunConfig& config) { config.strategy.recompute = Recompute::kFull; });
  add([](RunConfig& config) {
    config.strategy.recompute = Recompute::kNormActivation;
  });
  add([](RunConfig& config) { config.strategy.sequence = 4096; });
  add([](RunConfig& config) { config.strategy.precision = Precision::kFp8; });
  add([](RunConfig& config) { config.strategy.precision = Precision::kMxfp8; });
  add([](RunConfig& config) {
    config.strategy.recompute = Recompute::kOpSelective;
  });
  add([](RunConfig& config) {
    config.strategy.attention = Attention::kUnfused;
  });
  add([](RunConfig& config) { config.strategy.layers = {7, 8, 8, 9}; });
  add([](RunConfig& config) {
    config.strategy.vpp = 2;
    config.schedule.name = "interleaved-1f1b";
  });
  add([](RunConfig& config) {
    config.strategy.dp = 2;
    config.strategy.data_parallel = DataParallel::kZero1;
  });
  add([](RunConfig& config) { config.schedule.name = "zb-h1"; });
  add([](RunConfig& config) { config.schedule.name = "dualpipe"; });
  add([](RunConfig& config) { config.model.frozen_layers = 5; });
  add([](RunConfig& config) { config.model.layers = 16; });
  add([](RunConfig& config) { config.model.preset = "llama2-7b"; });
  add([](RunConfig& config) { config.system.preset = "dgx-a100"; });
  add([](RunConfig& config) { config.system.nic.bytes_per_s = 1e9; });
  add([](RunConfig& config) { config.costs.analytic_device = "b200"; });
  add([](RunConfig& config) { config.costs.analytic_silicon = "none"; });
  add([](RunConfig& config) {
    config.costs.analytic_clock = ClockRate::kBurst;
  });
  add([](RunConfig& config) {
    config.costs.analytic_kernels = FrameworkKernels::kCompiled;
  });
  return configs;
}

std::string ReportOf(const RunConfig& config, RunContext* context) {
  const absl::StatusOr<SimulatedRun> run = Simulate(config, context);
  return run.ok() ? ReportToJson(run->report) : run.status().ToString();
}

TEST_CASE("shared runs: each is as it is alone, in any order", "[run]") {
  const std::vector<RunConfig> configs = Different();
  std::vector<std::string> alone;
  for (const RunConfig& config : configs) {
    RunContext context;
    alone.push_back(ReportOf(config, &context));
  }
  // All of them say something else, so that a mix-up is seen.
  for (size_t one = 0; one < alone.size(); ++one) {
    for (size_t other = 0; other < one; ++other) {
      INFO(one << " and " << other << ": " << alone[one].substr(0, 200));
      CHECK(alone[one] != alone[other]);
    }
  }
  RunContext context;
  for (size_t turn = 0; turn < 3 * configs.size(); ++turn) {
    // 5 and the number of configurations have no common factor.
    const size_t index = turn * 5 % configs.size();
    INFO("configuration " << index);
    CHECK(ReportOf(configs[index], &context) == alone[index]);
  }
}

// With room for two models, so that threads forget what others still use.
TEST_CASE("shared runs: threads of one context get what each gets alone",
          "[run]") {
  const std::vector<RunConfig> configs = Different();
  std::vector<std::string> alone;
  for (const RunConfig& config : configs) {
    RunContext context;
    alone.push_back(ReportOf(config, &context));
  }
  for (const size_t most : {2, 256}) {
    RunContext context(most);
    // Each thread in an order of its own: no step has a factor in common with
    // the number of configurations, 24.
    const std::vector<size_t> steps = {1, 5, 7, 11};
    REQUIRE(configs.size() == 24);
    std::vector<std::vector<std::string>> found(steps.size());
    std::vector<std::thread> threads;
    for (size_t own = 0; own < steps.size(); ++own) {
      found[own].resize(configs.size());
      threads.emplace_back([&, own] {
        for (size_t turn = 0; turn < configs.size(); ++turn) {
          const size_t index = turn * steps[own] % configs.size();
          found[own][index] = ReportOf(configs[index], &context);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t own = 0; own < steps.size(); ++own) {
      for (size_t index = 0; index < configs.size(); ++index) {
        INFO(most << ", thread " << own << ", configuration " << index);
        CHECK(found[own][index] == alone[index]);
      }
    }
  }
}

TEST_CASE("shared runs: what is the same is there once", "[run]") {
  RunContext context;
  RunConfig config = Estimated();
  const PreparedRun first = Prepare(config, &context).value();
  config.costs.price_per_device_hour = 2;
  config.strategy.microbatches = 16;
  const PreparedRun dearer = Prepare(config, &context).value();
  CHECK(dearer.costs.prices == first.costs.prices);
  CHECK(dearer.prepared_model->shared == first.prepared_model->shared);
  CHECK(dearer.network.links.cluster == first.network.links.cluster);
  CHECK(dearer.memory->memory->stages[0] == first.memory->memory->stages[0]);
  config.strategy.tp = 2;
  const PreparedRun split = Prepare(config, &context).value();
  CHECK(split.costs.prices != first.costs.prices);
  CHECK(split.memory->memory->stages[0] != first.memory->memory->stages[0]);
}

TEST_CASE("shared runs: a user's tables are read once, and prices shared",
          "[run]") {
  const testing::TemporaryFolder folder;
  RunConfig config = Estimated();
  config.costs.analytic_silicon = folder.Write(
      "own.csv",
      "pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
      "8192,4096,4096,1000,5\n");
  RunContext context;
  const PreparedRun first = Prepare(config, &context).value();
  config.strategy.microbatches = 16;
  const PreparedRun second = Prepare(config, &context).value();
  REQUIRE(first.costs.prices != nullptr);
  CHECK(second.costs.prices == first.costs.prices);
  CHECK(second.costs.analytic->silicon == first.costs.analytic->silicon);
  // Another model shares the tables; another device does not, as its rates
  // between measured shapes differ.
  config.model.preset = "llama2-7b";
  const PreparedRun model = Prepare(config, &context).value();
  CHECK(model.costs.prices != first.costs.prices);
  CHECK(model.costs.analytic->silicon == first.costs.analytic->silicon);
  config.costs.analytic_device = "b200";
  const PreparedRun device = Prepare(config, &context).value();
  CHECK(device.costs.analytic->silicon != first.costs.analytic->silicon);
  config.costs.analytic_device.reset();
  config.model.preset = "llama3-8b";
  config.costs.analytic_silicon = folder.Write(
      "other.csv",
      "pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
      "8192,4096,4096,2000,5\n");
  const PreparedRun file = Prepare(config, &context).value();
  CHECK(file.costs.prices != first.costs.prices);
  CHECK(file.costs.passes.stages[1].forward_s >
        first.costs.passes.stages[1].forward_s);
  config.costs.analytic_silicon = folder.Path("gone.csv");
  CHECK_FALSE(Prepare(config, &context).ok());
  CHECK_FALSE(Prepare(config, &context).ok());
}

TEST_CASE("shared runs: what throws leaves no empty value", "[run]") {
  Kept<std::string, int> known;
  const auto fails = []() -> std::string { throw std::bad_alloc(); };
  CHECK_THROWS_AS(known.Get(1, fails), std::bad_alloc);
  CHECK_THROWS_AS(known.Get(1, fails), std::bad_alloc);
  CHECK(known.Get(1, [] { return std::string("one"); }) == "one");
  // It is known now.
  CHECK(known.Get(1, fails) == "one");
}

TEST_CASE("shared runs: frozen layers have prices of their own", "[run]") {
  ModelSpec model = FindModel("llama3-8b").value();
  model.frozen_layers = 3;
  TrainingSpec training;
  training.sequence = 4096;
  const auto inventory = std::make_shared<const Inventory>(model, training);
  AnalyticOptions options;
  options.device = FindDevice("h100").value();
  const BlockPrices prices(inventory, options);
  const BlockKind layer = BlockKind::kDenseLayer;
  // A frozen one has no backward; whichever is asked for first.
  CHECK(prices.Sum(layer, 4, Recompute::kNone).passes[1] > 0);
  CHECK(prices.Sum(layer, 2, Recompute::kNone).passes[1] == 0);
  CHECK(inventory->Ops(layer, 4)[0].Work(OpPass::kBackwardInput).bytes > 0);
  CHECK(inventory->Ops(layer, 2)[0].Work(OpPass::kBackwardInput).bytes == 0);
  CHECK(prices.Sum(layer, 4, Recompute::kFull).recompute > 0);
  CHECK(prices.Sum(layer, 4, Recompute::kNone).recompute == 0);
  // One list and one price for all that are frozen, one for all others.
  CHECK(&inventory->Ops(layer, 0) == &inventory->Ops(layer, 2));
  CHECK(&inventory->Ops(layer, 3) == &inventory->Ops(layer, 31));
  CHECK(&inventory->Ops(layer, 2) != &inventory->Ops(layer, 3));
  CHECK(&prices.Times(layer, 0) == &prices.Times(layer, 2));
  CHECK(&prices.Sum(layer, 3, Recompute::kFull) ==
        &prices.Sum(layer, 31, Recompute::kFull));
}

// What Inventory::ClassOf takes for granted.
TEST_CASE("shared runs: layers of one class have the same operations",
          "[run]") {
  TrainingSpec training;
  training.sequence = 4096;
  for (const int64_t rank : {0, 8}) {
    for (const int64_t frozen : {0, 3}) {
      ModelSpec model = FindModel("llama3-8b").value();
      model.frozen_layers = rank > 0 ? 0 : frozen;
      model.lora_rank = rank;
      const Inventory inventory(model, training);
      for (const BlockKind kind :
           {BlockKind::kEmbedding, BlockKind::kDenseLayer, BlockKind::kHead}) {
        for (int64_t layer = 0; layer < 8; ++layer) {
          INFO(rank << " " << frozen << " " << static_cast<int>(kind) << " "
                    << layer);
          const std::vector<ModelOp>& shared = inventory.Ops(kind, layer);
          const std::vector<ModelOp> own =
              BlockOps(model, training, kind, layer);
          REQUIRE(shared.size() == own.size());
          for (size_t index = 0; index < own.size(); ++index) {
            for (const OpPass pass : {OpPass::kForward, OpPass::kBackwardInput,
                                      OpPass::kBackwardWeight}) {
              CHECK(shared[index].Work(pass).flops ==
                    own[index].Work(pass).flops);
              CHECK(shared[index].Work(pass).bytes ==
                    own[index].Work(pass).bytes);
            }
            CHECK(shared[index].saved_until_backward ==
                  own[index].saved_until_backward);
          }
        }
      }
    }
  }
}

TEST_CASE("memo: it forgets, but not what somebody holds", "[run]") {
  Memo<int, const std::string> memo(12);
  int made = 0;
  const auto get = [&](int key) {
    return memo.Get(key, [&] {
      ++made;
      return std::make_shared<const std::string>(absl::StrCat("of ", key));
    });
  };
  const std::shared_ptr<const std::string> held = get(0);
  CHECK(get(0) == held);
  CHECK(made == 1);
  for (int key = 1; key <= 11; ++key)
    CHECK(*get(key) == absl::StrCat("of ", key));
  // The oldest comes to the front where it is asked for.
  CHECK(get(0) == held);
  CHECK(made == 12);
  for (int key = 12; key <= 20; ++key) get(key);
  CHECK(get(0) == held);
  for (int key = 21; key <= 40; ++key) get(key);
  CHECK(*held == "of 0");
  CHECK(get(0) != held);
  CHECK(*get(0) == "of 0");
}

TEST_CASE("shared texts: a copy that changes leaves the others", "[run]") {
  SharedTexts texts;
  CHECK(texts.begin() == texts.end());
  texts.Set("memory", "sheet");
  texts.Set("flops", "sheet");
  SharedTexts copy = texts;
  CHECK(copy == texts);
  copy.Set("memory", "measured");
  CHECK(texts.at("memory") == "sheet");
  CHECK(copy.at("memory") == "measured");
  CHECK_FALSE(copy == texts);
  SharedTexts less = texts;
  less.Erase("none");
  CHECK(less == texts);
  less.Erase("flops");
  CHECK(less.find("flops") == less.end());
  CHECK(texts.at("flops") == "sheet");
}

// The thread sanitizer sees where a change is made in what another reads.
TEST_CASE("shared texts: one changes while another thread lets its copy go",
          "[run]") {
  for (int round = 0; round < 100; ++round) {
    SharedTexts texts;
    texts.Set("memory", "sheet");
    auto copy = std::make_unique<SharedTexts>(texts);
    std::string seen;
    std::thread reader([&] {
      seen = copy->at("memory");
      copy.reset();
    });
    texts.Set("memory", "measured");
    reader.join();
    CHECK(seen == "sheet");
    CHECK(texts.at("memory") == "measured");
  }
}

}  // namespace
}  // namespace pipewright::shared_runs_test

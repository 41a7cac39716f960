#include "sim/config/run_config.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/flags.h"

namespace pipewright::run_config_test {
namespace {

using Layers = std::vector<std::vector<ConfigEdit>>;

constexpr char kYaml[] = R"(# a run
model: {preset: gpt-tiny, sequence: 256, qk_norm: true, lora_rank: 8}
system:
  shape: node
  devices_per_node: 8
  nvlink: {bandwidth: 450GBps, latency_us: 1.5}
  memory: 80GiB
strategy:
  pp: 4
  vpp: 2
  microbatches: 8
  data_parallel: zero1
  waiting: rendezvous
  mapping: [3, 2, 1, 0]
  max_activations: 2.5
  recompute: full
  recompute_chunks: [1]
  attention: unfused
  layers: [1, 2, 3]
  vocabulary: spread
schedule:
  name: interleaved-1f1b
  params: {order: torch, window: 3}
costs:
  uniform: {forward_ms: 18.5}
  per_stage: {backward_input: [1ms, 2ms], backward_weight_us: [3, 4]}
  microbatch_factor: [1, 0.5]
  hop_bytes_MiB: 32
  held_until_weight: 0.37
  analytic: {device: h100}
  price_per_device_hour: 2.5
engine: fast
iterations: 2
)";

constexpr char kJson[] = R"({
  "model": {"preset": "gpt-tiny", "sequence": 256, "qk_norm": true,
            "lora_rank": 8},
  "system": {"shape": "node", "devices_per_node": 8, "memory": "80GiB",
             "nvlink": {"bandwidth_GBps": 450, "latency": "1.5us"}},
  "strategy": {"pp": 4, "vpp": 2, "microbatches": 8,
               "data_parallel": "zero1", "waiting": "rendezvous",
               "mapping": [3, 2, 1, 0], "max_activations": 2.5,
               "recompute": "full", "recompute_chunks": [1],
               "attention": "unfused", "layers": [1, 2, 3],
               "vocabulary": "spread"},
  "schedule": {"name": "interleaved-1f1b",
               "params": {"order": "torch", "window": 3}},
  "costs": {"uniform": {"forward": "18.5ms"},
            "per_stage": {"backward_input_ms": [1, 2],
                          "backward_weight": ["3us", "4us"]},
            "microbatch_factor": [1, 0.5], "hop_bytes": "32MiB",
            "held_until_weight": 0.37, "analytic": {"device": "h100"},
            "price_per_device_hour": 2.5},
  "engine": "fast", "iterations": 2})";

constexpr char kTextproto[] = R"(# a run
model { preset: "gpt-tiny" sequence: 256 qk_norm: true lora_rank: 8 }
system {
  shape: "node" devices_per_node: 8 memory: "80GiB"
  nvlink { bandwidth: "450GBps" latency: "1.5us" }
}
strategy {
  pp: 4 vpp: 2 microbatches: 8 data_parallel: "zero1" waiting: "rendezvous"
  mapping: ["3", "2", "1", "0"]
  max_activations: 2.5
  recompute: "full" recompute_chunks: [1] attention: "unfused"
  layers: [1, 2, 3] vocabulary: "spread"
}
schedule {
  name: "interleaved-1f1b"
  params { key: "order" value: "torch" }
  params { key: "window" value: "3" }
}
costs {
  uniform { forward: "18.5ms" }
  per_stage {
    backward_input: ["1ms", "2ms"]
    backward_weight: ["3us", "4us"]
  }
  microbatch_factor: [1, 0.5]
  hop_bytes: "32MiB"
  held_until_weight: 0.37
  analytic { device: "h100" } price_per_device_hour: 2.5
}
engine: "fast"
iterations: 2
)";

RunConfig Read(absl::string_view text, absl::string_view source) {
  const absl::StatusOr<RunConfig> config = ReadConfig(text, source);
  INFO(config.status());
  REQUIRE(config.ok());
  return *config;
}

TEST_CASE("config: one configuration in three syntaxes is the same",
          "[config]") {
  const RunConfig config = Read(kYaml, "run.yaml");
  CHECK(config.strategy.pp == 4);
  CHECK(config.costs.forward_s == Approx(0.0185).epsilon(1e-15));
  CHECK(config.costs.hop_bytes == 32.0 * 1024 * 1024);
  CHECK(config.costs.stage_backward_weight_s.size() == 2);
  CHECK(config.system.nvlink.bytes_per_s == 450e9);
  CHECK(config.strategy.data_parallel == DataParallel::kZero1);
  CHECK(config.schedule.params.at("window") == "3");
  CHECK(config.Field("strategy.pp") == "run.yaml:9: strategy.pp");

  CHECK(config.model.lora_rank == 8);
  CHECK(config.strategy.recompute == Recompute::kFull);
  CHECK(config.strategy.recompute_chunks == std::vector<int64_t>{1});
  CHECK(config.strategy.attention == Attention::kUnfused);
  CHECK(config.strategy.layers == std::vector<int64_t>{1, 2, 3});
  CHECK(config.strategy.vocabulary == VocabularyPlacement::kSpread);
  CHECK(config.costs.analytic);
  CHECK(config.costs.analytic_device == "h100");

  const std::string printed = ToString(config);
  CHECK(absl::StrContains(printed, "costs.held_until_weight: 0.37"));
  CHECK(ToString(Read(kJson, "run.json")) == printed);
  CHECK(ToString(Read(kTextproto, "run.txtpb")) == printed);
  // The same by content, where the ending says nothing.
  CHECK(ToString(Read(kYaml, "run.conf")) == printed);
  CHECK(ToString(Read(kJson, "run.conf")) == printed);
  CHECK(ToString(Read(kTextproto, "run.conf")) == printed);
}

TEST_CASE("config: --set changes a field of the model that a flag chooses",
          "[config]") {
  const auto config =
      ReadConfig("model: {layers: 8, hidden: 64}", "a.yaml",
                 {{{"model.layers", "12", "--set model.layers=12"},
                   {"system.nodes", "2", "--set system.nodes=2"}},
                  {{"model.preset", "gpt-tiny", "--model"}}});
  REQUIRE(config.ok());
  CHECK(config->model.layers == 12);
  CHECK(!config->model.hidden.has_value());
  const auto other =
      ReadConfig("", "",
                 {{{"model.hf", "a.json", "--set model.hf=a.json"}},
                  {{"model.preset", "gpt-tiny", "--model"}}});
  REQUIRE(other.ok());
  CHECK(!other->model.hf.has_value());
}

TEST_CASE("config: an empty section chooses an estimate", "[config]") {
  CHECK(Read("costs: {analytic: {}}", "a.yaml").costs.analytic);
  CHECK(Read("{\"costs\": {\"analytic\": {}}}", "a.json").costs.analytic);
  CHECK(Read("costs { analytic {} }", "a.txtpb").costs.analytic);
  CHECK(!Read("costs: {}", "a.yaml").costs.analytic);
}

TEST_CASE("config: a config.json is beside the file that names it",
          "[config]") {
  CHECK(Read("model: {hf: llama/config.json}", "runs/a.yaml").model.hf ==
        "runs/llama/config.json");
  CHECK(Read("model: {hf: /a/config.json}", "runs/a.yaml").model.hf ==
        "/a/config.json");
}

TEST_CASE("config: an empty file sets nothing", "[config]") {
  CHECK(ToString(Read("", "run.yaml")).empty());
  CHECK(ToString(Read("# nothing\n", "run.yaml")).empty());
  CHECK(ToString(Read("strategy:\n  # pp: 8\n", "run.yaml")).empty());
  CHECK(ToString(Read("{}", "run.json")).empty());
  CHECK(ToString(Read("", "run.txtpb")).empty());
}

TEST_CASE("config: a flag wins over --set, and --set over the file",
          "[config]") {
  const Layers layers = {
      {{"strategy.pp", "6", "--set strategy.pp=6"},
       {"strategy.vpp", "1", "--set strategy.vpp=1"}},
      {{"strategy.pp", "7", "--pp"}},
  };
  const auto config = ReadConfig(kYaml, "run.yaml", layers);
  REQUIRE(config.ok());
  CHECK(config->strategy.pp == 7);
  CHECK(config->strategy.vpp == 1);
  CHECK(config->strategy.microbatches == 8);
  CHECK(config->Field("strategy.pp") == "--pp: strategy.pp");
  CHECK(config->Field("strategy.vpp") == "--set strategy.vpp=1: strategy.vpp");
}

TEST_CASE("config: lists in edits are separated by commas", "[config]") {
  const auto config =
      ReadConfig("", "",
                 {{{"costs.per_stage.forward", "1ms, 2ms", "--forward"},
                   {"costs.per_stage.backward_input_ms", "3,4", "--set"},
                   {"strategy.mapping", "1,0", "--mapping"},
                   {"schedule.params.a", "b,c", "--param"}}});
  INFO(config.status());
  REQUIRE(config.ok());
  CHECK(config->costs.stage_forward_s == std::vector<double>{0.001, 0.002});
  CHECK(config->costs.stage_backward_input_s ==
        std::vector<double>{0.003, 0.004});
  CHECK(config->strategy.mapping == std::vector<std::string>{"1", "0"});
  CHECK(config->schedule.params.at("a") == "b,c");
}

TEST_CASE("config: a higher layer puts rival choices aside", "[config]") {
  constexpr char kFile[] = R"(
model: {layers: 8, hidden: 64}
system: {preset: dgx-h100, nodes: 2}
schedule: {name: zb-v, params: {a: 1}}
costs: {per_stage: {forward: [1ms, 2ms]}}
)";
  const auto config = ReadConfig(kFile, "a.yaml",
                                 {{{"model.preset", "gpt-tiny", "--model"},
                                   {"system.file", "s.textproto", "--system"},
                                   {"schedule.name", "gpipe", "--schedule"},
                                   {"costs.uniform.forward", "3ms", "-"}}});
  REQUIRE(config.ok());
  CHECK(!config->model.layers.has_value());
  CHECK(!config->system.preset.has_value());
  CHECK(config->system.nodes == 2);
  CHECK(config->schedule.params.empty());
  CHECK(config->costs.stage_forward_s.empty());
  CHECK(config->costs.forward_s == 0.003);

  const auto same =
      ReadConfig(kFile, "a.yaml", {{{"schedule.name", "zb-v", "--schedule"}}});
  REQUIRE(same.ok());
  CHECK(same->schedule.params.size() == 1);

  const auto estimate = ReadConfig(
      "costs: {uniform: {forward: 1ms}, p2p: 1ms}\nstrategy: {layers: [1]}\n",
      "a.yaml",
      {{{"costs.analytic.device", "h100", "--analytic"},
        {"strategy.split", "balanced", "--split"},
        {"model.hf", "config.json", "--model"}}});
  REQUIRE(estimate.ok());
  CHECK(!estimate->costs.forward_s.has_value());
  CHECK(estimate->costs.p2p_s.has_value());
  CHECK(estimate->strategy.layers.empty());
  const auto times =
      ReadConfig("costs: {analytic: {device: h100}}\n", "a.yaml",
                 {{{"costs.uniform.forward", "1ms", "--forward"}}});
  REQUIRE(times.ok());
  CHECK(!times->costs.analytic);

  const auto launches =
      ReadConfig("costs: {p2p: 1ms}\n", "a.yaml",
                 {{{"costs.analytic.launch_time", "5us",
                    "--set costs.analytic.launch_time=5us"}},
                  {{"costs.uniform.forward", "1ms", "--forward"}}});
  REQUIRE(launches.ok());
  CHECK(launches->costs.analytic);
  // How to estimate stays beside times that are given, and is refused there.
  for (const char* choice : {"costs.profile", "costs.uniform.forward"}) {
    const auto both = ReadConfig("costs: {p2p: 1ms}\n", "a.yaml",
                                 {{{"costs.analytic.kernels", "eager",
                                    "--set costs.analytic.kernels=eager"}},
                                  {{choice, "1ms", "--forward"}}});
    INFO(choice);
    REQUIRE(both.ok());
    CHECK(both->costs.analytic);
  }
}

TEST_CASE("config: paths in a file are relative to it", "[config]") {
  constexpr char kFile[] = "schedule: {file: a/b.pws}\nsystem: {file: /s}\n";
  CHECK(Read(kFile, "x/y/run.yaml").schedule.file == "x/y/a/b.pws");
  CHECK(Read(kFile, "x/y/run.yaml").system.file == "/s");
  CHECK(Read(kFile, "run.yaml").schedule.file == "a/b.pws");
  const auto flag = ReadConfig(kFile, "x/run.yaml",
                               {{{"schedule.file", "c.pws", "--schedule"}}});
  REQUIRE(flag.ok());
  CHECK(flag->schedule.file == "c.pws");
  const RunConfig files =
      Read("costs: {analytic: {device: d.textproto, silicon: s.txt}}\n",
           "x/run.yaml");
  CHECK(files.costs.analytic_device == "x/d.textproto");
  CHECK(files.costs.analytic_silicon == "x/s.txt");
  CHECK(InputFields(files).size() == 2);
  const RunConfig names =
      Read("costs: {analytic: {device: h100, silicon: none}}\n", "x/run.yaml");
  CHECK(names.costs.analytic_device == "h100");
  CHECK(InputFields(names).empty());
}

TEST_CASE("config: zero needs no unit, nor do fields that say bytes",
          "[config]") {
  const RunConfig config = Read(
      "costs: {hop_bytes: 1024, gradient_bytes: 8, p2p: 0}\n"
      "system: {memory: 0, nvlink: {bandwidth: 0}}\n"
      "strategy: {memory_context: 0}\n",
      "run.yaml");
  CHECK(config.costs.hop_bytes == 1024);
  CHECK(config.costs.gradient_bytes == 8);
  CHECK(config.costs.p2p_s == 0);
  CHECK(config.system.memory_bytes == 0);
  CHECK(config.strategy.memory_context_bytes == 0);
}

TEST_CASE("config: an amount without its unit is refused", "[config]") {
  for (const char* text :
       {R"({"system": {"memory": 40}})", R"({"system": {"memory": "40"}})",
        R"({"system": {"host_memory": 512}})",
        R"({"strategy": {"memory_context": 1}})",
        R"({"system": {"nvlink": {"bandwidth": 400}}})",
        R"({"system": {"nic": {"latency": 2}}})",
        R"({"system": {"host": {"memory_bandwidth": 50}}})",
        R"({"costs": {"p2p": 1}})",
        R"({"costs": {"per_stage": {"forward": ["1ms", 2]}}})",
        R"({"reliability": {"horizon": 9}})"}) {
    for (const char* file : {"run.yaml", "run.json"}) {
      const absl::Status status = ReadConfig(text, file).status();
      INFO(file << " " << text << " " << status);
      CHECK(absl::StrContains(status.message(), "has no unit; allowed: "));
    }
  }
  const Layers flag = {{{"system.memory", "40", "--memory"}}};
  CHECK(absl::StrContains(
      ReadConfig("", "", flag).status().message(),
      "--memory: system.memory: '40' has no unit; allowed: a number with one "
      "of B, KB, MB, GB, TB, PB, KiB"));
}

TEST_CASE("config: a switch leaves what was said", "[config]") {
  const ConfigFlag* analytic = nullptr;
  for (const ConfigFlag& flag : ConfigFlags()) {
    if (flag.flag == "--analytic") analytic = &flag;
  }
  REQUIRE(analytic != nullptr);
  const ConfigEdit alone = EditOfFlag(*analytic, "").value();
  const ConfigEdit named = EditOfFlag(*analytic, "b200").value();
  const ConfigEdit automatic = EditOfFlag(*analytic, "auto").value();
  const ConfigEdit set = EditOfSet("costs.analytic.device=h200").value();
  const ConfigEdit clear = EditOfSet("costs.analytic.device=").value();
  const auto device = [](absl::string_view file, const Layers& layers) {
    return ReadConfig(file, "run.yaml", layers)->costs.analytic_device;
  };
  CHECK(device("", {{}, {alone}}) == "auto");
  CHECK(device("", {{set}, {alone}}) == "h200");
  CHECK(device("", {{set}, {named}}) == "b200");
  CHECK(device("", {{set}, {automatic}}) == "auto");
  CHECK(device("", {{set, clear}, {alone}}) == "auto");
  CHECK(device("", {{}, {named, alone}}) == "b200");
  CHECK(device("", {{}, {alone, named}}) == "b200");
  CHECK(device("costs: {analytic: {device: h200}}", {{}, {alone}}) == "h200");
  // It chooses the estimate all the same.
  const auto chosen =
      ReadConfig("costs: {uniform: {forward: 1ms}}", "run.yaml", {{}, {alone}});
  CHECK_FALSE(chosen->costs.forward_s.has_value());
}

}  // namespace
}  // namespace pipewright::run_config_test

// Models, training and degrees in a prepared run.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/prepare.h"
#include "sim/program/network_time.h"
#include "tests/support/prepare.h"
#include "tests/support/run_binary.h"

namespace pipewright::prepare_model_test {
namespace {

using testing::Prepared;
using testing::PrepareText;
using testing::Warns;

std::string Run(const std::string& model, const std::string& strategy,
                const std::string& more = "") {
  return absl::StrCat("schedule: {name: 1f1b}\nmodel: {", model,
                      "}\nstrategy: {microbatches: 8, ", strategy, "}\n", more);
}

TEST_CASE("prepare: tensor and context parallelism take devices and bytes",
          "[config]") {
  const PreparedRun run =
      Prepared(Run("preset: llama3-8b", "pp: 2, tp: 4, cp: 2, dp: 2",
                   "system: {preset: dgx-h100}\n"));
  CHECK(run.network.links.cluster->num_devices() == 32);
  CHECK(run.network.links.mapping->DeviceOf(0, 0) == 0);
  CHECK(run.network.links.mapping->DeviceOf(1, 0) == 8);
  CHECK(run.network.links.mapping->DeviceOf(0, 1) == 16);
  // 8192 tokens over cp, the residual stream over tp.
  CHECK(run.lower.hop_bytes == 8192.0 / 2 * 4096 * 2 / 4);
  REQUIRE(run.prepared_model.has_value());
  CHECK(run.prepared_model->training.sequence_parallel);
  CHECK(*run.tokens == 8192.0 * 8 * 2);

  const PreparedRun whole = Prepared(
      Run("preset: llama3-8b", "pp: 2, tp: 4, sequence_parallel: false"));
  CHECK(whole.lower.hop_bytes == 8192.0 * 4096 * 2);
}

TEST_CASE("prepare: frozen weights are gathered where they are sharded",
          "[config]") {
  const auto parameters = [](const std::string& mode,
                             const std::string& frozen) {
    return Prepared(Run(absl::StrCat("preset: gpt-tiny", frozen),
                        absl::StrCat("pp: 2, dp: 2, data_parallel: ", mode)))
        .lower.parameter_bytes;
  };
  for (const char* mode : {"fsdp", "fsdp, shard_blocks: layer", "odc"}) {
    INFO(mode);
    CHECK(parameters(mode, ", frozen_layers: 8") == parameters(mode, ""));
    // Adapters come on top.
    const double adapted = parameters(mode, ", lora_rank: 8")[0];
    CHECK(adapted > parameters(mode, "")[0]);
    CHECK(adapted < 1.2 * parameters(mode, "")[0]);
    // Six layers of a stage: 8 (256 + 768) values beside queries, keys and
    // values alone, in two bytes each.
    const double qkv =
        parameters(mode, ", lora_rank: 8, lora_qkv_only: true")[0];
    CHECK(qkv - parameters(mode, "")[0] <
          0.5 * (adapted - parameters(mode, "")[0]));
  }
  // Behind the first trained layer gradients flow.
  for (const char* mode : {"fsdp", "fsdp, shard_blocks: layer", "odc"}) {
    const PreparedRun run =
        Prepared(Run("preset: gpt-tiny, frozen_layers: 11",
                     absl::StrCat("pp: 2, dp: 2, data_parallel: ", mode)));
    CHECK(LayersInFront(run.lower.layers.stages) == std::vector<int>{8, 3});
  }
  // Updated weights are those that are trained.
  CHECK(parameters("zero1", ", frozen_layers: 8")[0] == 0);
}

TEST_CASE("prepare: gradients are those of one device", "[config]") {
  const auto gradients = [](const std::string& model,
                            const std::string& strategy) {
    return Prepared(Run(model, strategy)).lower.gradient_bytes;
  };
  const std::vector<double> whole =
      gradients("preset: gpt-tiny", "pp: 2, dp: 2");
  const std::vector<double> part =
      gradients("preset: gpt-tiny", "pp: 2, dp: 2, tp: 2");
  REQUIRE(part.size() == 2);
  // Norms are held whole on every device, 16 of 256 values a stage.
  CHECK(part[0] == whole[0] / 2 + 4 * 16 * 256 / 2);
  // Tied: the second table is on the last stage, or none on a single one.
  const double table = 4 * 512 * 256;
  CHECK(gradients("preset: gpt-tiny, tied_embeddings: true", "pp: 2, dp: 2") ==
        whole);
  CHECK(gradients("preset: gpt-tiny", "pp: 1, dp: 2")[0] -
            gradients("preset: gpt-tiny, tied_embeddings: true",
                      "pp: 1, dp: 2")[0] ==
        table);
  // Frozen parts have none: here the embedding and all layers of stage 0.
  const std::vector<double> frozen =
      gradients("preset: gpt-tiny, frozen_layers: 8", "pp: 2, dp: 2");
  CHECK(frozen[0] == 0);
  CHECK(frozen[1] == whole[1]);
  const std::vector<double> adapters =
      gradients("preset: gpt-tiny, lora_rank: 4", "pp: 2, dp: 2");
  CHECK(adapters[0] == 4 * 8 * 4 * (4 * 256 + 2 * 256 + 2 * (256 + 1024)));
}

TEST_CASE("prepare: experts share gradients with fewer replicas", "[config]") {
  const auto gradients = [](const std::string& ep) {
    return Prepared(Run("preset: mixtral-8x7b", "pp: 1, dp: 8, ep: " + ep))
        .lower.gradient_bytes[0];
  };
  const double experts = 32.0 * 8 * 3 * 4096 * 14336;
  const double dense = 46702792704.0 - experts;
  CHECK(gradients("1") == Approx(4 * (dense + experts)).epsilon(1e-12));
  // Every replica has experts of its own.
  CHECK(gradients("8") == Approx(4 * dense).epsilon(1e-12));
  // Pairs share a quarter: half a buffer's ring against 7/8 of one.
  CHECK(gradients("4") ==
        Approx(4 * (dense + experts / 4 * 0.5 / 0.875)).epsilon(1e-12));
  // The same over dp * cp: pairs share an eighth, and sixteen the rest.
  CHECK(gradients("8, cp: 2") ==
        Approx(4 * (dense + experts / 8 * 0.5 / 0.9375)).epsilon(1e-12));
}

TEST_CASE("prepare: parts of a context reduce their gradients", "[config]") {
  const std::string system = "system: {preset: dgx-h100}\n";
  const auto run = [&](const std::string& strategy) {
    return Prepared(
        Run("preset: gpt-tiny", "pp: 2, cp: 4, " + strategy, system));
  };
  for (const char* strategy : {"dp: 1", "dp: 2", "dp: 2, zero: 1"}) {
    INFO(strategy);
    const PreparedRun prepared = run(strategy);
    CHECK(!Warns(prepared, "cp"));
    CHECK(prepared.lower.network.context_parallel == 4);
    CHECK(prepared.lower.data_parallel != DataParallel::kNone);
    CHECK(prepared.lower.gradient_bytes.size() == 2);
  }
  const PreparedRun pulls = run("dp: 2, data_parallel: odc");
  CHECK(!Warns(pulls, "cp"));
  // Shards are over the replicas that are pulled from: master weights, moments
  // and gradients as with one part of a context.
  const auto fixed = [](const PreparedRun& prepared) {
    const RankMemory& rank = prepared.memory->memory->ranks[0];
    return rank.fixed[MemoryKind::kMaster] + rank.fixed[MemoryKind::kMoments];
  };
  CHECK(
      fixed(pulls) ==
      fixed(Prepared(Run("preset: gpt-tiny",
                         "pp: 2, cp: 1, dp: 2, data_parallel: odc", system))));
  CHECK(fixed(pulls) > 1.9 * fixed(run("dp: 2, data_parallel: fsdp, "
                                       "shard_blocks: layer")));
  // The four parts of a context sum what their owners have, each replica for
  // itself.
  const absl::StatusOr<Program> program = LowerRun(pulls);
  REQUIRE(program.ok());
  int sums = 0;
  for (const SideOp& op : program->ranks[0].side_ops) {
    if (op.kind != OpKind::kAllReduce || op.bytes < 1024) continue;
    ++sums;
    CHECK(op.bytes == Approx(pulls.lower.gradient_bytes[0] / 2));
    const Group& group = program->groups[op.group];
    CHECK(GroupMembers(*program, group, 1).size() == 4);
    CHECK(GroupMembers(*program, group, 1)[0].replica == 1);
  }
  CHECK(sums == 1);
  const PreparedRun given = Prepared(
      "schedule: {name: 1f1b}\nstrategy: {pp: 2, cp: 2, microbatches: 4}\n" +
      system + "costs: {hop_bytes: 1MiB}\n");
  CHECK(Warns(given, "dp * cp = 2, but gradients are not synchronised"));
}

TEST_CASE("prepare: layers go to stages as told", "[config]") {
  const auto layout = [](const std::string& strategy) {
    return Prepared(Run("preset: gpt-tiny", "pp: 2, " + strategy))
        .prepared_model->layout.ToString();
  };
  CHECK(layout("split: even") == "embedding, 8 layers\n8 layers, head\n");
  CHECK(layout("layers: [9, 7]") == "embedding, 9 layers\n7 layers, head\n");
  CHECK(layout("layout: \"Et*10|t*6,L\"") ==
        "embedding, 10 layers\n6 layers, head\n");
  CHECK(absl::StrContains(layout("vocabulary: spread"), "part of head"));
  // The head of a wide vocabulary weighs as much as some layers.
  const PreparedRun balanced = Prepared(
      Run("preset: gpt-tiny, vocabulary: 32768", "pp: 2, split: balanced"));
  CHECK(balanced.prepared_model->layout.LayersOf(0) >
        balanced.prepared_model->layout.LayersOf(1) + 4);
  // 16 layers on 3 ranks.
  CHECK(Prepared(Run("preset: gpt-tiny", "pp: 3, split: balanced"))
            .prepared_model->layout.LayersOf(0) >= 5);
}

TEST_CASE("prepare: the balanced split knows which rank holds a stage",
          "[config]") {
  const PreparedRun run = Prepared(
      "schedule: {name: interleaved-1f1b}\nmodel: {preset: llama3-8b}\n"
      "strategy: {pp: 4, vpp: 2, microbatches: 8, split: balanced}\n");
  REQUIRE(run.prepared_model.has_value());
  CHECK(run.prepared_model->rank_of_stage ==
        std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(run.prepared_model->layout.LayersOf(7) < 4);
}

TEST_CASE("prepare: a model comes from a config.json", "[config]") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Write(
      "config.json", R"({"model_type": "llama", "hidden_size": 4096,
      "intermediate_size": 14336, "max_position_embeddings": 8192,
      "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "vocab_size": 128256})");
  const PreparedRun run =
      Prepared(Run(absl::StrCat("hf: ", path, ", layers: 16"), "pp: 2"));
  CHECK(run.model == path);
  CHECK(run.prepared_model->spec.ffn_hidden == 14336);
  CHECK(run.prepared_model->spec.layers == 16);
  // Positions are no length of a sample.
  CHECK(Warns(run, "the longest that positions allow, 8192 tokens"));
  const std::string hf = absl::StrCat("hf: ", path);
  CHECK(!Warns(Prepared(Run(hf, "pp: 2, sequence: 4096")), "positions allow"));
  CHECK(!Warns(Prepared(Run(hf + ", sequence: 4096", "pp: 2")),
               "positions allow"));
  // The folder of the file.
  const std::string parent = path.substr(0, path.rfind('/'));
  CHECK(Prepared(Run("hf: " + parent, "pp: 2")).prepared_model->spec.hidden ==
        4096);
}

TEST_CASE("prepare: times are estimated for a device", "[config]") {
  const std::string system = "system: {preset: dgx-h100}\n";
  const PreparedRun run = Prepared(Run("preset: llama3-8b", "pp: 4, tp: 2",
                                       system + "costs: {analytic: {}}\n"));
  CHECK(!Warns(run, "no pass times"));
  const std::vector<StageCosts>& stages = run.lower.costs.stages;
  REQUIRE(stages.size() == 4);
  CHECK(stages[1].forward_s > 1e-3);
  CHECK(stages[1].forward_s < 1);
  CHECK(stages[3].forward_s > stages[1].forward_s);  // the head
  const PreparedRun older =
      Prepared(Run("preset: llama3-8b", "pp: 4, tp: 2",
                   system + "costs: {analytic: {device: a100-80gb}}\n"));
  CHECK(older.lower.costs.stages[1].forward_s > stages[1].forward_s);
  const PreparedRun again =
      Prepared(Run("preset: llama3-8b", "pp: 4, tp: 2, recompute: full",
                   system + "costs: {analytic: {}}\n"));
  CHECK(again.lower.costs.stages[1].backward_input_s >
        stages[1].backward_input_s);
}

TEST_CASE("prepare: devices that stay idle are told", "[config]") {
  const auto with = [](const std::string& strategy) {
    return Prepared(Run("preset: gpt-tiny", strategy,
                        "system: {preset: dgx-h100, nodes: 2}\n"));
  };
  CHECK(Warns(with("pp: 4, dp: 2"),
              "8 of 16 devices stay idle: pp * dp = 4 * 2 = 8; dp 4 would "
              "use all"));
  CHECK(!Warns(with("pp: 4, dp: 4"), "idle"));
  CHECK(!Warns(with("pp: 2, mapping: [3, 4]"), "idle"));
}

TEST_CASE("prepare: where choices for experts do nothing", "[config]") {
  const auto run = [](int microbatches, const std::string& choice) {
    return absl::StrCat(
        "schedule: {name: 1f1b}\nmodel: {preset: moe-tiny}\n"
        "system: {preset: dgx-h100, devices_per_node: 2, nics_per_node: 2}\n"
        "costs: {analytic: {launch_time: 0s}}\nstrategy: {pp: 2, dp: 4, ep: 4, "
        "microbatches: ",
        microbatches, choice, "}\n");
  };
  const auto forward_s = [&](int microbatches, const std::string& choice) {
    return Prepared(run(microbatches, choice)).costs.passes.stages[1].forward_s;
  };
  const std::string beside = ", overlap_experts: true";
  CHECK(forward_s(2, beside) < forward_s(2, ""));
  CHECK(forward_s(1, beside) == forward_s(1, ""));
  CHECK(Warns(Prepared(run(1, beside)),
              "strategy.overlap_experts has no effect with microbatches 1"));
  const auto braided = [&](int microbatches, const std::string& choice) {
    return Prepared(
        absl::StrCat("schedule: {name: 1f1b}\nmodel: {preset: llama3-8b}\n"
                     "system: {preset: dgx-h100}\ncosts: {analytic: {}}\n"
                     "strategy: {pp: 2, tp: 4, microbatches: ",
                     microbatches, ", braided_tensor: true", choice, "}\n"));
  };
  CHECK(!Warns(braided(2, ""), "braided_tensor has no effect"));
  CHECK(Warns(braided(1, ""),
              "strategy.braided_tensor has no effect with microbatches 1"));
  const auto pieces = [&](const char* costs, const char* choice) {
    return Prepared(
        absl::StrCat("schedule: {name: 1f1b}\nmodel: {preset: llama3-8b}\n"
                     "system: {preset: dgx-h100}\ncosts: {analytic: {",
                     costs, "}}\nstrategy: {pp: 2, tp: 4, microbatches: 2, ",
                     "overlap_tensor: true", choice, "}\n"));
  };
  CHECK(!Warns(pieces("", ""), "overlap_tensor has no effect"));
  CHECK(
      !Warns(pieces("kernels: compiled", ""), "overlap_tensor has no effect"));
  CHECK_FALSE(Warns(pieces("", ""), "W, which is a pass of its own"));
  const auto apart = [&](const char* costs, const char* choice) {
    return Warns(
        Prepared(
            absl::StrCat("schedule: {name: zb-h1}\nmodel: {preset: llama3-8b}\n"
                         "system: {preset: dgx-h100}\ncosts: {analytic: {",
                         costs, "}}\nstrategy: {pp: 2, microbatches: 4, ",
                         "overlap_tensor: true, ", choice, "}\n")),
        "strategy.overlap_tensor: reductions of B are taken to run beside W, "
        "which is a pass of its own");
  };
  CHECK(apart("", "tp: 4"));
  CHECK_FALSE(apart("kernels: compiled", "tp: 4"));
  CHECK_FALSE(apart("", "tp: 1"));
  CHECK_FALSE(apart("", "tp: 4, sequence_parallel: false"));
  CHECK(Warns(pieces("kernels: eager", ""),
              "strategy.overlap_tensor has no effect with "
              "costs.analytic.kernels eager"));
  CHECK(Warns(pieces("", ", sequence_parallel: false"),
              "strategy.overlap_tensor has no effect without "
              "strategy.sequence_parallel"));
  const auto both = PrepareText(
      "schedule: {name: 1f1b}\nmodel: {preset: llama3-8b}\n"
      "system: {preset: dgx-h100}\ncosts: {analytic: {}}\n"
      "strategy: {pp: 2, tp: 4, microbatches: 2, braided_tensor: true, "
      "overlap_tensor: true}\n");
  REQUIRE_FALSE(both.ok());
  CHECK_THAT(std::string(both.status().message()),
             Catch::Contains("strategy.braided_tensor"));
  // Tables of fused layers are of 16 bit and of 8 bit with a scale a tensor.
  const std::string fused = ", fused_experts: true, precision: ";
  const char* const kNoTable =
      "strategy.fused_experts has no effect if no such layer was measured";
  CHECK(Warns(Prepared(run(2, fused + "fp8-block")), kNoTable));
  CHECK_FALSE(Warns(Prepared(run(2, fused + "fp8")), kNoTable));
  // No device has more rows than there are.
  CHECK(forward_s(2, ", expert_load: 4") > forward_s(2, ""));
  const auto refused = PrepareText(run(2, ", expert_load: 4.5"));
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(std::string(refused.status().message()),
             Catch::Contains("strategy.expert_load: 4.5") &&
                 Catch::Contains("strategy.ep = 4"));
}

TEST_CASE("prepare: a layer that no stage has is told", "[config]") {
  const auto warns = [](const char* every) {
    return Warns(Prepared(Run("preset: llama3-8b",
                              absl::StrCat("pp: 2, recompute: full, "
                                           "recompute_every: ",
                                           every))),
                 "strategy.recompute has no effect as no layer that "
                 "strategy.recompute_every counts within its stage");
  };
  CHECK_FALSE(warns("16"));
  CHECK(warns("17"));
}

TEST_CASE("prepare: what has no effect without a model is told", "[config]") {
  const PreparedRun run = Prepared(
      "schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 4, "
      "recompute: full, split: balanced, ep: 2}\n");
  CHECK(Warns(run, "strategy.recompute has no effect without a model"));
  CHECK(Warns(run, "strategy.split has no effect without a model"));
  CHECK(Warns(run, "strategy.ep has no effect without a model"));
}

struct BadRun {
  std::string yaml;
  std::vector<const char*> parts;
};

TEST_CASE("prepare: what a model cannot do is refused with what it can",
          "[config]") {
  const std::string system = "system: {preset: dgx-h100, nodes: 2}\n";
  const std::string llama = "preset: llama3-8b";
  const std::vector<BadRun> table = {
      {Run(llama, "pp: 2, tp: 6"),
       {"run.yaml:3: strategy.tp: 6 is not allowed; allowed: 4, 8"}},
      {Run(llama, "pp: 3"),
       {"run.yaml:3: strategy.pp: pp * vpp = 3 * 1 = 3", "2, 4",
        "strategy.split: balanced works for any number"}},
      {Run(llama, "pp: 2, layers: [16]"),
       {"strategy.layers: a list of 1", "pp * vpp = 2 * 1 = 2"}},
      {Run(llama, "pp: 2, layers: [16, 15]"), {"these are 31"}},
      {Run(llama, "pp: 2, layout: \"Et|tL\""),
       {"strategy.layout", "32 layers; it has t 2 times"}},
      {Run(llama, "pp: 2, layers: [16, 16], split: balanced"),
       {"strategy.split: given together with", "strategy.layers"}},
      {Run(llama, "pp: 2, recompute: full, recompute_chunks: [1]"),
       {"strategy.recompute_chunks: 1", "chunks from 0 to 0"}},
      {Run(llama, "pp: 2, ep: 2"), {"strategy.ep: 2", "no experts"}},
      {Run("preset: mixtral-8x7b", "pp: 2, dp: 4, ep: 3"),
       {"strategy.ep: 3", "2, 4"}},
      {Run(llama, "pp: 2, cp: 3"), {"strategy.cp: 3", "2, 4"}},
      {Run("preset: llama3-8b, hf: x.json", "pp: 2"),
       {"model.hf: given together with", "model.preset"}},
      {Run("hf: no-such.json", "pp: 2"), {"model.hf", "no-such.json"}},
      {Run("layers: 4, hidden: 64", "pp: 2"),
       {"model.heads: missing", "model.hf"}},
      {Run("preset: llama3-8b, heads: 30", "pp: 2"),
       {"run.yaml:2: model.heads: 30",
        "16, 32; or any number with model.head_dim"}},
      {Run(llama, "pp: 8, tp: 4, dp: 2", system),
       {"system.nodes: 2", "8 or more", "pp * dp * tp = 8 * 2 * 4 = 64",
        "2 * 8 = 16"}},
      {Run(llama, "pp: 4, tp: 2, dp: 3", system),
       {"system.nodes: 2", "pp * dp * tp = 4 * 3 * 2 = 24", "; or dp 2"}},
      {Run("preset: llama3-8b, layers: 30", "pp: 3, tp: 4", system),
       {"system.nodes: 2", "pp * dp * tp = 3 * 1 * 4 = 12 does not divide",
        "nearest: pp 2, 4"}},
      {Run(llama, "pp: 16, tp: 1048576, cp: 1048576"), {"strategy.tp", "2^30"}},
      {Run(llama, "pp: 2", "costs: {analytic: {}}\n"),
       {"run.yaml:4: costs.analytic: needs a device"}},
      {Run(llama, "pp: 2", "costs: {analytic: {device: h10}}\n"),
       {"costs.analytic.device", "h100"}},
      {Run(llama, "pp: 2, tp: 2", "costs: {analytic: {device: h100}}\n"),
       {"needs a system"}},
      {Run(llama, "pp: 2",
           "costs: {analytic: {device: h100}, uniform: {forward: 1s}}\n"),
       {"costs.analytic: given together with costs.uniform.forward"}},
      {"schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 4}\n"
       "costs: {analytic: {device: h100}}\n",
       {"costs.analytic: needs a model"}},
  };
  for (const BadRun& bad : table) {
    const absl::Status status = PrepareText(bad.yaml).status();
    INFO(bad.yaml << "\n" << status);
    CHECK((status.code() == absl::StatusCode::kInvalidArgument ||
           status.code() == absl::StatusCode::kNotFound));
    for (const char* part : bad.parts) {
      INFO(part);
      CHECK(absl::StrContains(status.message(), part));
    }
  }
}

TEST_CASE("prepare: an estimated step is a whole one unless told otherwise",
          "[config]") {
  const std::string more =
      "system: {preset: dgx-h100}\ncosts: {analytic: {}}\n";
  const PreparedRun run =
      Prepared(Run("preset: llama3-8b", "pp: 4, tp: 2, dp: 2", more));
  CHECK(run.lower.optimizer == OptimizerMode::kSynchronised);
  CHECK(run.lower.costs.optimizer_s > 0);
  CHECK(run.lower.data_parallel == DataParallel::kDdp);
  CHECK(run.lower.overlap_gradients);
  REQUIRE(run.costs.device.has_value());
  CHECK(run.costs.device->name == "h100");
  const PreparedRun told = Prepared(
      Run("preset: llama3-8b",
          "pp: 4, tp: 2, dp: 2, optimizer: none, data_parallel: zero1, "
          "overlap_gradients: false",
          more));
  CHECK(told.lower.optimizer == OptimizerMode::kNone);
  CHECK(told.lower.data_parallel == DataParallel::kZero1);
  CHECK(!told.lower.overlap_gradients);
  const PreparedRun given = Prepared(Run("preset: llama3-8b", "pp: 4"));
  CHECK(given.lower.optimizer == OptimizerMode::kNone);
  CHECK(!given.costs.analytic.has_value());
}

TEST_CASE("prepare: a hop is sent in parts where its receivers gather",
          "[config]") {
  const std::string whole = "pp: 4, tp: 8, sequence_parallel: false";
  const std::string more =
      "system: {preset: dgx-a100}\ncosts: {analytic: {}}\n";
  const PreparedRun parts = Prepared(Run("preset: gpt-22b", whole, more));
  const PreparedRun one =
      Prepared(Run("preset: gpt-22b", whole + ", scatter_gather: false", more));
  CHECK(one.lower.hop_bytes == 2048.0 * 6144 * 2);
  CHECK(parts.lower.hop_bytes == one.lower.hop_bytes / 8);
  const auto added = [&](int stage, double StageCosts::*member) {
    return parts.lower.costs.stages[stage].*member -
           one.lower.costs.stages[stage].*member;
  };
  // Forward on all but the first, backward on all but the last.
  const double gather_s = added(1, &StageCosts::forward_s);
  CHECK(gather_s > 1e-5);
  CHECK(gather_s < 1e-3);
  CHECK(added(0, &StageCosts::forward_s) == Approx(0).margin(1e-15));
  CHECK(added(3, &StageCosts::forward_s) == Approx(gather_s));
  CHECK(added(0, &StageCosts::backward_input_s) == Approx(gather_s));
  CHECK(added(3, &StageCosts::backward_input_s) == Approx(0).margin(1e-15));
}

}  // namespace
}  // namespace pipewright::prepare_model_test

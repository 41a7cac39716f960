#include "tests/support/base_runs.h"

#include "absl/strings/str_replace.h"
#include "sim/base/check.h"
#include "sim/profile/profile.h"
#include "tests/support/tiny_profile.h"

namespace pipewright::testing {
namespace {

// One of each kind of pass.
constexpr char kEveryKind[] =
    "pipewright-schedule 1\n"
    "pp 2 vpp 1 microbatches 3 slices 1 replicas 1 placement plain\n"
    "0: F0 O0 F1 L0 R0 B0 F2 BW1 W0 B2 W2\n"
    "1: F0 O0 L0 R0 BW0 F1 (F2&BW1) B2 W2\n";

constexpr char kPair[] =
    "pipewright-schedule 1\n"
    "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
    "0: F0 F1 BW0 BW1\n"
    "1: F0 (F1&BW0) BW1\n";
constexpr char kPlain[] =
    "pipewright-schedule 1\n"
    "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
    "0: F0 F1 BW0 BW1\n"
    "1: F0 BW0 F1 BW1\n";

constexpr char kHuggingFace[] =
    R"({"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 4,
        "intermediate_size": 512, "vocab_size": 4096,
        "max_position_embeddings": 256, "tie_word_embeddings": false})";

constexpr char kSystem[] =
    R"(name: "toy" shape: "nic-switch" device_name: "toy"
       memory { value: "16GiB" source: "made up" }
       devices_per_node { value: 4 source: "made up" }
       nics_per_node { value: 2 source: "made up" }
       pcie_per_switch { value: 1 source: "made up" }
       nvlink { bandwidth { value: "1GBps" source: "made up" }
                latency { value: "9us" source: "made up" } }
       nic { bandwidth { value: "100MBps" source: "made up" }
             latency { value: "20us" source: "made up" } }
       pcie { bandwidth { value: "1GBps" source: "made up" }
              latency { value: "1us" source: "made up" } }
)";

constexpr char kTimes[] =
    "uniform: {forward: 3ms, backward_input: 5ms, backward_weight: 7ms}";
// Nodes whose four devices share one network card.
constexpr char kNarrow[] =
    "{shape: nic-switch, devices_per_node: 4, nics_per_node: 1, "
    "nvlink: {bandwidth: 100GBps, latency: 2us}, "
    "nic: {bandwidth: 10GBps, latency: 5us}}";
// Its hosts' memory and cores are known.
constexpr char kHost[] =
    "{shape: node, devices_per_node: 4, pcie_per_switch: 2, "
    "nvlink: {bandwidth: 100GBps, latency: 2us}, "
    "pcie: {bandwidth: 25GBps, latency: 5us}, "
    "host: {memory_bandwidth: 40GBps, adam_rate: 1.2e9, cast_rate: 2e9, "
    "flush_rate: 1e9}}";
constexpr char kTree[] =
    "{shape: fat-tree, devices_per_node: 2, nics_per_node: 2, "
    "params: {nodes_per_leaf: 1, oversubscription: 4}, "
    "nvlink: {bandwidth: 100GBps, latency: 2us}, "
    "nic: {bandwidth: 10GBps, latency: 5us}}";

std::vector<BaseRun> Runs() {
  return {
      {"one rank",
       "schedule: {name: gpipe}\n"
       "strategy: {pp: 1, microbatches: 2}\n"
       "costs: {TIMES}\nengine: fast\n"},
      {"delay",
       "schedule: {name: 1f1b}\n"
       "strategy: {pp: 4, microbatches: 8}\n"
       "costs: {TIMES, p2p: 1ms}\nengine: fast\n"},
      {"free hops",
       "schedule: {name: zb-h1}\n"
       "strategy: {pp: 4, microbatches: 8, dp: 2, optimizer: synchronised, "
       "data_parallel: ddp}\n"
       "costs: {TIMES, gradient_bytes: 1GiB, optimizer_time: 4ms}\n"
       "engine: fast\n"},
      {"one node",
       "schedule: {name: zb-h1}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 4, microbatches: 8, dp: 2, data_parallel: zero1, "
       "optimizer: synchronised}\n"
       "costs: {TIMES, hop_bytes: 64MiB, gradient_bytes: 32GiB}\n"
       "engine: fast\n"},
      {"whole nodes",
       "schedule: {name: 1f1b}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 2, microbatches: 4, dp: 16, data_parallel: ddp}\n"
       "costs: {TIMES, hop_bytes: 64MiB, gradient_bytes: 8GiB}\n"
       "engine: fast\n"},
      {"one batch",
       "model: {preset: gpt-tiny}\n"
       "schedule: {name: 1f1b}\n"
       "system: {preset: dgx-h100, nodes: 1}\n"
       "strategy: {pp: 2, global_batch: 32}\n"
       "costs: {TIMES}\n"
       "engine: fast\n"},
      {"cards of their own",
       "schedule: {name: gpipe}\n"
       "system: NARROW\n"
       "strategy: {pp: 8, microbatches: 2}\n"
       "costs: {TIMES, hop_bytes: 64MiB}\n"
       "engine: fast\n"},
      {"shared cards",
       "schedule: {name: 1f1b}\n"
       "system: NARROW\n"
       "strategy: {pp: 2, microbatches: 4, dp: 4, data_parallel: ddp, "
       "optimizer: synchronised}\n"
       "costs: {TIMES, hop_bytes: 64MiB, gradient_bytes: 8GiB}\n"
       "engine: simgrid\n"},
      {"reduced chunks",
       "schedule: {name: interleaved-1f1b}\n"
       "system: NARROW\n"
       "strategy: {pp: 2, vpp: 2, microbatches: 4, dp: 4, "
       "data_parallel: ddp, optimizer: synchronised}\n"
       "costs: {TIMES, hop_bytes: 4MiB, gradient_bytes: 16GiB}\n"
       "engine: fast\n"},
      {"fat tree",
       "schedule: {name: 1f1b}\n"
       "system: TREE\n"
       "strategy: {pp: 4, microbatches: 4, dp: 2, data_parallel: ddp, "
       "optimizer: synchronised}\n"
       "costs: {TIMES, hop_bytes: 64MiB, gradient_bytes: 64GiB}\n"
       "engine: simgrid\n"},
      {"model",
       "schedule: {name: interleaved-1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "strategy: {pp: 2, vpp: 2, tp: 2, microbatches: 4}\n"
       "costs: {TIMES, p2p: 1ms}\nengine: fast\n"},
      {"model on links",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-a100}\n"
       "strategy: {pp: 2, dp: 2, microbatches: 4, recompute: full}\n"
       "costs: {uniform: {forward: 3ms, backward_input: 5ms, "
       "backward_weight: 7ms, recompute: 2ms}}\nengine: fast\n"},
      {"estimates",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 2, tp: 2, cp: 2, microbatches: 4, "
       "sequence_parallel: false, launch: graphs}\n"
       "costs: {analytic: {}}\nengine: fast\n"},
      {"estimates across nodes",
       "schedule: {name: interleaved-1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-h100, devices_per_node: 2, nics_per_node: 2}\n"
       "strategy: {pp: 2, vpp: 2, tp: 4, microbatches: 4, "
       "recompute: selective, attention: unfused, launch: graphs}\n"
       "costs: {analytic: {}}\nengine: fast\n"},
      {"muon",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 2, dp: 2, tp: 2, microbatches: 4, "
       "data_parallel: zero1, optimizer_kind: muon}\n"
       "costs: {analytic: {}}\nengine: fast\n"},
      {"a device alone",
       "schedule: {name: gpipe}\n"
       "model: {preset: gpt-tiny}\n"
       "strategy: {pp: 1, microbatches: 4}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"large products",
       "schedule: {name: gpipe}\n"
       "model: {preset: gpt-tiny, layers: 2, hidden: 8192, heads: 64, "
       "ffn_hidden: 32768}\n"
       "strategy: {pp: 1, microbatches: 2, sequence: 4096}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"large products on two devices",
       "schedule: {name: gpipe}\n"
       "model: {preset: gpt-tiny, layers: 2, hidden: 8192, heads: 64, "
       "ffn_hidden: 32768}\n"
       "strategy: {pp: 2, microbatches: 2, sequence: 4096}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"weights in 8 bit",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 2, dp: 2, microbatches: 4, precision: fp8, "
       "data_parallel: zero1}\n"
       "costs: {analytic: {}}\nengine: fast\n"},
      {"recomputed layers",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "strategy: {pp: 2, microbatches: 4, recompute: full, "
       "fused_cross_entropy: false}\n"
       "costs: {analytic: {device: b200}}\nengine: fast\n"},
      {"layers",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-h100, nvlink: {bandwidth: 2GBps}}\n"
       "strategy: {pp: 4, dp: 4, microbatches: 4, data_parallel: fsdp, "
       "shard_blocks: layer}\n"
       "costs: {analytic: {launch_time: 13.48us}}\nengine: fast\n"},
      {"pulled layers",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 4, dp: 4, microbatches: 4, data_parallel: odc, "
       "launch: graphs}\n"
       "costs: {analytic: {launch_time: 13.48us}}\nengine: fast\n"},
      {"pulled layers, free hops",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "strategy: {pp: 4, dp: 4, microbatches: 4, data_parallel: odc}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"shards",
       "schedule: {name: looped-bfs}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 2, vpp: 2, dp: 4, microbatches: 4, "
       "data_parallel: fsdp}\n"
       "costs: {analytic: {}}\nengine: fast\n"},
      {"adapters",
       "schedule: {name: gpipe}\n"
       "model: {preset: gpt-tiny, lora_rank: 8}\n"
       "strategy: {pp: 1, microbatches: 4}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"windows",
       "schedule: {name: gpipe}\n"
       "model: {preset: gpt-tiny, window: 32}\n"
       "strategy: {pp: 1, microbatches: 4, launch: graphs}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"query norms",
       "schedule: {name: gpipe}\n"
       "model: {preset: gpt-tiny, qk_norm: true}\n"
       "strategy: {pp: 1, microbatches: 4}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"experts over tensor parallelism",
       "schedule: {name: 1f1b}\n"
       "model: {preset: moe-tiny}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 2, tp: 4, dp: 2, ep: 2, microbatches: 4, "
       "launch: graphs, graph_parts: [attention, dense, router, experts]}\n"
       "costs: {analytic: {}}\nengine: fast\n"},
      {"experts over nodes",
       "schedule: {name: 1f1b}\n"
       "model: {preset: moe-tiny}\n"
       "system: {preset: dgx-h100, devices_per_node: 2, nics_per_node: 2}\n"
       "strategy: {pp: 2, dp: 4, ep: 4, microbatches: 4, dispatch: once, "
       "launch: graphs, graph_parts: [attention, dense, router, experts]}\n"
       "costs: {analytic: {}}\nengine: fast\n"},
      {"experts",
       "schedule: {name: 1f1b}\n"
       "model: {preset: moe-tiny}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 2, dp: 4, ep: 2, microbatches: 4, "
       "data_parallel: zero2, launch: graphs}\n"
       "costs: {analytic: {}, gradient_bytes: 8GiB}\nengine: fast\n"},
      {"latent attention",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny, kv_lora_rank: 64, q_lora_rank: 96, "
       "qk_nope_head_dim: 32, qk_rope_head_dim: 16, v_head_dim: 32, "
       "mtp_layers: 0, lora_rank: 0}\n"
       "strategy: {pp: 2, microbatches: 4}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"layers of several kinds",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny, pattern: M-G-*-M-, mamba_heads: 4, "
       "mamba_head_dim: 128, mamba_groups: 1, mamba_state: 16, "
       "delta_key_heads: 2, delta_value_heads: 4, delta_key_dim: 32, "
       "delta_value_dim: 32}\n"
       "strategy: {pp: 2, microbatches: 4, launch: graphs}\n"
       "costs: {analytic: {device: h100}}\nengine: fast\n"},
      {"profile",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "strategy: {pp: 4, microbatches: 8}\n"
       "costs: {profile: FOLDER/tiny.txtpb, jitter: profile}\n"
       "engine: fast\n"},
      {"profile of another shape",
       "schedule: {name: zb-h1}\n"
       "model: {preset: gpt-tiny, ffn_hidden: 512}\n"
       "strategy: {pp: 4, microbatches: 8}\n"
       "costs: {profile: FOLDER/beside.txtpb, scale_shapes: true}\n"
       "engine: fast\n"},
      {"planned",
       "schedule: {name: zb-auto}\n"
       "strategy: {pp: 4, microbatches: 8, max_activations: 6}\n"
       "costs: {TIMES, p2p: 1ms, held_until_weight: 0.5}\n"
       "engine: fast\n"},
      {"every kind of pass",
       "schedule: {file: FOLDER/every.pws}\n"
       "costs: {uniform: {forward: 3ms, backward_input: 5ms, "
       "backward_weight: 7ms, recompute: 3ms, offload: 1ms, load: 1ms}, "
       "p2p: 1ms, pair_factor: 0.8}\nengine: fast\n"},
      {"offloads",
       "schedule: {name: po-f}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-a100}\n"
       "strategy: {pp: 4, vpp: 2, dp: 1, microbatches: 8}\n"
       "costs: {TIMES, hop_bytes: 1MiB}\nengine: simgrid\n"},
      {"given ratio",
       "schedule: {name: po-h}\n"
       "strategy: {pp: 4, vpp: 2, microbatches: 8}\n"
       "costs: {TIMES, p2p: 1ms, offload_ratio: 1}\nengine: fast\n"},
      {"post-validated",
       "schedule: {name: zb-h1}\n"
       "strategy: {pp: 4, microbatches: 8, optimizer: post-validated, "
       "rollback_iterations: [1]}\n"
       "costs: {TIMES, p2p: 1ms, optimizer_time: 4ms, "
       "validation_time: 1ms, rollback_time: 5ms}\nengine: fast\n"},
      {"optimizer on the host",
       "schedule: {name: 1f1b}\n"
       "system: HOST\n"
       "strategy: {pp: 2, dp: 2, microbatches: 4, data_parallel: zero1, "
       "optimizer_placement: deep-optimizer-states, optimizer_stride: 3, "
       "subgroup_size: 1e7, optimizer_ratio: 0.9}\n"
       "costs: {TIMES, hop_bytes: 64MiB, gradient_bytes: 1GiB}\n"
       "engine: simgrid\n"},
      {"gradients that block",
       "schedule: {name: 1f1b}\n"
       "system: HOST\n"
       "strategy: {pp: 2, microbatches: 4, optimizer_placement: twinflow, "
       "subgroup_size: 1e7, optimizer_ratio: 0.5}\n"
       "costs: {TIMES, hop_bytes: 64MiB, gradient_bytes: 1GiB}\n"
       "engine: fast\n"},
      {"classes of replicas",
       "strategy: {pp: 2, data_parallel: ddp, dp_classes: {replicas: [2, 1], "
       "microbatches: [4, 3], slower: [1, 2], slow_rank: [-1, 1], "
       "microbatch_factor: [1, 1, 1, 1, 1, 2, 1], schedule: [1f1b, gpipe]}}\n"
       "costs: {TIMES, p2p: 1ms, gradient_bytes: 1MiB}\nengine: fast\n"},
      {"slow and failing",
       "schedule: {name: 1f1b}\n"
       "system: NARROW\n"
       "strategy: {pp: 2, microbatches: 4, dp: 4, data_parallel: ddp}\n"
       "costs: {TIMES, hop_bytes: 64MiB, gradient_bytes: 8GiB}\n"
       "slow: {devices: [node0*1.1], devices_law: 'lognormal:5%', "
       "links: [node0/nic0*1.5], links_law: 'uniform:1-2', seed: 2}\n"
       "reliability: {mtbf_per_device: 10h, checkpoint_every: 20min, "
       "checkpoint_write: 1min, restart: 5min, horizon: 12h, seeds: 20, "
       "seed: 3}\nengine: fast\n"},
      {"never flushed",
       "schedule: {name: pipeoptim}\n"
       "strategy: {pp: 2, microbatches: 4}\n"
       "costs: {TIMES, optimizer_time: 1ms, prediction_time: 2ms}\n"
       "engine: fast\n"},
      {"lengths",
       "schedule: {name: 1f1b}\n"
       "strategy: {pp: 2, dp: 2, data_parallel: ddp}\n"
       "sequences: {lengths: FOLDER/lengths.csv, packer: lb-micro, "
       "packer_cost: fit, minibatch: 4, max_token_len: 6000, seed: 1}\n"
       "costs: {TIMES, hop_bytes: 64MiB, gradient_bytes: 8GiB}\n"
       "system: {preset: dgx-a100}\nengine: fast\n"},
      {"histogram of lengths",
       "schedule: {name: 1f1b}\n"
       "model: {preset: gpt-tiny}\n"
       "strategy: {pp: 2, dp: 2, data_parallel: zero1}\n"
       "sequences: {histogram: [16-64:1, 128:2], packer: lb-mini, "
       "minibatch: 6}\n"
       "costs: {TIMES, p2p: 1ms}\nengine: fast\n"},
      {"slices",
       "schedule: {name: seq1f1b, params: {balance: flops}}\n"
       "model: {preset: gpt-tiny}\n"
       "strategy: {pp: 2, microbatches: 4, slices: 4}\n"
       "costs: {TIMES, p2p: 1ms}\nengine: fast\n"},
      {"both directions",
       "schedule: {name: dualpipe}\n"
       "model: {preset: gpt-tiny}\n"
       "system: {preset: dgx-h100}\n"
       "strategy: {pp: 4, dp: 1, microbatches: 8}\n"
       "costs: {TIMES, pair_factor: 0.8}\nengine: fast\n"},
      {"files",
       "schedule: {file: FOLDER/plain.pws}\n"
       "model: {hf: FOLDER/config.json}\n"
       "system: {file: FOLDER/toy.textproto}\n"
       "costs: {per_stage: {forward: [3ms, 4ms], backward_input: [5ms, 6ms], "
       "backward_weight: [7ms, 8ms]}}\nengine: fast\n"},
  };
}

}  // namespace

BaseRuns::BaseRuns() : runs_(Runs()) {
  folder_.Write("every.pws", kEveryKind);
  folder_.Write("pair.pws", kPair);
  folder_.Write("plain.pws", kPlain);
  folder_.Write("lengths.csv",
                "length\n3000\n100\n2500\n900\n4000\n1700\n300\n"
                "2000\n1100\n600\n");
  folder_.Write("config.json", kHuggingFace);
  folder_.Write("wide.json",
                absl::StrReplaceAll(kHuggingFace, {{"512", "1024"}}));
  folder_.Write("toy.textproto", kSystem);
  folder_.Write("slow.textproto",
                absl::StrReplaceAll(kSystem, {{"9us", "90us"}}));
  Profile profile = TinyProfile();
  folder_.Write("tiny.txtpb", WriteProfile(profile));
  for (const ProfilePass pass :
       {ProfilePass::kForward, ProfilePass::kBackwardInput,
        ProfilePass::kBackwardWeight}) {
    for (int beside = 0; beside < kNumBeside; ++beside) {
      profile.interference.push_back({.pass = pass,
                                      .beside = static_cast<Beside>(beside),
                                      .pass_slowdown = 1.2,
                                      .pass_low = 1.19,
                                      .pass_high = 1.21,
                                      .beside_slowdown = 1.1,
                                      .beside_low = 1.09,
                                      .beside_high = 1.11});
    }
  }
  folder_.Write("beside.txtpb", WriteProfile(profile));
  for (PassEntry& entry : profile.passes) entry.time = Around(1234);
  folder_.Write("slow.txtpb", WriteProfile(profile));
  for (BaseRun& run : runs_) {
    run.yaml = Value(run.yaml);
    folder_.Write(run.name + ".yaml", run.yaml);
  }
}

std::string BaseRuns::PathOf(const std::string& name) const {
  for (const BaseRun& run : runs_) {
    if (run.name == name) return folder_.Path(name + ".yaml");
  }
  PW_CHECK(false);
  return "";
}

std::string BaseRuns::Value(const std::string& value) const {
  return absl::StrReplaceAll(value, {{"FOLDER/", folder_.Path("")},
                                     {"TIMES", kTimes},
                                     {"NARROW", kNarrow},
                                     {"TREE", kTree},
                                     {"HOST", kHost}});
}

}  // namespace pipewright::testing

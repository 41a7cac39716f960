#include "absl/strings/match.h"
#include "tests/support/base_runs.h"

namespace pipewright::testing {
namespace {

std::vector<FieldSample> ModelSamples() {
  const std::string latent = "latent attention";
  return {
      {"model.preset", "model", {"gpt-tiny", "moe-tiny"}},
      {"model.hf", "files", {"FOLDER/config.json", "FOLDER/wide.json"}},
      {"model.layers", "model", {"16", "32"}},
      {"model.hidden", "model", {"256", "512"}},
      {"model.heads", "estimates", {"8", "16"}},
      {"model.kv_heads", "model", {"4", "2"}},
      {"model.ffn_hidden", "model", {"1024", "512"}},
      {"model.gated", "model", {"true", "false"}},
      {"model.vocabulary", "model", {"512", "1024"}},
      {"model.sequence", "model", {"64", "256"}},
      {"model.tied_embeddings", "a device alone", {"true", "false"}},
      {"model.head_dim", "model", {"32", "128"}},
      {"model.causal", "estimates", {"true", "false"}},
      {"model.dropout", "model", {"true", "false"}},
      {"model.layer_norm", "model", {"true", "false"}},
      {"model.qkv_bias", "model", {"true", "false"}},
      {"model.bias", "model", {"true", "false"}},
      {"model.qk_norm", "model", {"true", "false"}},
      {"model.final_norm", "model", {"true", "false"}},
      {"model.positions", "model", {"256", "512"}},
      {"model.token_types", "model", {"2", "4"}},
      {"model.embedding_norm", "model", {"true", "false"}},
      {"model.pooler", "model", {"true", "false"}},
      {"model.masked_lm_head", "model", {"true", "false"}},
      {"model.experts", "experts", {"8", "16"}},
      {"model.experts_per_token", "experts", {"1", "2"}},
      {"model.expert_ffn_hidden", "experts", {"128", "256"}},
      {"model.shared_ffn_hidden", "experts", {"128", "256"}},
      {"model.first_dense_layers", "experts", {"1", "2"}},
      {"model.q_lora_rank", latent, {"64", "128"}},
      {"model.kv_lora_rank", latent, {"64", "128"}},
      {"model.qk_nope_head_dim", latent, {"16", "64"}},
      {"model.qk_rope_head_dim", latent, {"16", "32"}},
      {"model.v_head_dim", latent, {"16", "64"}},
      {"model.mtp_layers", latent, {"1", "2"}},
      {"model.frozen_layers", "model", {"2", "4"}},
      {"model.lora_rank", "model", {"4", "8"}},
  };
}

std::vector<FieldSample> SystemSamples() {
  const std::string cards = "shared cards";
  return {
      {"system.preset", "one node", {"dgx-h100", "dgx-a100"}},
      {"system.file",
       "files",
       {"FOLDER/toy.textproto", "FOLDER/slow.textproto"}},
      {"system.nodes", cards, {"2", "1"}},
      {"system.shape", cards, {"nic-switch", "node"}},
      {"system.devices_per_node", cards, {"4", "2"}},
      {"system.nics_per_node", cards, {"1", "4"}},
      {"system.pcie_per_switch", "offloads", {"1", "2"}},
      {"system.nodes_per_leaf", "fat tree", {"1", "2"}},
      {"system.oversubscription", "fat tree", {"1", "16"}},
      {"system.params",
       "fat tree",
       {"nodes_per_leaf=1", "nodes_per_leaf=2", "oversubscription=16"}},
      {"system.nvlink.bandwidth", "one node", {"200GBps", "1GBps"}},
      {"system.nvlink.latency", "one node", {"1us", "1ms"}},
      {"system.nic.bandwidth", cards, {"5GBps", "1GBps"}},
      {"system.nic.latency", cards, {"1us", "1ms"}},
      {"system.pcie.bandwidth", "optimizer on the host", {"16GBps", "32GBps"}},
      {"system.pcie.latency", "optimizer on the host", {"2us", "1ms"}},
      {"system.host.memory_bandwidth",
       "optimizer on the host",
       {"40GBps", "20GBps"}},
      {"system.host.adam_bytes_per_parameter",
       "optimizer on the host",
       {"28", "56"}},
      {"system.host.cast_bytes_per_parameter",
       "optimizer on the host",
       {"8", "40"}},
      {"system.host.adam_rate", "optimizer on the host", {"1e9", "1e8"}},
      {"system.host.cast_rate", "optimizer on the host", {"2e9", "1e8"}},
      {"system.host.flush_rate", "gradients that block", {"1e9", "2e9"}},
      {"system.host.slots", "optimizer on the host", {"1", "2"}},
      {"system.host.device_adam_rate",
       "optimizer on the host",
       {"2.5e10", "1e9"}},
      {"system.device_name", "estimates", {"H100 SXM5 80GB", "A100 SXM4 80GB"}},
      {"system.memory", "model", {"1GiB", "80GiB"}},
      {"system.host_memory", "offloads", {"1MiB", "80GiB"}},
  };
}

std::vector<FieldSample> StrategySamples() {
  return {
      {"strategy.pp", "delay", {"4", "2"}},
      {"strategy.vpp", "model", {"1", "2"}},
      {"strategy.tp", "model", {"1", "2", "4"}},
      {"strategy.sequence_parallel", "model", {"true", "false"}},
      {"strategy.scatter_gather", "estimates", {"true", "false"}},
      {"strategy.cp", "estimates", {"1", "2", "4"}},
      {"strategy.ep", "experts", {"1", "2", "4"}},
      {"strategy.dp", "one node", {"1", "2", "4"}},
      {"strategy.microbatches", "delay", {"4", "8"}},
      {"strategy.microbatch_size", "model", {"1", "2"}},
      {"strategy.sequence", "model", {"128", "256"}},
      {"strategy.slices", "slices", {"2", "4"}},
      {"strategy.data_parallel",
       "one node",
       {"none", "ddp", "zero1", "zero2", "fsdp"}},
      {"strategy.overlap_gradients", "reduced chunks", {"true", "false"}},
      {"strategy.shard_blocks", "shards", {"pass", "run"}},
      {"strategy.waiting", "one node", {"buffered", "rendezvous", "batched"}},
      {"strategy.mapping",
       "shared cards",
       {"dp-pp", "pp-dp", "7,6,5,4,3,2,1,0"}},
      {"strategy.optimizer",
       "free hops",
       {"none", "synchronised", "post-validated"}},
      {"strategy.validation", "post-validated", {"no-wait", "released"}},
      {"strategy.rollback_iterations", "post-validated", {"1", "1,3"}},
      {"strategy.optimizer_placement",
       "gradients that block",
       {"gpu", "zero-offload", "twinflow", "deep-optimizer-states",
        "superoffload"}},
      {"strategy.optimizer_ratio", "gradients that block", {"0.5", "0.9"}},
      {"strategy.optimizer_stride", "optimizer on the host", {"3", "4"}},
      {"strategy.subgroup_size", "optimizer on the host", {"1e7", "2e7"}},
      {"strategy.gradient_flush",
       "gradients that block",
       {"blocking", "asynchronous"}},
      {"strategy.max_activations", "delay", {"0.5", "8"}},
      {"strategy.gradient_bytes_per_parameter", "model", {"2", "4"}},
      {"strategy.parameter_bytes_per_parameter", "model", {"2", "4"}},
      {"strategy.master_bytes_per_parameter", "model", {"2", "4"}},
      {"strategy.moment_bytes_per_parameter", "model", {"4", "8"}},
      {"strategy.recompute",
       "estimates",
       {"none", "full", "selective", "norm-activation"}},
      {"strategy.recompute_chunks", "estimates across nodes", {"0", "1"}},
      {"strategy.attention", "estimates", {"flash", "unfused"}},
      {"strategy.precision", "estimates", {"bf16", "fp8"}},
      {"strategy.fused_cross_entropy", "model", {"true", "false"}},
      {"strategy.layers", "model on links", {"8,8", "7,9"}},
      {"strategy.layout", "model on links", {"Et*8|t*8L", "Et*7|t*9L"}},
      {"strategy.split", "files", {"even", "balanced"}},
      {"strategy.vocabulary", "model", {"ends", "spread"}},
      {"strategy.zero", "model on links", {"0", "1", "2", "3"}},
      {"strategy.memory_context", "model", {"0.5GiB", "2GiB"}},
      {"strategy.fragmentation", "model", {"0.1", "0.2"}},
      {"strategy.offload", "offloads", {"none", "selective"}},
      {"strategy.offload_chunks", "offloads", {"0", "1"}},
      {"strategy.offload_fraction", "offloads", {"0.1", "0.5"}},
      {"strategy.offload_sharing", "offloads", {"together", "in-turn"}},
  };
}

std::vector<FieldSample> OtherSamples() {
  const std::string every = "every kind of pass";
  return {
      {"schedule.name", "delay", {"1f1b", "gpipe"}},
      {"schedule.file", "files", {"FOLDER/plain.pws", "FOLDER/pair.pws"}},
      {"schedule.params", every, {"pair=joint", "pair=dependencies"}},
      {"costs.uniform.forward", "delay", {"3ms", "4ms"}},
      {"costs.uniform.backward_input", "delay", {"3ms", "4ms"}},
      {"costs.uniform.backward_weight", "delay", {"3ms", "4ms"}},
      {"costs.uniform.backward", "delay", {"6ms", "8ms"}},
      {"costs.uniform.recompute", every, {"2ms", "4ms"}},
      {"costs.uniform.offload", every, {"1ms", "20ms"}},
      {"costs.offload_ratio", "given ratio", {"0.2", "4"}},
      {"costs.uniform.load", every, {"1ms", "20ms"}},
      {"costs.per_stage.forward", "model on links", {"3ms,4ms", "4ms,3ms"}},
      {"costs.per_stage.backward_input",
       "model on links",
       {"3ms,4ms", "4ms,3ms"}},
      {"costs.per_stage.backward_weight",
       "model on links",
       {"3ms,4ms", "4ms,3ms"}},
      {"costs.per_stage.backward", "model on links", {"6ms,8ms", "8ms,6ms"}},
      {"costs.microbatch_factor", "model on links", {"1,2,1,2", "1,1,1,4"}},
      {"costs.slice_factor", "slices", {"1,1,1,1", "0.5,1,1,1.5"}},
      {"costs.p2p", "delay", {"1ms", "2ms"}},
      {"costs.hop_bytes", "one node", {"1MiB", "64MiB"}},
      {"costs.gradient_bytes", "one node", {"1MiB", "1GiB"}},
      {"costs.optimizer_time", "post-validated", {"1ms", "4ms"}},
      {"costs.validation_time", "post-validated", {"1ms", "9ms"}},
      {"costs.rollback_time", "post-validated", {"1ms", "4ms"}},
      {"costs.prediction_time", "never flushed", {"1ms", "4ms"}},
      {"costs.held_until_weight", "free hops", {"0.25", "0.75"}},
      {"costs.pair_factor", every, {"0.7", "0.9"}},
      {"costs.profile", "profile", {"FOLDER/tiny.txtpb", "FOLDER/slow.txtpb"}},
      {"costs.scale_shapes", "profile of another shape", {"true", "false"}},
      {"costs.jitter", "delay", {"none", "3%", "profile"}},
      {"costs.seed", "profile", {"1", "2"}},
      {"costs.interference", "profile of another shape", {"on", "off"}},
      {"costs.analytic.device", "estimates", {"h100", "a100"}},
      {"costs.price_per_device_hour", "model", {"1", "2"}},
      {"engine", "shared cards", {"fast", "simgrid"}},
      {"network", "shared cards", {"native", "fluid"}},
      {"iterations", "delay", {"1", "3"}},
  };
}

}  // namespace

bool FieldSample::is_mapping() const { return absl::EndsWith(path, ".params"); }

const std::vector<FieldSample>& FieldSamples() {
  static const std::vector<FieldSample> samples = [] {
    std::vector<FieldSample> all;
    for (const std::vector<FieldSample>& part :
         {ModelSamples(), SystemSamples(), StrategySamples(), OtherSamples()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return samples;
}

}  // namespace pipewright::testing

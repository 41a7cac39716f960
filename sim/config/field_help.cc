#include "sim/config/field_help.h"

#include <string>
#include <unordered_map>

#include "sim/config/execution_help.h"
#include "sim/config/reality_help.h"

namespace pipewright {
namespace {

// Tables longer than a screen are easier to read in parts.
std::vector<FieldHelp> ModelHelp() {
  return {
      {"model.preset", "", "model by name (pipewright list models)"},
      {"model.hf", "", "a Hugging Face config.json"},
      {"model.layers", "",
       "transformer layers, without those of model.mtp_layers"},
      {"model.hidden", "", "width of the residual stream"},
      {"model.heads", "", "attention heads"},
      {"model.kv_heads", "model.heads",
       "heads of keys and values; fewer than model.heads mean grouped queries"},
      {"model.head_dim", "hidden / heads", "width of one head"},
      {"model.ffn_hidden", "", "width inside a dense feed-forward part"},
      {"model.vocabulary", "", "rows of the embedding table"},
      {"model.sequence", "", "tokens of a sample"},
      {"model.positions", "0", "rows of a learned position table"},
      {"model.token_types", "0", "rows of BERT's segment table"},
      {"model.experts", "0", "experts of a layer; 0 makes the model dense"},
      {"model.experts_per_token", "0", "experts that one token uses"},
      {"model.expert_ffn_hidden", "0", "width inside one expert"},
      {"model.shared_ffn_hidden", "0",
       "width inside all shared experts together"},
      {"model.first_dense_layers", "0", "layers at the start without experts"},
      {"model.q_lora_rank", "0",
       "latent attention: rank of the compressed queries; 0 leaves them as "
       "they are"},
      {"model.kv_lora_rank", "0",
       "latent attention (DeepSeek-V2): rank of keys and values; 0 means "
       "ordinary attention"},
      {"model.qk_nope_head_dim", "0",
       "latent attention: width of a query head without rotary embedding"},
      {"model.qk_rope_head_dim", "0",
       "latent attention: width of a query head with rotary embedding"},
      {"model.v_head_dim", "0", "latent attention: width of a value head"},
      {"model.mtp_layers", "0",
       "layers of multi-token prediction (DeepSeek-V3)"},
      {"model.frozen_layers", "0",
       "fine-tuning: this many layers at the start, and the embedding, are not "
       "trained"},
      {"model.lora_rank", "0",
       "fine-tuning: all weights are frozen, and each linear layer has trained "
       "adapters of this rank"},
      {"model.window", "0",
       "tokens that attention looks back on; 0 means all before"},
      {"model.full_attention_every", "0",
       "with model.window: one layer of every N looks back on all; 0 means "
       "none"},
      {"model.gated", "false", "the feed-forward part has a gate (SwiGLU)"},
      {"model.tied_embeddings", "false",
       "embedding and output head share one table"},
      {"model.causal", "true", "attention is causal"},
      {"model.dropout", "false",
       "dropout masks are kept for the backward pass"},
      {"model.layer_norm", "false",
       "norms have a weight and a bias; RMSNorm has the weight alone"},
      {"model.qkv_bias", "false", "queries, keys and values have a bias"},
      {"model.bias", "false", "every other linear layer of a block has a bias"},
      {"model.qk_norm", "false", "queries and keys have a norm of their own"},
      {"model.final_norm", "true", "a norm follows the last layer"},
      {"model.embedding_norm", "false", "a norm follows the embedding (BERT)"},
      {"model.pooler", "false", "BERT's pooler"},
      {"model.masked_lm_head", "false",
       "BERT's head for masked language modelling"},
  };
}

std::vector<FieldHelp> SystemHelp() {
  return {
      {"system.preset", "", "system by name (pipewright list systems)"},
      {"system.file", "", "a system file (text protobuf)"},
      {"system.nodes", "as many as the run needs", "nodes of the system"},
      {"system.shape", "the system's",
       "how devices are connected (pipewright list topologies)"},
      {"system.devices_per_node", "1", "devices of a node"},
      {"system.nics_per_node", "0",
       "network cards of a node, shared by its devices in equal blocks; 0 "
       "gives each device its own"},
      {"system.pcie_per_switch", "1",
       "devices that share one link to the host's memory"},
      {"system.params", "",
       "parameters that only some shapes have (pipewright list topologies)"},
      {"system.nvlink.bandwidth", "",
       "from a device to its node's switch, one direction"},
      {"system.nvlink.latency", "0", "of that link alone"},
      {"system.nic.bandwidth", "",
       "of one network card, from the node to the network, one direction"},
      {"system.nic.latency", "0", "of that link alone"},
      {"system.pcie.bandwidth", "",
       "from a PCIe switch to the host's memory, one direction"},
      {"system.pcie.latency", "0", "of that link alone"},
      {"system.host.memory_bandwidth", "",
       "of host memory, one device's share of its node: copies of all its "
       "devices and the host's steps share what they have together; steps "
       "for a device get no more than its share"},
      {"system.host.adam_bytes_per_parameter", "28",
       "bytes of host memory that a step reads and writes for a parameter"},
      {"system.host.cast_bytes_per_parameter", "8",
       "the same of a cast to bf16"},
      {"system.host.adam_rate", "what memory allows",
       "parameters a second that the host steps for a device at most"},
      {"system.host.cast_rate", "what memory allows",
       "parameters a second that it casts at most"},
      {"system.host.flush_rate", "",
       "gradients a second to the host while the device waits "
       "(strategy.gradient_flush blocking)"},
      {"system.host.slots", "2",
       "operations of the host at once for a device; 1 never casts beside a "
       "step"},
      {"system.host.device_adam_rate", "2.5e10",
       "parameters a second that the device steps, or casts, of an optimizer "
       "on the host"},
      {"system.device_name", "the system's",
       "device of the system, as --analytic looks it up"},
      {"system.memory", "the system's",
       "memory of one device; exit code 3 where a rank needs more"},
      {"system.host_memory", "the system's",
       "memory of the host of a node, a limit for what is kept there"},
  };
}

std::vector<FieldHelp> StrategyHelp() {
  return {
      {"strategy.pp", "", "pipeline ranks"},
      {"strategy.vpp", "the schedule's, 1 or 2",
       "stages of each rank (chunks)"},
      {"strategy.tp", "1", "degree of tensor parallelism"},
      {"strategy.sequence_parallel",
       "true where tp is above 1; false with framework megatron and no experts",
       "norms and residuals are split over tp too"},
      {"strategy.scatter_gather", "true with costs.analytic or costs.profile",
       "without sequence parallelism each device sends 1/tp of a hop's bytes "
       "and the receivers gather them"},
      {"strategy.cp", "1", "degree of context parallelism"},
      {"strategy.ep", "1",
       "degree of expert parallelism, within dp * cp * tp / etp"},
      {"strategy.dp",
       "1; with strategy.global_batch and system.nodes, as many as there are "
       "devices for",
       "data-parallel replicas"},
      {"strategy.dp_classes.replicas", "",
       "data-parallel replicas of each class; those of a class run the same "
       "(docs/dp_classes.md)"},
      {"strategy.dp_classes.microbatches", "strategy.microbatches of each",
       "microbatches of a replica, a class"},
      {"strategy.dp_classes.slower", "1 for each",
       "factor on the pass and step times, a class"},
      {"strategy.dp_classes.slow_rank", "-1 for each",
       "the rank of each replica that strategy.dp_classes.slower concerns, a "
       "class; -1: all of them"},
      {"strategy.dp_classes.microbatch_factor", "costs.microbatch_factor",
       "factor on all pass times of each microbatch, class after class"},
      {"strategy.dp_classes.schedule", "schedule.name of each",
       "a registered schedule, a class"},
      {"strategy.global_batch", "",
       "what all replicas train on in one iteration, in samples (1024) or "
       "tokens (4Mtokens); strategy.microbatches follows from it"},
      {"strategy.microbatches",
       "with strategy.global_batch, that over dp and microbatch_size",
       "microbatches of one iteration of one data-parallel replica; a "
       "bidirectional schedule counts both directions"},
      {"strategy.microbatch_size", "1", "samples of a microbatch"},
      {"strategy.sequence", "the model's", "tokens of a sample"},
      {"strategy.slices", "1", "sequence slices of a microbatch"},
      {"strategy.data_parallel",
       "none; what strategy.zero says where the size of the gradients is known",
       "how replicas share gradients, optimizer states and weights"},
      {"strategy.overlap_gradients", "true",
       "each chunk's gradients are reduced as soon as they are complete; false "
       "waits for the last pass"},
      {"strategy.shard_blocks", "pass; unit where the schedule has units",
       "zero2 and fsdp communicate for each pass, each run of passes of one "
       "chunk, each unit of microbatches, or (fsdp) each layer, as FSDP2; odc "
       "always for each layer"},
      {"strategy.reshard_after_forward", "true",
       "layer by layer: a layer is given up after its forward and gathered "
       "again for its backward; false keeps it"},
      {"strategy.shard_group", "all replicas",
       "layer by layer: replicas that one copy of the weights is sharded over, "
       "next to each other (HSDP)"},
      {"strategy.near_group", "all of shard_group",
       "layer by layer: replicas among which backwards gather (ZeRO++ hpZ); of "
       "odc all gathers but one a minibatch"},
      {"strategy.gather_type", "bf16; fp32 with odc",
       "layer by layer: the type of the weights on their way"},
      {"strategy.one_comm_stream", "true",
       "layer by layer: gathers and reductions take turns on one stream"},
      {"strategy.pull_flows", "together",
       "odc: a gather is one activity inside a node and one across nodes; "
       "apart makes every pull a flow of its own"},
      {"strategy.owner_poll", "100us",
       "odc: time between two looks of an owner's process at its requests"},
      {"strategy.waiting", "buffered",
       "which ranks a transfer blocks: buffered blocks none, rendezvous both, "
       "batched both for all transfers between two passes together, stepped "
       "neighbours in each time step of the order"},
      {"strategy.collectives", "ring",
       "how gradients and parameters go over several nodes: ring, tree "
       "(double binary, of all-reduce), hierarchical (inside nodes, then over "
       "them), or the fastest of these for each size; what is measured is "
       "taken before any"},
      {"strategy.mapping", "dp-pp",
       "where ranks are: dp-pp, pp-dp or another order of tp, cp, ep, dp and "
       "pp, the fastest first (tp-pp-dp), bitpipe, host-balance (each node has "
       "early and late ranks), or the device of each rank, replica after "
       "replica (0,1,2,3)"},
      {"strategy.optimizer",
       "none; synchronised with costs.analytic or costs.profile",
       "when ranks step: synchronised waits for the gradient norm of all "
       "ranks, "
       "post-validated steps first and checks afterwards"},
      {"strategy.validation", "no-wait",
       "where a post-validated step is checked: no-wait is where no rank "
       "waits, "
       "released is where the zero-bubble paper's code does it"},
      {"strategy.rollback_iterations", "",
       "iterations, from 0, whose post-validated step fails and is undone"},
      {"strategy.optimizer_placement", "gpu",
       "where the optimizer's states are and who steps (docs/"
       "offload_optimizers.md)"},
      {"strategy.optimizer_ratio", "1",
       "share of the subgroups that the host has; the others stay on the "
       "device"},
      {"strategy.optimizer_stride", "0",
       "the device steps one subgroup of every N; 0 chooses N from the "
       "host's and the link's speed"},
      {"strategy.subgroup_size", "1e8",
       "parameters that are stepped together, at most"},
      {"strategy.gradient_flush",
       "blocking with zero-offload and twinflow, else asynchronous",
       "whether the device waits while gradients go to the host"},
      {"strategy.max_activations", "",
       "limit of a rank's activations in microbatches; planners keep to it"},
      {"strategy.gradient_bytes_per_parameter", "4", "bytes of a gradient"},
      {"strategy.parameter_bytes_per_parameter", "2", "bytes of a weight"},
      {"strategy.master_bytes_per_parameter", "4", "bytes of a master weight"},
      {"strategy.moment_bytes_per_parameter", "8",
       "bytes of both moments of the optimizer"},
      {"strategy.recompute", "none",
       "what the backward pass computes again instead of keeping it"},
      {"strategy.recompute_chunks", "all",
       "the chunks of a rank for which strategy.recompute holds"},
      {"strategy.recompute_layers", "all",
       "the first so many layers of each stage, for which strategy.recompute "
       "holds"},
      {"strategy.recompute_stops_early",
       "false; true with framework torchtitan",
       "the forward that runs again ends with the last operation that the "
       "backward needs (early_stop of torch.utils.checkpoint)"},
      {"strategy.attention", "flash",
       "flash never stores the scores, unfused does"},
      {"strategy.precision", "bf16",
       "of the operands of linear layers; recipes of 8 bit differ in their "
       "scales: one a tensor, known (fp8) or searched (fp8-tensorwise), for "
       "128 "
       "values (fp8-block), for 32 (mxfp8); nvfp4 has 4 bit"},
      {"strategy.fused_cross_entropy", "true; false with a framework",
       "cross-entropy overwrites the logits; false keeps a copy in fp32"},
      {"strategy.fused_optimizer", "true",
       "with estimated times: Adam as one kernel; false: a kernel for each of "
       "its operations, as PyTorch has it with foreach, 2.8 times as long"},
      {"strategy.plain_cross_entropy",
       "false; true with framework torchtitan and deepspeed",
       "cross-entropy without fusion as plain PyTorch computes it, in fp32 "
       "with "
       "a copy for each step of it; false: in place, as Megatron-LM does"},
      {"strategy.whole_gradients",
       "false; true with framework torchtitan and "
       "pp above 1",
       "layer by layer: gradients are reduced once a step and kept whole until "
       "then; without reshard_after_forward layers are gathered once a step "
       "too"},
      {"strategy.shard_copies",
       "false; true with framework torchtitan and fsdp layer by layer",
       "layer by layer: estimated passes copy layers out of what was gathered, "
       "and gradients into the buffer that is reduced (FSDP2)"},
      {"strategy.framework", "",
       "a training framework whose defaults hold for what is not given"},
      {"strategy.layers", "", "layers of each stage, pp * vpp numbers"},
      {"strategy.layout", "", "Megatron's layout string: Et*3|(tt|)*29,m|L"},
      {"strategy.split", "even",
       "layers over stages: the same number on each, or the same FLOPs on each "
       "rank"},
      {"strategy.vocabulary", "ends",
       "embedding and head on the first and last stage, or a part of both on "
       "every rank"},
      {"strategy.zero", "strategy.data_parallel's",
       "ZeRO stage, another word for strategy.data_parallel ddp (0), zero1, "
       "zero2, fsdp (3)"},
      {"strategy.memory_context", "1GiB; 0 on a CPU",
       "memory of a device outside the allocator: CUDA context, kernels, "
       "buffers of NCCL"},
      {"strategy.fragmentation", "0",
       "what the allocator holds beyond its peak, as a share of the peak"},
      {"strategy.offload", "the schedule's, else none",
       "activations that wait on the host: the half that lives longest "
       "(selective) or all (full), as far as no pass has to wait for a copy"},
      {"strategy.offload_chunks", "selective: the half that lives longest",
       "the chunks of a rank whose activations may go"},
      {"strategy.offload_fraction", "selective: 0.5 with one chunk; full: 1",
       "the part of a rank's activations that may go, the longest-lived ones"},
      {"strategy.offload_sharing", "together",
       "copies of devices behind one PCIe switch: together, each with its part "
       "of the bandwidth, or one after the other in each direction"},
      {"strategy.offload_tensors", "input,attention,mlp",
       "which activations of a layer a copy takes: its input, those of "
       "attention, those of the feed-forward part; what is kept outside of "
       "layers goes with the input"},
  };
}

std::vector<FieldHelp> CostHelp() {
  return {
      {"schedule.name", "",
       "a registered schedule (pipewright list schedules)"},
      {"schedule.file", "", "a schedule file, instead of a name"},
      {"schedule.params", "", "the schedule's own parameters"},
      {"costs.uniform.forward", "1s",
       "F of one microbatch through all stages of a rank"},
      {"costs.uniform.backward_input", "1s",
       "B, the gradient of the input, in the same way"},
      {"costs.uniform.backward_weight", "1s",
       "W, the gradient of the weights, in the same way"},
      {"costs.uniform.backward", "",
       "B and W together, instead of the two: each takes half"},
      {"costs.uniform.recompute", "the forward's",
       "R, a forward pass that is computed again"},
      {"costs.uniform.offload", "0",
       "O, the activations of one microbatch to the host"},
      {"costs.uniform.load", "0", "L, the same back to the device"},
      {"costs.offload_ratio", "",
       "k of PipeOffload: O and L of a chunk over its F, B and W; half of it "
       "is each"},
      {"costs.per_stage.forward", "",
       "F of one microbatch through each stage, pp * vpp times"},
      {"costs.per_stage.backward_input", "", "B in the same way"},
      {"costs.per_stage.backward_weight", "", "W in the same way"},
      {"costs.per_stage.backward", "", "B and W together in the same way"},
      {"costs.microbatch_factor", "1 for each",
       "factor on all pass times of each microbatch"},
      {"costs.slice_factor", "1 for each",
       "factor on all pass times of each slice"},
      {"costs.p2p", "",
       "pure delay of a hop, instead of a network; the sender does not wait"},
      {"costs.hop_bytes", "the model's",
       "bytes of one microbatch over a hop, from each device of a rank"},
      {"costs.gradient_bytes", "the model's", "gradients of one rank"},
      {"costs.optimizer_time", "0; estimated or measured with such costs",
       "optimizer step of a rank"},
      {"costs.validation_time", "0", "check of a post-validated step"},
      {"costs.rollback_time", "the optimizer's", "time to undo a step"},
      {"costs.prediction_time", "0",
       "time to predict a rank's weights for one microbatch (pipeoptim)"},
      {"costs.held_until_weight",
       "1; the model's with costs.analytic or costs.profile",
       "part of a pass's activations that a split B keeps until its W"},
      {"costs.pair_factor", "1",
       "time of an overlapped pair (X&Y) over the time of X and then Y"},
      {"costs.profile", "",
       "a measured profile (pipewright list profiles, or a file), instead of "
       "given times"},
      {"costs.scale_shapes", "false",
       "measured times may be scaled to other layer shapes by their work"},
      {"costs.jitter", "none",
       "noise on each pass and step: profile draws from the measured "
       "quantiles, 3% is lognormal, uniform:5% even between 0.95 and 1.05"},
      {"costs.seed", "0", "seed of the noise"},
      {"costs.interference", "on where the profile has a matrix",
       "passes and copies or transfers beside them slow each other down as "
       "measured"},
      {"costs.analytic", "", "estimate pass times from the model and a device"},
      {"costs.analytic.device", "auto, the system's",
       "the device to estimate for: a name (pipewright list devices) or a "
       "file"},
      {"costs.analytic.silicon", "auto",
       "measured rates of kernels: auto takes the shipped tables but for "
       "A100, shipped those of A100 too, none has the curves alone; or a file "
       "(pipewright calibrate import --silicon)"},
      {"costs.analytic.clock", "sustained",
       "clocks of measured rates: sustained lowers them to what the board's "
       "power allows for long, burst leaves them as measured in "
       "milliseconds"},
      {"costs.analytic.kernels", "fused",
       "kernels of the framework: fused as Megatron-LM with Transformer "
       "Engine, compiled as PyTorch with torch.compile, eager as PyTorch "
       "without it"},
      {"costs.analytic.launch_time", "the device's",
       "what the host takes to launch one kernel (strategy.launch)"},
      {"costs.analytic.contention", "1.225 on an H100 (Hopper), else 1.189",
       "a pass beside collectives (of weights sharded by layer or pass, rings "
       "of context parallelism, the gather of W, overlapped exchanges of "
       "experts, braided ones) over the same alone; 1: they do not meet"},
      {"costs.analytic.speed_range", "0.08",
       "the fastest over the slowest device of a type under the limit of "
       "power, "
       "minus 1: all wait for the slowest one of the job"},
      {"costs.price_per_device_hour", "",
       "price of one device for an hour, in any currency"},
      {"sequences.lengths", "",
       "lengths of the samples: a law (longalign, longalign-mean, swe-smith, "
       "aime, constant:TOKENS, uniform:LOW-HIGH, "
       "lognormal:MEDIAN,SIGMA,LEAST,MOST) or a file of lengths"},
      {"sequences.histogram", "",
       "instead of it: LENGTH:WEIGHT or LOW-HIGH:WEIGHT, one or several"},
      {"sequences.packer", "lb-micro",
       "which samples a device gets, in which microbatches"},
      {"sequences.packer_cost", "linear",
       "what packers balance: tokens, the fit of ODC, or FLOPs of the model"},
      {"sequences.minibatch", "a file's samples over dp",
       "samples of a step and device"},
      {"sequences.max_token_len", "the longest sample",
       "tokens of a packed microbatch at most"},
      {"sequences.seed", "costs.seed",
       "seed of the lengths; a file without it gives its first ones"},
      {"engine", "simgrid; fast in a build without it",
       "simgrid shares links, fast does not"},
      {"network", "fluid",
       "network model of simgrid: fluid or native, with the same times"},
      {"iterations", "until the period is constant, at most 8",
       "iterations to simulate"},
  };
}

}  // namespace

const std::vector<FieldHelp>& AllFieldHelp() {
  static const auto* const rows = [] {
    auto* all = new std::vector<FieldHelp>(ModelHelp());
    for (const auto& part : {SystemHelp(), StrategyHelp(), ExecutionHelp(),
                             CostHelp(), RealityHelp()}) {
      all->insert(all->end(), part.begin(), part.end());
    }
    return all;
  }();
  return *rows;
}

const FieldHelp& HelpOfField(absl::string_view path) {
  static const auto* const by_path = [] {
    auto* map = new std::unordered_map<std::string, const FieldHelp*>;
    for (const FieldHelp& row : AllFieldHelp()) map->emplace(row.path, &row);
    return map;
  }();
  static constexpr FieldHelp kNone = {"", "", ""};
  const auto found = by_path->find(std::string(path));
  return found == by_path->end() ? kNone : *found->second;
}

}  // namespace pipewright

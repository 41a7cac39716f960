// The configuration of a run, typed: what a file, --set and flags say
// together (docs/architecture.md, Files). Nothing is resolved here: a preset is
// still a name and a default still absent; that is Prepare's (prepare.h).
//
// Units: seconds, bytes, bytes per second.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/config/config_edit.h"
#include "sim/config/dp_class_choice.h"
#include "sim/config/execution_choice.h"
#include "sim/config/reality_choice.h"
#include "sim/cost/framework_kernels.h"
#include "sim/model/training.h"
#include "sim/program/lower.h"
#include "sim/schedule/offload_mode.h"
#include "sim/sequences/packer.h"

namespace pipewright {

// The fields that a model has besides: model_fields.h.
struct ModelChoice {
  std::optional<std::string> preset;
  std::optional<std::string> hf;  // a Hugging Face config.json
  std::optional<int64_t> layers;
  std::optional<int64_t> hidden;
  std::optional<int64_t> heads;
  std::optional<int64_t> kv_heads;
  std::optional<int64_t> ffn_hidden;
  std::optional<bool> gated;
  std::optional<int64_t> vocabulary;
  std::optional<int64_t> sequence;
  std::optional<bool> tied_embeddings;
  std::optional<int64_t> head_dim;
  std::optional<bool> causal;
  std::optional<bool> dropout;
  std::optional<bool> layer_norm;
  std::optional<bool> qkv_bias;
  std::optional<bool> bias;
  std::optional<bool> qk_norm;
  std::optional<bool> final_norm;
  std::optional<int64_t> positions;
  std::optional<int64_t> token_types;
  std::optional<bool> embedding_norm;
  std::optional<bool> pooler;
  std::optional<bool> masked_lm_head;
  std::optional<int64_t> experts;
  std::optional<int64_t> experts_per_token;
  std::optional<int64_t> expert_ffn_hidden;
  std::optional<int64_t> shared_ffn_hidden;
  std::optional<int64_t> first_dense_layers;
  std::optional<int64_t> q_lora_rank;
  std::optional<int64_t> kv_lora_rank;
  std::optional<int64_t> qk_nope_head_dim;
  std::optional<int64_t> qk_rope_head_dim;
  std::optional<int64_t> v_head_dim;
  std::optional<int64_t> mtp_layers;
  std::optional<int64_t> frozen_layers;
  std::optional<int64_t> lora_rank;
  std::optional<int64_t> window;
  std::optional<int64_t> full_attention_every;
};

struct LinkChoice {
  std::optional<double> bytes_per_s;
  std::optional<double> latency_s;
};

// HostClass (sim/topology/registry.h), as far as it is given.
struct HostChoice {
  std::optional<double> bytes_per_s;
  std::optional<double> adam_bytes;
  std::optional<double> cast_bytes;
  std::optional<double> adam_rate;
  std::optional<double> cast_rate;
  std::optional<double> flush_rate;
  std::optional<int> slots;
  std::optional<double> device_adam_rate;
};

struct SystemChoice {
  std::optional<std::string> preset;
  std::optional<std::string> file;
  std::optional<int> nodes;
  std::optional<std::string> shape;
  std::optional<int> devices_per_node;
  std::optional<int> nics_per_node;
  std::optional<int> pcie_per_switch;
  std::map<std::string, std::string> params;  // that only some shapes have
  LinkChoice nvlink;
  LinkChoice nic;
  LinkChoice pcie;
  HostChoice host;
  std::optional<std::string> device_name;
  std::optional<double> memory_bytes;
  std::optional<double> host_memory_bytes;  // of a node

  // True where it names a system; false where it only gives sizes.
  bool given() const { return preset || file || shape; }
};

// Whose defaults the strategy has (framework.h).
enum class Framework : uint8_t { kMegatron, kTorchtitan, kDeepSpeed };

// In which precision a layer is gathered, and whether every pull is a flow of
// its own.
enum class GatherType { kBf16, kFp32 };
enum class PullFlows { kTogether, kApart };

// How layers are dealt out to stages where no list or layout string says.
enum class LayerSplit { kEven, kBalanced };

struct StrategyChoice {
  std::optional<int> pp;
  std::optional<int> vpp;
  std::optional<int> tp;
  std::optional<bool> sequence_parallel;  // default: tp > 1
  std::optional<bool> scatter_gather;     // default: with estimated costs
  std::optional<int> cp;
  std::optional<int> ep;
  ExecutionChoice execution;
  std::optional<int> dp;
  DpClassChoice dp_classes;
  // Of an iteration, all replicas: "1024" samples, "4Mtokens".
  std::optional<std::string> global_batch;
  std::optional<int> microbatches;
  std::optional<int> microbatch_size;  // samples
  std::optional<int> sequence;         // tokens of a sample
  std::optional<int> slices;
  std::optional<DataParallel> data_parallel;
  std::optional<bool> overlap_gradients;  // default: true
  std::optional<ShardBlocks> shard_blocks;
  // Of layers that are sharded one by one.
  std::optional<bool> reshard_after_forward;  // default: true
  std::optional<int> shard_group;             // replicas; default: all
  std::optional<int> near_group;              // replicas; default: shard_group
  std::optional<GatherType> gather_type;
  std::optional<bool> one_comm_stream;  // default: true
  std::optional<PullFlows> pull_flows;
  std::optional<double> owner_poll_s;
  std::optional<WaitRule> waiting;
  std::optional<CollectiveAlgorithm> collectives;
  // "dp-pp", "pp-dp", or a device a rank, replica after replica.
  std::vector<std::string> mapping;
  std::optional<OptimizerMode> optimizer;
  std::optional<ValidationPlace> validation;
  std::vector<int64_t> rollback_iterations;  // whose post-validated step fails
  std::optional<OptimizerPlacement> optimizer_placement;
  std::optional<double> optimizer_ratio;
  std::optional<int> optimizer_stride;  // 0: chosen
  std::optional<double> subgroup_size;  // parameters
  std::optional<GradientFlush> gradient_flush;
  std::optional<double> max_activations;
  std::optional<int> gradient_bytes_per_parameter;
  std::optional<int> parameter_bytes_per_parameter;
  std::optional<double> master_bytes_per_parameter;
  std::optional<double> moment_bytes_per_parameter;
  std::optional<Recompute> recompute;
  std::vector<int64_t> recompute_chunks;  // empty: all
  std::optional<int> recompute_layers;    // of each stage; default: all
  std::optional<bool> recompute_stops_early;
  std::optional<bool> flash_attention;
  std::optional<Precision> precision;
  std::optional<bool> fused_cross_entropy;
  std::optional<bool> fused_optimizer;
  std::optional<bool> plain_cross_entropy;
  std::optional<bool> whole_gradients;
  std::optional<bool> shard_copies;
  std::optional<Framework> framework;  // framework.h
  // At most one of the three.
  std::vector<int64_t> layers;  // of each stage
  std::optional<std::string> layout;
  std::optional<LayerSplit> split;
  std::optional<VocabularyPlacement> vocabulary;
  // ZeRO's stage: another word for data_parallel ddp (0), zero1, zero2, fsdp,
  // and what memory is sharded by without it.
  std::optional<int> zero;
  // Of memory alone (MemoryOptions).
  std::optional<double> memory_context_bytes;
  std::optional<double> fragmentation;
  // Default: the schedule's own, where it has one.
  std::optional<OffloadMode> offload;
  // At most one of the two.
  std::vector<int64_t> offload_chunks;
  std::optional<double> offload_fraction;
  std::optional<CopySharing> offload_sharing;  // default: together
  // "input", "attention", "mlp"; empty: all.
  std::vector<std::string> offload_tensors;
};

struct ScheduleChoice {
  std::optional<std::string> name;
  std::optional<std::string> file;
  std::map<std::string, std::string> params;
};

// Of one kernel, far beyond what any host takes.
inline constexpr double kMostLaunchSeconds = 1;

// Uniform times are those of one microbatch through all stages of a rank;
// per-stage ones those of one microbatch through that stage.
struct CostChoice {
  std::optional<double> forward_s;
  std::optional<double> backward_input_s;
  std::optional<double> backward_weight_s;
  // Given as one time; ReadConfig has made both parts of it.
  std::optional<double> backward_s;
  std::optional<double> recompute_s;
  std::optional<double> offload_s;
  std::optional<double> load_s;
  std::optional<double> offload_ratio;  // in place of the two
  std::vector<double> stage_forward_s;
  std::vector<double> stage_backward_input_s;
  std::vector<double> stage_backward_weight_s;
  std::vector<double> stage_backward_s;  // as backward_s
  std::vector<double> microbatch_factor;
  std::vector<double> slice_factor;
  std::optional<double> p2p_s;
  std::optional<double> hop_bytes;
  std::optional<double> gradient_bytes;  // of one rank
  std::optional<double> optimizer_s;
  std::optional<double> validation_s;
  std::optional<double> rollback_s;
  std::optional<double> prediction_s;
  std::optional<double> held_until_weight;
  std::optional<double> pair_factor;
  std::optional<std::string> profile;  // a shipped name or a path
  std::optional<bool> scale_shapes;
  std::optional<std::string> jitter;  // "none", "profile", "3%"
  std::optional<int64_t> seed;
  std::optional<bool> interference;  // default: where the profile has it
  bool analytic = false;
  std::optional<std::string> analytic_device;  // absent or "auto": the system's
  // Tables of measured rates: "auto" (absent), "shipped", "none" or a file.
  std::optional<std::string> analytic_silicon;
  std::optional<bool> analytic_sustained;  // clocks; absent: true
  std::optional<FrameworkKernels> analytic_kernels;
  // Absent: the device's. At most kMostLaunchSeconds.
  std::optional<double> analytic_launch_s;
  std::optional<double> analytic_contention;    // absent: ContentionOf
  std::optional<double> analytic_speed_range;   // absent: kSpeedRange
  std::optional<double> price_per_device_hour;  // of any currency
  // No field: the run measures what its passes take, so nobody has to say it.
  bool timed_by_run = false;
};

// Lengths of samples and their packing (docs/sequences.md).
struct SequenceChoice {
  std::optional<std::string> lengths;  // a law or a file
  std::vector<std::string> histogram;
  std::optional<Packer> packer;
  std::optional<PackerCost> packer_cost;
  std::optional<int> minibatch;  // samples of a device
  std::optional<int64_t> max_token_len;
  std::optional<int64_t> seed;

  bool given() const { return lengths || !histogram.empty(); }
};

struct RunConfig {
  // Compiled once, not by everyone who has one: they are long.
  RunConfig();
  RunConfig(const RunConfig&);
  RunConfig(RunConfig&&) noexcept;
  RunConfig& operator=(const RunConfig&);
  RunConfig& operator=(RunConfig&&) noexcept;
  ~RunConfig();

  ModelChoice model;
  SystemChoice system;
  StrategyChoice strategy;
  ScheduleChoice schedule;
  CostChoice costs;
  SequenceChoice sequences;
  SlowChoice slow;
  ReliabilityChoice reliability;
  std::optional<std::string> engine;
  std::optional<std::string> network;
  std::optional<int> iterations;

  ConfigOrigins origins;
  std::string source;  // the file, "" without one
  // How something was read that can be read in several ways.
  std::vector<std::string> notes;
  // Fields that nobody has given: strategy.framework has set them.
  std::vector<std::string> defaulted;

  // "run.yaml:3: strategy.pp": how a message about a field begins. Where it
  // was not given, "run.yaml: strategy.pp", or without a file the path alone.
  FieldPlace Field(absl::string_view path) const;
};

// The text of a file: YAML, JSON or text protobuf, told apart by the ending
// of `source_name` (.yaml .yml .json .txtpb .textproto .pbtxt) or else by the
// content. Errors: kInvalidArgument with file, line, field, value and what is
// allowed.
absl::StatusOr<RunConfig> ReadConfig(absl::string_view text,
                                     absl::string_view source_name);

// The same with edits on top, the lowest layer first (--set, then flags). A
// higher layer that chooses a schedule, model, system or kind of cost puts
// aside the rival choice of a lower one. An empty `source_name`: no file.
absl::StatusOr<RunConfig> ReadConfig(
    absl::string_view text, absl::string_view source_name,
    const std::vector<std::vector<ConfigEdit>>& layers);

// A file that a run is read from besides the configuration itself.
struct InputField {
  std::string field;
  std::string path;
};
std::vector<InputField> InputFields(const RunConfig& config);

// A line a field that is set, "strategy.pp: 8"; origins are left out.
std::string ToString(const RunConfig& config);

// The paths of the fields that are set, in the order of the fields; of
// schedule.params and system.params one a key.
std::vector<std::string> GivenPaths(const RunConfig& config);

// All field paths of the schema, for help and the nearest name.
std::vector<std::string> ConfigPaths();

}  // namespace pipewright

// Others' arguments, each against the fields that the trainer's own
// documentation gives it, written down here: neither the table of flags nor
// what we write ourselves takes part.
#include "sim/foreign/foreign_args.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/foreign/bridge_recipes.h"

namespace pipewright::foreign_args_test {
namespace {

using Fields = std::map<std::string, std::string>;

ForeignArgs Read(const std::string& text, const std::string& path) {
  const absl::StatusOr<ForeignArgs> read = ReadForeignArgs(text, path);
  INFO(text << "\n" << read.status());
  REQUIRE(read.ok());
  return *read;
}

// Later ones win, as where they are used.
Fields FieldsOf(const ForeignArgs& args) {
  Fields fields;
  for (const ConfigEdit& edit : args.edits) fields[edit.path] = edit.value;
  return fields;
}

Fields With(Fields fields, const Fields& more) {
  for (const auto& [path, value] : more) fields[path] = value;
  return fields;
}

std::string Text(const Fields& fields) {
  std::string text;
  for (const auto& [path, value] : fields) {
    absl::StrAppend(&text, path, " ", value, "\n");
  }
  return text;
}

// Of --micro-batch-size alone: what Megatron-LM does unless told otherwise.
const Fields kMegatron = {
    {"strategy.tp", "1"},
    {"strategy.pp", "1"},
    {"strategy.cp", "1"},
    {"strategy.vpp", "1"},
    {"strategy.microbatch_size", "1"},
    {"schedule.name", "1f1b"},
    {"strategy.recompute", "none"},
    {"strategy.data_parallel", "ddp"},
    {"strategy.framework", "megatron"},
    {"strategy.fused_cross_entropy", "false"},
};

// Of a model in flags, too: --num-layers 7 --hidden-size 64
// --num-attention-heads 4 --vocab-size 1000 --seq-length 128.
const Fields kModel = {
    {"model.gated", "false"},     {"model.tied_embeddings", "true"},
    {"model.bias", "true"},       {"model.qkv_bias", "true"},
    {"model.qk_norm", "false"},   {"model.layer_norm", "true"},
    {"model.dropout", "true"},    {"model.hidden", "64"},
    {"model.heads", "4"},         {"model.ffn_hidden", "256"},
    {"model.vocabulary", "1000"}, {"model.sequence", "128"},
    {"model.positions", "128"},
};
constexpr char kSizes[] =
    "--hidden-size 64 --num-attention-heads 4 --vocab-size 1000 "
    "--seq-length 128 --num-layers ";

struct Row {
  std::string flags;
  Fields fields;  // that are not as without them
};

void CheckRows(const std::vector<Row>& rows, const Fields& base) {
  for (const Row& row : rows) {
    INFO(row.flags);
    const ForeignArgs read =
        Read(absl::StrCat("--micro-batch-size 1 ", row.flags), "run.sh");
    CHECK(Text(FieldsOf(read)) == Text(With(base, row.fields)));
    for (const std::string& note : read.notes) {
      CHECK_FALSE(absl::StrContains(note, "not known"));
      CHECK((!absl::StrContains(note, "without effect") ||
             absl::StrContains(note, "time and memory: --ckpt-format") ||
             // Keys that act beside another one alone.
             absl::StrContains(note, " (")));
    }
  }
}

TEST_CASE("arguments: Megatron's parallelism", "[foreign]") {
  CheckRows(
      {
          {"", {}},
          {"--tensor-model-parallel-size 4",
           {{"strategy.tp", "4"}, {"strategy.sequence_parallel", "false"}}},
          {"--tensor-model-parallel-size 4 --sequence-parallel",
           {{"strategy.tp", "4"}, {"strategy.sequence_parallel", "true"}}},
          // argparse takes the last one.
          {"--tensor-model-parallel-size=4 --micro-batch-size 3 "
           "--tensor-model-parallel-size 2",
           {{"strategy.tp", "2"},
            {"strategy.sequence_parallel", "false"},
            {"strategy.microbatch_size", "3"}}},
          {"--attention-backend unfused --attention-backend flash", {}},
          {"--pipeline_model_parallel_size 3", {{"strategy.pp", "3"}}},
          {"--context-parallel-size 2", {{"strategy.cp", "2"}}},
          {"--pipeline-model-parallel-size 2 "
           "--num-virtual-stages-per-pipeline-rank 3",
           {{"strategy.pp", "2"},
            {"strategy.vpp", "3"},
            {"schedule.name", "interleaved-1f1b"}}},
      },
      kMegatron);
}

TEST_CASE("arguments: Megatron's batch", "[foreign]") {
  const Fields two = With(kMegatron, {{"strategy.pp", "2"}});
  const std::string pp = "--pipeline-model-parallel-size 2 ";
  CheckRows(
      {
          {pp + "--nnodes 2 --nproc-per-node 8 --global-batch-size 64 "
                "--micro-batch-size 2 --context-parallel-size 2 ",
           {{"system.nodes", "2"},
            {"strategy.cp", "2"},
            {"strategy.dp", "4"},
            {"strategy.microbatch_size", "2"},
            {"strategy.microbatches", "8"}}},
          {pp + "--data-parallel-size 3 --global-batch-size 12",
           {{"strategy.dp", "3"}, {"strategy.microbatches", "4"}}},
          // Without a global batch it is that of one microbatch each.
          {pp + "--data-parallel-size 3",
           {{"strategy.dp", "3"}, {"strategy.microbatches", "1"}}},
      },
      two);
  // One replica reduces nothing, but parts of a context do.
  const std::string one = "--nnodes 1 --nproc-per-node 2 ";
  Fields alone = two;
  alone.erase("strategy.data_parallel");
  CheckRows({{one + pp,
              {{"strategy.dp", "1"},
               {"strategy.microbatches", "1"},
               {"system.nodes", "1"}}}},
            alone);
  CheckRows({{one + "--context-parallel-size 2 --use-distributed-optimizer",
              {{"strategy.dp", "1"},
               {"strategy.microbatches", "1"},
               {"system.nodes", "1"},
               {"strategy.cp", "2"},
               {"strategy.data_parallel", "zero1"}}}},
            kMegatron);
}

TEST_CASE("arguments: Megatron's layers on stages", "[foreign]") {
  const auto model = [](int layers) {
    return With(With(kMegatron, kModel),
                {{"model.layers", absl::StrCat(layers)}});
  };
  const auto chunks = [](int pp, int vpp) {
    return Fields{{"strategy.pp", absl::StrCat(pp)},
                  {"strategy.vpp", absl::StrCat(vpp)},
                  {"schedule.name", vpp > 1 ? "interleaved-1f1b" : "1f1b"}};
  };
  const auto pp = [](int ranks) {
    return absl::StrCat("--pipeline-model-parallel-size ", ranks, " ");
  };
  CheckRows({{absl::StrCat(pp(2), "--num-layers-per-virtual-pipeline-stage 4 ",
                           kSizes, 24),
              chunks(2, 3)}},
            model(24));
  const auto layout = [](const std::string& text) {
    return absl::StrCat("--pipeline-model-parallel-layout '", text, "' ");
  };
  const auto laid = [&](int ranks, int vpp, const std::string& text) {
    return Row{pp(ranks) + layout(text),
               With(chunks(ranks, vpp), {{"strategy.layout", text}})};
  };
  // Stages are one more than separators, counted by hand.
  CheckRows(
      {laid(2, 1, "Ett|ttL"), laid(2, 2, "Et|t|t|tL"), laid(2, 3, "E|(t|)*4tL"),
       laid(4, 3, "E|(t|)*10tL"), laid(2, 4, "E|(t|t|)*3tL"),
       laid(3, 3, "Et*2|(tt|)*6t|tL"), laid(7, 1, "((t|)*2t|)*2tL"),
       laid(2, 2, "t|*3tL"), laid(4, 1, "Et*3|t*2|t*2|tm*2L")},
      kMegatron);
  CheckRows({{absl::StrCat(pp(4),
                           "--decoder-first-pipeline-num-layers 2 "
                           "--decoder-last-pipeline-num-layers 5 ",
                           kSizes, 13),
              With(chunks(4, 1), {{"strategy.layers", "2,3,3,5"}})},
             {absl::StrCat(pp(4), "--decoder-first-pipeline-num-layers 4 ",
                           kSizes, 13),
              With(chunks(4, 1), {{"strategy.layers", "4,3,3,3"}})},
             {absl::StrCat(pp(4), "--decoder-last-pipeline-num-layers 1 ",
                           kSizes, 13),
              With(chunks(4, 1), {{"strategy.layers", "4,4,4,1"}})}},
            model(13));
  // No stage is left between the two.
  CheckRows({{absl::StrCat(pp(2),
                           "--decoder-first-pipeline-num-layers 5 "
                           "--decoder-last-pipeline-num-layers 8 ",
                           kSizes, 13),
              With(chunks(2, 1), {{"strategy.layers", "5,8"}})}},
            model(13));
}

TEST_CASE("arguments: Megatron's recomputation and sharding", "[foreign]") {
  const auto recompute = [](const char* kind) {
    return Fields{{"strategy.recompute", kind}};
  };
  const Fields muon = {{"strategy.optimizer_kind", "muon"},
                       {"strategy.muon_steps", "5"},
                       {"strategy.muon_tp_mode", "duplicated"},
                       {"strategy.muon_splits_qkv", "true"}};
  const auto sharding = [](const char* kind) {
    return Fields{{"strategy.data_parallel", kind}};
  };
  const auto modules = [&](const char* names) {
    return With(recompute("selective"),
                {{"strategy.recompute_modules", names}});
  };
  const std::string fsdp =
      "--use-megatron-fsdp --ckpt-format fsdp_dtensor "
      "--data-parallel-sharding-strategy ";
  CheckRows(
      {
          {"--recompute-granularity full --recompute-method uniform "
           "--recompute-num-layers 2",
           recompute("full")},
          {"--recompute-granularity full --recompute-method block "
           "--recompute-num-layers 2",
           With(recompute("full"), {{"strategy.recompute_layers", "2"}})},
          {"--recompute-granularity selective", recompute("selective")},
          {"--recompute-activations", recompute("selective")},
          {"--recompute-granularity selective --recompute-modules core_attn",
           modules("core_attn")},
          {"--recompute-granularity selective --recompute-modules moe_act "
           "layernorm",
           modules("moe_act,layernorm")},
          {"--recompute-granularity selective --recompute-modules mla_up_proj "
           "mlp moe shared_experts",
           modules("mla_up_proj,mlp,moe,shared_experts")},
          {"--moe-layer-recompute", modules("core_attn,moe")},
          {"--recompute-granularity selective --recompute-modules moe "
           "--moe-layer-recompute",
           modules("moe")},
          {"--use-distributed-optimizer", sharding("zero1")},
          {"--optimizer sgd", {{"strategy.optimizer_kind", "sgd-momentum"}}},
          {"--optimizer sgd --sgd-momentum 0",
           {{"strategy.optimizer_kind", "sgd"}}},
          {"--optimizer lion", {{"strategy.optimizer_kind", "lion"}}},
          {"--optimizer muon", muon},
          // Each matrix on one replica, whatever it is called.
          {"--optimizer dist_muon", With(muon, sharding("zero1"))},
          {"--optimizer muon --use-distributed-optimizer --muon-tp-mode "
           "blockwise --muon-num-ns-steps 7 --muon-no-split-qkv",
           With(sharding("zero1"), {{"strategy.optimizer_kind", "muon"},
                                    {"strategy.muon_steps", "7"},
                                    {"strategy.muon_tp_mode", "blockwise"},
                                    {"strategy.muon_splits_qkv", "false"}})},
          // The optimizer's name does not undo the types of its moments.
          {"--optimizer adam --bf16 --use-distributed-optimizer "
           "--use-precision-aware-optimizer --exp-avg-dtype bf16 "
           "--exp-avg-sq-dtype bf16",
           With(sharding("zero1"),
                {{"strategy.gradient_bytes_per_parameter", "4"},
                 {"strategy.moment_bytes_per_parameter", "4"},
                 {"strategy.master_bytes_per_parameter", "4"}})},
          {"--use-distributed-optimizer --overlap-grad-reduce "
           "--overlap-param-gather",
           With(sharding("zero1"), {{"strategy.overlap_gradients", "true"}})},
          {fsdp + "no_shard", sharding("ddp")},
          {fsdp + "optim", sharding("zero1")},
          {fsdp + "optim_grads", sharding("zero2")},
          {fsdp + "optim_grads_params", sharding("fsdp")},
          // Weights are sharded unless it says otherwise.
          {"--use-distributed-optimizer --use-megatron-fsdp "
           "--ckpt-format fsdp_dtensor",
           sharding("fsdp")},
      },
      kMegatron);
  // Without FSDP nothing of the kind is sharded so.
  for (const auto& [flags, kind] :
       {std::pair("--use-distributed-optimizer "
                  "--data-parallel-sharding-strategy no_shard",
                  "zero1"),
        {"--use-distributed-optimizer --data-parallel-sharding-strategy "
         "optim_grads_params",
         "zero1"},
        {"--data-parallel-sharding-strategy optim_grads_params", "ddp"}}) {
    const ForeignArgs read = Read(flags, "run.sh");
    INFO(flags);
    CHECK(FieldsOf(read).at("strategy.data_parallel") == kind);
  }
}

TEST_CASE("arguments: Megatron's kernels", "[foreign]") {
  const auto precision = [](const char* kind) {
    return Fields{{"strategy.precision", kind}};
  };
  CheckRows(
      {
          {"--bf16 --use-flash-attn",
           {{"strategy.gradient_bytes_per_parameter", "4"}}},
          {"--bf16 --grad-reduce-in-bf16",
           {{"strategy.gradient_bytes_per_parameter", "2"}}},
          {"--bf16 --use-distributed-optimizer --use-precision-aware-optimizer "
           "--main-grads-dtype bf16 --exp-avg-dtype fp8 --exp-avg-sq-dtype "
           "bf16 --main-params-dtype fp16",
           {{"strategy.gradient_bytes_per_parameter", "2"},
            {"strategy.moment_bytes_per_parameter", "3"},
            {"strategy.master_bytes_per_parameter", "2"},
            {"strategy.data_parallel", "zero1"}}},
          {"--cross-entropy-loss-fusion",
           {{"strategy.fused_cross_entropy", "true"}}},
          {"--attention-backend flash", {}},
          {"--attention-backend auto", {}},
          {"--attention-backend unfused", {{"strategy.attention", "unfused"}}},
          {"--fp8-format hybrid", precision("fp8")},
          {"--fp8-format e4m3 --fp8-recipe delayed", precision("fp8")},
          {"--fp8-format hybrid --fp8-recipe tensorwise",
           precision("fp8-tensorwise")},
          {"--fp8-format e4m3 --fp8-recipe blockwise", precision("fp8-block")},
          {"--fp8-format e4m3 --fp8-recipe mxfp8", precision("mxfp8")},
          {"--fp4-format e2m1 --fp4-recipe nvfp4", precision("nvfp4")},
      },
      kMegatron);
}

TEST_CASE("arguments: the model in Megatron's flags", "[foreign]") {
  const Fields base = With(With(kMegatron, kModel), {{"model.layers", "7"}});
  const std::string layers = absl::StrCat(kSizes, "7 ");
  CheckRows(
      {
          {layers, {}},
          {layers + "--hidden-size 1024 --num-attention-heads 16 "
                    "--group-query-attention --num-query-groups 4 "
                    "--kv-channels 96 --ffn-hidden-size 4096 "
                    "--vocab-size 32000 --seq-length 2048",
           {{"model.hidden", "1024"},
            {"model.heads", "16"},
            {"model.kv_heads", "4"},
            {"model.head_dim", "96"},
            {"model.ffn_hidden", "4096"},
            {"model.vocabulary", "32000"},
            {"model.sequence", "2048"},
            {"model.positions", "2048"}}},
          {layers + "--padded-vocab-size 32128",
           {{"model.vocabulary", "32128"}}},
          // Without its switch every head has keys and values.
          {layers + "--num-query-groups 2", {{"model.kv_heads", "4"}}},
          {layers +
               "--num-experts 64 --moe-router-topk 6 "
               "--moe-ffn-hidden-size 1408 --moe-grouped-gemm "
               "--moe-token-dispatcher-type alltoall --disable-bias-linear "
               "--moe-shared-expert-intermediate-size 2816",
           {{"model.experts", "64"},
            {"model.experts_per_token", "6"},
            {"model.expert_ffn_hidden", "1408"},
            {"model.shared_ffn_hidden", "2816"},
            {"model.bias", "false"},
            {"model.qkv_bias", "false"},
            {"strategy.dispatch", "all-to-all"},
            {"strategy.fused_permutation", "false"}}},
          {layers + "--num-experts 64 --moe-layer-freq '([0]*2+[1]*5)' "
                    "--moe-token-dispatcher-type flex --disable-bias-linear "
                    "--moe-grouped-gemm --moe-permute-fusion "
                    "--expert-model-parallel-size 4",
           {{"model.experts", "64"},
            {"model.experts_per_token", "2"},
            {"model.expert_ffn_hidden", "256"},
            {"model.first_dense_layers", "2"},
            {"model.bias", "false"},
            {"model.qkv_bias", "false"},
            {"strategy.ep", "4"},
            {"strategy.dispatch", "once"},
            {"strategy.fused_permutation", "true"}}},
          // 8/3 of 64 in steps of 64.
          {layers + "--swiglu",
           {{"model.gated", "true"}, {"model.ffn_hidden", "128"}}},
          {layers + "--untie-embeddings-and-output-weights",
           {{"model.tied_embeddings", "false"}}},
          {layers + "--disable-bias-linear",
           {{"model.bias", "false"}, {"model.qkv_bias", "false"}}},
          {layers + "--disable-bias-linear --add-qkv-bias",
           {{"model.bias", "false"}}},
          {layers + "--qk-layernorm", {{"model.qk_norm", "true"}}},
          {layers + "--normalization RMSNorm", {{"model.layer_norm", "false"}}},
          {layers + "--normalization LayerNorm", {}},
          {layers + "--hidden-dropout 0 --attention-dropout 0.0",
           {{"model.dropout", "false"}}},
          {layers + "--window-size '(96,0)' --window-attn-skip-freq 4",
           {{"model.window", "96"}, {"model.full_attention_every", "4"}}},
      },
      base);
  // Without a learned table, and with latent attention, less is said.
  Fields rope = base;
  rope.erase("model.positions");
  CheckRows({{layers + "--position-embedding-type rope", {}}}, rope);
  rope.erase("model.qk_norm");
  rope.erase("model.qkv_bias");
  const Row latent = {layers +
                          "--multi-latent-attention --q-lora-rank 1536 "
                          "--kv-lora-rank 512 --qk-head-dim 128 "
                          "--qk-pos-emb-head-dim 64 --v-head-dim 96 "
                          "--mtp-num-layers 2 --position-embedding-type rope",
                      {{"model.q_lora_rank", "1536"},
                       {"model.kv_lora_rank", "512"},
                       {"model.qk_nope_head_dim", "128"},
                       {"model.qk_rope_head_dim", "64"},
                       {"model.v_head_dim", "96"},
                       {"model.mtp_layers", "2"}}};
  CheckRows({latent}, rope);
  // Without layers the model is somebody else's.
  CheckRows({{"--seq-length 2048", {{"strategy.sequence", "2048"}}}},
            kMegatron);
  // So it is where a comment names one.
  const ForeignArgs named = Read(
      "# pipewright: model.preset=llama3-8b\n# pipewright: strategy.tp=8\n"
      "--num-layers 7 --hidden-size 5 --swiglu --padded-vocab-size 10 "
      "--seq-length 2048 --tensor-model-parallel-size 2\n",
      "run.sh");
  Fields wanted = With(kMegatron, {{"model.preset", "llama3-8b"},
                                   {"strategy.tp", "8"},
                                   {"strategy.sequence", "2048"},
                                   {"strategy.sequence_parallel", "false"}});
  CHECK(Text(FieldsOf(named)) == Text(wanted));
}

TEST_CASE("arguments: Megatron's flags as a recipe in YAML", "[foreign]") {
  const ForeignArgs read = Read(
      "model:\n  num_layers: 6\n  hidden_size: 64\n"
      "  num_attention_heads: 4\n  vocab_size: 1000\n  seq_length: 128\n"
      "  tensor_model_parallel_size: 2\n"
      "  virtual_pipeline_model_parallel_size: null\n"
      "  pipeline_model_parallel_size: 3\n  sequence_parallel: true\n"
      "  gated_linear_unit: true\n"
      "  recompute_granularity: selective\n"
      "  recompute_modules: [layernorm, moe_act]\n  fp8: null\n"
      "ddp:\n  use_distributed_optimizer: true\n"
      "  overlap_grad_reduce: false\n  use_megatron_fsdp: false\n"
      "  data_parallel_sharding_strategy: optim_grads_params\n"
      "train:\n  micro_batch_size: 2\n  global_batch_size: 24\n"
      "data_parallel_size: 3\n",
      "recipe.yaml");
  CHECK(Text(FieldsOf(read)) ==
        Text(With(With(kMegatron, kModel),
                  {{"model.layers", "6"},
                   {"model.gated", "true"},
                   {"strategy.gradient_bytes_per_parameter", "4"},
                   {"strategy.tp", "2"},
                   {"strategy.pp", "3"},
                   {"strategy.dp", "3"},
                   {"strategy.sequence_parallel", "true"},
                   {"strategy.recompute", "selective"},
                   {"strategy.recompute_modules", "layernorm,moe_act"},
                   {"strategy.data_parallel", "zero1"},
                   {"strategy.microbatch_size", "2"},
                   {"strategy.microbatches", "4"}})));
}

TEST_CASE("arguments: numbers of Megatron that cannot be", "[foreign]") {
  for (const auto& [flags, words] :
       {std::pair("--pipeline-model-parallel-size 0",
                  "run.sh:1: --pipeline-model-parallel-size"),
        {"--pipeline-model-parallel-size -2 --num-layers 4 "
         "--num-layers-per-virtual-pipeline-stage 1",
         "--pipeline-model-parallel-size"},
        {"--pipeline-model-parallel-size 0 "
         "--pipeline-model-parallel-layout 'Et|tL'",
         "an integer from 1 to 1048576"},
        {"--num-layers 2 --decoder-first-pipeline-num-layers 1 "
         "--decoder-last-pipeline-num-layers 1 "
         "--pipeline-model-parallel-size 4000000000000",
         "--pipeline-model-parallel-size"},
        {"\n--tensor-model-parallel-size two",
         "run.sh:2: --tensor-model-parallel-size: two"},
        {"--num-layers 7 --pipeline-model-parallel-size 2 "
         "--num-layers-per-virtual-pipeline-stage 2",
         "layers are no multiple of pp"},
        {"--pipeline-model-parallel-size 2 --hidden-size 64 "
         "--num-attention-heads 4 --vocab-size 1000 --seq-length 128 "
         "--num-layers 8 --num-layers-per-virtual-pipeline-stage 0",
         "--num-layers-per-virtual-pipeline-stage"},
        {"--num-layers 12 --pipeline-model-parallel-size 4 "
         "--decoder-first-pipeline-num-layers 2",
         "--decoder-first-pipeline-num-layers"},
        {"--data-parallel-size 4 --micro-batch-size 2 --global-batch-size 12",
         "no multiple of micro batch * dp"},
        {"--data-parallel-size 0", "--data-parallel-size"},
        {"no flags at all", "no arguments"}}) {
    const absl::Status status = ReadForeignArgs(flags, "run.sh").status();
    INFO(flags << "\n" << status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), words));
  }
}

// Of an empty file: what torchtitan does unless told otherwise.
const Fields kTitan = {
    {"strategy.tp", "1"},
    {"strategy.pp", "1"},
    {"strategy.cp", "1"},
    // One forward of the local batch.
    {"strategy.microbatch_size", "8"},
    {"strategy.microbatches", "1"},
    {"strategy.sequence", "2048"},
    {"schedule.name", "1F1B"},
    {"strategy.data_parallel", "fsdp"},
    {"strategy.reshard_after_forward", "true"},
    {"strategy.recompute", "full"},
    {"strategy.recompute_every", "2"},
    {"strategy.framework", "torchtitan"},
};

TEST_CASE("arguments: torchtitan's", "[foreign]") {
  const auto replicas = [](int dp, const char* kind) {
    return Fields{{"strategy.dp", absl::StrCat(dp)},
                  {"strategy.data_parallel", kind}};
  };
  const std::string parallelism = "[parallelism]\n";
  const std::string shard = parallelism + "data_parallel_shard_degree = ";
  const std::string replicate = "\ndata_parallel_replicate_degree = ";
  const std::string reshard = "\nfsdp_reshard_after_forward = ";
  const std::string pp = "\npipeline_parallel_degree = 2\n";
  const Fields two = {{"strategy.pp", "2"},
                      {"strategy.microbatch_size", "1"},
                      {"strategy.microbatches", "8"}};
  const Fields keeps = {{"strategy.reshard_after_forward", "false"}};
  const std::string model = "\n[model]\nname = \"llama3\"\nflavor = ";
  const std::vector<Row> rows = {
      {"[training]\nsteps = 10\n", {}},
      // A microbatch of its own has a pipeline alone.
      {"[training]\nlocal_batch_size = 12\nseq_len = 4096\n[parallelism]\n"
       "pipeline_parallel_microbatch_size = 3",
       {{"strategy.microbatch_size", "12"}, {"strategy.sequence", "4096"}}},
      {"[training]\nlocal_batch_size = 12\n" + shard + "4" + pp +
           "pipeline_parallel_microbatch_size = 3",
       With(With(With(replicas(4, "fsdp"), two), keeps),
            {{"strategy.microbatch_size", "3"},
             {"strategy.microbatches", "4"}})},
      // Accumulation steps.
      {"[training]\nlocal_batch_size = 2\nglobal_batch_size = 24\n" + shard +
           "4",
       With(replicas(4, "fsdp"), {{"strategy.microbatch_size", "2"},
                                  {"strategy.microbatches", "3"}})},
      {parallelism + "tensor_parallel_degree = 4\n"
                     "context_parallel_degree = 2\n"
                     "expert_parallel_degree = 8",
       {{"strategy.tp", "4"},
        {"strategy.cp", "2"},
        {"strategy.ep", "8"},
        {"strategy.etp", "1"}}},
      {parallelism + "expert_parallel_degree = 1", {}},
      {shard + "4", replicas(4, "fsdp")},
      {shard + "4" + replicate + "3",
       With(replicas(12, "fsdp"), {{"strategy.shard_group", "4"}})},
      {shard + "4" + reshard + "\"always\"", replicas(4, "fsdp")},
      {shard + "4" + reshard + "\"never\"", With(replicas(4, "fsdp"), keeps)},
      {shard + "4" + reshard + "\"default\"", replicas(4, "fsdp")},
      {shard + "-1" + reshard + "\"never\"", keeps},
      // Under a pipeline weights stay gathered unless that is asked for.
      {shard + "4" + pp + "pipeline_parallel_schedule = \"1F1B\"",
       With(With(replicas(4, "fsdp"), two), keeps)},
      {shard + "4" + reshard + "\"default\"" + pp +
           "pipeline_parallel_schedule = \"Interleaved1F1B\"",
       With(With(With(replicas(4, "fsdp"), two), keeps),
            {{"schedule.name", "Interleaved1F1B"}})},
      {shard + "4" + reshard + "\"always\"" + pp +
           "pipeline_parallel_schedule = \"ZBVZeroBubble\"",
       With(With(replicas(4, "fsdp"), two),
            {{"schedule.name", "ZBVZeroBubble"}})},
      // Layers with embedding and head as one each: 126 + 2 over 16 stages.
      {shard + "4" + pp + "pipeline_parallel_schedule = \"Interleaved1F1B\"" +
           model + "\"405B\"\n[activation_checkpoint]\nmode = \"full\"",
       With(With(With(replicas(4, "fsdp"), two), keeps),
            {{"schedule.name", "Interleaved1F1B"},
             {"model.preset", "llama3-405b"},
             {"strategy.vpp", "2"},
             {"strategy.layers", "31,32,32,31"}})},
      {shard + "4" + pp + "pipeline_parallel_layers_per_stage = 17\n" + model +
           "\"8B\"\n[activation_checkpoint]\nmode = \"full\"",
       With(With(With(replicas(4, "fsdp"), two), keeps),
            {{"model.preset", "llama3-8b"},
             {"strategy.vpp", "1"},
             {"strategy.layers", "16,16"}})},
      {model + "\"70B\"", {{"model.preset", "llama3-70b"}}},
      {"[model]\nname = \"other\"\nflavor = \"8B\"", {}},
      {"[optimizer]\nimplementation = \"fused\"",
       {{"strategy.fused_optimizer", "true"}}},
      {"[optimizer]\nimplementation = \"foreach\"",
       {{"strategy.fused_optimizer", "false"}}},
      {"[activation_checkpoint]\nmode = \"none\"",
       {{"strategy.recompute", "none"}}},
      {"[activation_checkpoint]\nmode = \"selective\"\n"
       "selective_ac_option = \"op\"",
       {{"strategy.recompute", "op-selective"}}},
      {"[model]\nconverters = [\"quantize.linear.float8\"]",
       {{"strategy.precision", "fp8-tensorwise"}}},
  };
  for (const Row& row : rows) {
    INFO(row.flags);
    Fields expected = With(kTitan, row.fields);
    // A mode of its own is not of every second layer.
    if (absl::StrContains(row.flags, "mode =")) {
      expected.erase("strategy.recompute_every");
    }
    CHECK(Text(FieldsOf(Read(row.flags, "run.toml"))) == Text(expected));
  }
  // One device shards nothing, and DDP nothing either.
  Fields alone = With(kTitan, {{"strategy.dp", "1"}});
  alone.erase("strategy.data_parallel");
  alone.erase("strategy.reshard_after_forward");
  CHECK(Text(FieldsOf(Read(shard + "1", "run.toml"))) == Text(alone));
  CHECK(Text(FieldsOf(Read(shard + "1" + replicate + "3", "run.toml"))) ==
        Text(With(alone, replicas(3, "ddp"))));
}

TEST_CASE("arguments: devices that torchtitan's file does not have",
          "[foreign]") {
  const std::string all =
      "[parallelism]\ndata_parallel_shard_degree = -1\n"
      "tensor_parallel_degree = 2\n";
  const auto dp = [&](std::map<std::string, std::string> given, int per_node) {
    ForeignSurroundings around;
    around.given = std::move(given);
    around.devices_per_node = per_node;
    const auto read = ReadForeignArgs(all, "run.toml", around);
    REQUIRE(read.ok());
    return FieldsOf(*read)["strategy.dp"];
  };
  CHECK(dp({{"system.nodes", "2"}}, 8) == "8");
  CHECK(dp({}, 8).empty());
  CHECK(dp({{"strategy.dp", "3"}, {"system.nodes", "2"}}, 8).empty());
  ForeignSurroundings odd;
  odd.given = {{"system.nodes", "1"}};
  odd.devices_per_node = 7;
  CHECK(absl::StrContains(
      ReadForeignArgs(all, "run.toml", odd).status().message(),
      "torchtitan refuses this: 7 devices"));
}

TEST_CASE("arguments: notes on torchtitan's", "[foreign]") {
  const auto notes = [](const std::string& text) {
    return absl::StrJoin(Read(text, "run.toml").notes, "\n");
  };
  const std::string shard = "[parallelism]\ndata_parallel_shard_degree = ";
  CHECK(absl::StrContains(notes("[training]\nsteps = 1\n"),
                          "without effect on time and memory: training.steps"));
  CHECK(absl::StrContains(notes("[training]\nstepz = 1\n"),
                          "not known to torchtitan: training.stepz (did you "
                          "mean steps?)"));
  CHECK(absl::StrContains(notes(shard + "-1"), "or --dp"));
  CHECK_FALSE(absl::StrContains(
      notes("# pipewright: strategy.dp=4\n" + shard + "-1"), "or --dp"));
  CHECK(notes(shard + "2").empty());
  CHECK(absl::StrContains(notes("[optimizer]\nimplementation = \"for-loop\""),
                          "not modelled: optimizer.implementation"));
  // 31 layers of the first stage are no multiple of 2: the next stage of the
  // rank goes on with an odd number.
  const auto of_schedule = [&](const char* schedule) {
    return notes(absl::StrCat(
        shard, "4\npipeline_parallel_degree = 2\npipeline_parallel_schedule = ",
        "\"", schedule, "\"\n[model]\nname = \"llama3\"\nflavor = \"405B\"\n"));
  };
  const char* const counts = "torchtitan counts layers over all stages";
  CHECK(absl::StrContains(of_schedule("Interleaved1F1B"), counts));
  CHECK_FALSE(absl::StrContains(of_schedule("1F1B"), counts));
}

TEST_CASE("arguments: values of torchtitan that cannot be", "[foreign]") {
  for (const auto& [text, words] :
       {std::pair("[parallelism]\npipeline_parallel_degree = 0",
                  "parallelism.pipeline_parallel_degree: 0"),
        {"[parallelism]\ndata_parallel_shard_degree = -2", "-1, or an integer"},
        {"[parallelism]\ndata_parallel_shard_degree = 0", "-1, or an integer"},
        {"[parallelism]\ntensor_parallel_degree = [1]",
         "parallelism.tensor_parallel_degree"},
        {"[parallelism]\ntensor_parallel_degree = 9000000000000000000",
         "an integer from 1 to 1048576"},
        {"[parallelism]\npipeline_parallel_microbatch_size = 0",
         "parallelism.pipeline_parallel_microbatch_size"},
        {"[parallelism]\npipeline_parallel_microbatch_size = 3\n"
         "pipeline_parallel_degree = 2",
         "local batch is no multiple of the microbatch"},
        {"[model]\nname = \"qwen3_5\"\nflavor = \"27B\"",
         "linear_attention_layers 48"},
        {"[parallelism]\nfsdp_reshard_after_forward = \"sometimes\"",
         "default, always, never"},
        {"[parallelism\n", "run.toml:"}}) {
    const absl::Status status = ReadForeignArgs(text, "run.toml").status();
    INFO(text << "\n" << status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), words));
  }
}

EmittedArgs Emitted(const std::vector<std::pair<std::string, std::string>>& all,
                    ForeignForm form, const std::string& csv = "") {
  std::vector<ConfigEdit> edits;
  for (const auto& [path, value] : all) edits.push_back({path, value, "test"});
  const RunConfig config = ReadConfig("", "", {edits}).value();
  const absl::StatusOr<PreparedRun> run = Prepare(config);
  INFO(run.status());
  REQUIRE(run.ok());
  return EmitArgs(config, *run, form, csv).value();
}

// Word for word what Megatron-LM is told.
TEST_CASE("arguments: what is written for Megatron", "[foreign]") {
  const EmittedArgs dense = Emitted({{"model.preset", "llama3-8b"},
                                     {"system.preset", "dgx-h100"},
                                     {"system.nodes", "2"},
                                     {"costs.analytic.device", "auto"},
                                     {"schedule.name", "interleaved-1f1b"},
                                     {"strategy.tp", "2"},
                                     {"strategy.cp", "2"},
                                     {"strategy.pp", "2"},
                                     {"strategy.vpp", "4"},
                                     {"strategy.dp", "2"},
                                     {"strategy.microbatches", "6"},
                                     {"strategy.microbatch_size", "3"},
                                     {"strategy.sequence", "4096"},
                                     {"strategy.recompute", "full"},
                                     {"strategy.recompute_layers", "2"},
                                     {"strategy.attention", "unfused"},
                                     {"strategy.data_parallel", "zero1"}},
                                    ForeignForm::kMegatron);
  CHECK(dense.notes.empty());
  CHECK(dense.text ==
        "#!/bin/bash\n"
        "# Arguments for Megatron-LM (d98e8a64). Comment lines "
        "with\n"
        "# \"pipewright:\" are for pipewright --from-args: what Megatron-LM "
        "does not know.\n"
        "# pipewright: system.preset=dgx-h100\n"
        "# pipewright: costs.analytic.device=auto\n"
        "MODEL_ARGS=(\n"
        "  --num-layers 32\n"
        "  --hidden-size 4096\n"
        "  --ffn-hidden-size 14336\n"
        "  --num-attention-heads 32\n"
        "  --group-query-attention\n"
        "  --num-query-groups 8\n"
        "  --vocab-size 128256\n"
        "  --seq-length 4096\n"
        "  --max-position-embeddings 4096\n"
        "  --position-embedding-type rope\n"
        "  --normalization RMSNorm\n"
        "  --swiglu\n"
        "  --untie-embeddings-and-output-weights\n"
        "  --disable-bias-linear\n"
        "  --hidden-dropout 0\n"
        "  --attention-dropout 0\n"
        ")\n"
        "PARALLEL_ARGS=(\n"
        "  --tensor-model-parallel-size 2\n"
        "  --pipeline-model-parallel-size 2\n"
        "  --context-parallel-size 2\n"
        "  --micro-batch-size 3\n"
        "  --global-batch-size 36\n"
        "  --num-virtual-stages-per-pipeline-rank 4\n"
        "  --sequence-parallel\n"
        "  --recompute-granularity full\n"
        "  --recompute-method block\n"
        "  --recompute-num-layers 2\n"
        "  --use-distributed-optimizer\n"
        "  --overlap-grad-reduce\n"
        "  --overlap-param-gather\n"
        "  --bf16\n"
        "  --attention-backend unfused\n"
        "  --cross-entropy-loss-fusion\n"
        ")\n"
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py \\\n"
        "  \"${MODEL_ARGS[@]}\" \"${PARALLEL_ARGS[@]}\" \"$@\"\n");
  const EmittedArgs experts = Emitted({{"model.preset", "deepseek-v3"},
                                       {"model.layers", "7"},
                                       {"model.mtp_layers", "2"},
                                       {"system.preset", "dgx-h100"},
                                       {"system.nodes", "2"},
                                       {"costs.analytic.device", "auto"},
                                       {"schedule.name", "1f1b"},
                                       {"strategy.tp", "2"},
                                       {"strategy.etp", "1"},
                                       {"strategy.ep", "4"},
                                       {"strategy.pp", "2"},
                                       {"strategy.dp", "2"},
                                       {"strategy.microbatches", "4"},
                                       {"strategy.layers", "5,2"},
                                       {"strategy.precision", "fp8-block"},
                                       {"strategy.overlap_gradients", "false"},
                                       {"strategy.data_parallel", "zero2"}},
                                      ForeignForm::kMegatron, "order.csv");
  for (const char* line :
       {"  --mtp-num-layers 2\n", "  --num-experts 256\n",
        "  --multi-latent-attention\n", "  --q-lora-rank 1536\n",
        "  --moe-layer-freq '([0]*3+[1]*4)'\n", "  --moe-grouped-gemm\n",
        "  --moe-token-dispatcher-type alltoall\n",
        "  --moe-router-score-function sigmoid\n",
        "  --position-embedding-type rope\n", "  --moe-router-topk 8\n",
        "  --moe-ffn-hidden-size 2048\n", "  --expert-model-parallel-size 4\n",
        "  --expert-tensor-parallel-size 1\n",
        "  --pipeline-model-parallel-layout 'Et*5|t*2m*2L'\n",
        "  --fp8-format hybrid\n  --fp8-recipe blockwise\n",
        "  --use-distributed-optimizer\n  --use-megatron-fsdp\n"
        "  --ckpt-format fsdp_dtensor\n"
        "  --data-parallel-sharding-strategy optim_grads\n",
        "  --global-batch-size 8\n", "# The order of passes: order.csv\n",
        // Eight of 16 devices: how many run is not in the launch line.
        "torchrun pretrain_gpt.py", "# pipewright: system.nodes=2\n",
        "# pipewright: strategy.dp=2\n"}) {
    INFO(experts.text);
    INFO(line);
    CHECK(absl::StrContains(experts.text, line));
  }
  CHECK_FALSE(absl::StrContains(experts.text, "--overlap"));
  CHECK_FALSE(absl::StrContains(experts.text, "CONNECTIONS"));  // FSDP
  CHECK_FALSE(absl::StrContains(experts.text, "virtual"));
  const std::string notes = absl::StrJoin(experts.notes, "\n");
  CHECK(absl::StrContains(notes, "some devices stay idle"));
}

TEST_CASE("arguments: types that Megatron-LM does not have", "[foreign]") {
  for (const auto& [field, value] :
       {std::pair("strategy.moment_bytes_per_parameter", "3"),
        {"strategy.master_bytes_per_parameter", "3"},
        {"strategy.gradient_bytes_per_parameter", "3"},
        {"strategy.recompute", "norm-activation"}}) {
    const RunConfig config =
        ReadConfig("", "",
                   {{{"model.preset", "llama3-8b", "test"},
                     {"strategy.framework", "megatron", "test"},
                     {"strategy.microbatches", "4", "test"},
                     {"strategy.pp", "1", "test"},
                     {"strategy.dp", "2", "test"},
                     {"strategy.data_parallel", "zero1", "test"},
                     {"schedule.name", "1f1b", "test"},
                     {"costs.analytic.device", "h100", "test"},
                     {field, value, "test"}}})
            .value();
    CAPTURE(field);
    const absl::StatusOr<PreparedRun> run = Prepare(config);
    INFO(run.status());
    REQUIRE(run.ok());
    for (const ForeignForm form :
         {ForeignForm::kMegatron, ForeignForm::kBridge}) {
      const absl::Status status = EmitArgs(config, *run, form, "").status();
      INFO(status);
      CHECK(absl::StrContains(status.message(), "cannot say"));
    }
  }
}

TEST_CASE("arguments: recipes of Megatron-Bridge", "[foreign]") {
  const std::string launch =
      "torchrun --nnodes 4 --nproc-per-node 8 scripts/training/run_recipe.py "
      "--recipe llama3_70b_pretrain_32gpu_h100_bf16_config ";
  // The recipe's model and layout: tp 4, pp 4, cp 2, vpp 5.
  Fields wanted = {{"model.preset", "llama3-70b"},
                   {"model.vocabulary", "32000"},
                   {"system.nodes", "4"},
                   {"strategy.sequence", "8192"},
                   {"strategy.tp", "4"},
                   {"strategy.pp", "4"},
                   {"strategy.cp", "2"},
                   {"strategy.vpp", "5"},
                   {"strategy.dp", "1"},
                   {"strategy.sequence_parallel", "true"},
                   {"strategy.overlap_tensor", "true"},
                   {"strategy.overlap_gradients", "true"},
                   {"strategy.data_parallel", "zero1"},
                   {"strategy.microbatch_size", "1"},
                   {"strategy.microbatches", "128"},
                   {"strategy.gradient_bytes_per_parameter", "4"},
                   {"strategy.moment_bytes_per_parameter", "8"},
                   {"strategy.fused_cross_entropy", "true"},
                   {"strategy.recompute", "none"},
                   {"strategy.framework", "megatron"},
                   {"schedule.name", "interleaved-1f1b"}};
  const auto fields = [&launch](const std::string& more) {
    return Text(FieldsOf(Read(launch + more, "run.sh")));
  };
  CHECK(fields("train.global_batch_size=128") == Text(wanted));
  // Its own options, which lie below. One replica has nothing to share.
  Fields alone = With(wanted, {{"strategy.tp", "8"},
                               {"strategy.cp", "1"},
                               {"strategy.sequence", "4096"}});
  alone.erase("strategy.data_parallel");
  alone.erase("strategy.overlap_gradients");
  CHECK(fields("-tp 8 -gb 64 -sl 4096 train.global_batch_size=128 -cp 1") ==
        Text(alone));
  // Unless it says so, overlaps are those of comm_overlap.
  CHECK(fields("train.global_batch_size=128 ddp.overlap_grad_reduce=false") ==
        Text(wanted));
  wanted.erase("strategy.overlap_gradients");
  CHECK(fields("train.global_batch_size=128 "
               "comm_overlap.overlap_grad_reduce=false") == Text(wanted));
  CHECK(fields("train.global_batch_size=128 ddp.overlap_grad_reduce=false "
               "ddp.use_distributed_optimizer=false "
               "optimizer.use_distributed_optimizer=false") ==
        Text(With(wanted, {{"strategy.data_parallel", "ddp"}})));
  // Its layout is a list of stages.
  const Fields deepseek = FieldsOf(
      Read("torchrun --nnodes 32 --nproc-per-node 8 run_recipe.py --recipe "
           "deepseek_v3_pretrain_256gpu_h100_bf16_32nodes_config "
           "train.global_batch_size=4096",
           "run.sh"));
  CHECK(deepseek.at("strategy.layout") ==
        "Etttttttt|tttttttt|tttttttt|tttttttt|tttttttt|tttttttt|tttttttt|"
        "tttttmL");
  CHECK(deepseek.at("model.preset") == "deepseek-v3");
  CHECK(deepseek.at("strategy.moment_bytes_per_parameter") == "4");
  // None refuses itself.
  for (const BridgeRecipe& recipe : BridgeRecipes()) {
    const Fields all =
        FieldsOf(Read("run_recipe.py --recipe " + recipe.name, "run.sh"));
    INFO(recipe.name);
    // GPT-3 has its sizes in the recipe.
    CHECK((all.count("model.preset") == 1) != (all.count("model.layers") == 1));
    if (all.count("model.preset") == 1) {
      CHECK(all.at("model.preset") == recipe.model);
    }
  }
}

TEST_CASE("arguments: what is written for torchtitan", "[foreign]") {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"model.preset", "llama3-8b"},
      {"system.preset", "dgx-h100"},
      {"system.nodes", "2"},
      {"costs.analytic.device", "auto"},
      {"schedule.name", "1f1b"},
      {"strategy.tp", "2"},
      {"strategy.cp", "2"},
      {"strategy.pp", "2"},
      {"strategy.dp", "2"},
      {"strategy.microbatches", "6"},
      {"strategy.microbatch_size", "3"},
      {"strategy.recompute", "none"},
      {"strategy.framework", "torchtitan"},
      {"strategy.data_parallel", "fsdp"}};
  // One stage needs no words for its layers.
  std::vector<std::pair<std::string, std::string>> alone = fields;
  for (auto& [path, value] : alone) {
    if (path == "strategy.pp") value = "1";
    if (path == "strategy.dp") value = "4";
  }
  alone.emplace_back("strategy.vpp", "1");
  for (const auto& [path, value] :
       Emitted(alone, ForeignForm::kTorchtitan).beside) {
    CHECK_FALSE(absl::StartsWith(path, "strategy."));
  }
  const EmittedArgs plain = Emitted(fields, ForeignForm::kTorchtitanToml);
  CHECK(plain.notes.empty());
  CHECK(plain.text ==
        "# Configuration for torchtitan until 9810191bb (2026-02-23), which "
        "reads TOML.\n"
        "# pipewright: system.preset=dgx-h100\n"
        "# pipewright: system.nodes=2\n"
        "# pipewright: costs.analytic.device=auto\n"
        "\n"
        "[model]\n"
        "name = \"llama3\"\n"
        "flavor = \"8B\"\n"
        "\n"
        "[training]\n"
        "local_batch_size = 18\n"
        "global_batch_size = 36\n"
        "seq_len = 8192\n"
        "\n"
        "[parallelism]\n"
        "pipeline_parallel_microbatch_size = 3\n"
        "data_parallel_replicate_degree = 1\n"
        "data_parallel_shard_degree = 2\n"
        "tensor_parallel_degree = 2\n"
        "context_parallel_degree = 2\n"
        "pipeline_parallel_degree = 2\n"
        "fsdp_reshard_after_forward = \"never\"\n"
        "pipeline_parallel_schedule = \"1F1B\"\n"
        "module_fqns_per_model_part = [\n"
        "  [\"tok_embeddings\", \"layers.0\", \"layers.1\", \"layers.2\", "
        "\"layers.3\", \"layers.4\", \"layers.5\", \"layers.6\", "
        "\"layers.7\", \"layers.8\", \"layers.9\", \"layers.10\", "
        "\"layers.11\", \"layers.12\", \"layers.13\", \"layers.14\", "
        "\"layers.15\"],\n"
        "  [\"layers.16\", \"layers.17\", \"layers.18\", \"layers.19\", "
        "\"layers.20\", \"layers.21\", \"layers.22\", \"layers.23\", "
        "\"layers.24\", \"layers.25\", \"layers.26\", \"layers.27\", "
        "\"layers.28\", \"layers.29\", \"layers.30\", \"layers.31\", "
        "\"norm\", \"output\"],\n"
        "]\n"
        "\n"
        "[activation_checkpoint]\n"
        "mode = \"none\"\n");
  const auto changed = [&](const std::string& path, const std::string& value,
                           const std::string& csv = "") {
    auto other = fields;
    for (auto& [field, old] : other) {
      if (field == path) old = value;
    }
    return Emitted(other, ForeignForm::kTorchtitanToml, csv);
  };
  CHECK(absl::StrContains(changed("schedule.name", "zb-h1", "order.csv").text,
                          "pipeline_parallel_schedule = \"1F1B\"\n"
                          "pipeline_parallel_schedule_csv = \"order.csv\""));
  auto every = fields;
  for (auto& [field, value] : every) {
    if (field == "strategy.recompute") value = "full";
  }
  every.emplace_back("strategy.recompute_every", "3");
  const EmittedArgs nth = Emitted(every, ForeignForm::kTorchtitanToml, "");
  CHECK(absl::StrContains(
      nth.text, "mode = \"selective\"\nselective_ac_option = \"3\"\n"));
  CHECK_FALSE(absl::StrContains(nth.text, "strategy.recompute"));
  const EmittedArgs ops = changed("strategy.recompute", "op-selective");
  CHECK(absl::StrContains(
      ops.text, "mode = \"selective\"\nselective_ac_option = \"op\"\n"));
  // Without a pipeline the local batch is that of one forward.
  CHECK(absl::StrContains(changed("strategy.pp", "1").text,
                          "local_batch_size = 3\nglobal_batch_size = 36\n"));
  const struct {
    const char* path;
    const char* value;
    const char* words;
  } rows[] = {
      {"strategy.data_parallel", "zero1", "fsdp shards them"},
      {"strategy.data_parallel", "ddp", "fsdp shards them"},
      {"schedule.name", "zb-h1", "--emit-schedule"},
      {"model.preset", "llama2-7b", "no flavor"},
      {"strategy.recompute", "norm-activation", "none, op-selective, full"},
  };
  for (const auto& row : rows) {
    for (const ForeignForm form :
         {ForeignForm::kTorchtitan, ForeignForm::kTorchtitanToml}) {
      std::vector<ConfigEdit> edits;
      for (const auto& [path, value] : fields) {
        edits.push_back({path, path == row.path ? row.value : value, "test"});
      }
      const RunConfig config = ReadConfig("", "", {edits}).value();
      const absl::Status status =
          EmitArgs(config, Prepare(config).value(), form, "").status();
      INFO(row.value << "\n" << status);
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(absl::StrContains(status.message(), row.words));
    }
  }
}

}  // namespace
}  // namespace pipewright::foreign_args_test

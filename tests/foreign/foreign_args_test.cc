// Others' arguments, each against the fields that the trainer's own
// documentation gives it, written down here: neither the table of flags nor
// what we write ourselves takes part.
#include "sim/search/foreign_args.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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
    {"strategy.overlap_gradients", "false"},
};

// Of a model in flags, too.
const Fields kModel = {
    {"model.gated", "false"},   {"model.tied_embeddings", "true"},
    {"model.bias", "true"},     {"model.qkv_bias", "false"},
    {"model.qk_norm", "false"},
};

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
      CHECK_FALSE(absl::StrContains(note, "ignored"));
    }
  }
}

TEST_CASE("arguments: Megatron's parallelism", "[search]") {
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
          {"--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 "
           "--tensor-model-parallel-size 2 --sequence-parallel",
           {{"strategy.ep", "8"},
            {"strategy.etp", "1"},
            {"strategy.tp", "2"},
            {"strategy.sequence_parallel", "true"}}},
          {"--pipeline-model-parallel-size 2 "
           "--num-virtual-stages-per-pipeline-rank 3",
           {{"strategy.pp", "2"},
            {"strategy.vpp", "3"},
            {"schedule.name", "interleaved-1f1b"}}},
          {"--pipeline-model-parallel-size 2 "
           "--virtual-pipeline-model-parallel-size 5",
           {{"strategy.pp", "2"},
            {"strategy.vpp", "5"},
            {"schedule.name", "interleaved-1f1b"}}},
      },
      kMegatron);
}

TEST_CASE("arguments: Megatron's batch", "[search]") {
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
          {pp + "--data-parallel-size 3", {{"strategy.dp", "3"}}},
          // Processes that no number of replicas uses up.
          {pp + "--nnodes 1 --nproc-per-node 7", {{"system.nodes", "1"}}},
      },
      two);
  // One replica reduces nothing, but parts of a context do.
  const std::string one = "--nnodes 1 --nproc-per-node 2 ";
  Fields alone = two;
  alone.erase("strategy.data_parallel");
  alone.erase("strategy.overlap_gradients");
  CheckRows({{one + pp, {{"strategy.dp", "1"}, {"system.nodes", "1"}}}}, alone);
  CheckRows({{one + "--context-parallel-size 2 --use-distributed-optimizer",
              {{"strategy.dp", "1"},
               {"system.nodes", "1"},
               {"strategy.cp", "2"},
               {"strategy.data_parallel", "zero1"}}}},
            kMegatron);
}

TEST_CASE("arguments: Megatron's layers on stages", "[search]") {
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
  CheckRows({{pp(2) + "--num-layers-per-virtual-pipeline-stage 4 "
                      "--num-layers 24",
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
       laid(2, 2, "t|*3tL"), laid(4, 1, "Et*3|t*2|t*2|tm*2L"),
       // Not a multiple of the ranks: Megatron's to refuse.
       laid(2, 1, "Et|t|tL")},
      kMegatron);
  // What is said of chunks wins over what the layout has.
  CheckRows({{pp(2) + layout("Et|t|t|tL") +
                  "--num-virtual-stages-per-pipeline-rank 2",
              With(chunks(2, 2), {{"strategy.layout", "Et|t|t|tL"}})}},
            kMegatron);
  CheckRows({{pp(4) + "--num-layers 13 --decoder-first-pipeline-num-layers 2 "
                      "--decoder-last-pipeline-num-layers 5",
              With(chunks(4, 1), {{"strategy.layers", "2,3,3,5"}})},
             {pp(4) + "--num-layers 13 --decoder-first-pipeline-num-layers 4",
              With(chunks(4, 1), {{"strategy.layers", "4,3,3,3"}})},
             {pp(4) + "--num-layers 13 --decoder-last-pipeline-num-layers 1",
              With(chunks(4, 1), {{"strategy.layers", "4,4,4,1"}})},
             {pp(4) + "--num-layers 13 --decoder-first-pipeline-num-layers 0 "
                      "--decoder-last-pipeline-num-layers 1",
              With(chunks(4, 1), {{"strategy.layers", "0,6,6,1"}})}},
            model(13));
}

TEST_CASE("arguments: Megatron's recomputation and sharding", "[search]") {
  const auto recompute = [](const char* kind) {
    return Fields{{"strategy.recompute", kind}};
  };
  const auto sharding = [](const char* kind) {
    return Fields{{"strategy.data_parallel", kind}};
  };
  const std::string fsdp =
      "--use-megatron-fsdp --data-parallel-sharding-strategy ";
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
           recompute("selective")},
          {"--recompute-granularity selective --recompute-modules moe_act "
           "layernorm",
           recompute("norm-activation")},
          {"--use-distributed-optimizer", sharding("zero1")},
          {"--use-distributed-optimizer --overlap-grad-reduce "
           "--overlap-param-gather",
           With(sharding("zero1"), {{"strategy.overlap_gradients", "true"}})},
          {fsdp + "no_shard", sharding("ddp")},
          {fsdp + "optim", sharding("zero1")},
          {fsdp + "optim_grads", sharding("zero2")},
          {fsdp + "optim_grads_params", sharding("fsdp")},
          {"--use-custom-fsdp --data-parallel-sharding-strategy "
           "optim_grads_params",
           sharding("fsdp")},
          {"--use-distributed-optimizer --use-megatron-fsdp",
           sharding("zero1")},
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
    CHECK(absl::StrContains(absl::StrJoin(read.notes, "\n"),
                            "ignored: --data-parallel-sharding-strategy"));
  }
}

TEST_CASE("arguments: Megatron's kernels", "[search]") {
  const auto precision = [](const char* kind) {
    return Fields{{"strategy.precision", kind}};
  };
  CheckRows(
      {
          {"--bf16 --use-flash-attn", {}},
          {"--attention-backend flash", {}},
          {"--attention-backend auto", {}},
          {"--attention-backend unfused", {{"strategy.attention", "unfused"}}},
          {"--attention-backend local", {{"strategy.attention", "unfused"}}},
          {"--fp8-format hybrid", precision("fp8")},
          {"--fp8-format e4m3 --fp8-recipe delayed", precision("fp8")},
          {"--fp8-format hybrid --fp8-recipe tensorwise",
           precision("fp8-tensorwise")},
          {"--fp8-format e4m3 --fp8-recipe blockwise", precision("fp8-block")},
          {"--fp8-format e4m3 --fp8-recipe mxfp8", precision("mxfp8")},
          {"--fp8 hybrid", precision("fp8")},
          {"--fp8-format hybrid --fp8 hybrid", precision("fp8")},
          {"--fp4-format e2m1 --fp4-recipe nvfp4", precision("nvfp4")},
      },
      kMegatron);
}

TEST_CASE("arguments: the model in Megatron's flags", "[search]") {
  const Fields base = With(With(kMegatron, kModel), {{"model.layers", "7"}});
  const std::string layers = "--num-layers 7 ";
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
            {"model.sequence", "2048"}}},
          {layers + "--padded-vocab-size 32128",
           {{"model.vocabulary", "32128"}}},
          {layers + "--num-experts 64 --moe-router-topk 6 "
                    "--moe-ffn-hidden-size 1408 "
                    "--moe-shared-expert-intermediate-size 2816",
           {{"model.experts", "64"},
            {"model.experts_per_token", "6"},
            {"model.expert_ffn_hidden", "1408"},
            {"model.shared_ffn_hidden", "2816"}}},
          {layers + "--q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 "
                    "--qk-pos-emb-head-dim 64 --v-head-dim 96 "
                    "--mtp-num-layers 2",
           {{"model.q_lora_rank", "1536"},
            {"model.kv_lora_rank", "512"},
            {"model.qk_nope_head_dim", "128"},
            {"model.qk_rope_head_dim", "64"},
            {"model.v_head_dim", "96"},
            {"model.mtp_layers", "2"}}},
          {layers + "--swiglu", {{"model.gated", "true"}}},
          {layers + "--gated-linear-unit", {{"model.gated", "true"}}},
          {layers + "--untie-embeddings-and-output-weights",
           {{"model.tied_embeddings", "false"}}},
          {layers + "--disable-bias-linear", {{"model.bias", "false"}}},
          {layers + "--add-qkv-bias", {{"model.qkv_bias", "true"}}},
          {layers + "--qk-layernorm", {{"model.qk_norm", "true"}}},
          {layers + "--normalization RMSNorm", {{"model.layer_norm", "false"}}},
          {layers + "--normalization LayerNorm",
           {{"model.layer_norm", "true"}}},
      },
      base);
  // Without layers the model is somebody else's.
  CheckRows({{"--seq-length 2048", {{"strategy.sequence", "2048"}}}},
            kMegatron);
  // So it is where a comment names one.
  const ForeignArgs named = Read(
      "# pipewright: model.preset=llama3-8b\n# pipewright: strategy.tp=8\n"
      "--num-layers 7 --hidden-size 5 --swiglu --padded-vocab-size 9 "
      "--seq-length 2048 --tensor-model-parallel-size 2\n",
      "run.sh");
  Fields wanted = With(kMegatron, {{"model.preset", "llama3-8b"},
                                   {"strategy.tp", "8"},
                                   {"strategy.sequence_parallel", "false"}});
  // Its length is the model's own, unless that is said.
  CHECK(Text(FieldsOf(named)) == Text(wanted));
}

TEST_CASE("arguments: Megatron's flags as a recipe in YAML", "[search]") {
  const ForeignArgs read = Read(
      "model:\n  num_layers: 6\n  tensor_model_parallel_size: 2\n"
      "  virtual_pipeline_model_parallel_size: null\n"
      "  pipeline_model_parallel_size: 3\n  sequence_parallel: true\n"
      "  gated_linear_unit: false\n  swiglu: true\n"
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
                   {"strategy.tp", "2"},
                   {"strategy.pp", "3"},
                   {"strategy.dp", "3"},
                   {"strategy.sequence_parallel", "true"},
                   {"strategy.recompute", "norm-activation"},
                   {"strategy.data_parallel", "zero1"},
                   {"strategy.microbatch_size", "2"},
                   {"strategy.microbatches", "4"}})));
}

TEST_CASE("arguments: numbers of Megatron that cannot be", "[search]") {
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
         "a divisor of layers / pp"},
        {"--num-layers 7 --pipeline-model-parallel-size 2 "
         "--num-layers-per-virtual-pipeline-stage 0",
         "--num-layers-per-virtual-pipeline-stage"},
        {"--num-layers 12 --pipeline-model-parallel-size 4 "
         "--decoder-first-pipeline-num-layers 2",
         "--decoder-first-pipeline-num-layers"},
        {"--num-layers 2 --pipeline-model-parallel-size 2 "
         "--decoder-first-pipeline-num-layers 1 "
         "--decoder-last-pipeline-num-layers 1",
         "--decoder-first-pipeline-num-layers"},
        {"--data-parallel-size 4 --micro-batch-size 2 --global-batch-size 12",
         "a multiple of dp * micro-batch-size = 8"},
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
    {"strategy.microbatch_size", "1"},
    {"strategy.microbatches", "8"},
    {"schedule.name", "1f1b"},
    {"strategy.data_parallel", "fsdp"},
};

TEST_CASE("arguments: torchtitan's", "[search]") {
  const auto replicas = [](int dp, const char* kind) {
    return Fields{{"strategy.dp", absl::StrCat(dp)},
                  {"strategy.data_parallel", kind}};
  };
  const std::string parallelism = "[parallelism]\n";
  const std::string shard = parallelism + "data_parallel_shard_degree = ";
  const std::string replicate = "\ndata_parallel_replicate_degree = ";
  const std::string reshard = "\nfsdp_reshard_after_forward = ";
  const std::string pp = "\npipeline_parallel_degree = 2\n";
  const Fields two = {{"strategy.pp", "2"}};
  const std::vector<Row> rows = {
      {"[training]\nsteps = 10\n", {}},
      {"[training]\nlocal_batch_size = 12\nseq_len = 4096\n[parallelism]\n"
       "pipeline_parallel_microbatch_size = 3",
       {{"strategy.microbatch_size", "3"},
        {"strategy.microbatches", "4"},
        {"strategy.sequence", "4096"}}},
      {parallelism + "tensor_parallel_degree = 4\n"
                     "context_parallel_degree = 2\n"
                     "expert_parallel_degree = 8",
       {{"strategy.tp", "4"}, {"strategy.cp", "2"}, {"strategy.ep", "8"}}},
      {parallelism + "expert_parallel_degree = 1", {}},
      {shard + "4", replicas(4, "fsdp")},
      {shard + "4" + replicate + "3", replicas(12, "fsdp")},
      {shard + "1" + replicate + "3", replicas(3, "ddp")},
      {shard + "4" + reshard + "\"always\"", replicas(4, "fsdp")},
      {shard + "4" + reshard + "\"never\"", replicas(4, "zero2")},
      {shard + "4" + reshard + "\"default\"", replicas(4, "fsdp")},
      {shard + "-1" + reshard + "\"never\"",
       {{"strategy.data_parallel", "zero2"}}},
      // Under a pipeline weights stay gathered unless that is asked for.
      {shard + "4" + pp + "pipeline_parallel_schedule = \"1F1B\"",
       With(With(replicas(4, "zero2"), two), {{"schedule.name", "1F1B"}})},
      {shard + "4" + reshard + "\"default\"" + pp +
           "pipeline_parallel_schedule = \"Interleaved1F1B\"",
       With(With(replicas(4, "zero2"), two),
            {{"schedule.name", "Interleaved1F1B"}})},
      {shard + "4" + reshard + "\"always\"" + pp +
           "pipeline_parallel_schedule = \"ZBVZeroBubble\"",
       With(With(replicas(4, "fsdp"), two),
            {{"schedule.name", "ZBVZeroBubble"}})},
      {"[model]\nname = \"llama3\"\nflavor = \"70B\"",
       {{"model.preset", "llama3-70b"}}},
      {"[model]\nname = \"llama3\"\nflavor = \"8B\"",
       {{"model.preset", "llama3-8b"}}},
      {"[model]\nname = \"llama3\"\nflavor = \"405B\"",
       {{"model.preset", "llama3-405b"}}},
      {"[model]\nname = \"other\"\nflavor = \"8B\"", {}},
      {"[optimizer]\nimplementation = \"fused\"",
       {{"strategy.fused_optimizer", "true"}}},
      {"[optimizer]\nimplementation = \"foreach\"",
       {{"strategy.fused_optimizer", "false"}}},
      {"[activation_checkpoint]\nmode = \"full\"",
       {{"strategy.recompute", "full"}}},
      {"[activation_checkpoint]\nmode = \"none\"",
       {{"strategy.recompute", "none"}}},
  };
  for (const Row& row : rows) {
    INFO(row.flags);
    CHECK(Text(FieldsOf(Read(row.flags, "run.toml"))) ==
          Text(With(kTitan, row.fields)));
  }
  // One device shards nothing.
  Fields alone = With(kTitan, {{"strategy.dp", "1"}});
  alone.erase("strategy.data_parallel");
  CHECK(Text(FieldsOf(Read(shard + "1", "run.toml"))) == Text(alone));
  // Which schedule a pipeline has is not known without its name.
  Fields unnamed = With(With(kTitan, replicas(4, "zero2")), two);
  unnamed.erase("schedule.name");
  CHECK(Text(FieldsOf(Read(shard + "4" + pp, "run.toml"))) == Text(unnamed));
}

TEST_CASE("arguments: notes on torchtitan's", "[search]") {
  const auto notes = [](const std::string& text) {
    return absl::StrJoin(Read(text, "run.toml").notes, "\n");
  };
  const std::string shard = "[parallelism]\ndata_parallel_shard_degree = ";
  CHECK(absl::StrContains(notes("[training]\nsteps = 1\n"),
                          "ignored: training.steps"));
  CHECK(absl::StrContains(notes(shard + "-1"), "give strategy.dp"));
  CHECK_FALSE(
      absl::StrContains(notes("# pipewright: strategy.dp=4\n" + shard + "-1"),
                        "give strategy.dp"));
  CHECK(absl::StrContains(
      notes(shard + "2\ndata_parallel_replicate_degree = 2"), "HSDP"));
  CHECK(notes(shard + "1\ndata_parallel_replicate_degree = 2").empty());
  CHECK(notes(shard + "2").empty());
  CHECK(
      absl::StrContains(notes("[activation_checkpoint]\nmode = \"selective\""),
                        "ignored: activation_checkpoint.mode"));
  CHECK(absl::StrContains(notes("[optimizer]\nimplementation = \"for-loop\""),
                          "ignored: optimizer.implementation"));
}

TEST_CASE("arguments: values of torchtitan that cannot be", "[search]") {
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
        {"[parallelism]\npipeline_parallel_microbatch_size = 3",
         "training.local_batch_size"},
        {"[parallelism]\nfsdp_reshard_after_forward = \"sometimes\"",
         "always, never, default"},
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
TEST_CASE("arguments: what is written for Megatron", "[search]") {
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
        "# Arguments for Megatron-LM. Comment lines with \"pipewright:\" are "
        "for\n"
        "# pipewright --from-args, which gives the same run again.\n"
        "# pipewright: model.preset=llama3-8b\n"
        "# pipewright: system.preset=dgx-h100\n"
        "# pipewright: strategy.sequence=4096\n"
        "# pipewright: costs.analytic.device=auto\n"
        "MODEL_ARGS=(\n"
        "  --num-layers 32\n"
        "  --hidden-size 4096\n"
        "  --num-attention-heads 32\n"
        "  --num-query-groups 8\n"
        "  --ffn-hidden-size 14336\n"
        "  --vocab-size 128256\n"
        "  --group-query-attention\n"
        "  --seq-length 4096\n"
        "  --max-position-embeddings 4096\n"
        "  --normalization RMSNorm\n"
        "  --swiglu\n"
        "  --untie-embeddings-and-output-weights\n"
        "  --disable-bias-linear\n"
        ")\n"
        "PARALLEL_ARGS=(\n"
        "  --tensor-model-parallel-size 2\n"
        "  --pipeline-model-parallel-size 2\n"
        "  --context-parallel-size 2\n"
        "  --micro-batch-size 3\n"
        "  --global-batch-size 36\n"
        "  --num-virtual-stages-per-pipeline-rank 4\n"
        "  --sequence-parallel\n"
        "  --recompute-granularity full --recompute-method block "
        "--recompute-num-layers 2\n"
        "  --use-distributed-optimizer\n"
        "  --overlap-grad-reduce\n"
        "  --overlap-param-gather\n"
        "  --bf16\n"
        "  --attention-backend unfused\n"
        ")\n"
        "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py \\\n"
        "  \"${MODEL_ARGS[@]}\" \"${PARALLEL_ARGS[@]}\" \"$@\"\n");
  const EmittedArgs experts = Emitted({{"model.preset", "deepseek-v3"},
                                       {"model.layers", "7"},
                                       {"model.mtp_layers", "2"},
                                       {"system.preset", "dgx-h100"},
                                       {"system.nodes", "2"},
                                       {"costs.analytic.device", "auto"},
                                       {"schedule.name", "zb-h1"},
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
        "  --moe-router-topk 8\n", "  --moe-ffn-hidden-size 2048\n",
        "  --expert-model-parallel-size 4\n",
        "  --expert-tensor-parallel-size 1\n",
        "  --pipeline-model-parallel-layout 'Et*5|t*2m*2L'\n",
        "  --fp8-format hybrid\n  --fp8-recipe blockwise\n",
        "--use-distributed-optimizer --use-megatron-fsdp "
        "--data-parallel-sharding-strategy optim_grads\n",
        "  --global-batch-size 8\n", "# The order of passes: order.csv\n",
        "# pipewright: schedule.name=zb-h1\n",
        // Eight of 16 devices: how many run is not in the launch line.
        "torchrun pretrain_gpt.py", "# pipewright: system.nodes=2\n",
        "# pipewright: strategy.dp=2\n"}) {
    INFO(experts.text);
    INFO(line);
    CHECK(absl::StrContains(experts.text, line));
  }
  CHECK_FALSE(absl::StrContains(experts.text, "--overlap"));
  CHECK_FALSE(absl::StrContains(experts.text, "virtual"));
  const std::string notes = absl::StrJoin(experts.notes, "\n");
  CHECK(absl::StrContains(notes, "will not follow zb-h1"));
  CHECK(absl::StrContains(notes, "some devices stay idle"));
}

TEST_CASE("arguments: what is written for torchtitan", "[search]") {
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
      {"strategy.data_parallel", "zero2"}};
  const EmittedArgs plain = Emitted(fields, ForeignForm::kTorchtitan);
  CHECK(plain.notes.empty());
  CHECK(plain.text ==
        "# Configuration for torchtitan. Comment lines with \"pipewright:\" "
        "are for\n"
        "# pipewright --from-args, which gives the same run again.\n"
        "# pipewright: strategy.sequence=\n"
        "# pipewright: system.preset=dgx-h100\n"
        "# pipewright: system.nodes=2\n"
        "# pipewright: schedule.name=1f1b\n"
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
        "data_parallel_replicate_degree = 1\n"
        "data_parallel_shard_degree = 2\n"
        "tensor_parallel_degree = 2\n"
        "context_parallel_degree = 2\n"
        "pipeline_parallel_degree = 2\n"
        "pipeline_parallel_microbatch_size = 3\n"
        "fsdp_reshard_after_forward = \"never\"\n"
        "pipeline_parallel_schedule = \"1F1B\"\n"
        "\n"
        "[activation_checkpoint]\n"
        "mode = \"none\"\n");
  const auto changed = [&](const std::string& path, const std::string& value,
                           const std::string& csv = "") {
    auto other = fields;
    for (auto& [field, old] : other) {
      if (field == path) old = value;
    }
    return Emitted(other, ForeignForm::kTorchtitan, csv);
  };
  const EmittedArgs zero1 = changed("strategy.data_parallel", "zero1");
  CHECK(absl::StrContains(zero1.text,
                          "replicate_degree = 2\n"
                          "data_parallel_shard_degree = 1\n"));
  CHECK(absl::StrContains(absl::StrJoin(zero1.notes, "\n"),
                          "sharding of the optimizer alone"));
  CHECK(absl::StrContains(changed("strategy.data_parallel", "fsdp").text,
                          "fsdp_reshard_after_forward = \"always\""));
  const EmittedArgs zb = changed("schedule.name", "zb-h1");
  CHECK(absl::StrContains(zb.text, "pipeline_parallel_schedule = \"1F1B\""));
  CHECK(absl::StrContains(absl::StrJoin(zb.notes, "\n"),
                          "no schedule of this name"));
  CHECK(absl::StrContains(
      changed("schedule.name", "zb-h1", "order.csv").text,
      "pipeline_parallel_schedule = \"_PipelineScheduleRuntime\"\n"
      "pipeline_parallel_schedule_csv = \"order.csv\""));
  const EmittedArgs model = changed("model.preset", "llama2-7b");
  CHECK_FALSE(absl::StrContains(model.text, "flavor"));
  CHECK(absl::StrContains(model.text, "# pipewright: model.preset=llama2-7b"));
  CHECK(absl::StrContains(absl::StrJoin(model.notes, "\n"), "no flavor"));
  const EmittedArgs half = changed("strategy.recompute", "norm-activation");
  CHECK(absl::StrContains(half.text, "mode = \"selective\""));
  CHECK(absl::StrContains(half.text,
                          "# pipewright: strategy.recompute=norm-activation"));
}

}  // namespace
}  // namespace pipewright::foreign_args_test

// Files as users have them: none is refused that its framework takes, none of
// their keys is dropped in silence, and what cannot be is refused in the words
// of the file. What each file means is written down here.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/input.h"
#include "sim/foreign/foreign_args.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::users_files_test {
namespace {

using Fields = std::map<std::string, std::string>;

ForeignSurroundings Around(const Fields& given, const Fields& environment) {
  ForeignSurroundings around;
  around.devices_per_node = 8;
  around.given = given;
  around.environment =
      [environment](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
  return around;
}

Fields FieldsOf(const ForeignArgs& args) {
  Fields fields;
  for (const ConfigEdit& edit : args.edits) fields[edit.path] = edit.value;
  return fields;
}

struct Row {
  const char* file;
  Fields given;
  Fields environment;
  Fields fields;  // some of them
};

TEST_CASE("users' files: what a framework takes is taken", "[foreign]") {
  const Fields vocabulary = {{"model.vocabulary", "50257"}};
  const Fields nodes = {{"system.nodes", "32"}};
  const std::vector<Row> rows = {
      {"gpt3_175b.sh",
       vocabulary,
       {},
       {{"strategy.tp", "8"},
        {"strategy.pp", "16"},
        {"strategy.dp", "1"},
        {"strategy.microbatches", "1536"},
        {"model.ffn_hidden", "49152"}}},
      {"llama3_8b_fp8.sh",
       {},
       {},
       {{"strategy.precision", "fp8"},
        {"strategy.narrow_weights", "true"},
        {"strategy.tp", "2"},
        {"strategy.dp", "4"},
        {"model.kv_heads", "8"}}},
      {"mixtral_8x7b.sh",
       {},
       {},
       {{"model.experts", "8"},
        {"strategy.ep", "8"},
        {"strategy.dp", "8"},
        {"strategy.dispatch", "all-to-all"}}},
      {"deepseek_v3.sh",
       {},
       {},
       {{"strategy.dp", "8"},
        {"strategy.data_parallel", "zero1"},
        {"model.first_dense_layers", "3"},
        {"strategy.recompute_modules", "mla_up_proj,mlp,moe_act"},
        {"strategy.dispatch", "once"}}},
      {"sbatch_llama3_70b.sh",
       {{"system.nodes", "8"}},
       {},
       {{"strategy.vpp", "4"},
        {"strategy.dp", "2"},
        {"strategy.microbatches", "64"},
        {"strategy.recompute_layers", "2"}}},
      {"model_sizes.sh",
       {},
       {},
       {{"model.hidden", "4096"}, {"strategy.tp", "2"}, {"strategy.dp", "8"}}},
      {"model_sizes.sh",
       {},
       {{"MODEL_SIZE", "13"}, {"NNODES", "4"}},
       {{"model.hidden", "5120"}, {"strategy.tp", "4"}, {"strategy.dp", "8"}}},
      {"sourced_qwen3.sh",
       {{"system.nodes", "1"}},
       {{"TP", "4"}},
       {{"strategy.tp", "4"}, {"model.qk_norm", "true"}}},
      {"gpt_345m.txt",
       {{"strategy.dp", "2"}},
       {},
       {{"strategy.microbatches", "1"}, {"model.hidden", "1024"}}},
      {"qwen3_30b_a3b.sh",
       {},
       {},
       {{"model.experts", "128"},
        {"strategy.graph_parts", "attention,router"},
        {"strategy.moment_bytes_per_parameter", "4"},
        {"system.nodes", "1"}}},
      {"bridge_llama3_8b.sh",
       {},
       {},
       {{"strategy.tp", "2"},
        {"strategy.cp", "2"},
        {"strategy.dp", "4"},
        {"strategy.microbatches", "32"},
        {"model.preset", "llama3-8b"},
        {"strategy.precision", "fp8-tensorwise"}}},
      {"bridge_405b.sh",
       {{"system.nodes", "32"}},
       {},
       {{"strategy.pp", "8"}, {"strategy.vpp", "1"}}},
      {"bridge_dump.yaml",
       {{"system.nodes", "2"}},
       {},
       {{"strategy.cp", "2"},
        {"strategy.dp", "8"},
        {"strategy.data_parallel", "zero1"},
        {"model.gated", "true"},
        {"model.tied_embeddings", "false"},
        {"model.vocabulary", "128256"}}},
      {"bridge_mixtral.yaml",
       {{"system.nodes", "8"}},
       {},
       {{"model.experts", "8"}, {"strategy.vpp", "8"}, {"strategy.dp", "8"}}},
      {"bridge_deepseek_v3.yaml",
       {{"system.nodes", "64"}},
       {},
       {{"strategy.layout",
         absl::StrCat("E", std::string(14, 't'), "|", std::string(16, 't'), "|",
                      std::string(16, 't'), "|", std::string(15, 't'), "L")},
        {"strategy.recompute_modules", "mla_up_proj,mlp"}}},
      {"titan_debug_model.toml",
       {{"system.nodes", "1"}},
       {},
       {{"strategy.dp", "8"}, {"strategy.recompute_every", "2"}}},
      {"titan_llama3_8b.toml",
       nodes,
       {},
       {{"model.preset", "llama3-8b"},
        {"strategy.dp", "256"},
        {"strategy.recompute", "op-selective"}}},
      {"titan_llama3_70b.toml",
       nodes,
       {},
       {{"model.preset", "llama3-70b"},
        {"strategy.dp", "32"},
        {"strategy.microbatch_size", "8"}}},
      {"titan_llama3_405b.toml",
       nodes,
       {},
       {{"model.preset", "llama3-405b"},
        {"strategy.precision", "fp8-tensorwise"},
        {"strategy.overlap_tensor", "true"}}},
      {"titan_deepseek_v3.toml",
       nodes,
       {},
       {{"strategy.ep", "8"}, {"strategy.etp", "1"}}},
      {"titan_llama4.toml", nodes, {}, {{"strategy.tp", "8"}}},
      {"titan_registry.py",
       nodes,
       {{"CONFIG", "qwen3_0_6b"}},
       {{"strategy.tp", "1"}, {"strategy.recompute", "op-selective"}}},
      {"titan_registry.py",
       nodes,
       {{"CONFIG", "qwen3_32b_pipeline"}},
       {{"strategy.tp", "8"},
        {"strategy.pp", "2"},
        {"strategy.recompute", "full"}}},
      {"titan_llama3.py",
       nodes,
       {},
       {{"model.preset", "llama3-8b"}, {"strategy.dp", "256"}}},
      {"deepspeed_pipeline.json",
       {{"strategy.pp", "4"}, {"system.nodes", "1"}},
       {},
       {{"strategy.dp", "2"}, {"strategy.microbatches", "16"}}},
      {"deepspeed_bf16_zero1.json",
       {{"system.nodes", "1"}},
       {},
       {{"strategy.pp", "1"},
        {"strategy.dp", "8"},
        {"strategy.microbatches", "16"},
        {"strategy.data_parallel", "zero1"}}},
      {"deepspeed_zero3.json",
       {{"system.nodes", "1"}, {"strategy.microbatches", "4"}},
       {},
       {{"strategy.data_parallel", "fsdp"}}},
      {"deepspeed_offload.json",
       {{"system.nodes", "1"}},
       {},
       {{"strategy.microbatch_size", "2"},
        {"strategy.data_parallel", "zero2"}}},
  };
  for (const Row& row : rows) {
    const std::string path =
        testing::SourcePath(absl::StrCat("tests/foreign/files/", row.file));
    const std::string text = ReadFile(path).value();
    const absl::StatusOr<ForeignArgs> read =
        ReadForeignArgs(text, path, Around(row.given, row.environment));
    INFO(row.file << "\n" << read.status());
    CHECK(read.ok());
    if (!read.ok()) continue;
    Fields fields = FieldsOf(*read);
    for (const auto& [field, value] : row.fields) {
      INFO(field);
      CHECK(fields[field] == value);
    }
    for (const std::string& note : read->notes) {
      CHECK_FALSE(absl::StrContains(note, "not known"));
    }
  }
}

// The words that tell what became of a key.
constexpr char kMapped[] = "mapped";
constexpr char kNone[] = "without effect";
constexpr char kNot[] = "not modelled";
constexpr char kUnknown[] = "not known";
constexpr char kRefused[] = "refused";

struct Planted {
  const char* key;      // as the file has it
  const char* outcome;  // of the above
  const char* words;    // in its note or message, "" for the key's own
};

struct Host {
  const char* path;
  const char* before;  // the file around the key
  const char* after;
};

void CheckPlanted(const Host& host, const std::vector<Planted>& rows,
                  const Fields& given) {
  const ForeignSurroundings around = Around(given, {});
  const ForeignArgs base =
      ReadForeignArgs(absl::StrCat(host.before, host.after), host.path, around)
          .value();
  for (const Planted& row : rows) {
    const absl::StatusOr<ForeignArgs> read = ReadForeignArgs(
        absl::StrCat(host.before, row.key, host.after), host.path, around);
    const std::string name(
        absl::StripAsciiWhitespace(std::string(row.key).substr(
            0, std::string(row.key).find_first_of(" :=", 1))));
    const std::string words = row.words[0] == '\0' ? name : row.words;
    INFO(host.path << ": " << row.key << ": " << words << "\n"
                   << read.status());
    if (std::string(row.outcome) == kRefused) {
      CHECK(absl::StrContains(read.status().message(), words));
      continue;
    }
    CHECK(read.ok());
    if (!read.ok()) continue;
    INFO(absl::StrJoin(read->notes, "\n"));
    if (std::string(row.outcome) == kMapped) {
      CHECK(FieldsOf(*read) != FieldsOf(base));
      continue;
    }
    bool named = false;
    for (const std::string& note : read->notes) {
      named |= absl::StrContains(note, row.outcome) &&
               absl::StrContains(note, words);
    }
    CHECK(named);
  }
}

constexpr char kSizes[] =
    "--num-layers 16 --hidden-size 1024 --num-attention-heads 16 --seq-length "
    "2048 --max-position-embeddings 2048 --vocab-size 50304 "
    "--micro-batch-size 2 --tensor-model-parallel-size 2 "
    "--pipeline-model-parallel-size 2 --bf16 --position-embedding-type rope ";

TEST_CASE("users' files: planted keys of Megatron-LM", "[foreign]") {
  CheckPlanted(
      {"run.sh", kSizes, "\n"},
      {{"--num-query-groups 4 --group-query-attention", kMapped, ""},
       {"--use-distributed-optimizer", kMapped, ""},
       {"--sequence-parallel", kMapped, ""},
       {"--swiglu", kMapped, ""},
       {"--recompute-granularity full --recompute-method uniform "
        "--recompute-num-layers 1",
        kMapped, ""},
       {"--exit-interval 7", kNone, ""},
       {"--log-throughput", kNone, ""},
       {"--clip-grad 10", kNone, ""},
       {"--recompute-num-layers 4", kNone,
        "(without recompute_granularity full)"},
       {"--cuda-graph-modules attn", kNone, "(without CUDA graphs)"},
       {"--data-parallel-sharding-strategy optim", kNone, "FSDP"},
       {"--moe-router-topk 4", kNone, "(without experts)"},
       {"--q-lora-rank 64", kNone, "(without multi_latent_attention)"},
       {"--fp8-recipe mxfp8", kNone, "(without fp8)"},
       {"--clip-grad 0", kNot, ""},
       {"--softmax-type learnable", kMapped, ""},
       {"--fp32-residual-connection", kNot, ""},
       {"--tensor-model-paralel-size 4", kUnknown,
        "did you mean --tensor-model-parallel-size?"},
       {"--micro-batch-size 2 3", kUnknown, "'3' behind --micro-batch-size"},
       {"--normalization LayerNrom", kRefused, "LayerNorm, RMSNorm"},
       {"--bf16 true", kRefused, "no value: it is a switch"},
       {"--num-layers-per-virtual-pipeline-stage two", kRefused, "an integer"},
       {"--hidden-dropout high", kRefused, "a number"},
       {"--num-experts 8", kRefused, "need sequence parallelism"}},
      {{"system.nodes", "2"}});
}

TEST_CASE("users' files: planted keys of Megatron-Bridge", "[foreign]") {
  CheckPlanted(
      {"recipe.yaml",
       "model:\n  num_layers: 16\n  hidden_size: 1024\n  "
       "seq_length: 2048\n  vocab_size: 50304\n  "
       "num_attention_heads: 16\n  tensor_model_parallel_size: 2\n",
       "train:\n  micro_batch_size: 1\n"},
      {{"  num_query_groups: 4\n", kMapped, ""},
       {"  sequence_parallel: true\n", kMapped, ""},
       {"  share_embeddings_and_output_weights: false\n", kMapped, ""},
       {"  cross_entropy_loss_fusion: true\n", kMapped, ""},
       {"  params_dtype: {_target_: torch.bfloat16, _call_: false}\n", kNone,
        ""},
       {"  init_method_std: 0.02\n", kNone, ""},
       {"  softmax_type: learnable\n", kNot, ""},
       {"  num_query_group: 4\n", kUnknown, "did you mean"},
       {"  attention_backend: {_target_: a.AttnBackend, _call_: true, _args_: "
        "[4], _name_: unfused}\n",
        kMapped, ""},
       {"  normalization: Layer\n", kRefused, "LayerNorm, RMSNorm"},
       {"  context_parallel_size: many\n", kRefused, "an integer"},
       {"  moe_token_dispatcher_type: alltoall\n", kNone, "without experts"}},
      {{"system.nodes", "1"}});
  CheckPlanted({"run.sh",
                "python run.py --recipe "
                "llama3_8b_pretrain_2gpu_h100_bf16_config "
                "model.transformer.tensor_model_parallel_size=2 ",
                "\n"},
               {{"+model.transformer.sequence_parallel=true", kMapped,
                 "model.transformer.sequence_parallel"},
                {"mixed_precision=bf16_with_mxfp8_mixed", kMapped, ""},
                {"logger.log_interval=7", kNone, "logger.log_interval"},
                {"model.transformer.softmax_type=learnable", kNot,
                 "model.transformer.softmax_type"},
                {"train.global_batch=8", kUnknown, "did you mean"},
                {"model.transformer.num_layers=x", kRefused, "an integer"}},
               {{"system.nodes", "1"}});
}

TEST_CASE("users' files: adapters of Megatron-Bridge", "[foreign]") {
  // All of them are the default, others than queries' have no field.
  CheckPlanted(
      {"recipe.yaml",
       "model:\n  num_layers: 16\n  hidden_size: 1024\n  seq_length: 2048\n"
       "  vocab_size: 50304\n  num_attention_heads: 16\n"
       "train:\n  micro_batch_size: 1\npeft:\n  dim: 16\n",
       ""},
      {{"  target_modules: [linear_qkv]\n", kMapped, ""},
       {"  target_modules: [linear_qkv, linear_proj, linear_fc1, linear_fc2]\n",
        kNone, ""},
       {"  target_modules: [linear_fc1]\n", kNot, "linear_fc1"}},
      {{"system.nodes", "1"}});
}

TEST_CASE("users' files: planted keys of torchtitan", "[foreign]") {
  CheckPlanted(
      {"run.toml",
       "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nsteps = 1\n"
       "[parallelism]\n",
       ""},
      {{"tensor_parallel_degree = 8\n", kMapped, ""},
       {"fsdp_reshard_after_forward = \"never\"\n", kMapped, ""},
       {"data_parallel_replicate_degree = 2\n", kMapped, ""},
       {"tensor_paralel_degree = 8\n", kUnknown, "did you mean"},
       {"fsdp_reshard_after_forward = \"sometimes\"\n", kRefused,
        "default, always, never"},
       {"pipeline_parallel_degree = \"two\"\n", kRefused, "an integer"},
       {"[activation_checkpoint]\nmode = \"full\"\n", kMapped, "mode"},
       {"[checkpoint]\ninterval = 3\n", kNone, "checkpoint.interval"},
       {"[comm]\ninit_timeout_seconds = 3\n", kNone, "comm."},
       {"[compile]\nenable = true\n", kMapped, ""}},
      {{"system.nodes", "1"}, {"costs.analytic.device", "h100"}});
  CheckPlanted(
      {"run.py",
       "from torchtitan.models.llama3 import model_registry\n\n\n"
       "def llama3_8b():\n    return Trainer.Config(\n        "
       "model_spec=model_registry(\"8B\"),\n        training=TrainingConfig("
       "num_tokens_per_microbatch_per_dp_rank=8192, "
       "max_context_length=8192),\n        parallelism=ParallelismConfig(",
       "),\n    )\n"},
      {{"tensor_parallel_degree=8", kMapped, ""},
       {"context_parallel_degree=2", kMapped, ""},
       {"tensor_parallel_degre=8", kUnknown, "did you mean"},
       {"tensor_parallel_degree=\"eight\"", kRefused, "an integer"}},
      {{"system.nodes", "1"}});
}

TEST_CASE("users' files: planted keys of DeepSpeed", "[foreign]") {
  CheckPlanted(
      {"ds.json", "{\"train_micro_batch_size_per_gpu\": 1, ",
       "\"gradient_accumulation_steps\": 4}"},
      {{"\"zero_optimization\": {\"stage\": 1}, ", kMapped, ""},
       {"\"zero_optimization\": {\"stage\": 2}, ", kMapped, ""},
       {"\"steps_per_print\": 7, ", kNone, "steps_per_print"},
       {"\"wall_clock_breakdown\": true, ", kNot, "wall_clock_breakdown"},
       {"\"zero_optimization\": {\"reduce_bucket_sze\": 7}, ", kUnknown,
        "did you mean"},
       {"\"zero_optimization\": {\"stage\": 4}, ", kRefused, "stage"},
       {"\"zero_optimization\": {\"stage\": \"two\"}, ", kRefused,
        "an integer"}},
      {{"system.nodes", "1"}});
}

TEST_CASE("users' files: scripts of which it is not clear what runs",
          "[foreign]") {
  const std::string sizes = kSizes;
  for (const auto& [text, words] :
       std::vector<std::pair<std::string, std::string>>{
           // Two trainings.
           {absl::StrCat("torchrun a.py ", sizes, "--lr 1\ntorchrun b.py ",
                         sizes, "--micro-batch-size 4\n"),
            "second training command"},
           // A branch that depends on what nobody says.
           {absl::StrCat("if [ -n \"$X\" ]; then TP=2; else TP=4; fi\n", sizes,
                         "--tensor-model-parallel-size $TP\n"),
            "exclude each other set TP (lines 1 and 1); allowed: one of them, "
            "or --env TP=VALUE"},
           {absl::StrCat("A=(", sizes,
                         ")\nif $X; then A+=(--seq-length 4096)\n"
                         "else A+=(--seq-length 8192)\nfi\n"),
            "4096 of line 2 or this, not both"},
           {absl::StrCat(sizes, "--seq-length $LENGTH\n"),
            "$LENGTH is not allowed; allowed: an integer; commands are not "
            "run: give a variable by --env NAME=VALUE"},
           {"torchrun --nnodes 1:4 x.py --bf16\n",
            "one number: an elastic job takes --nodes beside the file"},
           {absl::StrCat("--num-layers ", std::string(5000, '7')),
            "... (5000 bytes) is not allowed"},
       }) {
    const absl::Status status = ReadForeignArgs(text, "run.sh").status();
    INFO(text.substr(0, 500) << "\n" << status);
    CHECK(absl::StrContains(status.message(), words));
  }
  const std::string text =
      ReadFile(testing::SourcePath("tests/foreign/files/titan_registry.py"))
          .value();
  CHECK(absl::StrContains(
      ReadForeignArgs(text, "r.py").status().message(),
      "3 functions return a configuration; allowed: --env CONFIG=NAME"));
  CHECK(absl::StrContains(
      ReadForeignArgs(text, "r.py", Around({}, {{"CONFIG", "qwen4"}}))
          .status()
          .message(),
      "--env CONFIG: qwen4 is not allowed"));
}

TEST_CASE("users' files: a script is read as its shell reads it", "[foreign]") {
  struct Script {
    const char* text;
    const char* tp;
  };
  for (const Script& script : std::vector<Script>{
           {": ${TP:=4}\n--tensor-model-parallel-size $TP\n", "4"},
           {"A='--tensor-model-parallel-size 4'\nx.py $A\n", "4"},
           {"TP=2\nTP=${TP:-8}\n--tensor-model-parallel-size $TP\n", "2"},
           {"--tensor-model-parallel-size ${A:-${B:-\"4\"}}\n", "4"},
           {"S=big\ncase $S in\n big|huge) TP=8 ;;\n *) TP=1 ;;\nesac\n"
            "--tensor-model-parallel-size $TP\n",
            "8"},
           {"S=odd\ncase $S in\n big|huge) TP=8 ;;\n *) TP=1 ;;\nesac\n"
            "--tensor-model-parallel-size $TP\n",
            "1"},
           {"N=3\nif [ $N -gt 2 ]; then TP=4; else TP=2; fi\n"
            "--tensor-model-parallel-size $TP\n",
            "4"},
           {"N=3\nif [[ $N != 3 ]]; then TP=4\nelif [ -z \"$N\" ]; then TP=3\n"
            "else TP=2\nfi\n--tensor-model-parallel-size $TP\n",
            "2"},
           {"TP=4\nwhile [[ $# -gt 0 ]]; do case $1 in\n --tp) TP=$2 ;;\nesac; "
            "done\n--tensor-model-parallel-size $TP\n",
            "4"},
           {"sh -c \"python x.py --tensor-model-parallel-size 4\"\n", "4"},
           {"A=(\"--tensor-model-parallel-size 4\")\n", "4"},
           {"echo --tensor-model-parallel-size 2\n"
            "--tensor-model-parallel-size 4\n",
            "4"}}) {
    const absl::StatusOr<ForeignArgs> read = ReadForeignArgs(
        absl::StrCat(script.text, "--micro-batch-size 1\n"), "run.sh");
    INFO(script.text << read.status());
    REQUIRE(read.ok());
    CHECK(FieldsOf(*read)["strategy.tp"] == script.tp);
  }
}

TEST_CASE("users' files: words of Megatron-Bridge that were dropped",
          "[foreign]") {
  const std::string launch =
      "torchrun --nnodes 1 --nproc-per-node 8 run_recipe.py --recipe "
      "llama3_8b_pretrain_2gpu_h100_bf16_config ";
  const auto read = [&launch](const std::string& more) {
    return ReadForeignArgs(launch + more, "run.sh");
  };
  const auto notes = [&read](const std::string& more) {
    return absl::StrJoin(read(more).value().notes, "\n");
  };
  // A part of a recipe's model: the rest stays.
  Fields fields = FieldsOf(read("model.num_layers=4").value());
  CHECK(fields["model.preset"] == "llama3-8b");
  CHECK(fields["model.layers"] == "4");
  // The last recipe is the one that runs.
  fields = FieldsOf(
      read("--recipe llama3_70b_pretrain_32gpu_h100_bf16_config -tp 8 -cp 1 "
           "-pp 1 -vp 1")
          .value());
  CHECK(fields["model.preset"] == "llama3-70b");
  // A key that is deleted, and what comm_overlap decides.
  CHECK(absl::StrContains(notes("~model.no_such_key"), "no_such_key"));
  CHECK(absl::StrContains(notes("comm_overlap.overlap_grad_reduce=true "
                                "ddp.overlap_grad_reduce=false"),
                          "ddp.overlap_grad_reduce (comm_overlap"));
  CHECK(absl::StrContains(notes("comm_overlap.overlap_grad_reduce=true "
                                "ddp.use_distributed_optimizer=false "
                                "optimizer.use_distributed_optimizer=false"),
                          "(without the distributed optimizer)"));
  // A layout as lists within one word.
  const std::string two = "model.pipeline_model_parallel_size=2 ";
  fields = FieldsOf(
      read(two + "model.num_layers=3 model.pipeline_model_parallel_layout="
                 "'[[embedding,decoder],[decoder,decoder,loss]]'")
          .value());
  CHECK(fields["strategy.layout"] == "Et|ttL");
  CHECK(absl::StrContains(
      read(two + "model.num_layers=3 model.pipeline_model_parallel_layout="
                 "'[[embedding,Decoder],[decoder,decoder,loss]]'")
          .status()
          .message(),
      "allowed: lists of embedding, decoder, mtp, loss by stage"));
  // Short words behind the program are no flags of Megatron-LM.
  const ForeignArgs args =
      ReadForeignArgs(absl::StrCat("srun -n 8 python -u pretrain_gpt.py ",
                                   kSizes, "-pp 2 -bogus\n"),
                      "run.sh")
          .value();
  CHECK(absl::StrContains(absl::StrJoin(args.notes, "\n"),
                          "not known to Megatron-LM: -pp, -bogus"));
}

TEST_CASE("users' files: a configuration lies above them", "[foreign]") {
  const testing::TemporaryFolder folder;
  const std::string script = folder.Write(
      "run.sh", absl::StrCat("torchrun --nproc-per-node 8 --nnodes 1 x.py ",
                             kSizes, "--global-batch-size 32\n"));
  folder.Write("run.yaml", "strategy:\n  tp: 4\n");
  folder.Write("run.txtpb", "strategy { tp: 4 }\n");
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"simulate",   "--from-args", script,
                                      "--analytic", "--system",    "dgx-h100",
                                      "--engine",   "fast",        "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const testing::BinaryResult result = testing::RunBinary(words);
    INFO(result.err);
    CHECK(result.exit_code == 0);
    return result.out;
  };
  CHECK(absl::StrContains(run({}), "\"tp\": 2"));
  for (const char* name : {"run.yaml", "run.txtpb"}) {
    const std::string out = run({folder.Path(name)});
    CHECK(absl::StrContains(out, "\"tp\": 4"));
    // The replicas follow: 8 / (4 * 2).
    CHECK(absl::StrContains(out, "\"dp\": 1"));
  }
}

}  // namespace
}  // namespace pipewright::users_files_test

// Hybrid patterns and gated delta layers in Megatron-LM's arguments, each
// against what its help says (megatron/training/arguments.py, d98e8a64).
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/foreign/foreign_args.h"

namespace pipewright::hybrid_args_test {
namespace {

std::string Script(const std::string& more) {
  return absl::StrCat(
      "torchrun --nnodes 1 --nproc-per-node 8 pretrain_hybrid.py "
      "--hidden-size 4096 --num-attention-heads 32 --group-query-attention "
      "--num-query-groups 8 --kv-channels 128 --ffn-hidden-size 21504 "
      "--seq-length 8192 --max-position-embeddings 8192 --vocab-size 131072 "
      "--position-embedding-type none --micro-batch-size 1 "
      "--normalization RMSNorm --disable-bias-linear "
      "--untie-embeddings-and-output-weights ",
      more, "\n");
}

std::map<std::string, std::string> Read(const std::string& more) {
  const auto read = ReadForeignArgs(Script(more), "run.sh");
  INFO(more << "\n" << read.status());
  REQUIRE(read.ok());
  std::map<std::string, std::string> fields;
  for (const ConfigEdit& edit : read->edits) fields[edit.path] = edit.value;
  return fields;
}

std::string Says(const std::string& more) {
  return std::string(
      ReadForeignArgs(Script(more), "run.sh").status().message());
}

TEST_CASE("hybrid: Megatron's pattern gives kinds, stages and prediction",
          "[foreign]") {
  auto fields = Read(
      "--pipeline-model-parallel-size 2 --hybrid-layer-pattern "
      "'M-M-|M*-|M-|M-M*/*-/*-' --mamba-num-heads 128 --mamba-state-dim 256");
  CHECK(fields["model.pattern"] == "M-M-M*-M-M-M*");
  CHECK(fields["model.layers"] == "13");
  CHECK(fields["strategy.layers"] == "4,3,2,4");
  CHECK(fields["strategy.vpp"] == "2");
  CHECK(fields["schedule.name"] == "interleaved-1f1b");
  CHECK(fields["model.mtp_layers"] == "2");
  CHECK(fields["model.mamba_heads"] == "128");
  CHECK(fields["model.mamba_state"] == "256");
  // Megatron-LM's own.
  CHECK(fields["model.mamba_head_dim"] == "64");
  CHECK(fields["model.mamba_groups"] == "8");
  CHECK(fields["model.mamba_conv_bias"] == "true");
  CHECK(fields["model.rotary_dim"] == "0");
  fields = Read("--hybrid-override-pattern 'M*-' --is-hybrid-model");
  CHECK(fields["model.pattern"] == "M*-");
  CHECK(fields["model.mamba_heads"] == "128");  // 2 * 4096 / 64
  CHECK(fields.count("strategy.layers") == 0);
  fields = Read(
      "--hybrid-layer-pattern 'ME*E' --num-experts 8 --moe-router-topk 2 "
      "--moe-ffn-hidden-size 1024 --moe-latent-size 512");
  CHECK(fields["model.pattern"] == "ME*E");
  CHECK(fields["model.expert_latent"] == "512");
}

TEST_CASE("hybrid: gated delta layers are those of Megatron's frequency",
          "[foreign]") {
  const std::string delta =
      "--num-layers 8 --experimental-attention-variant gated_delta_net "
      "--linear-num-key-heads 16 --linear-num-value-heads 32 "
      "--attention-output-gate ";
  auto fields = Read(absl::StrCat(delta, "--linear-attention-freq 4"));
  CHECK(fields["model.pattern"] == "(G-)(G-)(G-)(*-)(G-)(G-)(G-)(*-)");
  CHECK(fields["model.attention_gate"] == "true");
  CHECK(fields["model.delta_key_heads"] == "16");
  CHECK(fields["model.delta_value_heads"] == "32");
  CHECK(fields["model.delta_key_dim"] == "128");
  CHECK(fields["model.conv_kernel"] == "4");
  fields = Read(
      absl::StrCat(delta,
                   "--linear-attention-freq '([1]*3+[0])*2' --num-experts 4 "
                   "--moe-layer-freq '[0]*1+[1]*7' --moe-router-topk 2"));
  CHECK(fields["model.pattern"] == "(G-)(GE)(GE)(*E)(GE)(GE)(GE)(*E)");
  CHECK(absl::StrContains(
      Says(absl::StrCat(delta, "--linear-attention-freq '[1]*3'")),
      "N, or a list of 8 of 0 and 1"));
}

TEST_CASE("hybrid: a pattern that cannot be is refused by its flag",
          "[foreign]") {
  CHECK(absl::StrContains(Says("--hybrid-layer-pattern 'MXM'"),
                          "--hybrid-layer-pattern"));
  CHECK(absl::StrContains(Says("--hybrid-layer-pattern 'MD'"), "not 'D'"));
  CHECK(absl::StrContains(Says("--hybrid-layer-pattern 'M*/MM'"),
                          "no field has 'MM'"));
  // Megatron-LM takes neither numbers nor what [...] means here.
  CHECK(absl::StrContains(Says("--hybrid-layer-pattern '2M-'"), "not '2'"));
  CHECK(absl::StrContains(Says("--hybrid-layer-pattern '[M-]M-'"), "not '['"));
  CHECK(absl::StrContains(Says("--num-layers 6 --hybrid-layer-pattern 'M-M-'"),
                          "4, the layers of"));
  CHECK(absl::StrContains(Says("--hybrid-layer-pattern 'M-' "
                               "--hybrid-override-pattern 'MM'"),
                          "as hybrid_override_pattern has it"));
  CHECK(Read("--hybrid-layer-pattern 'M*-/'").count("model.mtp_layers") == 0);
  CHECK(absl::StrContains(Says("--pipeline-model-parallel-size 2 "
                               "--hybrid-layer-pattern 'M|*|-'"),
                          "3 stages are no multiple of pp = 2"));
}

}  // namespace
}  // namespace pipewright::hybrid_args_test

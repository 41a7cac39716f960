// Traces with known times and planted faults, written by
// tests/support/kineto_trace.h.
#include "calibrate/import_kineto.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/support/kineto_trace.h"

namespace pipewright::import_kineto_test {
namespace {

using testing::FakeEvent;
using testing::FakeEvents;
using testing::FakeRank;
using testing::FakeTrace;
using Strings = std::vector<std::string>;

KinetoOptions TinyOptions() {
  KinetoOptions options;
  options.model = {.style = "gpt",
                   .hidden = 256,
                   .heads = 4,
                   .kv_heads = 4,
                   .head_dim = 64,
                   .ffn = 1024,
                   .vocabulary = 512};
  options.model_layers = 4;
  options.sequence = 128;
  return options;
}

absl::StatusOr<Profile> ImportTexts(const Strings& texts,
                                    const KinetoOptions& options) {
  KinetoImport import(options);
  for (size_t index = 0; index < texts.size(); ++index) {
    std::istringstream in(texts[index]);
    const absl::Status added =
        import.Add(in, absl::StrCat("rank", index, ".json"));
    if (!added.ok()) return added;
  }
  return import.Finish();
}

absl::StatusOr<Profile> ImportText(
    const std::string& text, const KinetoOptions& options = TinyOptions()) {
  return ImportTexts({text}, options);
}

// Checks the message of a refusal for its parts.
void CheckSays(const absl::StatusOr<Profile>& profile, const Strings& parts) {
  REQUIRE_FALSE(profile.ok());
  CHECK(profile.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(profile.status().message());
  INFO(message);
  for (const std::string& part : parts) {
    INFO(part);
    CHECK(absl::StrContains(message, part));
  }
}

bool Warns(const Profile& profile, const std::string& part) {
  const Strings& warnings = profile.sources.at(0).warnings;
  return std::any_of(warnings.begin(), warnings.end(),
                     [&](const std::string& warning) {
                       return absl::StrContains(warning, part);
                     });
}

const PassEntry* EntryOf(const Profile& profile, ProfilePart part,
                         ProfilePass pass, int64_t pp = 0, int64_t rank = 0) {
  for (const PassEntry& entry : profile.passes) {
    if (entry.part == part && entry.pass == pass && entry.pp == pp &&
        entry.rank == rank) {
      return &entry;
    }
  }
  return nullptr;
}

// The median is the planted time to 1e-9 of it, or to 1e-15 s, the resolution
// of a double that counts microseconds from 1e6.
void CheckTime(const Profile& profile, ProfilePart part, ProfilePass pass,
               double us, int64_t pp = 0, int64_t rank = 0) {
  INFO(ProfilePartName(part)
       << " " << ProfilePassName(pass) << " rank " << rank);
  const PassEntry* entry = EntryOf(profile, part, pass, pp, rank);
  REQUIRE(entry != nullptr);
  CHECK(entry->time.median_s == Approx(us * 1e-6).epsilon(1e-9).margin(1e-15));
  CHECK(entry->time.min_s == Approx(us * 1e-6).epsilon(1e-9).margin(1e-15));
}

void CheckPlanted(const Profile& profile, const FakeRank& rank) {
  CheckTime(profile, ProfilePart::kLayer, ProfilePass::kForward,
            rank.layer_us[0]);
  CheckTime(profile, ProfilePart::kLayer, ProfilePass::kBackwardFull,
            rank.layer_us[1]);
  CheckTime(profile, ProfilePart::kEmbedding, ProfilePass::kForward,
            rank.embedding_us[0]);
  CheckTime(profile, ProfilePart::kEmbedding, ProfilePass::kBackwardWeight,
            rank.embedding_us[1]);
  CheckTime(profile, ProfilePart::kHead, ProfilePass::kForward,
            rank.head_us[0]);
  CheckTime(profile, ProfilePart::kHead, ProfilePass::kBackwardFull,
            rank.head_us[1]);
  CHECK(profile.passes.size() == 6);
}

std::string GroupText(const std::string& name, const Strings& ranks) {
  return absl::StrCat("{\"pg_name\": \"1\", \"pg_desc\": \"", name,
                      "\", \"pg_size\": ", ranks.size(), ", \"ranks\": [",
                      absl::StrJoin(ranks, ", "), "]}");
}

// Two stages of two ranks each: 0 and 1 are stage 0.
std::vector<FakeRank> TwoStages() {
  std::vector<FakeRank> ranks(4);
  for (int number = 0; number < 4; ++number) {
    FakeRank& rank = ranks[static_cast<size_t>(number)];
    rank.rank = number;
    rank.world_size = 4;
    rank.layers = 2;
    rank.has_embedding = number < 2;
    rank.has_head = number >= 2;
    rank.groups =
        GroupText("PIPELINE_MODEL_PARALLEL_GROUP",
                  number % 2 == 0 ? Strings{"0", "2"} : Strings{"1", "3"});
    rank.layer_us[0] = 20 + number;
    rank.layer_us[1] = 40 + 2 * number;
  }
  return ranks;
}

Strings TextsOf(const std::vector<FakeRank>& ranks) {
  Strings texts;
  for (const FakeRank& rank : ranks) texts.push_back(FakeTrace(rank));
  return texts;
}

}  // namespace

TEST_CASE("kineto: known times come back, embedding and head apart",
          "[calibrate]") {
  FakeRank rank;
  SECTION("modules") {}
  SECTION("marks of record_function") {
    rank.has_modules = false;
    rank.has_marks = true;
  }
  SECTION("both") { rank.has_marks = true; }
  SECTION("modules, no shapes") { rank.has_shapes = false; }
  const absl::StatusOr<Profile> profile = ImportText(FakeTrace(rank));
  INFO(profile.status());
  REQUIRE(profile.ok());
  CheckPlanted(*profile, rank);
  CHECK(Warns(*profile, "no products with sizes") == !rank.has_shapes);
  CHECK(profile->sources[0].device == rank.device);
}

TEST_CASE("kineto: without modules or marks the sizes tell the head",
          "[calibrate]") {
  FakeRank rank;
  rank.has_modules = false;
  KinetoOptions options = TinyOptions();
  CheckSays(
      ImportText(FakeTrace(rank), options),
      {"--layers: missing", "rank0.json has no modules", "repeat 4 times"});
  options.layers = 4;
  const absl::StatusOr<Profile> profile = ImportText(FakeTrace(rank), options);
  INFO(profile.status());
  REQUIRE(profile.ok());
  CheckTime(*profile, ProfilePart::kEmbedding, ProfilePass::kForward,
            rank.embedding_us[0]);
  // The last norm is an eighth of the head, and nothing tells it from a layer.
  CheckTime(*profile, ProfilePart::kHead, ProfilePass::kForward,
            0.875 * rank.head_us[0]);
  CheckTime(*profile, ProfilePart::kLayer, ProfilePass::kForward,
            rank.layer_us[0] + 0.125 * rank.head_us[0] / 4);
  CheckTime(*profile, ProfilePart::kLayer, ProfilePass::kBackwardFull,
            rank.layer_us[1] + 0.125 * rank.head_us[1] / 4);
  // Without sizes nothing tells the product of the head.
  rank.has_shapes = false;
  CheckSays(ImportText(FakeTrace(rank), options),
            {"rank0.json", "has a loss", "record_shapes"});
  rank.has_embedding = rank.has_head = false;
  const absl::StatusOr<Profile> blind = ImportText(FakeTrace(rank), options);
  REQUIRE(blind.ok());
  CHECK(Warns(*blind, "no head is recognised"));
  CHECK(Warns(*blind, "no embedding is recognised"));
}

TEST_CASE("kineto: layers that the user says must be the trace's",
          "[calibrate]") {
  FakeRank rank;
  KinetoOptions options = TinyOptions();
  options.layers = 3;
  CheckSays(ImportText(FakeTrace(rank), options),
            {"--layers: 3", "the 4 layers", "nn.Module: TransformerLayer_"});
  options.layers = 4;
  CHECK(ImportText(FakeTrace(rank), options).ok());
  options.model_layers = 6;
  CheckSays(ImportText(FakeTrace(rank), options),
            {"--model: 6 layers", "the 4 layers"});
  // Repeated kernels are a check where no mark tells the layers.
  rank.has_modules = false;
  options.model_layers = 4;
  options.layers = 3;
  CheckSays(ImportText(FakeTrace(rank), options),
            {"--layers: 3", "a divisor of 4", "repeat 4 times"});
  options.layers = 2;
  const absl::StatusOr<Profile> half = ImportText(FakeTrace(rank), options);
  REQUIRE(half.ok());
  CHECK(Warns(*half, "repeat 4 times, --layers is 2"));
}

TEST_CASE("kineto: the user's own name of a layer", "[calibrate]") {
  FakeRank rank;
  const std::string renamed =
      absl::StrReplaceAll(FakeTrace(rank), {{"TransformerLayer_", "Chunk_"}});
  KinetoOptions options = TinyOptions();
  CheckSays(ImportText(renamed, options), {"--layers: missing"});
  options.layer_name = "^Chunk$";
  const absl::StatusOr<Profile> profile = ImportText(renamed, options);
  REQUIRE(profile.ok());
  CheckPlanted(*profile, rank);
  options.layer_name = "(";
  CheckSays(ImportText(renamed, options), {"--layer-name: ("});
}

TEST_CASE("kineto: a region of several microbatches is none", "[calibrate]") {
  FakeRank rank;
  Strings events = FakeEvents(rank);
  events.erase(std::remove_if(events.begin(), events.end(),
                              [](const std::string& event) {
                                return absl::StrContains(event, " step ");
                              }),
               events.end());
  events.push_back(FakeEvent("user_annotation", "forward step", "7", 1e6, 1e5));
  CheckSays(ImportText(FakeTrace(rank, events)),
            {"goes through 12 layers", "more than once"});
}

TEST_CASE("kineto: another device than the trace's is refused", "[calibrate]") {
  FakeRank rank;
  KinetoOptions options = TinyOptions();
  const auto refused = [&](const std::string& device, const Strings& parts) {
    options.device = device;
    CheckSays(ImportText(FakeTrace(rank), options), parts);
  };
  refused("a100-80gb",
          {"--device: a100-80gb", "A100", rank.device, "--device h100 fits"});
  refused("Other GPU", {"--device: Other GPU", rank.device});
  refused("h100-nvl", {"--device: h100-nvl", "132 SMs"});  // by memory
  for (const char* device : {"h100", "H100", ""}) {
    options.device = device;
    INFO(device);
    CHECK(ImportText(FakeTrace(rank), options).ok());
  }
  rank.device = "NVIDIA H100 PCIe";
  rank.multiprocessors = 114;
  refused("h100", {"--device: h100", "NVIDIA H100 PCIe (114 SMs"});
  options.device = "";
  const absl::StatusOr<Profile> unknown = ImportText(FakeTrace(rank), options);
  REQUIRE(unknown.ok());
  CHECK(Warns(*unknown, "not checked against a peak"));
  // Ranks of two devices.
  std::vector<FakeRank> ranks = TwoStages();
  ranks[3].device = "NVIDIA H200";
  CheckSays(ImportTexts(TextsOf(ranks), options),
            {"rank3.json", "NVIDIA H200", "NVIDIA H100 80GB HBM3"});
}

TEST_CASE("kineto: no time beats the peak", "[calibrate]") {
  FakeRank rank;
  // 2 x 128 tokens x (4 x 256 + 2 x 1024) x 256 parameters, and two products of
  // 128 x 128 scores, halved.
  const double flops =
      2.0 * 128 * 256 * (4 * 256 + 2 * 1024) + 2.0 * 128 * 128 * 256;
  const double whole_us = 1e6 * flops / 989.4e12;
  const auto at_rate = [&](double share) {
    rank.has_shapes = false;
    rank.layer_us[0] = whole_us / share;
    return ImportText(FakeTrace(rank));
  };
  const absl::StatusOr<Profile> calm = at_rate(0.5);
  REQUIRE(calm.ok());
  CHECK_FALSE(Warns(*calm, "TFLOP/s"));
  CHECK(EntryOf(*calm, ProfilePart::kLayer, ProfilePass::kForward)->flops ==
        Approx(flops));
  const absl::StatusOr<Profile> fast = at_rate(0.9);
  REQUIRE(fast.ok());
  CHECK(Warns(*fast, "layer F in"));
  CHECK(Warns(*fast, "90 % of the 989.4 TFLOP/s of h100"));
  CHECK(at_rate(0.99).ok());
  CheckSays(at_rate(1.01), {"101 %"});
  // All times of the trace halved.
  CheckSays(at_rate(1.8), {"rank0.json", "layer F in", "FLOPs: 180 %", "h100",
                           "Likely --layers is too large"});
  // With sizes the product that is too fast has a name.
  rank.has_shapes = true;
  CheckSays(ImportText(FakeTrace(rank)),
            {"aten::mm [128, 256] x [256, 768]", "FLOPs", "100 %"});
}

TEST_CASE("kineto: sizes that the user says must be the trace's",
          "[calibrate]") {
  const FakeRank rank;
  KinetoOptions options = TinyOptions();
  options.sequence = 256;
  CheckSays(ImportText(FakeTrace(rank), options),
            {"--sequence: 256", "the 128", "flash_attention"});
  options.sequence = 64;
  options.microbatch_size = 2;  // as many tokens
  CheckSays(ImportText(FakeTrace(rank), options),
            {"--microbatch-size: 2", "the 1 of rank0.json"});
  options = TinyOptions();
  options.model.hidden = 512;
  CheckSays(ImportText(FakeTrace(rank), options),
            {"--model: hidden size 512", "aten::mm [128, "});
  options = TinyOptions();
  options.model.heads = 8;
  CheckSays(ImportText(FakeTrace(rank), options), {"heads", "8", "the 4"});
  // Products alone: tokens together.
  const std::string no_attention = absl::StrReplaceAll(
      FakeTrace(rank),
      {{"aten::_scaled_dot_product_flash_attention", "my_attention"}});
  options = TinyOptions();
  options.sequence = 256;
  CheckSays(ImportText(no_attention, options),
            {"--sequence: 256", "256 tokens", "the 128 tokens"});
  options.sequence = 128;
  const absl::StatusOr<Profile> profile = ImportText(no_attention, options);
  REQUIRE(profile.ok());
  CHECK(Warns(*profile, "not checked one by one"));
}

TEST_CASE("kineto: ranks that are missing, twice there, or of another job",
          "[calibrate]") {
  std::vector<FakeRank> ranks = TwoStages();
  KinetoOptions options = TinyOptions();
  const auto with = [&](const std::vector<FakeRank>& some) {
    return ImportTexts(TextsOf(some), options);
  };
  CHECK(with(ranks).ok());
  CheckSays(with({ranks[0], ranks[1], ranks[3]}),
            {"world_size: 4", "there are 3, of rank 2 none", "--some-ranks"});
  options.axes.some_ranks = true;
  const absl::StatusOr<Profile> some = with({ranks[0], ranks[1], ranks[3]});
  REQUIRE(some.ok());
  CHECK(Warns(*some, "3 of 4 ranks"));
  options.axes.some_ranks = false;
  const absl::StatusOr<Profile> one = with({ranks[0]});
  REQUIRE(one.ok());
  CHECK(Warns(*one, "1 of 4 ranks"));
  CheckSays(with({ranks[0], ranks[1], ranks[1], ranks[2]}),
            {"rank2.json", "rank: 1", "rank1.json has it too"});
  std::vector<FakeRank> other = ranks;
  other[2].world_size = 8;
  CheckSays(with(other), {"rank2.json", "world_size: 8", "the 4"});
  // Layers that do not make the model.
  other = ranks;
  other[2].layers = other[3].layers = 3;
  CheckSays(with(other),
            {"--model: 4 layers", "the 5 layers", "rank2.json: 3"});
  other[3].layers = 2;
  CheckSays(with(other), {"rank3.json", "2 layers", "the 3 of rank2.json"});
  // Groups that do not tell the pipeline: the user must.
  other = ranks;
  for (FakeRank& rank : other) rank.groups = "";
  CheckSays(with(other), {"--pp: missing"});
  options.axes.pp = 2;
  CHECK(with(other).ok());
  options.axes.pp = 4;
  CheckSays(with(ranks), {"--pp: 4", "the 2 of rank0.json"});
  options.axes.pp = 3;
  CheckSays(with(other), {"--pp: 3", "a divisor of the 4 ranks"});
  options = TinyOptions();
  other = ranks;
  for (FakeRank& rank : other) {
    absl::StrAppend(&rank.groups, ", ", GroupText("mesh_tp", {"0", "1"}));
  }
  options.axes.tp = 4;
  CheckSays(with(other), {"--tp: 4", "the 2 of"});
}

TEST_CASE("kineto: ranks of a stage are pooled, stages kept apart",
          "[calibrate]") {
  const std::vector<FakeRank> ranks = TwoStages();
  const absl::StatusOr<Profile> profile =
      ImportTexts(TextsOf(ranks), TinyOptions());
  INFO(profile.status());
  REQUIRE(profile.ok());
  const auto layer = [&](int64_t pp, int64_t rank) -> const Distribution& {
    const PassEntry* entry =
        EntryOf(*profile, ProfilePart::kLayer, ProfilePass::kForward, pp, rank);
    REQUIRE(entry != nullptr);
    return entry->time;
  };
  // 20 and 21 us, 22 and 23 us; three microbatches each.
  CHECK(layer(2, 0).count == 6);
  CHECK(layer(2, 0).median_s == Approx(20.5e-6));
  CHECK(layer(2, 0).max_s == Approx(21e-6));
  CHECK(layer(2, 1).median_s == Approx(22.5e-6));
  CHECK(layer(2, 1).min_s == Approx(22e-6));
  CHECK(layer(0, 0).count == 12);
  CHECK(layer(0, 0).median_s == Approx(21.5e-6));
  // Four ranks as four rounds: their spread is that of a fresh run.
  CHECK(layer(0, 0).prediction_low_s < 20.5e-6);
  CHECK(layer(0, 0).prediction_high_s > 22.5e-6);
  CHECK(Warns(*profile,
              "layer F differs between ranks: 20 us (rank0.json) to "
              "23 us (rank3.json)"));
  // Ends are of one stage only.
  CheckTime(*profile, ProfilePart::kEmbedding, ProfilePass::kForward, 3);
  CheckTime(*profile, ProfilePart::kHead, ProfilePass::kForward, 11);
  CHECK(EntryOf(*profile, ProfilePart::kHead, ProfilePass::kForward, 2, 1) ==
        nullptr);
  CHECK(KeyOf(*EntryOf(*profile, ProfilePart::kLayer, ProfilePass::kForward, 2,
                       1)) ==
        "layer F gpt h256 a4 d64 f1024 bf16 b1 s128 tp1 rank 1 of 2");
  const absl::StatusOr<Profile> again =
      ReadProfile(WriteProfile(*profile), "again");
  REQUIRE(again.ok());
  // Texts round times, so that the texts are compared.
  CHECK(WriteProfile(*again) == WriteProfile(*profile));
}

}  // namespace pipewright::import_kineto_test

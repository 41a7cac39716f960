// What is written for a framework, read without our comment lines, is the run
// that was planned: all models and ten ways to lay each out. Flags, types and
// choices are held against the framework's own table.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/foreign/foreign_args.h"
#include "sim/foreign/given_keys.h"
#include "sim/foreign/key_table.h"
#include "sim/model/model.h"
#include "sim/report/memory_report.h"
#include "sim/run/simulated_run.h"

namespace pipewright::round_trip_test {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

RunConfig ConfigOf(const Fields& fields) {
  std::vector<ConfigEdit> edits;
  for (const auto& [path, value] : fields) edits.push_back({path, value, path});
  absl::StatusOr<RunConfig> config = ReadConfig("", "", {edits});
  INFO(config.status());
  REQUIRE(config.ok());
  return *std::move(config);
}

std::string WithoutComments(absl::string_view text) {
  std::vector<absl::string_view> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, kCommentMark)) lines.push_back(line);
  }
  return absl::StrJoin(lines, "\n");
}

// Ten layouts of a model for Megatron-LM on two nodes of eight.
std::vector<Fields> Layouts(const ModelSpec& model) {
  const bool experts = model.experts > 0;
  const auto degrees = [](int pp, int tp, int cp, int dp, int vpp) {
    return Fields{{"strategy.pp", absl::StrCat(pp)},
                  {"strategy.tp", absl::StrCat(tp)},
                  {"strategy.cp", absl::StrCat(cp)},
                  {"strategy.dp", absl::StrCat(dp)},
                  {"strategy.vpp", absl::StrCat(vpp)},
                  {"schedule.name", vpp > 1 ? "interleaved-1f1b" : "1f1b"}};
  };
  const auto with = [](Fields fields, const Fields& more) {
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  const std::string layers = absl::StrCat(model.layers - 1, ",1");
  std::vector<Fields> all = {
      degrees(1, 2, 1, 8, 1),
      with(degrees(2, 2, 1, 4, 1),
           {{"strategy.layers", layers}, {"strategy.data_parallel", "zero1"}}),
      with(degrees(2, 4, 1, 2, 1), {{"strategy.layers", layers},
                                    {"strategy.recompute", "full"},
                                    {"strategy.sequence_parallel", "true"}}),
      with(degrees(1, 2, 2, 4, 1), {{"strategy.recompute", "selective"},
                                    {"strategy.data_parallel", "fsdp"},
                                    {"strategy.sequence_parallel", "true"}}),
      with(degrees(1, 4, 1, 4, 1), {{"strategy.precision", "fp8"},
                                    {"strategy.data_parallel", "zero1"},
                                    {"strategy.sequence_parallel", "true"}}),
      with(degrees(1, 4, 1, 4, 1), {{"strategy.precision", "fp8-block"},
                                    {"strategy.attention", "unfused"},
                                    {"strategy.overlap_gradients", "true"},
                                    {"strategy.data_parallel", "zero1"}}),
      with(degrees(1, 1, 1, 16, 1),
           {{"strategy.gradient_bytes_per_parameter", "2"},
            {"strategy.moment_bytes_per_parameter", "4"},
            {"strategy.data_parallel", "zero1"}}),
      with(degrees(1, 2, 1, 8, 1), {{"strategy.overlap_tensor", "true"},
                                    {"strategy.sequence_parallel", "true"}}),
      with(degrees(1, 2, 1, 8, 1), {{"strategy.launch", "graphs"},
                                    {"strategy.graph_parts", "attention"},
                                    {"strategy.fused_cross_entropy", "true"}}),
      with(degrees(1, 1, 1, 16, 1), {{"strategy.recompute", "full"},
                                     {"strategy.recompute_layers", "1"}}),
      with(degrees(1, 2, 1, 8, 1),
           {{"strategy.recompute", "selective"},
            {"strategy.recompute_modules", "core_attn,mlp"}}),
      with(degrees(1, 1, 1, 16, 1), {{"strategy.precision", "fp8-tensorwise"},
                                     {"strategy.narrow_weights", "true"},
                                     {"strategy.data_parallel", "zero1"}}),
  };
  for (Fields& fields : all) {
    if (!experts) continue;
    for (auto& [path, value] : fields) {
      if (path == "strategy.sequence_parallel") value = "true";
    }
    fields.emplace_back("strategy.ep", "2");
    fields.emplace_back("strategy.dispatch", "once");
  }
  return all;
}

TEST_CASE("emitted: what Megatron-LM reads is what was planned", "[foreign]") {
  std::set<std::string> refused;
  int tried = 0;
  for (const ModelSpec& model : AllModels()) {
    for (const Fields& layout : Layouts(model)) {
      Fields fields = {{"model.preset", model.name},
                       {"strategy.framework", "megatron"},
                       {"strategy.microbatch_size", "1"},
                       {"strategy.microbatches", "4"},
                       {"system.preset", "dgx-h100"},
                       {"system.nodes", "2"},
                       {"system.memory", "100TiB"},
                       {"costs.analytic.device", "auto"},
                       {"engine", "fast"}};
      fields.insert(fields.end(), layout.begin(), layout.end());
      const RunConfig config = ConfigOf(fields);
      RunContext context;
      const auto planned = Simulate(config, &context);
      // A model that the layout does not fit is none.
      if (!planned.ok()) continue;
      const auto emitted =
          EmitArgs(config, planned->prepared, ForeignForm::kMegatron, "");
      if (!emitted.ok()) {
        refused.insert(model.name);
        continue;
      }
      INFO(emitted->text);
      const auto read =
          ReadForeignArgs(WithoutComments(emitted->text), "run.sh");
      INFO(read.status());
      REQUIRE(read.ok());
      for (const std::string& note : read->notes) {
        CHECK_FALSE(absl::StrContains(note, "not known"));
      }
      const auto again = ReadConfig("", "", {read->edits});
      REQUIRE(again.ok());
      RunConfig runs = *again;
      runs.system = config.system;
      runs.costs = config.costs;
      runs.engine = config.engine;
      const auto result = Simulate(runs, &context);
      INFO(result.status());
      REQUIRE(result.ok());
      ++tried;
      CHECK(result->report.iteration_s ==
            Approx(planned->report.iteration_s).epsilon(1e-9));
      CHECK(MemoryVerdictLine(*result->report.memory) ==
            MemoryVerdictLine(*planned->report.memory));
    }
  }
  CHECK(refused == std::set<std::string>{"bert-base", "bert-large"});
  CHECK(tried > 150);
}

// True if the table has the flag, and its value is one of the choices.
std::string WrongFlag(const GivenKey& key) {
  bool clears = false;
  const ForeignKey* const row =
      KeyTable::Of("megatron").FindFlag(key.name, &clears);
  if (row == nullptr) return absl::StrCat("--", key.name, " is no flag");
  if (row->type == "bool" || key.values.empty()) return "";
  for (const std::string& value : key.values) {
    int64_t number = 0;
    if (row->type == "int" && !absl::SimpleAtoi(value, &number)) {
      return absl::StrCat("--", key.name, " ", value, " is no integer");
    }
    if (row->choices.empty()) continue;
    bool known = false;
    for (const std::string& choice : row->choices) known |= choice == value;
    if (!known)
      return absl::StrCat("--", key.name, " ", value, " is no choice");
  }
  return "";
}

TEST_CASE("emitted: every flag is one of Megatron-LM's", "[foreign]") {
  for (const char* model :
       {"llama3-8b", "deepseek-v3", "gpt2", "mixtral-8x7b"}) {
    for (const Fields& layout : Layouts(FindModel(model).value())) {
      Fields fields = {{"model.preset", model},
                       {"strategy.framework", "megatron"},
                       {"strategy.microbatches", "4"},
                       {"system.preset", "dgx-h100"},
                       {"system.nodes", "2"},
                       {"system.memory", "100TiB"},
                       {"costs.analytic.device", "auto"}};
      fields.insert(fields.end(), layout.begin(), layout.end());
      const RunConfig config = ConfigOf(fields);
      const auto run = Prepare(config);
      if (!run.ok()) continue;
      const auto emitted = EmitArgs(config, *run, ForeignForm::kMegatron, "");
      REQUIRE(emitted.ok());
      for (const GivenKey& key : KeysOfShell(emitted->text, nullptr)) {
        CHECK(WrongFlag(key).empty());
      }
    }
  }
  // Planted: a wrong flag, a wrong type, an illegal choice.
  const auto wrong = [](const char* flag) {
    return WrongFlag(KeysOfShell(flag, nullptr).at(0));
  };
  CHECK(absl::StrContains(wrong("--tensor-model-parallel-sise 2"), "no flag"));
  CHECK(absl::StrContains(wrong("--num-layers many"), "no integer"));
  CHECK(absl::StrContains(wrong("--normalization BatchNorm"), "no choice"));
}

// What is left out changes the run: each of these lines was missing once.
TEST_CASE("emitted: a line that is missing is noticed", "[foreign]") {
  const RunConfig config = ConfigOf({{"model.preset", "deepseek-v3"},
                                     {"model.layers", "7"},
                                     {"strategy.framework", "megatron"},
                                     {"strategy.microbatches", "4"},
                                     {"strategy.pp", "1"},
                                     {"strategy.ep", "8"},
                                     {"strategy.dp", "8"},
                                     {"strategy.data_parallel", "zero1"},
                                     {"strategy.recompute", "full"},
                                     {"schedule.name", "1f1b"},
                                     {"system.preset", "dgx-h100"},
                                     {"system.nodes", "1"},
                                     {"system.memory", "100TiB"},
                                     {"costs.analytic.device", "auto"}});
  const PreparedRun run = Prepare(config).value();
  const std::string text = WithoutComments(
      EmitArgs(config, run, ForeignForm::kMegatron, "").value().text);
  const auto fields = [](const std::string& args) {
    std::vector<std::string> all;
    const auto read = ReadForeignArgs(args, "run.sh");
    if (!read.ok()) return std::string("refused");
    for (const ConfigEdit& edit : read->edits) {
      all.push_back(absl::StrCat(edit.path, "=", edit.value));
    }
    return absl::StrCat(absl::StrJoin(all, "\n"),
                        absl::StrJoin(read->notes, "\n"));
  };
  for (const char* flag :
       {"--multi-latent-attention", "--moe-layer-freq '([0]*3+[1]*4)'",
        "--moe-token-dispatcher-type alltoall", "--moe-grouped-gemm",
        "--position-embedding-type rope", "--recompute-granularity full",
        "--use-distributed-optimizer", "--untie-embeddings-and-output-weights",
        "--hidden-dropout 0", "--swiglu", "--mtp-num-layers 1"}) {
    const size_t at = text.find(flag);
    INFO(flag);
    REQUIRE(at != std::string::npos);
    std::string cut = text;
    cut.erase(at, std::string(flag).size());
    // The two dropouts are one field.
    if (std::string(flag) == "--hidden-dropout 0") continue;
    CHECK(fields(cut) != fields(text));
  }
}

}  // namespace
}  // namespace pipewright::round_trip_test

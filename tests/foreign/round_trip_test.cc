// What is written for a framework, read without our comment lines, is the run
// that was planned: all models and many ways to lay each out. Flags, types and
// choices are held against the framework's own table.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"
#include "sim/foreign/bridge_recipes.h"
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

// Layouts of a model for Megatron-LM on two nodes of eight.
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
      with(degrees(2, 1, 2, 4, 1),
           {{"strategy.layout",
             absl::StrCat("E(t|)*1t*", model.layers - 1, ",",
                          std::string(model.mtp_layers, 'm'), "L")},
            {"strategy.recompute", "full"},
            {"strategy.overlap_gradients", "true"},
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

// What the target cannot say is refused, and all else is read as it was
// planned.
struct Trips {
  std::set<std::string> refused;     // models, in one layout or more
  std::map<std::string, int> tried;  // by model

  std::set<std::string> models() const {
    std::set<std::string> all;
    for (const auto& [model, times] : tried) all.insert(model);
    return all;
  }
};

Trips Travel(ForeignForm form, const char* framework, const char* file,
             const std::function<std::vector<Fields>(const ModelSpec&)>& all) {
  Trips trips;
  for (const ModelSpec& model : AllModels()) {
    for (const Fields& layout : all(model)) {
      Fields fields = {{"model.preset", model.name},
                       {"strategy.framework", framework},
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
      const auto emitted = EmitArgs(config, planned->prepared, form, "");
      if (!emitted.ok()) {
        CHECK(emitted.status().code() == absl::StatusCode::kInvalidArgument);
        trips.refused.insert(model.name);
        continue;
      }
      INFO(emitted->text);
      ForeignSurroundings around = {
          .given = {{"costs.analytic.device", "auto"}}};
      std::vector<ConfigEdit> beside;
      if (form == ForeignForm::kDeepSpeed) {
        for (const auto& [path, value] : emitted->beside) {
          around.given[path] = value;
          beside.push_back({path, value, path});
        }
      }
      const auto read =
          ReadForeignArgs(WithoutComments(emitted->text), file, around);
      INFO(read.status());
      REQUIRE(read.ok());
      for (const std::string& note : read->notes) {
        INFO(note);
        CHECK_FALSE(absl::StrContains(note, "not known"));
      }
      const auto again = ReadConfig("", "", {read->edits, beside});
      INFO(again.status());
      REQUIRE(again.ok());
      RunConfig runs = *again;
      runs.system = config.system;
      runs.costs = config.costs;
      runs.engine = config.engine;
      const auto result = Simulate(runs, &context);
      INFO(result.status());
      REQUIRE(result.ok());
      ++trips.tried[model.name];
      CHECK(result->report.iteration_s ==
            Approx(planned->report.iteration_s).epsilon(1e-9));
      CHECK(MemoryVerdictLine(*result->report.memory) ==
            MemoryVerdictLine(*planned->report.memory));
    }
  }
  return trips;
}

TEST_CASE("emitted: what Megatron-LM reads is what was planned", "[foreign]") {
  const Trips trips =
      Travel(ForeignForm::kMegatron, "megatron", "run.sh", Layouts);
  CHECK(trips.refused == std::set<std::string>{"bert-base", "bert-large",
                                               "gpt-oss-120b", "gpt-oss-20b",
                                               "qwen3-next-80b-a3b"});
  for (const ModelSpec& model : AllModels()) {
    CAPTURE(model.name);
    CHECK((trips.tried.count(model.name) == 0) ==
          (trips.refused.count(model.name) > 0));
  }
}

// Layouts of a model for torchtitan, or those of them for DeepSpeed.
std::vector<Fields> PlainLayouts(const ModelSpec& model, bool deepspeed) {
  const std::string halves = absl::StrCat(model.layers - 1, ",1");
  const auto degrees = [&](int pp, int tp, int cp, int dp, const Fields& more) {
    Fields fields = {{"strategy.pp", absl::StrCat(pp)},
                     {"strategy.tp", absl::StrCat(tp)},
                     {"strategy.cp", absl::StrCat(cp)},
                     {"strategy.dp", absl::StrCat(dp)},
                     {"schedule.name", "1f1b"},
                     {"strategy.recompute", "none"},
                     {"strategy.data_parallel",
                      deepspeed ? pp > 1 ? "zero1" : "zero2" : "fsdp"}};
    for (const auto& [path, value] : more) {
      std::erase_if(fields,
                    [&](const auto& field) { return field.first == path; });
      fields.emplace_back(path, value);
    }
    return fields;
  };
  std::vector<Fields> all = {
      degrees(1, 1, 1, 16, {}),
      degrees(1, 2, 1, 8, {{"strategy.recompute", "full"}}),
      degrees(2, 1, 1, 8, {{"strategy.layers", halves}}),
      degrees(2, 2, 1, 4,
              {{"strategy.layers", halves}, {"strategy.recompute", "full"}}),
      degrees(1, 1, 1, 16, {{"strategy.data_parallel", "fsdp"}})};
  if (deepspeed) return all;
  const std::vector<Fields> titan = {
      degrees(1, 2, 2, 4, {{"strategy.recompute", "op-selective"}}),
      degrees(2, 2, 1, 4,
              {{"schedule.name", "interleaved-1f1b"}, {"strategy.vpp", "2"}}),
      degrees(2, 1, 1, 8,
              {{"schedule.name", "gpipe"},
               {"strategy.layers", halves},
               {"strategy.reshard_after_forward", "true"}}),
      degrees(1, 1, 1, 16, {{"strategy.shard_group", "8"}}),
      degrees(1, 2, 1, 8, {{"strategy.ep", model.has_experts() ? "4" : "1"}})};
  all.insert(all.end(), titan.begin(), titan.end());
  return all;
}

TEST_CASE("emitted: what torchtitan reads is what was planned", "[foreign]") {
  const auto layouts = [](const ModelSpec& model) {
    return PlainLayouts(model, false);
  };
  for (const bool toml : {false, true}) {
    const Trips trips =
        Travel(toml ? ForeignForm::kTorchtitanToml : ForeignForm::kTorchtitan,
               "torchtitan", toml ? "run.toml" : "run.py", layouts);
    // Those whose sizes a flavor has. torchtitan had no pipeline of Qwen 3 in
    // TOML, and so not all of its layouts.
    for (const char* model : {"qwen3-8b", "qwen3-30b-a3b"}) {
      CAPTURE(model, toml);
      CHECK(trips.refused.count(model) == (toml ? 1 : 0));
    }
    CHECK(trips.models() == std::set<std::string>{"deepseek-v2", "llama3-405b",
                                                  "llama3-70b", "llama3-8b",
                                                  "qwen3-235b-a22b",
                                                  "qwen3-30b-a3b", "qwen3-8b"});
  }
}

TEST_CASE("emitted: what DeepSpeed reads is what was planned", "[foreign]") {
  const Trips trips =
      Travel(ForeignForm::kDeepSpeed, "deepspeed", "run.json",
             [](const ModelSpec& model) { return PlainLayouts(model, true); });
  CHECK(trips.refused.empty());
  CHECK(trips.models().size() == AllModels().size());
}

TEST_CASE("emitted: what Megatron-Bridge reads is what was planned",
          "[foreign]") {
  const Trips trips =
      Travel(ForeignForm::kBridge, "megatron", "run.sh", Layouts);
  std::set<std::string> known;
  for (const BridgeRecipe& recipe : BridgeRecipes()) known.insert(recipe.model);
  CHECK(trips.models() == known);
  CHECK(known.count("deepseek-v2") + known.count("deepseek-v3") == 2);
}

// "" if the table has the key in the version, and its value is legal.
std::string WrongKey(const char* framework, const char* version,
                     const GivenKey& key) {
  const ForeignKey* const row =
      KeyTable::Of(framework).FindName(key.section, key.name);
  const std::string spelled = key.Spelled();
  if (row == nullptr) return absl::StrCat(spelled, " is no key");
  bool has_version = false;
  for (const auto& [name, value] : row->defaults)
    has_version |= name == version;
  if (!has_version) return absl::StrCat(spelled, " is not of ", version);
  // Fields of single models are not in the others.
  if (absl::StrContains(row->source, "_provider.py") &&
      !absl::StrContains(row->source, "gpt_provider.py")) {
    return absl::StrCat(spelled, " is of one model: ", row->source);
  }
  int64_t number = 0;
  if (key.is_null && !row->DefaultOf(version).empty()) {
    return absl::StrCat(spelled, " is never null");
  }
  for (const std::string& value : key.values) {
    if (row->type == "int" && !absl::SimpleAtoi(value, &number)) {
      return absl::StrCat(spelled, " ", value, " is no integer");
    }
    if (row->type == "bool" && absl::AsciiStrToLower(value) != "true" &&
        absl::AsciiStrToLower(value) != "false") {
      return absl::StrCat(spelled, " ", value, " is no bool");
    }
    if (!row->choices.empty() &&
        std::count(row->choices.begin(), row->choices.end(), value) == 0) {
      return absl::StrCat(spelled, " ", value, " is no choice");
    }
  }
  return "";
}

// Keys of the one function, by its lines: "section=Class(" and "key=value,".
std::vector<GivenKey> KeysOfLines(const std::string& text) {
  std::vector<GivenKey> keys;
  std::string section;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t indent = line.find_first_not_of(' ');
    if (indent != 8 && indent != 12) continue;
    line.remove_prefix(indent);
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) continue;
    const std::string name(line.substr(0, equals));
    std::string value(absl::StripSuffix(line.substr(equals + 1), ","));
    if (indent == 8) section = name;
    // What is computed has no value here.
    if (indent == 8 || absl::EndsWith(value, "[") ||
        absl::StrContains(value, "(")) {
      continue;
    }
    value.erase(std::remove(value.begin(), value.end(), '"'), value.end());
    keys.push_back({.section = section, .name = name, .values = {value}});
  }
  return keys;
}

absl::StatusOr<std::string> TryEmitted(ForeignForm form, const char* framework,
                                       const Fields& layout,
                                       const std::string& model) {
  Fields fields = {{"model.preset", model},
                   {"strategy.framework", framework},
                   {"strategy.microbatches", "4"},
                   {"system.preset", "dgx-h100"},
                   {"system.nodes", "2"},
                   {"system.memory", "100TiB"},
                   {"costs.analytic.device", "auto"}};
  fields.insert(fields.end(), layout.begin(), layout.end());
  const RunConfig config = ConfigOf(fields);
  PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(config));
  PW_ASSIGN_OR_RETURN(const EmittedArgs emitted,
                      EmitArgs(config, run, form, ""));
  return emitted.text;
}

std::string Emitted(ForeignForm form, const char* framework,
                    const Fields& layout) {
  return TryEmitted(form, framework, layout, "llama3-8b").value();
}

// Files for Megatron-Bridge, of all recipes.
std::vector<std::string> BridgeFiles() {
  std::vector<std::string> files;
  for (const BridgeRecipe& recipe : BridgeRecipes()) {
    int written = 0;
    for (const Fields& layout : Layouts(FindModel(recipe.model).value())) {
      const auto text =
          TryEmitted(ForeignForm::kBridge, "megatron", layout, recipe.model);
      if (!text.ok()) continue;
      files.push_back(*text);
      ++written;
    }
    CAPTURE(recipe.model);
    CHECK(written >= 5);
  }
  return files;
}

TEST_CASE("emitted: every key is one of the framework's", "[foreign]") {
  const ModelSpec model = FindModel("llama3-8b").value();
  const auto check = [](const char* framework, const char* version,
                        const std::vector<GivenKey>& keys) {
    CHECK(keys.size() > 4);
    for (const GivenKey& key : keys) {
      CHECK(WrongKey(framework, version, key) == "");
    }
  };
  for (const Fields& layout : PlainLayouts(model, false)) {
    check("torchtitan", "tokens",
          KeysOfLines(Emitted(ForeignForm::kTorchtitan, "torchtitan", layout)));
    check("torchtitan", "toml",
          KeysOfToml(
              Emitted(ForeignForm::kTorchtitanToml, "torchtitan", layout), "t")
              .value());
  }
  for (const Fields& layout : PlainLayouts(model, true)) {
    check("deepspeed", "0.19.6",
          KeysOfJson(Emitted(ForeignForm::kDeepSpeed, "deepspeed", layout), "j")
              .value());
  }
  for (const std::string& text : BridgeFiles()) {
    std::vector<GivenKey> overrides = KeysOfShell(text, nullptr);
    std::erase_if(overrides, [](const GivenKey& key) { return key.is_flag; });
    check("bridge", "main", overrides);
  }
  // Planted: a wrong key, one of another version, a wrong type, an illegal
  // choice.
  const auto wrong = [](const char* section, const char* name,
                        const char* value) {
    return WrongKey("torchtitan", "tokens",
                    {.section = section, .name = name, .values = {value}});
  };
  CHECK(absl::StrContains(wrong("training", "seq_length", "8"), "is no key"));
  CHECK(absl::StrContains(wrong("training", "local_batch_size", "8"),
                          "is not of tokens"));
  CHECK(absl::StrContains(wrong("training", "max_context_length", "8k"),
                          "is no integer"));
  CHECK(absl::StrContains(
      wrong("parallelism", "fsdp_reshard_after_forward", "often"),
      "is no choice"));
}

// Each line changes what is read.
TEST_CASE("emitted: a key that is missing is noticed", "[foreign]") {
  const auto seen = [](const std::string& text, const std::string& file) {
    ForeignSurroundings around;
    // DeepSpeed's stages are in no file of it.
    if (file == "a.json") around.given["strategy.pp"] = "2";
    const auto read = ReadForeignArgs(WithoutComments(text), file, around);
    if (!read.ok()) return std::string("refused");
    std::string all;
    for (const ConfigEdit& edit : read->edits) {
      absl::StrAppend(&all, edit.path, "=", edit.value, "\n");
    }
    return all;
  };
  const Fields layout = {{"strategy.pp", "2"},
                         {"strategy.tp", "2"},
                         {"strategy.dp", "4"},
                         {"strategy.recompute", "full"},
                         {"schedule.name", "1f1b"}};
  const struct {
    ForeignForm form;
    const char* framework;
    const char* file;
    std::vector<const char*> words;
  } rows[] = {
      {ForeignForm::kTorchtitan,
       "torchtitan",
       "a.py",
       {"max_context_length=", "num_tokens_per_microbatch_per_dp_rank=",
        "num_pp_microbatches=", "data_parallel_shard_degree=",
        "tensor_parallel_degree=", "pipeline_parallel_degree=",
        "module_fqns_per_model_part=", "disable_cuda_graphs=",
        "activation_checkpoint="}},
      {ForeignForm::kDeepSpeed,
       "deepspeed",
       "a.json",
       {"\"gradient_accumulation_steps\":", "\"stage\":",
        "\"activation_checkpoint_interval\":"}},
      {ForeignForm::kBridge,
       "megatron",
       "a.sh",
       {"model.transformer.tensor_model_parallel_size=",
        "model.transformer.pipeline_model_parallel_size=",
        "train.global_batch_size=", "model.transformer.recompute_granularity=",
        "model.vocab_size=", "model.transformer.num_layers="}},
  };
  for (const auto& row : rows) {
    Fields fields = layout;
    if (row.form == ForeignForm::kDeepSpeed) {
      fields.emplace_back("strategy.data_parallel", "zero1");
    }
    // torchtitan itself would halve them.
    if (row.form == ForeignForm::kTorchtitan) {
      fields.emplace_back("strategy.layers", "17,15");
    }
    const std::string text = Emitted(row.form, row.framework, fields);
    for (const char* word : row.words) {
      INFO(text << word);
      const size_t at = text.find(word);
      REQUIRE(at != std::string::npos);
      // Another name in its place: nobody reads it.
      std::string other = text;
      other.replace(text.find_last_of("\" .'", at + std::strlen(word) - 3) + 1,
                    1, "q");
      CHECK(seen(other, row.file) != seen(text, row.file));
    }
  }
}

// Every override is one that hydra parses, and as no sweep: an element of its
// grammar (OverrideParser.g4) that is a word, a list or in quotes.
TEST_CASE("emitted: every override of Megatron-Bridge is hydra's",
          "[foreign]") {
  const std::regex word("[-A-Za-z0-9_/+.$%*@?|:]+");
  const std::regex list("\\[([-A-Za-z0-9_.]+(,[-A-Za-z0-9_.]+)*)?\\]");
  const std::regex quoted("\"[^\"]+\"");
  const auto is_element = [&](const std::string& value) {
    return std::regex_match(value, word) || std::regex_match(value, list) ||
           std::regex_match(value, quoted);
  };
  std::set<std::string> lists;
  for (const std::string& text : BridgeFiles()) {
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      if (!absl::ConsumePrefix(&line, "  '")) continue;
      line = absl::StripSuffix(absl::StripSuffix(line, " \\"), "'");
      INFO(line);
      const std::vector<std::string> parts =
          absl::StrSplit(line, absl::MaxSplits('=', 1));
      REQUIRE(parts.size() == 2);
      CHECK(is_element(parts[1]));
      if (!std::regex_match(parts[1], word)) lists.insert(parts[0]);
    }
  }
  CHECK(lists.count("model.moe_layer_freq") == 1);
  CHECK(lists.count("model.transformer.pipeline_model_parallel_layout") == 1);
  for (const char* wrong : {"([0]*1+[1]*59)", "E(t*8|)*3(t,)*8L", "Et*3,t|L",
                            "(4096,0)", "[1,", "\"a", ""}) {
    CAPTURE(wrong);
    CHECK_FALSE(is_element(wrong));
  }
}

// True if the table has the flag, and its value is one of the choices.
std::string WrongFlag(const GivenKey& key) {
  bool clears = false;
  const ForeignKey* const row =
      KeyTable::Of("megatron").FindFlag(key.name, &clears);
  if (row == nullptr) return absl::StrCat("--", key.name, " is no flag");
  bool has_version = row->defaults.empty();  // the launcher's have none
  for (const auto& [name, value] : row->defaults) has_version |= name == "main";
  if (!has_version) return absl::StrCat("--", key.name, " is not of main");
  if ((row->type == "bool") != key.values.empty()) {
    return absl::StrCat("--", key.name, " has ", key.values.size(), " values");
  }
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
  CHECK(absl::StrContains(wrong("--num-layers"), "0 values"));
  CHECK(absl::StrContains(wrong("--swiglu true"), "1 values"));
  CHECK(absl::StrContains(wrong("--retro-add-retriever"), "not of main"));
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
       {"--multi-latent-attention", "--qk-layernorm",
        "--moe-layer-freq '([0]*3+[1]*4)'",
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

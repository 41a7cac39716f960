#include "sim/search/foreign_args.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/base/status.h"
#include "sim/search/foreign_table.h"
#include "sim/search/foreign_titan.h"
#include "sim/search/shell_words.h"

namespace pipewright {
namespace {

struct Argument {
  std::vector<std::string> values;
  int line = 0;
};

// True if a flag is on. It is a switch in some forms and has a value in others.
bool IsOn(const Argument& argument) {
  return argument.values.empty() ||
         (argument.values[0] != "false" && argument.values[0] != "False" &&
          argument.values[0] != "None" && argument.values[0] != "null");
}

class MegatronReader {
 public:
  MegatronReader(std::map<std::string, Argument> arguments, std::string path,
                 std::set<std::string> said)
      : arguments_(std::move(arguments)),
        path_(std::move(path)),
        said_(std::move(said)) {}

  absl::StatusOr<ForeignArgs> Read() {
    Model();
    for (const ForeignDegreeRow& row : ForeignDegreeRows()) {
      PW_ASSIGN_OR_RETURN(const int64_t value, Number(row.flag, 1));
      Set(row.path, absl::StrCat(value), row.flag);
    }
    if (Has("expert-model-parallel-size")) {
      PW_ASSIGN_OR_RETURN(const int64_t ep,
                          Number("expert-model-parallel-size", 1));
      Set("strategy.ep", absl::StrCat(ep), "expert-model-parallel-size");
    }
    if (Has("expert-tensor-parallel-size")) {
      PW_ASSIGN_OR_RETURN(const int64_t etp,
                          Number("expert-tensor-parallel-size", 1));
      Set("strategy.etp", absl::StrCat(etp), "expert-tensor-parallel-size");
    }
    PW_RETURN_IF_ERROR(Stages());
    PW_RETURN_IF_ERROR(Batch());
    Options();
    std::vector<std::string> names;
    for (const auto& [name, argument] : arguments_) {
      if (used_.count(name) == 0) names.push_back(absl::StrCat("--", name));
    }
    if (!names.empty()) {
      out_.notes.push_back(
          absl::StrCat(path_, ": ignored: ", absl::StrJoin(names, ", ")));
    }
    return std::move(out_);
  }

 private:
  bool Has(const std::string& flag) {
    const auto found = arguments_.find(flag);
    if (found == arguments_.end()) return false;
    used_.insert(flag);
    return found->second.values.empty() || (found->second.values[0] != "null" &&
                                            found->second.values[0] != "None" &&
                                            found->second.values[0] != "~");
  }
  std::string Text(const std::string& flag) {
    if (!Has(flag) || arguments_[flag].values.empty()) return "";
    return arguments_[flag].values[0];
  }
  bool On(const std::string& flag) {
    return Has(flag) && IsOn(arguments_[flag]);
  }

  // What is computed here divides by it and multiplies three of them.
  absl::StatusOr<int64_t> Number(const std::string& flag, int64_t fallback,
                                 int64_t least = 1) {
    if (!Has(flag)) return fallback;
    int64_t value = 0;
    if (arguments_[flag].values.empty() ||
        !absl::SimpleAtoi(arguments_[flag].values[0], &value) ||
        value < least || value > kMostForeignNumber) {
      return Prefix(absl::StrCat(path_, ":", arguments_[flag].line),
                    BadValue(absl::StrCat("--", flag), Text(flag),
                             absl::StrCat("an integer from ", least, " to ",
                                          kMostForeignNumber)));
    }
    return value;
  }

  // Comment lines win.
  void Set(const std::string& field, const std::string& value,
           const std::string& flag) {
    if (said_.count(field) > 0) return;
    out_.edits.push_back({field, value, absl::StrCat(path_, " --", flag)});
  }

  void Model() {
    const bool named =
        said_.count("model.preset") > 0 || said_.count("model.hf") > 0;
    const bool whole = Has("num-layers") && !named;
    for (const ForeignModelRow& row : ForeignModelRows()) {
      if (!Has(row.flag) || named) continue;
      Set(row.path, Text(row.flag), row.flag);
    }
    if (Has("padded-vocab-size") && !named && !Has("vocab-size")) {
      Set("model.vocabulary", Text("padded-vocab-size"), "padded-vocab-size");
    }
    if (Has("seq-length") && !named) {
      Set(whole ? "model.sequence" : "strategy.sequence", Text("seq-length"),
          "seq-length");
    }
    struct Switch {
      const char* flag;
      const char* path;
      bool when_on;
    };
    for (const Switch& each :
         std::vector<Switch>{{"swiglu", "model.gated", true},
                             {"gated-linear-unit", "model.gated", true},
                             {"untie-embeddings-and-output-weights",
                              "model.tied_embeddings", false},
                             {"disable-bias-linear", "model.bias", false},
                             {"add-qkv-bias", "model.qkv_bias", true},
                             {"qk-layernorm", "model.qk_norm", true}}) {
      const bool on = On(each.flag);
      if (!whole ||
          (absl::string_view(each.flag) == "gated-linear-unit" && !on)) {
        continue;
      }
      Set(each.path, on == each.when_on ? "true" : "false", each.flag);
    }
    On("group-query-attention");
    if (Has("normalization") && whole) {
      Set("model.layer_norm",
          Text("normalization") == "LayerNorm" ? "true" : "false",
          "normalization");
    }
    if (named) {
      out_.notes.push_back(absl::StrCat(
          path_,
          ": the model is the one of its comment line; sizes in flags "
          "are taken to be the same"));
    }
  }

  // Chunks, layout, schedule.
  absl::Status Stages() {
    PW_ASSIGN_OR_RETURN(const int64_t pp,
                        Number("pipeline-model-parallel-size", 1));
    PW_ASSIGN_OR_RETURN(const int64_t layers, Number("num-layers", 0));
    int64_t vpp = 1;
    for (const char* flag : {"num-virtual-stages-per-pipeline-rank",
                             "virtual-pipeline-model-parallel-size"}) {
      if (!Has(flag)) continue;
      PW_ASSIGN_OR_RETURN(vpp, Number(flag, 1));
    }
    if (Has("num-layers-per-virtual-pipeline-stage")) {
      PW_ASSIGN_OR_RETURN(const int64_t each,
                          Number("num-layers-per-virtual-pipeline-stage", 1));
      if (layers % (pp * each) != 0) {
        return Prefix(path_,
                      BadValue("--num-layers-per-virtual-pipeline-stage",
                               absl::StrCat(each), "a divisor of layers / pp"));
      }
      vpp = layers / (pp * each);
    }
    const std::string layout = Text("pipeline-model-parallel-layout");
    if (!layout.empty()) {
      if (said_.count("strategy.layers") == 0) {
        Set("strategy.layout", layout, "pipeline-model-parallel-layout");
      }
      const int64_t stages = CountStages(layout);
      if (vpp == 1 && stages % pp == 0) vpp = stages / pp;
    }
    if (vpp == 1 && (Has("decoder-first-pipeline-num-layers") ||
                     Has("decoder-last-pipeline-num-layers"))) {
      PW_RETURN_IF_ERROR(Ends(layers, pp));
    }
    Set("strategy.vpp", absl::StrCat(vpp), "vpp");
    if (said_.count("schedule.file") == 0) {
      Set("schedule.name", vpp > 1 ? "interleaved-1f1b" : "1f1b", "schedule");
    }
    return absl::OkStatus();
  }

  absl::Status Ends(int64_t layers, int64_t pp) {
    PW_ASSIGN_OR_RETURN(const int64_t first,
                        Number("decoder-first-pipeline-num-layers", -1, 0));
    PW_ASSIGN_OR_RETURN(const int64_t last,
                        Number("decoder-last-pipeline-num-layers", -1, 0));
    const int64_t ends = (first >= 0 ? 1 : 0) + (last >= 0 ? 1 : 0);
    const int64_t left =
        layers - std::max<int64_t>(first, 0) - std::max<int64_t>(last, 0);
    if (pp <= ends || left < 0 || left % (pp - ends) != 0) {
      return Prefix(path_, BadValue("--decoder-first-pipeline-num-layers",
                                    absl::StrCat(first),
                                    "what leaves the same for each other "
                                    "stage"));
    }
    std::vector<int64_t> counts(pp, left / (pp - ends));
    if (first >= 0) counts.front() = first;
    if (last >= 0) counts.back() = last;
    Set("strategy.layers", absl::StrJoin(counts, ","),
        "decoder-first-pipeline-num-layers");
    return absl::OkStatus();
  }

  // Separators between stages, groups repeated.
  static int64_t CountStages(absl::string_view text) {
    std::vector<int64_t> sums = {0};
    int64_t unit = 0;
    for (size_t at = 0; at < text.size();) {
      const char letter = text[at++];
      if (letter == '(') {
        sums.push_back(0);
        continue;
      }
      unit = letter == '|' ? 1 : 0;
      if (letter == ')' && sums.size() > 1) {
        unit = sums.back();
        sums.pop_back();
      }
      int64_t times = 1;
      if (at < text.size() && text[at] == '*') {
        times = 0;
        for (++at; at < text.size() && absl::ascii_isdigit(text[at]); ++at) {
          times = std::min<int64_t>(times * 10 + (text[at] - '0'), 1 << 20);
        }
      }
      sums.back() += unit * times;
    }
    return sums[0] + 1;
  }

  // Replicas and microbatches follow from the devices.
  absl::Status Batch() {
    PW_ASSIGN_OR_RETURN(const int64_t nodes, Number("nnodes", 0));
    PW_ASSIGN_OR_RETURN(const int64_t per_node, Number("nproc-per-node", 0));
    PW_ASSIGN_OR_RETURN(const int64_t batch, Number("global-batch-size", 0));
    if (nodes > 0) Set("system.nodes", absl::StrCat(nodes), "nnodes");
    int64_t each = 1;
    for (const ForeignDegreeRow& row : ForeignDegreeRows()) {
      if (absl::string_view(row.flag) == "micro-batch-size") continue;
      PW_ASSIGN_OR_RETURN(const int64_t degree, Number(row.flag, 1));
      each *= degree;
    }
    PW_ASSIGN_OR_RETURN(const int64_t size, Number("micro-batch-size", 1));
    PW_ASSIGN_OR_RETURN(int64_t dp, Number("data-parallel-size", 0));
    if (dp == 0 && each > 0 && nodes * per_node > 0 &&
        nodes * per_node % each == 0) {
      dp = nodes * per_node / each;
    }
    dp_ = dp;
    if (dp == 0) {
      if (said_.count("strategy.dp") == 0) {
        out_.notes.push_back(absl::StrCat(
            path_,
            ": the number of devices is not in it (--nnodes, "
            "--nproc-per-node), so dp and microbatches are left open"));
      }
      return absl::OkStatus();
    }
    Set("strategy.dp", absl::StrCat(dp), "nnodes");
    if (batch > 0 && size > 0 && batch % (dp * size) == 0) {
      Set("strategy.microbatches", absl::StrCat(batch / (dp * size)),
          "global-batch-size");
    } else if (batch > 0) {
      return Prefix(path_, BadValue("--global-batch-size", absl::StrCat(batch),
                                    absl::StrCat("a multiple of dp * "
                                                 "micro-batch-size = ",
                                                 dp * size)));
    }
    return absl::OkStatus();
  }

  void Options() {
    const bool tp = Text("tensor-model-parallel-size") != "1" &&
                    Has("tensor-model-parallel-size");
    // Said either way, since a framework's default may be another.
    const bool parallel = On("sequence-parallel");
    if (tp) {
      Set("strategy.sequence_parallel", parallel ? "true" : "false",
          "sequence-parallel");
    }
    const std::string granularity = Text("recompute-granularity");
    std::string recompute = "none";
    if (granularity == "full") recompute = "full";
    if (granularity == "selective" || On("recompute-activations")) {
      recompute = "selective";
      const auto modules = arguments_.find("recompute-modules");
      if (modules != arguments_.end()) {
        used_.insert("recompute-modules");
        for (const std::string& module : modules->second.values) {
          if (absl::StrContains(module, "layernorm")) {
            recompute = "norm-activation";
          }
        }
      }
    }
    if (granularity == "full") {
      const bool block = Text("recompute-method") == "block";
      const std::string layers = Text("recompute-num-layers");
      if (block && !layers.empty()) {
        Set("strategy.recompute_layers", layers, "recompute-num-layers");
      }
    }
    Set("strategy.recompute", recompute, "recompute-granularity");
    std::string sharding = On("use-distributed-optimizer") ? "zero1" : "ddp";
    // It is of Megatron's FSDP alone; recipes set it without, too.
    const bool custom = On("use-custom-fsdp");  // its older name
    const std::string strategy = On("use-megatron-fsdp") || custom
                                     ? Text("data-parallel-sharding-strategy")
                                     : "";
    if (strategy == "no_shard") sharding = "ddp";
    if (strategy == "optim") sharding = "zero1";
    if (strategy == "optim_grads") sharding = "zero2";
    if (strategy == "optim_grads_params") sharding = "fsdp";
    const std::string cp = Text("context-parallel-size");
    if (dp_ != 1 || (!cp.empty() && cp != "1")) {
      Set("strategy.data_parallel", sharding, "use-distributed-optimizer");
      On("overlap-param-gather");
      Set("strategy.overlap_gradients",
          On("overlap-grad-reduce") ? "true" : "false", "overlap-grad-reduce");
    }
    const std::string attention = Text("attention-backend");
    if (attention == "unfused" || attention == "local") {
      Set("strategy.attention", "unfused", "attention-backend");
    }
    On("use-flash-attn");
    On("bf16");
    const bool fp8 = On("fp8");
    if (On("fp8-format") || fp8) {
      const std::string recipe = Text("fp8-recipe");
      Set("strategy.precision",
          recipe == "tensorwise"  ? "fp8-tensorwise"
          : recipe == "blockwise" ? "fp8-block"
          : recipe == "mxfp8"     ? "mxfp8"
                                  : "fp8",
          "fp8-format");
    }
    if (On("fp4-format")) {
      Text("fp4-recipe");
      Set("strategy.precision", "nvfp4", "fp4-format");
    }
  }

  std::map<std::string, Argument> arguments_;
  std::string path_;
  std::set<std::string> said_;  // fields of comment lines
  std::set<std::string> used_;
  int64_t dp_ = 0;
  ForeignArgs out_;
};

std::string FlagName(absl::string_view word) {
  while (absl::ConsumePrefix(&word, "-")) {
  }
  return absl::StrReplaceAll(word, {{"_", "-"}});
}

std::map<std::string, Argument> ArgumentsOfShell(absl::string_view text) {
  std::map<std::string, Argument> arguments;
  Argument* last = nullptr;
  for (const ShellWord& word : ShellWords(text)) {
    if (absl::StartsWith(word.text, "--")) {
      const size_t equals = word.text.find('=');
      last = &arguments[FlagName(word.text.substr(0, equals))];
      *last = {.line = word.line};
      if (equals != std::string::npos) {
        last->values.push_back(word.text.substr(equals + 1));
      }
    } else if (last != nullptr && !absl::EndsWith(word.text, ".py")) {
      last->values.push_back(word.text);
    } else {
      last = nullptr;
    }
  }
  return arguments;
}

void Flatten(const YAML::Node& node, const std::string& key,
             std::map<std::string, Argument>* arguments) {
  if (node.IsMap()) {
    for (const auto& each : node) {
      Flatten(each.second, each.first.as<std::string>(), arguments);
    }
  } else if (node.IsScalar() || node.IsNull()) {
    Argument& argument = (*arguments)[FlagName(key)];
    argument.line = node.Mark().line + 1;
    argument.values = {node.IsNull() ? "null" : node.as<std::string>()};
  } else if (node.IsSequence()) {
    Argument& argument = (*arguments)[FlagName(key)];
    argument.line = node.Mark().line + 1;
    argument.values.clear();
    for (const auto& each : node) {
      if (each.IsScalar()) argument.values.push_back(each.as<std::string>());
    }
  }
}

absl::StatusOr<std::map<std::string, Argument>> ArgumentsOfYaml(
    absl::string_view text, const std::string& path) {
  std::map<std::string, Argument> arguments;
  try {
    Flatten(YAML::Load(std::string(text)), "", &arguments);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.mark.line + 1, ": ", error.msg));
  }
  arguments.erase("");
  return arguments;
}

}  // namespace

absl::StatusOr<ForeignArgs> ReadForeignArgs(absl::string_view text,
                                            const std::string& path) {
  std::vector<ConfigEdit> comments;
  std::set<std::string> said;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (!absl::ConsumePrefix(&line, kCommentMark)) continue;
    line = absl::StripAsciiWhitespace(line);
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) continue;
    comments.push_back({std::string(line.substr(0, equals)),
                        std::string(line.substr(equals + 1)),
                        absl::StrCat(path, ":", number)});
    said.insert(comments.back().path);
    // Said to be absent: the model's own sequence, for example.
    if (comments.back().value.empty()) comments.pop_back();
  }
  ForeignArgs out;
  if (absl::EndsWith(path, ".toml")) {
    PW_ASSIGN_OR_RETURN(out, ReadTitan(text, path, said));
  } else {
    std::map<std::string, Argument> arguments;
    if (absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml")) {
      PW_ASSIGN_OR_RETURN(arguments, ArgumentsOfYaml(text, path));
    } else {
      arguments = ArgumentsOfShell(text);
    }
    if (arguments.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          ": no arguments; allowed: Megatron's flags, a YAML dump of a "
          "recipe (.yaml), or torchtitan's TOML (.toml)"));
    }
    PW_ASSIGN_OR_RETURN(
        out, MegatronReader(std::move(arguments), path, said).Read());
  }
  out.edits.insert(out.edits.end(), comments.begin(), comments.end());
  return out;
}

}  // namespace pipewright

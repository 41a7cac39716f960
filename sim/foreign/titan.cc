// Facts: pytorch/torchtitan (BSD-3), with the commits of frameworks/
// torchtitan.md; torchtitan/distributed/pipeline_parallel.py deals layers out.
#include "sim/foreign/titan.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"
#include "sim/foreign/key_reader.h"
#include "sim/foreign/titan_models.h"
#include "sim/model/model.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr char kTp[] = "parallelism.tensor_parallel_degree";
constexpr char kPp[] = "parallelism.pipeline_parallel_degree";
constexpr char kCp[] = "parallelism.context_parallel_degree";
constexpr char kEp[] = "parallelism.expert_parallel_degree";
constexpr char kEtp[] = "parallelism.expert_tensor_parallel_degree";
constexpr char kShard[] = "parallelism.data_parallel_shard_degree";
constexpr char kReplicate[] = "parallelism.data_parallel_replicate_degree";
constexpr char kMicrobatch[] = "parallelism.pipeline_parallel_microbatch_size";
constexpr char kSchedule[] = "parallelism.pipeline_parallel_schedule";
constexpr char kCsv[] = "parallelism.pipeline_parallel_schedule_csv";
constexpr char kPerStage[] = "parallelism.pipeline_parallel_layers_per_stage";
constexpr char kFirstLess[] =
    "parallelism.pipeline_parallel_first_stage_less_layers";
constexpr char kLastLess[] =
    "parallelism.pipeline_parallel_last_stage_less_layers";
constexpr char kParts[] = "parallelism.module_fqns_per_model_part";
constexpr char kReshard[] = "parallelism.fsdp_reshard_after_forward";
constexpr char kLocal[] = "training.local_batch_size";
constexpr char kGlobal[] = "training.global_batch_size";
constexpr char kSequence[] = "training.seq_len";
constexpr char kContext[] = "training.max_context_length";
constexpr char kTokens[] = "training.num_tokens_per_microbatch_per_dp_rank";
constexpr char kStepTokens[] = "training.num_tokens_per_train_step";
constexpr char kPipeMicrobatches[] = "parallelism.num_pp_microbatches";
constexpr char kMode[] = "activation_checkpoint.mode";
constexpr char kOption[] = "activation_checkpoint.selective_ac_option";

class TitanFile {
 public:
  TitanFile(KeyReader* keys, const ForeignSurroundings& around, bool in_tokens)
      : keys_(*keys), around_(around), in_tokens_(in_tokens) {}

  absl::StatusOr<ForeignArgs> Read() {
    PW_RETURN_IF_ERROR(Model());
    PW_RETURN_IF_ERROR(Degrees());
    PW_RETURN_IF_ERROR(keys_.CheckRules(Known()));
    PW_RETURN_IF_ERROR(Batch());
    PW_RETURN_IF_ERROR(Sharding());
    PW_RETURN_IF_ERROR(Stages());
    PW_RETURN_IF_ERROR(Checkpoint());
    PW_RETURN_IF_ERROR(Optimizer());
    Kernels();
    keys_.Set("strategy.framework", "torchtitan", kPp);
    return keys_.Finish();
  }

 private:
  // Adam alone has a field; lists of groups name others.
  absl::Status Optimizer() {
    for (const char* const id : {"param_groups", "optimizer_name"}) {
      if (!keys_.Knows(id) || !keys_.Has(id)) continue;
      for (const std::string& each : keys_.List(id)) {
        if (!absl::StrContains(each, "DistMuon")) continue;
        return keys_.Wrong(id,
                           "Adam, AdamW: no field has the states and the "
                           "work of DistMuon");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Model() {
    if (keys_.IsSaid("model.hf") || around_.Gives("model.hf")) {
      return absl::OkStatus();
    }
    const std::string name = keys_.Text("model.name");
    name_ = keys_.Has("model.name") ? name : "";
    // The framework's own default is a toy that nobody means.
    std::string flavor =
        keys_.Has("model.flavor") ? keys_.Text("model.flavor") : "";
    const auto given = around_.given.find("model.preset");
    if (given != around_.given.end()) {
      layers_ = LayersOf(given->second);
      return absl::OkStatus();
    }
    // Python names the flavor in a call of its model's registry.
    for (const char* id : {"model_registry.flavor", "model.flavor"}) {
      if (keys_.Knows(id) && keys_.Has(id)) flavor = keys_.Text(id);
    }
    if (keys_.IsSaid("model.preset") || flavor.empty()) return absl::OkStatus();
    const std::optional<TitanModel> model = FindTitanModel(name, flavor);
    if (!model && estimates()) {
      std::vector<std::string> allowed = TitanFlavors(name);
      allowed.emplace_back("--model beside the file");
      return keys_.Wrong("model.flavor", absl::StrJoin(allowed, ", "));
    }
    if (!model) {
      keys_.Note(absl::StrCat("the model ", name, " ", flavor,
                              " is not known: give --model"));
      return absl::OkStatus();
    }
    if (!model->missing.empty()) {
      return keys_.Wrong(
          "model.flavor",
          absl::StrCat("a model without ", absl::StrJoin(model->missing, ", "),
                       ", which has no field"));
    }
    layers_ = model->layers;
    for (const std::string& part : model->not_modelled) {
      keys_.NotModelled("model.flavor", part);
    }
    if (!model->preset.empty()) {
      keys_.Set("model.preset", model->preset, "model.flavor");
      return absl::OkStatus();
    }
    for (const auto& [field, value] : model->fields) {
      keys_.Set(field, value, "model.flavor");
    }
    keys_.Set("model.sequence", keys_.Text(in_tokens_ ? kContext : kSequence),
              "model.flavor");
    return absl::OkStatus();
  }

  static int64_t LayersOf(const std::string& preset) {
    const absl::StatusOr<ModelSpec> model = FindModel(preset);
    return model.ok() ? model->layers : 0;
  }

  absl::Status Degrees() {
    PW_ASSIGN_OR_RETURN(tp_, keys_.Int(kTp, 1));
    PW_ASSIGN_OR_RETURN(pp_, keys_.Int(kPp, 1));
    PW_ASSIGN_OR_RETURN(cp_, keys_.Int(kCp, 1));
    PW_ASSIGN_OR_RETURN(const int64_t ep, keys_.Int(kEp, 1));
    PW_ASSIGN_OR_RETURN(replicate_, keys_.Int(kReplicate, 1));
    PW_ASSIGN_OR_RETURN(
        shard_, keys_.Int(kShard, -1, std::numeric_limits<int64_t>::min()));
    if (shard_ < -1 || shard_ == 0) {
      return keys_.Wrong(kShard, "-1, or an integer from 1 to 1048576");
    }
    // The command line wins over the file.
    tp_ = std::max<int64_t>(around_.Int("strategy.tp", tp_), 1);
    pp_ = std::max<int64_t>(around_.Int("strategy.pp", pp_), 1);
    cp_ = std::max<int64_t>(around_.Int("strategy.cp", cp_), 1);
    keys_.Set("strategy.tp", absl::StrCat(tp_), kTp);
    keys_.Set("strategy.pp", absl::StrCat(pp_), kPp);
    keys_.Set("strategy.cp", absl::StrCat(cp_), kCp);
    if (ep > 1) {
      keys_.Set("strategy.ep", absl::StrCat(ep), kEp);
      keys_.Set("strategy.etp", keys_.Has(kEtp) ? keys_.Text(kEtp) : "1", kEp);
    }
    return Devices();
  }

  // -1 takes what the other degrees leave.
  absl::Status Devices() {
    if (around_.Gives("strategy.dp")) {
      dp_ = around_.Int("strategy.dp", 0);
      if (shard_ < 0 && dp_ > 0) {
        shard_ = std::max<int64_t>(dp_ / replicate_, 1);
      }
      return absl::OkStatus();
    }
    if (shard_ < 0) {
      const int64_t devices =
          around_.Int("system.nodes", 0) * around_.devices_per_node;
      const int64_t others = tp_ * pp_ * cp_ * replicate_;
      if (devices == 0) {
        if (!keys_.IsSaid("strategy.dp")) {
          keys_.Note(
              "data_parallel_shard_degree -1 takes the devices that are left, "
              "which are not in it: give --system and --nodes, or --dp");
        }
        return absl::OkStatus();
      }
      if (devices % others != 0) {
        return keys_.Refused(kShard,
                             absl::StrCat(devices,
                                          " devices are no multiple of the "
                                          "other degrees, ",
                                          others));
      }
      shard_ = devices / others;
    }
    dp_ = shard_ * replicate_;
    keys_.Set("strategy.dp", absl::StrCat(dp_), kShard);
    return absl::OkStatus();
  }

  std::map<std::string, std::string> Known() const {
    // A degree of -1 that nothing decides decides no rule.
    std::map<std::string, std::string> known = {
        {"model", name_},
        {"data_parallel_shard_degree", shard_ > 0 ? absl::StrCat(shard_) : ""}};
    if (layers_ > 0) known["layers"] = absl::StrCat(layers_);
    if (dp_ > 0) {
      known["world_size"] = absl::StrCat(dp_ * tp_ * pp_ * cp_);
      known["dp_shard"] = absl::StrCat(std::max<int64_t>(shard_, 1));
    }
    return known;
  }

  // Without a pipeline the local batch is the batch of one forward.
  absl::Status Batch() {
    if (in_tokens_) return TokenBatch();
    PW_ASSIGN_OR_RETURN(const int64_t sequence, keys_.Int(kSequence, 2048));
    keys_.Set("strategy.sequence", absl::StrCat(sequence), kSequence);
    PW_ASSIGN_OR_RETURN(const int64_t local, keys_.Int(kLocal, 8));
    PW_ASSIGN_OR_RETURN(const int64_t global, keys_.Int(kGlobal, -1, -1));
    PW_ASSIGN_OR_RETURN(const int64_t size, keys_.Int(kMicrobatch, 1));
    int64_t times = 1;
    if (global > 0 && dp_ > 0) {
      if (global % (local * dp_) != 0) {
        return keys_.Wrong(
            kGlobal, absl::StrCat("a multiple of local_batch_size * dp = ",
                                  local * dp_));
      }
      times = global / (local * dp_);
    }
    if (pp_ == 1) {
      keys_.Set("strategy.microbatch_size", absl::StrCat(local), kLocal);
      keys_.Set("strategy.microbatches", absl::StrCat(times), kLocal);
      return absl::OkStatus();
    }
    if (local % size != 0) {
      return keys_.Wrong(kLocal, "a multiple of the microbatch size");
    }
    keys_.Set("strategy.microbatch_size", absl::StrCat(size), kMicrobatch);
    keys_.Set("strategy.microbatches", absl::StrCat(local / size), kLocal);
    if (times > 1) {
      keys_.NotModelled(kGlobal,
                        absl::StrCat("a step runs the pipeline ", times,
                                     " times; one of them is simulated"));
    }
    return absl::OkStatus();
  }

  // One forward has so many tokens, in samples of at most max_context_length.
  absl::Status TokenBatch() {
    PW_ASSIGN_OR_RETURN(const int64_t sequence, keys_.Int(kContext, 2048));
    PW_ASSIGN_OR_RETURN(const int64_t tokens, keys_.Int(kTokens, 16384));
    PW_ASSIGN_OR_RETURN(int64_t microbatches, keys_.Int(kPipeMicrobatches, 1));
    const std::optional<double> step = keys_.Number(kStepTokens);
    if (tokens % sequence != 0) {
      return keys_.Wrong(
          kTokens,
          absl::StrCat("a multiple of max_context_length, ", sequence));
    }
    keys_.Set("strategy.sequence", absl::StrCat(sequence), kContext);
    keys_.Set("strategy.microbatch_size", absl::StrCat(tokens / sequence),
              kTokens);
    if (pp_ == 1) microbatches = 1;
    int64_t times = 1;
    if (step.value_or(-1) > 0 && dp_ > 0) {
      const auto all = static_cast<int64_t>(*step);
      const int64_t once = tokens * microbatches * dp_;
      if (all % once != 0) {
        return keys_.Wrong(kStepTokens, absl::StrCat("a multiple of ", once));
      }
      times = all / once;
    }
    if (pp_ > 1 && times > 1) {
      keys_.NotModelled(kStepTokens,
                        absl::StrCat("a step runs the pipeline ", times,
                                     " times; one of them is simulated"));
      times = 1;
    }
    keys_.Set("strategy.microbatches", absl::StrCat(microbatches * times),
              pp_ > 1 ? kPipeMicrobatches : kStepTokens);
    return absl::OkStatus();
  }

  absl::Status Sharding() {
    if (shard_ > 1 && replicate_ > 1) {
      // Sharding inside of replicas (HSDP) is a group of its own layer by
      // layer.
      keys_.Set("strategy.shard_group", absl::StrCat(shard_), kShard);
    }
    const std::string policy = keys_.Text(kReshard);
    if (shard_ == 1 && replicate_ == 1 && cp_ == 1) return absl::OkStatus();
    if (shard_ == 1 && cp_ == 1) {
      keys_.Set("strategy.data_parallel", "ddp", kReplicate);
      return absl::OkStatus();
    }
    if (!policy.empty() && policy != "always" && policy != "never" &&
        policy != "default") {
      return keys_.Wrong(kReshard, "always, never, default");
    }
    keys_.Set("strategy.data_parallel", "fsdp", kShard);
    // By default weights stay gathered under a pipeline
    // (torchtitan/distributed/fsdp.py, get_fsdp_reshard_after_forward_policy).
    const bool keeps = policy == "never" || (policy != "always" && pp_ > 1);
    keys_.Set("strategy.reshard_after_forward", keeps ? "false" : "true",
              kReshard);
    return absl::OkStatus();
  }

  absl::Status Stages() {
    const std::string csv = keys_.Text(kCsv);
    std::string name = keys_.Text(kSchedule);
    if (name.empty() || pp_ == 1) name = "1F1B";
    if (keys_.IsSaid("schedule.file")) return absl::OkStatus();
    if (pp_ > 1 && !csv.empty()) {
      keys_.Set("schedule.file", csv, kCsv);
      const std::vector<std::string> parts = keys_.List(kParts);
      return parts.empty() ? absl::OkStatus() : Parts(parts);
    }
    keys_.Set("schedule.name", name, kSchedule);
    if (pp_ == 1) return absl::OkStatus();
    const absl::StatusOr<ScheduleMatch> match = FindSchedule(name);
    if (!match.ok()) return Prefix(keys_.PlaceOf(kSchedule), match.status());
    const bool single = name == "1F1B" || name == "GPipe";
    return Layers(single);
  }

  // Embedding and head count as so many layers of the first and last stage;
  // what is left over goes to the first stages, one each.
  absl::Status Layers(bool single) {
    if (!keys_.List(kParts).empty()) return Parts(keys_.List(kParts));
    PW_ASSIGN_OR_RETURN(const int64_t first, keys_.Int(kFirstLess, 1, 0));
    PW_ASSIGN_OR_RETURN(const int64_t last, keys_.Int(kLastLess, 1, 0));
    PW_ASSIGN_OR_RETURN(const int64_t each, keys_.Int(kPerStage, 0));
    if (layers_ == 0) return absl::OkStatus();
    const int64_t all = layers_ + first + last;
    int64_t stages = pp_ * (single ? 1 : 2);
    if (each > 0) {
      stages = (all + each - 1) / each;
      if (stages % pp_ != 0 || (single && stages != pp_) ||
          (!single && stages < 2 * pp_)) {
        return keys_.Refused(
            kPerStage, absl::StrCat(stages, " stages do not go with pp ", pp_,
                                    " and this schedule"));
      }
    }
    std::vector<int64_t> counts(stages, all / stages);
    for (int64_t stage = 0; stage < all % stages; ++stage) ++counts[stage];
    counts.front() -= first;
    counts.back() -= last;
    if (counts.front() < 0 || counts.back() < 0) {
      return keys_.Refused(kFirstLess, "no layers are left for that stage");
    }
    keys_.Set("strategy.vpp", absl::StrCat(stages / pp_), kSchedule);
    keys_.Set("strategy.layers", absl::StrJoin(counts, ","), kFirstLess);
    layers_of_stage_ = std::move(counts);
    return absl::OkStatus();
  }

  // Names of modules, a list for each stage.
  absl::Status Parts(const std::vector<std::string>& parts) {
    std::vector<int64_t> counts;
    for (const std::string& part : parts) {
      int64_t layers = 0;
      for (const absl::string_view module : absl::StrSplit(part, ',')) {
        layers += absl::StrContains(module, "layers.") ? 1 : 0;
      }
      counts.push_back(layers);
    }
    if (static_cast<int64_t>(counts.size()) % pp_ != 0) {
      return keys_.Refused(
          kParts,
          absl::StrCat(counts.size(), " parts are no multiple of pp ", pp_));
    }
    keys_.Set("strategy.vpp", absl::StrCat(counts.size() / pp_), kParts);
    keys_.Set("strategy.layers", absl::StrJoin(counts, ","), kParts);
    layers_of_stage_ = std::move(counts);
    return absl::OkStatus();
  }

  absl::Status Checkpoint() {
    std::string mode = keys_.Text(kMode);
    const std::string option = keys_.Text(kOption);
    const bool has_class = keys_.IsGiven("activation_checkpoint");
    if (has_class) {
      const std::string kind = keys_.Text("activation_checkpoint");
      mode = kind == "SelectiveAC"      ? "selective"
             : kind == "FullAC"         ? "full"
             : kind == "MemoryBudgetAC" ? "memory_budget"
                                        : "none";
    } else if (in_tokens_) {
      mode = "selective";
    }
    if ((has_class || in_tokens_) && mode == "selective") {
      keys_.Set("strategy.recompute", "op-selective", "activation_checkpoint");
      return absl::OkStatus();
    }
    if (mode == "none" || mode == "full") {
      keys_.Set("strategy.recompute", mode, kMode);
      return absl::OkStatus();
    }
    if (mode != "selective") {
      if (mode == "memory_budget") {
        keys_.NotModelled(kMode, "the compiler chooses what is kept");
        return absl::OkStatus();
      }
      return mode.empty() ? absl::OkStatus()
                          : keys_.Wrong(kMode, "none, full, selective");
    }
    int64_t every = 0;
    if (option == "op" || option.empty()) {
      keys_.Set("strategy.recompute", "op-selective", kMode);
    } else if (absl::SimpleAtoi(option, &every) && every > 0) {
      keys_.Set("strategy.recompute", "full", kMode);
      if (every > 1) {
        keys_.Set("strategy.recompute_every", absl::StrCat(every), kOption);
        NoteCount(every);
      }
    } else {
      return keys_.Wrong(kOption, "op, or a whole number");
    }
    return absl::OkStatus();
  }

  // torchtitan counts the layers of a process, whatever the stage
  // (torchtitan/distributed/activation_checkpoint.py, _layer_sac_count).
  void NoteCount(int64_t every) {
    for (size_t stage = pp_; stage < layers_of_stage_.size(); ++stage) {
      if (layers_of_stage_[stage - pp_] % every == 0) continue;
      keys_.Note(
          "torchtitan counts layers over all stages of a rank for "
          "selective_ac_option; here each stage is counted by itself, so that "
          "the layers that run again may be others, and not as many");
      return;
    }
  }

  bool estimates() const { return around_.Gives("costs.analytic.device"); }

  void Kernels() {
    const std::string adam = keys_.Text("optimizer.implementation");
    if (keys_.Has("optimizer.implementation") &&
        (adam == "fused" || adam == "foreach")) {
      keys_.Set("strategy.fused_optimizer", adam == "fused" ? "true" : "false",
                "optimizer.implementation");
    }
    if (keys_.Has("optimizer.implementation") && adam == "for-loop") {
      keys_.NotModelled("optimizer.implementation",
                        "a kernel for each operation of each tensor");
    }
    const bool compiles = keys_.On("compile.enable");
    if (compiles && estimates()) {
      keys_.Set("costs.analytic.kernels", "compiled", "compile.enable");
    }
    if (tp_ > 1 && keys_.On("parallelism.enable_async_tensor_parallel")) {
      keys_.Set("strategy.overlap_tensor", "true",
                "parallelism.enable_async_tensor_parallel");
    } else {
      keys_.On("parallelism.enable_async_tensor_parallel");
    }
    // Graphs are captured unless they are switched off, since the newest form.
    if (in_tokens_ && !keys_.On("training.disable_cuda_graphs")) {
      keys_.Set("strategy.launch", "graphs", "training.disable_cuda_graphs");
    }
    if (in_tokens_ && keys_.Has("loss") &&
        keys_.Text("loss") != "CrossEntropyLoss") {
      keys_.NotModelled("loss", "logits in chunks, or another loss");
    }
    // What is in these counts.
    for (const char* id :
         {"model_spec", "training", "parallelism", "optimizer", "compile"}) {
      if (in_tokens_) keys_.IsGiven(id);
    }
    Quantization();
  }

  void Quantization() {
    std::vector<std::string> converters;
    for (const char* id : {"model.converters", "model_converters.converters"}) {
      if (!keys_.Knows(id)) continue;
      for (const std::string& each : keys_.List(id)) converters.push_back(each);
    }
    for (const std::string& converter : converters) {
      if (absl::StrContains(converter, "float8")) {
        keys_.Set("strategy.precision", "fp8-tensorwise", "model.converters");
      } else if (absl::StrContains(converter, "mx")) {
        keys_.Set("strategy.precision", "mxfp8", "model.converters");
      }
    }
  }

  KeyReader& keys_;
  const ForeignSurroundings& around_;
  bool in_tokens_;
  std::string name_;
  int64_t layers_ = 0;
  std::vector<int64_t> layers_of_stage_;
  int64_t tp_ = 1;
  int64_t pp_ = 1;
  int64_t cp_ = 1;
  int64_t dp_ = 0;
  int64_t shard_ = -1;
  int64_t replicate_ = 1;
};

// The model of a function without one: "qwen3_32b" stands beside its own.
void NameModel(std::vector<GivenKey>* keys) {
  GivenKey model = {.section = "model", .name = "name"};
  bool named = false;
  std::erase_if(*keys, [&](const GivenKey& key) {
    named |= key.section == "model" && key.name == "name";
    if (key.name != kPythonFunction) return false;
    for (const std::string& name : TitanModels()) {
      if (absl::StrContains(key.values[0], name)) model.values = {name};
    }
    model.line = key.line;
    return true;
  });
  if (!named && !model.values.empty()) keys->push_back(std::move(model));
}

}  // namespace

absl::StatusOr<ForeignArgs> ReadTitan(std::vector<GivenKey> keys,
                                      const std::string& path,
                                      const std::set<std::string>& said,
                                      const ForeignSurroundings& around) {
  // TOML came first; batches in tokens are the newest form.
  const bool tokens =
      std::any_of(keys.begin(), keys.end(), [](const auto& key) {
        return absl::StrContains(key.name, "num_tokens_per");
      });
  const char* const version = absl::EndsWith(path, ".toml") ? "toml"
                              : tokens                      ? "tokens"
                                                            : "python";
  const char* const before =
      absl::string_view(version) == "python" ? "python-early" : "";
  KeyReader reader(KeyTable::Of("torchtitan"), "torchtitan", version, before,
                   path, said);
  PW_RETURN_IF_ERROR(reader.Take(std::move(keys)));
  return TitanFile(&reader, around, tokens).Read();
}

absl::StatusOr<ForeignArgs> ReadTitanPython(absl::string_view text,
                                            const std::string& path,
                                            const std::set<std::string>& said,
                                            const ForeignSurroundings& around) {
  // The variable of torchtitan's run_train.sh.
  const std::optional<std::string> function =
      around.environment ? around.environment("CONFIG") : std::nullopt;
  PW_ASSIGN_OR_RETURN(std::vector<GivenKey> keys,
                      KeysOfPython(text, path, function.value_or("")));
  // Calls that open a section are no keys, unless their class is a choice.
  std::erase_if(keys, [](const GivenKey& key) {
    const ForeignKey* const row =
        KeyTable::Of("torchtitan").FindName(key.section, key.name);
    return !key.values.empty() && !key.values[0].empty() &&
           absl::ascii_isupper(key.values[0][0]) &&
           (row == nullptr ||
            (row->choices.empty() &&
             absl::StartsWith(row->DefaultOf("python"), key.values[0])));
  });
  NameModel(&keys);
  return ReadTitan(std::move(keys), path, said, around);
}

}  // namespace pipewright

#include "sim/reproduce/steps.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/cost/device.h"
#include "sim/model/model.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

bool IsPreset(const std::string& name) {
  const std::vector<ModelSpec>& models = AllModels();
  return std::any_of(models.begin(), models.end(), [&](const ModelSpec& model) {
    return model.name == name;
  });
}

// A row of the table's models.csv, all Llama-like.
absl::Status TakeShape(const StepTable& table, const std::string& name,
                       ModelChoice* model) {
  if (HasTable(absl::StrCat(table.folder, "/models"))) {
    for (const TableRow& shape :
         ReadTable(absl::StrCat(table.folder, "/models"))) {
      if (shape.Text("model") != name) continue;
      model->layers = shape.Integer("layers");
      model->hidden = shape.Integer("hidden");
      model->heads = shape.Integer("heads");
      model->kv_heads = shape.Integer("kv_heads");
      model->head_dim = shape.Integer("head_dim");
      model->ffn_hidden = shape.Integer("ffn_hidden");
      model->vocabulary = shape.Integer("vocabulary");
      model->gated = true;
      model->qkv_bias = shape.Integer("qkv_bias") != 0;
      model->bias = shape.Integer("bias") != 0;
      if (shape.Integer("experts") > 0) {
        model->experts = shape.Integer("experts");
        model->experts_per_token = shape.Integer("experts_per_token");
        model->expert_ffn_hidden = shape.Integer("expert_ffn_hidden");
        model->shared_ffn_hidden = shape.Integer("shared_ffn_hidden");
        model->first_dense_layers = shape.Integer("first_dense_layers");
      }
      if (shape.Integer("window") > 0) {
        model->window = shape.Integer("window");
        model->full_attention_every = shape.Integer("full_attention_every");
      }
      if (shape.Integer("mla") != 0) {
        // DeepSeek-V2, arXiv 2405.04434, section 3.1.2; V3 has the same.
        model->q_lora_rank = 1536;
        model->kv_lora_rank = 512;
        model->qk_nope_head_dim = 128;
        model->qk_rope_head_dim = 64;
        model->v_head_dim = 128;
      }
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the shape of ", name, " is not known"));
}

absl::Status TakePrecision(const std::string& text, StrategyChoice* strategy) {
  if (text.empty()) return absl::InvalidArgumentError("precision not stated");
  for (const ChoiceRow& choice : PrecisionChoices()) {
    if (choice.name != text) continue;
    strategy->precision = static_cast<Precision>(choice.value);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("strategy.precision: no ", text));
}

absl::Status TakeParallelism(const TableRow& row, RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  strategy.tp = row.Integer("tp");
  strategy.pp = row.Integer("pp");
  strategy.vpp = row.Integer("vpp");
  strategy.cp = row.Integer("cp");
  strategy.ep = row.Integer("ep");
  strategy.dp = row.Integer("dp");
  strategy.sequence = row.Integer("sequence");
  strategy.microbatch_size = row.Integer("microbatch");
  strategy.microbatches = row.Integer("microbatches");
  for (const absl::string_view count :
       absl::StrSplit(row.Text("layers"), ' ', absl::SkipEmpty())) {
    int layers = 0;
    if (!absl::SimpleAtoi(count, &layers)) {
      return absl::InvalidArgumentError("layers: no list of numbers");
    }
    strategy.layers.push_back(layers);
  }
  if (!row.Text("mapping").empty()) strategy.mapping = {row.Text("mapping")};
  const bool is_interleaved = *strategy.vpp > 1;
  config->schedule.name = is_interleaved ? "interleaved-1f1b" : "1f1b";
  const bool is_sharded = row.Text("data_parallel") == "fsdp";
  strategy.data_parallel =
      is_sharded ? DataParallel::kFsdp : DataParallel::kZero1;
  if (is_sharded) strategy.shard_blocks = ShardBlocks::kLayer;
  // The plain schedules of Megatron-LM and of torchtitan (Schedule1F1B of
  // torch/distributed/pipelining/schedules.py) post the transfers of a forward
  // and a backward together; the interleaved ones overlap them.
  if (!is_interleaved && *strategy.pp > 1) {
    strategy.waiting = WaitRule::kBatched;
  }
  return absl::OkStatus();
}

// Notes say who launched the kernels, the graphs are of whole iterations, and
// whether exchanges of tensor parallelism run beside products.
void TakeLaunch(const TableRow& row, RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  const std::string& note = row.Text("note");
  if (absl::StrContains(note, "compiled")) {
    strategy.launch = Launch::kCompiled;
  }
  if (absl::StrContains(note, "CUDA graph")) {
    strategy.launch = Launch::kGraphs;
  }
  for (const char* words :
       {"tensor exchanges overlapped", "asynchronous tensor parallelism"}) {
    if (absl::StrContains(note, words)) strategy.overlap_tensor = true;
  }
}

std::string DeviceOf(const TableRow& row) {
  if (!row.Text("device").empty()) return row.Text("device");
  std::string name = row.Text("system");
  name = name.substr(0, name.find("-nvl"));
  return absl::StartsWith(name, "dgx-") ? name.substr(4) : name;
}

bool IsMixture(const RunConfig& config) {
  if (config.model.experts.value_or(0) > 0) return true;
  for (const ModelSpec& model : AllModels()) {
    if (model.name == config.model.preset) return model.has_experts();
  }
  return false;
}

// Rows of one goal.
std::string KindOf(const TableRow& row, const RunConfig& config) {
  const std::string device = DeviceOf(row);
  const bool hopper = absl::StartsWith(device, "h");
  if (IsMixture(config)) {
    return hopper ? "experts, Hopper" : "experts, Blackwell";
  }
  if (absl::StartsWith(row.Text("precision"), "nvfp4")) return "dense, nvfp4";
  if (hopper) return "dense, H100 and H200";
  return device == "b200" ? "dense, B200" : "dense, GB200, GB300 and B300";
}

std::string StrategyText(const TableRow& row) {
  std::string text =
      absl::StrCat(DeviceOf(row), " x ", row.Text("gpus"), ", ",
                   row.Text("precision"), ", s ", row.Text("sequence"));
  for (const char* degree : {"tp", "pp", "vpp", "cp", "ep", "dp"}) {
    if (row.Text(degree) == "1") continue;
    absl::StrAppend(&text, " ", degree, " ", row.Text(degree));
  }
  absl::StrAppend(&text, " mb ", row.Text("microbatch"), " x ",
                  row.Text("microbatches"));
  return text;
}

// All that an estimate depends on.
std::string KeyOf(const TableRow& row) {
  std::string key;
  for (const char* column :
       {"model", "system", "device", "gpus", "precision", "tp", "pp", "vpp",
        "cp", "ep", "dp", "sequence", "microbatch", "microbatches", "layers",
        "mapping", "data_parallel", "recompute", "note"}) {
    absl::StrAppend(&key, row.Text(column), "|");
  }
  return key;
}

// What of the run stands in no field.
std::string NoteOf(const TableRow& row) {
  std::vector<std::string> notes;
  if (!row.Text("note").empty()) notes.push_back(row.Text("note"));
  return absl::StrJoin(notes, "; ");
}

struct Estimate {
  double seconds = 0;
  StepFacts facts;
};

absl::StatusOr<Estimate> EstimateOf(const RunConfig& config,
                                    RunContext* context) {
  SimulateOptions options;
  options.interval = true;
  PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                      Simulate(config, context, options));
  Estimate out;
  out.seconds = run.report.iteration_s;
  if (run.report.interval) {
    out.facts.low = run.report.interval->low_s;
    out.facts.high = run.report.interval->high_s;
  }
  if (run.report.memory) {
    const ScheduleMemory& memory = *run.report.memory->memory;
    out.facts.needed_bytes =
        static_cast<double>(memory.ranks[memory.WorstRank()].needed());
    out.facts.fits = run.report.memory->fits();
  }
  return out;
}

}  // namespace

absl::StatusOr<RunConfig> ConfigOfStep(const StepTable& table,
                                       const TableRow& row,
                                       const std::string& engine) {
  RunConfig config;
  config.engine = engine;
  const std::string& name = row.Text("model");
  if (IsPreset(name)) {
    config.model.preset = name;
  } else {
    config.model.sequence = row.Integer("sequence");
    PW_RETURN_IF_ERROR(TakeShape(table, name, &config.model));
  }
  config.system.preset = row.Text("system");
  config.costs.analytic = true;
  if (const std::string& device = row.Text("device"); !device.empty()) {
    PW_ASSIGN_OR_RETURN(const DeviceSpec spec, FindDevice(device));
    config.costs.analytic_device = device;
    config.system.memory_bytes = spec.memory_bytes;
  }
  PW_RETURN_IF_ERROR(TakePrecision(row.Text("precision"), &config.strategy));
  PW_RETURN_IF_ERROR(TakeParallelism(row, &config));
  const std::string& recompute = row.Text("recompute");
  if (recompute == "full") config.strategy.recompute = Recompute::kFull;
  if (recompute == "op-selective") {
    config.strategy.recompute = Recompute::kOpSelective;
  }
  TakeLaunch(row, &config);
  if (table.adjust != nullptr) table.adjust(row, &config);
  return config;
}

absl::StatusOr<std::vector<Comparison>> ReproduceSteps(
    const StepTable& table, const std::string& engine) {
  std::vector<Comparison> out;
  std::map<std::string, absl::StatusOr<Estimate>> estimates;
  RunContext context;
  for (const TableRow& row : ReadTable(absl::StrCat(table.folder, "/steps"))) {
    Comparison comparison;
    comparison.setting = row.Text("entry");
    comparison.schedule = StrategyText(row);
    comparison.published = absl::StrFormat("%.4g", row.Number("seconds"));
    comparison.rule = Comparison::Rule::kShown;
    StepFacts facts;
    if (row.Text("counts") != "yes") facts.excluded = row.Text("counts");
    const absl::StatusOr<RunConfig> config = ConfigOfStep(table, row, engine);
    const std::string key = KeyOf(row);
    if (estimates.count(key) == 0) {
      estimates.emplace(
          key, config.ok() ? EstimateOf(*config, &context) : config.status());
    }
    const absl::StatusOr<Estimate>& estimate = estimates.at(key);
    if (estimate.ok()) {
      const std::string excluded = facts.excluded;
      facts = estimate->facts;
      facts.excluded = excluded;
      facts.kind = KindOf(row, *config);
      comparison.simulated = estimate->seconds;
      comparison.rounded = absl::StrFormat("%.4g", estimate->seconds);
    } else {
      facts.refused = std::string(estimate.status().message());
      comparison.rounded.assign(1, '-');
    }
    facts.note = NoteOf(row);
    if (double reserved = 0;
        absl::SimpleAtod(row.Text("reserved_gib"), &reserved)) {
      facts.reserved_bytes = reserved * kGiB;
    }
    const int batch = row.Integer("dp") * row.Integer("microbatch") *
                      row.Integer("microbatches");
    facts.group = absl::StrCat(row.Text("model"), ", ", DeviceOf(row), " x ",
                               row.Text("gpus"), ", batch ", batch,
                               ", sequence ", row.Text("sequence"));
    comparison.step = std::move(facts);
    out.push_back(std::move(comparison));
  }
  return out;
}

}  // namespace pipewright

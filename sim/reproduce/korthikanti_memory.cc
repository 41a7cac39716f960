// The files of experiments/papers/korthikanti_memory: memory of the layers of
// the first rank, from the order of the paper's schedules.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/memory/schedule_memory.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"
#include "sim/schedule/registry.h"

namespace pipewright::korthikanti_memory {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kTolerance = 0.02;

struct Setting {
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
};

constexpr Setting kNone = {};
constexpr Setting kSequence = {.sequence_parallel = true};
constexpr Setting kSelective = {.recompute = Recompute::kSelective};
constexpr Setting kBoth = {true, Recompute::kSelective};
constexpr Setting kFull = {.recompute = Recompute::kFull};

// Section 4: fp16, dropout, unfused attention, sequence 2048.
ModelSpec ModelOf(const TableRow& row) {
  ModelSpec model;
  model.layers = row.Integer("layers");
  model.hidden = row.Integer("hidden");
  model.heads = model.kv_heads = row.Integer("heads");
  model.ffn_hidden = 4 * model.hidden;
  model.vocabulary = 51200;
  model.sequence = 2048;
  model.dropout = model.layer_norm = model.qkv_bias = model.bias = true;
  model.positions = 2048;
  return model;
}

absl::StatusOr<RankMemory> FirstRank(const TableRow& row, Setting setting) {
  const ModelSpec model = ModelOf(row);
  TrainingSpec training;
  training.tp = row.Integer("tp");
  training.sequence_parallel = setting.sequence_parallel;
  training.recompute = setting.recompute;
  training.microbatch_size = row.Integer("microbatch_size");
  training.sequence = model.sequence;
  training.flash_attention = false;
  const int vpp = row.Integer("vpp");
  ScheduleParams params;
  params.pp = row.Integer("pp");
  params.vpp = vpp;
  params.microbatches = row.Integer("microbatches");
  PW_ASSIGN_OR_RETURN(
      const Schedule schedule,
      BuildSchedule(vpp > 1 ? "interleaved-1f1b" : "1f1b", params));
  // The figures leave out the embedding and the head.
  StageLayout layout;
  const int64_t each = model.layers / schedule.stages();
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    layout.stages.push_back({{.kind = BlockKind::kDenseLayer,
                              .first_layer = stage * each,
                              .count = each}});
  }
  return BuildScheduleMemory(model, training, layout, schedule, {}).ranks[0];
}

void Compare(const std::string& setting, const std::string& what,
             const std::string& published, double simulated,
             std::vector<Comparison>* out) {
  out->push_back({setting, what, published, simulated,
                  absl::StrFormat("%.2f", simulated), Comparison::Rule::kWithin,
                  kTolerance});
}

double Activations(const RankMemory& rank) {
  return static_cast<double>(rank.peak_activations);
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string&) {
  const std::vector<TableRow> figure1 = ReadTable("korthikanti_memory/figure1");
  const std::vector<TableRow> figure7 = ReadTable("korthikanti_memory/figure7");
  PW_CHECK(figure1.size() == figure7.size());
  std::vector<Comparison> out;
  for (size_t index = 0; index < figure1.size(); ++index) {
    const TableRow& row = figure1[index];
    const TableRow& shares = figure7[index];
    PW_CHECK(row.Text("model") == shares.Text("model"));
    const std::string size =
        absl::StrCat("figure 1 (GiB), ", row.Text("model"));
    PW_ASSIGN_OR_RETURN(const RankMemory none, FirstRank(row, kNone));
    PW_ASSIGN_OR_RETURN(const RankMemory both, FirstRank(row, kBoth));
    MemoryBytes parameters = none.fixed;
    for (const MemoryKind kind :
         {MemoryKind::kPlaceholders, MemoryKind::kWorkspace,
          MemoryKind::kBuffers}) {
      parameters[kind] = 0;
    }
    Compare(size, "parameters", row.Text("parameters"),
            static_cast<double>(parameters.total()) / kGiB, &out);
    Compare(size, "activations", row.Text("none"), Activations(none) / kGiB,
            &out);
    Compare(size, "sequence parallel, selective", row.Text("both"),
            Activations(both) / kGiB, &out);
    const std::string share = absl::StrCat("figure 7 (%), ", row.Text("model"));
    const std::pair<const char*, Setting> settings[] = {
        {"sequence_parallel", kSequence},
        {"selective", kSelective},
        {"both", kBoth},
        {"full", kFull}};
    for (const auto& [column, setting] : settings) {
      PW_ASSIGN_OR_RETURN(const RankMemory rank, FirstRank(row, setting));
      Compare(share, column, shares.Text(column),
              100 * Activations(rank) / Activations(none), &out);
    }
  }
  return out;
}

const RegisterPapers kRow({{
    .name = "korthikanti-memory",
    .summary = "Reducing Activation Recomputation in Large Transformer "
               "Models, arXiv 2205.05198, figures 1 and 7",
    .metric = "memory of the layers of the first rank's devices",
    .run = &Reproduce,
}});

}  // namespace
}  // namespace pipewright::korthikanti_memory

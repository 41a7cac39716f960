// The files of experiments/papers/simumax_memory: the peak allocation of the
// rank that needs most.
#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/memory/schedule_memory.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"
#include "sim/schedule/registry.h"

namespace pipewright::simumax_memory {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// SimuMax's own model: 0.46 % on average and 1.38 % at worst.
constexpr double kWorst = 0.015;
constexpr double kMeanPercent = 0.5;

ModelSpec ModelOf(const TableRow& row) {
  for (const TableRow& shape : ReadTable("simumax_memory/models")) {
    if (shape.Text("model") != row.Text("model")) continue;
    ModelSpec model;
    model.layers = row.Integer("layers");
    model.sequence = row.Integer("sequence");
    model.hidden = shape.Integer("hidden");
    model.heads = shape.Integer("heads");
    model.kv_heads = shape.Integer("kv_heads");
    model.head_dim = 128;
    model.ffn_hidden = shape.Integer("ffn_hidden");
    model.gated = true;
    model.vocabulary = shape.Integer("vocabulary");
    model.experts = shape.Integer("experts");
    model.experts_per_token = shape.Integer("experts_per_token");
    model.expert_ffn_hidden = shape.Integer("expert_ffn_hidden");
    model.shared_ffn_hidden = shape.Integer("shared_ffn_hidden");
    model.first_dense_layers = model.has_experts() ? 1 : 0;
    if (shape.Integer("mla") != 0) {
      // DeepSeek-V2, arXiv 2405.04434, section 3.1.2; V3 has the same.
      model.q_lora_rank = 1536;
      model.kv_lora_rank = 512;
      model.qk_nope_head_dim = 128;
      model.qk_rope_head_dim = 64;
      model.v_head_dim = 128;
    }
    return model;
  }
  PW_CHECK(false);
}

absl::StatusOr<double> PeakBytes(const TableRow& row) {
  const ModelSpec model = ModelOf(row);
  TrainingSpec training;
  training.tp = row.Integer("tp");
  training.sequence_parallel = training.tp > 1;
  training.cp = row.Integer("cp");
  training.ep = row.Integer("ep");
  training.dp = row.Integer("dp");
  training.zero = 1;  // Megatron's distributed optimizer
  training.sequence = model.sequence;
  ScheduleParams params;
  params.pp = row.Integer("pp");
  params.microbatches = row.Integer("microbatches");
  PW_ASSIGN_OR_RETURN(const Schedule schedule, BuildSchedule("1f1b", params));
  PW_ASSIGN_OR_RETURN(const StageLayout layout,
                      EvenLayout(model, training, params.pp, 1));
  const ScheduleMemory memory =
      BuildScheduleMemory(model, training, layout, schedule, {});
  return static_cast<double>(memory.ranks[memory.WorstRank()].peak());
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string&) {
  std::vector<Comparison> out;
  double errors = 0;
  for (const TableRow& row : ReadTable("simumax_memory/table")) {
    PW_ASSIGN_OR_RETURN(const double bytes, PeakBytes(row));
    const double simulated = bytes / kGiB;
    errors += std::abs(simulated / row.Number("memory") - 1);
    out.push_back(
        {absl::StrCat(row.Text("model"), ", ", row.Text("layers"), " layers"),
         absl::StrCat("sequence ", row.Text("sequence"), " pp ", row.Text("pp"),
                      " tp ", row.Text("tp"), " cp ", row.Text("cp")),
         row.Text("memory"), simulated, absl::StrFormat("%.2f", simulated),
         Comparison::Rule::kWithin, kWorst});
  }
  const double mean = 100 * errors / static_cast<double>(out.size());
  out.push_back({"all of them", "mean error in %", "0", mean,
                 absl::StrFormat("%.3f", mean), Comparison::Rule::kAtMost,
                 kMeanPercent, false});
  return out;
}

const RegisterPaper kRow({
    .name = "simumax-memory",
    .summary = "SimuMax, release 1.2, runs of Megatron-LM on B200",
    .metric = "peak allocation of a device in GiB, 1F1B",
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright::simumax_memory

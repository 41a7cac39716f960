#include "sim/run/describe_run.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "sim/config/run_config_fields.h"
#include "sim/model/flops.h"

namespace pipewright {
namespace {

// As most papers count it.
constexpr bool kHalveCausal = false;

TokenFlops FlopsOf(const PreparedModel& model) {
  const ModelSpec& spec = model.spec;
  return {
      .model = ModelFlopsPerToken(spec, model.training.sequence, kHalveCausal),
      .recomputed = RecomputedFlopsPerToken(spec, model.training, model.layout,
                                            model.rank_of_stage, kHalveCausal),
      .only_parts = spec.frozen_layers > 0 || spec.lora_rank > 0,
      .has_experts = spec.has_experts(),
      .is_causal = spec.causal};
}

DevicePeak PeakOf(const DeviceSpec& device, Precision precision) {
  const bool fp8 = precision == Precision::kFp8 && device.fp8_flops > 0;
  const double flops = fp8 ? device.fp8_flops : device.bf16_flops;
  return {.name = absl::StrFormat("%g TFLOP/s, %s %s", flops / 1e12,
                                  device.name, fp8 ? "fp8" : "bf16"),
          .flops = flops};
}

void DescribeOmissions(const PreparedRun& run, Report* report) {
  std::vector<std::string>& out = report->not_modelled;
  // They are part of every estimated kernel.
  out.erase(std::remove(out.begin(), out.end(), "kernel launch gaps"),
            out.end());
  const ModelSpec& model = run.prepared_model->spec;
  out.push_back("devices that differ in speed");
  if (model.has_experts()) out.push_back("uneven load of the experts");
  const Placement& placement = run.schedule.lowered->placement;
  const bool apart = placement.RankOf(0, 0) !=
                     placement.RankOf(run.schedule.lowered->stages() - 1, 0);
  if (run.lower.tied_bytes > 0 && apart &&
      !SumsTable(*run.schedule.lowered, run.lower)) {
    out.push_back("summing the gradients of tied embeddings over stages");
  }
}

void DescribeCosts(const PreparedRun& run, Report* report) {
  const std::optional<PreparedModel>& model = run.prepared_model;
  report->tp = run.config.strategy.tp.value_or(1);
  report->cp = run.config.strategy.cp.value_or(1);
  // What the engines count is one device's of each rank.
  report->bytes_sent *= static_cast<double>(report->tp) * report->cp;
  if (run.tokens && report->iteration_s > 0) {
    Throughput throughput;
    throughput.tokens_per_s = *run.tokens / report->iteration_s;
    throughput.devices =
        int64_t{report->pp} * report->dp * report->tp * report->cp;
    if (model) throughput.flops = FlopsOf(*model);
    if (model && run.costs.device) {
      throughput.peak = PeakOf(*run.costs.device, model->training.precision);
    }
    throughput.price_per_device_hour = run.config.costs.price_per_device_hour;
    report->throughput = std::move(throughput);
  }
  if (report->jitter) {
    report->jitter->kind = run.config.costs.jitter.value_or("none");
  }
  if (run.costs.profile) {
    report->profile =
        ReportProfile(*run.costs.profile->profile, run.costs.profile->name,
                      run.costs.profile->costs, run.lower.costs);
    report->profile->interference =
        run.lower.interference == nullptr ? "off" : "on";
    report->profile->collectives = run.costs.measured_collectives;
    DescribeOmissions(run, report);
  }
  if (!run.costs.analytic) return;
  report->costs = ReportCosts(model->spec, model->training, model->layout,
                              *run.costs.analytic, run.lower.costs);
  DescribeOmissions(run, report);
}

int64_t CountOf(const RankOrder& order, PassKind kind) {
  return std::count_if(order.begin(), order.end(),
                       [kind](Pass pass) { return pass.kind() == kind; });
}

OffloadReport ReportOffload(const PreparedRun& run, const Report& report) {
  const PreparedOffload& offload = *run.offload;
  OffloadReport out = {.mode = offload.mode == OffloadMode::kNone
                                   ? "file"
                                   : ChoiceName(OffloadChoices(), offload.mode),
                       .least_ratio = offload.least_ratio,
                       .most_ratio = offload.most_ratio,
                       .devices_on_switch = offload.devices_on_switch};
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankOrder& order =
        run.schedule.lowered->order(static_cast<int>(rank));
    RankOffloadReport& row = out.ranks.emplace_back();
    row.activations = CountOf(order, PassKind::kForward);
    row.offloaded = CountOf(order, PassKind::kOffload);
    row.candidates =
        offload.ranks.empty() ? row.offloaded : offload.ranks[rank].candidates;
    row.exposed_s = report.ranks[rank].late_load_s;
    row.held_back_s = report.ranks[rank].late_free_s;
  }
  return out;
}

}  // namespace

void DescribeRun(const PreparedRun& run, Report* report) {
  report->network = run.network.name;
  report->params = run.schedule.params;
  report->model = run.model;
  report->system = run.network.system;
  report->data_parallel = TraitsOf(run.lower.data_parallel).name;
  // Prepare fills these in where there is something to synchronise.
  if (!run.lower.gradient_bytes.empty()) {
    report->gradient_sync = report->data_parallel;
  }
  report->optimizer = ChoiceName(OptimizerChoices(), run.lower.optimizer);
  if (const OptimizerOffload& offload = run.lower.offload; offload.active()) {
    report->optimizer_placement = TraitsOf(offload.placement).name;
    report->optimizer_stride = offload.stride;
  }
  report->waiting = ChoiceName(WaitingChoices(), run.lower.wait_rule);
  if (run.offload) report->offload = ReportOffload(run, *report);
}

void DescribeResults(const PreparedRun& run, Report* report) {
  DescribeCosts(run, report);
  report->memory = run.memory;
  if (run.schedule.limit) report->fits = run.schedule.limit->ok();
  if (run.memory && (run.memory->limit_bytes || run.memory->host_limit_bytes)) {
    report->fits = report->fits.value_or(true) && run.memory->fits();
  }
}

}  // namespace pipewright

#include "sim/run/describe_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "sim/config/config_fields.h"
#include "sim/cost/block_prices.h"
#include "sim/cost/estimate_error.h"
#include "sim/model/flops.h"
#include "sim/model/minibatch_time.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

// As most papers count it.
constexpr bool kHalveCausal = false;

// FLOPs of one token. Samples of different lengths count as equal ones with as
// much attention a token.
TokenFlops FlopsOf(const PreparedModel& model,
                   const std::optional<PreparedSequences>& sequences) {
  const ModelSpec& spec = model.spec;
  TrainingSpec training = model.training;
  if (sequences) training.sequence = sequences->mean_sequence;
  return {.model = ModelFlopsPerToken(spec, training.sequence, kHalveCausal),
          .recomputed = RecomputedFlopsPerToken(
              spec, training, model.layout, model.rank_of_stage, kHalveCausal),
          .only_parts = spec.frozen_layers > 0 || spec.lora_rank > 0,
          .has_scans = spec.has_scans(),
          .has_experts = spec.has_experts(),
          .is_causal = spec.causal};
}

SequenceReport DescribeSequences(const PreparedSequences& sequences) {
  const PackRequest& request = sequences.request;
  SequenceReport report;
  report.source = sequences.source.name;
  report.packer = TraitsOf(request.packer).name;
  report.packer_cost = ChoiceName(PackerCostChoices(), request.cost.kind);
  report.samples = sequences.samples;
  report.tokens = sequences.tokens;
  report.longest =
      *std::max_element(request.lengths.begin(), request.lengths.end());
  report.max_token_len = request.max_token_len;
  report.classes = static_cast<int>(sequences.classes.size());
  MicrobatchTimes forwards;
  for (const int index : sequences.class_of_replica) {
    const MicrobatchFactors& own = sequences.classes[index];
    report.microbatches.push_back(static_cast<int>(own.forward.size()));
    report.of_replica.push_back(own.tokens);
    forwards.push_back(own.forward);
  }
  const MinibatchTime time = TimeOf(forwards);
  report.idle_lockstep = time.BubbleLockstep();
  report.idle_one_sided = time.BubbleOneSided();
  return report;
}

DevicePeak PeakOf(const DeviceSpec& device, Precision precision) {
  const bool fp8 = IsFp8(precision) && device.fp8_flops > 0;
  const bool fp4 = precision == Precision::kNvfp4 && device.fp4_flops > 0;
  const double flops = fp4   ? device.fp4_flops
                       : fp8 ? device.fp8_flops
                             : device.bf16_flops;
  return {
      .name = absl::StrFormat("%g TFLOP/s, %s %s", flops / 1e12, device.name,
                              fp4   ? "fp4"
                              : fp8 ? "fp8"
                                    : "bf16"),
      .flops = flops};
}

// The slowest first.
std::vector<SlowReport::Row> SlowestOf(std::vector<SlowReport::Row> rows) {
  std::stable_sort(
      rows.begin(), rows.end(),
      [](const SlowReport::Row& left, const SlowReport::Row& right) {
        return left.factor > right.factor;
      });
  if (rows.size() > SlowReport::kRows) rows.resize(SlowReport::kRows);
  return rows;
}

// `row_of` names what has the factor at an index.
template <typename RowOf>
SlowReport::Part DescribeSlow(const SlowFactors& of, const RowOf& row_of) {
  SlowReport::Part part = {.law = of.law ? of.law->text : "",
                           .seed = of.seed,
                           .all = static_cast<int64_t>(of.factors.size())};
  std::vector<SlowReport::Row> slower;
  for (size_t index = 0; index < of.factors.size(); ++index) {
    const double factor = of.factors[index];
    if (factor < 1) ++part.faster;
    if (factor <= 1) continue;
    ++part.slower;
    slower.push_back(row_of(static_cast<int64_t>(index)));
    slower.back().factor = factor;
    // There may be millions of them.
    if (slower.size() >= 64 * SlowReport::kRows) {
      slower = SlowestOf(std::move(slower));
    }
  }
  part.slowest = SlowestOf(std::move(slower));
  return part;
}

bool Uses(const PreparedRun& run, const MeasuredNumber& number) {
  switch (number.use) {
    case MeasuredNumber::Use::kCopies:
      return run.offload || run.lower.offload.active();
    case MeasuredNumber::Use::kMessages:
      return run.schedule.lowered->pp() > 1;
    case MeasuredNumber::Use::kOptimizer:
      return run.lower.offload.active();
  }
  return false;
}

// See NodeLayout::Links.
bool IsLinkOfHost(const Link& link) {
  return absl::EndsWith(link.name, "/to-host") ||
         absl::EndsWith(link.name, "/to-device") ||
         absl::EndsWith(link.name, "/both-ways") ||
         absl::EndsWith(link.name, "/host-memory") ||
         absl::EndsWith(link.name, "/host-share");
}

std::optional<SlowReport> DescribeSlow(const PreparedRun& run) {
  if (!run.slow && !run.network.slow) return std::nullopt;
  SlowReport report;
  if (run.slow) {
    const SlowDevices& slow = *run.slow;
    report.devices = DescribeSlow(slow.of, [&slow](int64_t index) {
      const int64_t rank_of_all = index / slow.devices_per_rank;
      return SlowReport::Row{.name = slow.NameOf(index),
                             .replica = static_cast<int>(rank_of_all / slow.pp),
                             .rank = static_cast<int>(rank_of_all % slow.pp)};
    });
  }
  if (run.network.slow) {
    // Without copies nobody asks how fast the links of the host are.
    const bool copies = run.offload || run.lower.offload.active() ||
                        !run.lower.activation_bytes.empty();
    const std::vector<Link>& links = run.network.slow->healthy->links();
    SlowFactors used;
    used.law = run.network.slow->of.law;
    used.seed = run.network.slow->of.seed;
    std::vector<const Link*> of_row;
    for (size_t link = 0; link < links.size(); ++link) {
      if (!copies && IsLinkOfHost(links[link])) continue;
      used.factors.push_back(run.network.slow->of.factors[link]);
      of_row.push_back(&links[link]);
    }
    report.links = DescribeSlow(used, [&of_row](int64_t row) {
      return SlowReport::Row{.name = of_row[row]->name};
    });
  }
  return report;
}

ReliabilityReport DescribeFailures(const PreparedFailures& failing,
                                   const PreparedRun& run,
                                   const Report& report) {
  ReliabilityReport out = ReportReliability(failing.job, failing.horizon_s,
                                            failing.seeds, failing.seed);
  out.interval_given = failing.interval_given;
  if (report.iteration_s > 0) {
    out.steps = out.mean.kept * failing.horizon_s / report.iteration_s;
    if (run.tokens) out.tokens = *out.steps * *run.tokens;
  }
  return out;
}

void DescribeOmissions(const PreparedRun& run, Report* report) {
  std::vector<std::string>& out = report->not_modelled;
  // They are part of every estimated kernel.
  out.erase(std::remove(out.begin(), out.end(), "kernel launch gaps"),
            out.end());
  const ModelSpec& model = run.prepared_model->spec;
  if (!run.slow) out.push_back("devices that differ in speed");
  if (model.has_experts()) out.push_back("uneven load of the experts");
  const Placement& placement = run.schedule.lowered->placement;
  const bool apart = placement.RankOf(0, 0) !=
                     placement.RankOf(run.schedule.lowered->stages() - 1, 0);
  if (run.lower.tied_bytes > 0 && apart &&
      !SumsTable(*run.schedule.lowered, run.lower)) {
    out.push_back("summing the gradients of tied embeddings over stages");
  }
}

// Energy above the idle power's of the passes of a step, on one of the devices
// of each rank; 0 where nobody knows.
double PassJoules(const Schedule& schedule, const PassCosts& costs,
                  const std::vector<StageCosts>& joules) {
  double sum = 0;
  if (joules.empty()) return sum;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) {
      const int stage =
          schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
      sum += costs.MicrobatchFactor(pass.microbatch()) *
             costs.SliceFactor(pass.slice()) *
             PassCosts::OfPass(joules[stage], pass.kind(), schedule.slices);
    }
  }
  return sum;
}

// Passes and idle power; what optimizer, reductions and transfers draw besides
// is not known.
std::optional<StepEnergy> EnergyOf(const PreparedRun& run,
                                   const Report& report) {
  const Schedule& schedule = *run.schedule.lowered;
  const double passes =
      PassJoules(schedule, run.lower.costs, run.lower.costs.joules);
  // Packed samples and unlike replicas are no multiple of one microbatch. In a
  // short run no limit of power holds.
  if (passes <= 0 || !report.throughput || run.sequences ||
      !run.config.strategy.dp_classes.replicas.empty() ||
      !run.costs.prices->options().sustained) {
    return std::nullopt;
  }
  const BlockPrices& prices = *run.costs.prices;
  const DeviceSpec& device = prices.options().device;
  const auto devices = static_cast<double>(report.throughput->devices);
  const double idle = devices * device.idle_watts;
  const double alike = devices / schedule.pp();
  StepEnergy out;
  out.joules = idle * report.iteration_s + alike * passes;
  out.watts_per_device = out.joules / devices / report.iteration_s;
  out.tokens_per_joule = *run.tokens / out.joules;
  if (!report.interval) return out;
  // The same passes if a FLOP and exchanges draw as little or as much as they
  // may; but no board takes more than its limit.
  const RatioInterval error =
      EnergyError(device, run.prepared_model->training.precision);
  const auto priced = [&](const BlockPrices& of) {
    const PassCosts costs = AnalyticCosts(of, run.prepared_model->layout,
                                          run.prepared_model->rank_of_stage);
    return PassJoules(schedule, costs, costs.joules);
  };
  const double scale = alike * passes / priced(prices);
  const double least =
      scale * priced(prices.WithPower(error.low, ExchangePower::kNone));
  const double most =
      scale * priced(prices.WithPower(error.high, ExchangePower::kLimit));
  const StepInterval& step = *report.interval;
  out.low = std::min(out.joules, idle * step.low_s + least);
  out.high = std::max(out.joules,
                      std::min(idle * step.high_s + most,
                               devices * device.board_watts * step.high_s));
  return out;
}

void DescribeCosts(const PreparedRun& run, Report* report) {
  const std::optional<PreparedModel>& model = run.prepared_model;
  report->tp = run.config.strategy.tp.value_or(1);
  report->cp = run.config.strategy.cp.value_or(1);
  // What the engines count is one device's of each rank.
  report->bytes_sent *= static_cast<double>(report->tp) * report->cp;
  if (run.tokens && report->iteration_s > 0 && !report->in_units) {
    Throughput throughput;
    throughput.tokens_per_s = *run.tokens / report->iteration_s;
    throughput.devices =
        int64_t{report->pp} * report->dp * report->tp * report->cp;
    if (model) throughput.flops = FlopsOf(*model, run.sequences);
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
    for (const MeasuredNumber& number : run.network.measured) {
      if (Uses(run, number)) report->profile->measured.push_back(number);
    }
    DescribeOmissions(run, report);
  }
  if (!run.costs.analytic) return;
  if (report->throughput) {
    report->throughput->energy = EnergyOf(run, *report);
    if (report->throughput->energy) {
      report->not_modelled.push_back(
          "energy of optimizer, reductions, hops and copies");
    }
  }
  report->costs =
      ReportCosts(*run.costs.prices, model->layout, run.lower.costs);
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
                       .has_ratio = offload.has_ratio,
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

// The slowest rank of a replica of each class, where it is the only one that
// is not as all others are.
void DescribeSlowClasses(const DeviceFactors& factors, int pp,
                         ClassesReport* classes) {
  for (DpClassReport& row : classes->classes) {
    const auto begin = factors.begin() + int64_t{row.first_replica} * pp;
    const auto slowest = std::max_element(begin, begin + pp);
    row.slower = *slowest;
    if (std::count(begin, begin + pp, 1.0) == pp - 1) {
      const auto other = std::find_if(
          begin, begin + pp, [](double factor) { return factor != 1; });
      row.slower = *other;
      row.slow_rank = static_cast<int>(other - begin);
    }
  }
}

// What the configuration and the memory add to the classes.
void DescribeClasses(const PreparedRun& run, ClassesReport* classes) {
  if (run.slow) DescribeSlowClasses(run.slow->OfRanks(), run.slow->pp, classes);
  for (size_t index = 0; index < run.classes.size(); ++index) {
    const PreparedClass& own = run.classes[index];
    DpClassReport& row = classes->classes[index];
    row.slower = own.slower;
    row.slow_rank = own.slow_rank;
    if (own.run->memory &&
        own.run->memory_of_ranks() == run.memory_of_ranks()) {
      classes->hungriest = static_cast<int>(index);
    }
    if (!own.run->memory) continue;
    for (const RankMemory& rank : own.run->memory->memory->ranks) {
      row.peak_memory_bytes.push_back(static_cast<double>(rank.peak()));
      row.peak_host_bytes.push_back(static_cast<double>(rank.peak_host()));
    }
  }
}

}  // namespace

void DescribeRun(const PreparedRun& run, Report* report) {
  report->network = run.network.name;
  report->params = run.schedule.params;
  report->found_order = run.schedule.lowered->found;
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
  if (run.offload) {
    // Describes the class whose times the report gives.
    report->offload =
        ReportOffload(report->dp_classes && !run.classes.empty()
                          ? *run.classes[report->dp_classes->slowest].run
                          : run,
                      *report);
  }
  if (report->dp_classes) DescribeClasses(run, &*report->dp_classes);
}

void DescribeResults(const PreparedRun& run, Report* report) {
  DescribeCosts(run, report);
  report->slow = DescribeSlow(run);
  if (run.failing) {
    report->reliability = DescribeFailures(*run.failing, run, *report);
  }
  if (run.sequences) report->sequences = DescribeSequences(*run.sequences);
  report->memory = run.memory;
  if (run.schedule.limit) report->fits = run.schedule.limit->ok();
  if (run.memory && (run.memory->limit_bytes || run.memory->host_limit_bytes)) {
    report->fits = report->fits.value_or(true) && run.memory->fits();
  }
}

}  // namespace pipewright

// Lengths of samples: drawn, packed, and made into classes of replicas.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare_draws.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {
namespace {

// What times are of has a length that parallelism and kernels can split.
constexpr int64_t kSequenceUnit = 64;

absl::StatusOr<LengthSource> SourceOf(const RunConfig& config,
                                      RunContext* context) {
  const SequenceChoice& given = config.sequences;
  if (given.lengths && !given.histogram.empty()) {
    return BothGiven(config.Field("sequences.histogram"),
                     config.Field("sequences.lengths"));
  }
  if (!given.lengths) {
    absl::StatusOr<std::vector<LengthBin>> bins =
        ParseHistogram(given.histogram);
    PW_RETURN_IF_ERROR(
        Prefix(config.Field("sequences.histogram"), bins.status()));
    return LengthSource::OfHistogram(*std::move(bins));
  }
  const FieldPlace field = config.Field("sequences.lengths");
  if (IsLengthLaw(*given.lengths)) {
    absl::StatusOr<LengthLaw> law = ParseLengthLaw(*given.lengths);
    PW_RETURN_IF_ERROR(Prefix(field, law.status()));
    return LengthSource::OfLaw(*std::move(law));
  }
  PW_ASSIGN_OR_RETURN(const auto lengths,
                      context->Lengths(field, *given.lengths));
  return LengthSource::OfSamples(*lengths, *given.lengths);
}

// What a microbatch of lengths excludes.
absl::Status CheckFree(const RunConfig& config) {
  const StrategyChoice& strategy = config.strategy;
  if (strategy.slices.value_or(1) != 1) {
    return BadValue(config.Field("strategy.slices"),
                    absl::StrCat(*strategy.slices),
                    "1 with sequences.lengths: a microbatch holds several "
                    "sequences");
  }
  if (!config.costs.microbatch_factor.empty()) {
    return BothGiven(config.Field("costs.microbatch_factor"),
                     "sequences, which give the factors");
  }
  return absl::OkStatus();
}

// Samples of all replicas.
absl::StatusOr<int64_t> SamplesOf(const RunConfig& config,
                                  const LengthSource& source, int replicas) {
  const std::optional<int> each = config.sequences.minibatch;
  const auto have = static_cast<int64_t>(source.samples.size());
  if (!each && !source.is_list()) {
    return MissingValue(config.Field("sequences.minibatch"),
                        "samples of a step and device, 1 or more");
  }
  const int64_t samples = each ? int64_t{*each} * replicas : have;
  if (samples > kMostSamples) {
    return BadValue(
        config.Field("sequences.minibatch"), absl::StrCat(samples, " samples"),
        absl::StrCat("at most ", kMostSamples, " in a step of all replicas"));
  }
  if (source.is_list() && samples > have) {
    return BadValue(
        config.Field("sequences.minibatch"), absl::StrCat(*each),
        absl::StrCat("at most ", have / replicas, ": ", source.name, " has ",
                     have, " lengths, and dp is ", replicas));
  }
  return samples;
}

absl::StatusOr<SampleCost> CostOf(const RunConfig& config,
                                  const std::optional<ModelSpec>& model) {
  SampleCost cost;
  cost.kind = config.sequences.packer_cost.value_or(PackerCost::kLinear);
  if (cost.kind != PackerCost::kFlops) return cost;
  if (!model) {
    return BadValue(config.Field("sequences.packer_cost"), "flops",
                    "linear or fit without a model (--model)");
  }
  cost.weights_over_queries = WeightsOverQueries(*model);
  return cost;
}

int64_t BaseSequence(const RunConfig& config, int64_t longest) {
  const StrategyChoice& strategy = config.strategy;
  if (strategy.sequence) return *strategy.sequence;
  const int64_t unit =
      kSequenceUnit * strategy.tp.value_or(1) * strategy.cp.value_or(1);
  return std::min((longest + unit - 1) / unit * unit, kMostLength);
}

PassWorks WorksOfRun(const RunConfig& config, const SampleCost& cost,
                     const std::optional<ModelSpec>& model) {
  if (!model) return PassWorks::OfCost(cost);
  const StrategyChoice& strategy = config.strategy;
  TrainingSpec training;
  if (strategy.attention) {
    training.flash_attention = strategy.attention == Attention::kFlash;
  }
  training.recompute = strategy.recompute.value_or(Recompute::kNone);
  // PrepareTraining says what is wrong with them.
  const absl::StatusOr<uint8_t> modules =
      BitsOf(config, "strategy.recompute_modules", strategy.recompute_modules,
             RecomputeModuleChoices());
  if (modules.ok() && *modules != 0) training.recompute_modules = *modules;
  const auto chunks = static_cast<double>(strategy.recompute_chunks.size());
  const double part =
      chunks == 0 ? 1 : std::min(1.0, chunks / strategy.vpp.value_or(1));
  return WorksOf(*model, training, part);
}

// Replicas of the same factors as one class.
void MakeClasses(PreparedSequences* sequences) {
  sequences->classes.clear();
  sequences->class_of_replica.clear();
  std::vector<MicrobatchFactors> all;
  size_t longest = 0;
  for (const Parts& microbatches : sequences->packing) {
    all.push_back(FactorsOf(microbatches, sequences->request.lengths,
                            sequences->works, sequences->base_sequence,
                            sequences->base_samples));
    if (all.back().forward.size() > all[longest].forward.size()) {
      longest = all.size() - 1;
    }
  }
  std::map<std::pair<std::vector<double>, std::vector<double>>, int> known;
  const auto class_of = [&](const MicrobatchFactors& factors) {
    const auto [entry, added] =
        known.insert({{factors.forward, factors.backward_input},
                      static_cast<int>(sequences->classes.size())});
    if (added) sequences->classes.push_back(factors);
    return entry->second;
  };
  class_of(all[longest]);
  for (const MicrobatchFactors& factors : all) {
    sequences->class_of_replica.push_back(class_of(factors));
  }
}

// Lengths, packing and classes of a seed.
absl::Status Draw(int64_t seed, PreparedSequences* sequences) {
  PackRequest& request = sequences->request;
  request.lengths = sequences->source.Draw(
      static_cast<uint64_t>(seed), sequences->samples, sequences->drawn);
  PW_ASSIGN_OR_RETURN(sequences->packing, Pack(request));
  sequences->tokens = 0;
  double squares = 0;
  for (const int64_t length : request.lengths) {
    sequences->tokens += length;
    squares += static_cast<double>(length) * static_cast<double>(length);
  }
  sequences->mean_sequence = static_cast<int64_t>(
      squares / static_cast<double>(sequences->tokens) + 0.5);
  MakeClasses(sequences);
  return absl::OkStatus();
}

absl::Status RefuseDeadlock(const RunConfig& config,
                            const PreparedSequences& sequences,
                            const char* mode) {
  const Packer packer = sequences.request.packer;
  const int most = sequences.most_microbatches();
  const int least = sequences.least_microbatches();
  const std::string here =
      most == least ? absl::StrCat("here all have ", most, ", which is chance")
                    : absl::StrCat("here from ", least, " to ", most,
                                   ": the one that has ", most,
                                   " waits for ever for the others");
  return AboutField(
      "sequences.packer",
      WithValue(
          absl::FailedPreconditionError(absl::StrCat(
              config.Field("sequences.packer"), ": ", TraitsOf(packer).name,
              " deadlocks with strategy.data_parallel ", mode,
              ": its replicas meet at every microbatch, and the packer gives "
              "them different numbers of microbatches (",
              here,
              "); allowed: packer lb-micro, local-sort or none, or ddp, "
              "zero1 or odc, whose replicas meet once a step")),
          TraitsOf(packer).name, "lb-micro, local-sort, none"));
}

}  // namespace

int PreparedSequences::least_microbatches() const {
  size_t least = classes.front().forward.size();
  for (const MicrobatchFactors& own : classes) {
    least = std::min(least, own.forward.size());
  }
  return static_cast<int>(least);
}

absl::StatusOr<std::optional<PreparedSequences>> PrepareSequences(
    const RunConfig& config, RunContext* context) {
  const SequenceChoice& given = config.sequences;
  if (!GivesLengths(given)) return std::optional<PreparedSequences>();
  PW_ASSIGN_OR_RETURN(const std::optional<ModelSpec> model,
                      PrepareModel(config, context));
  PW_RETURN_IF_ERROR(CheckFree(config));
  PreparedSequences sequences;
  PW_ASSIGN_OR_RETURN(sequences.source, SourceOf(config, context));
  PackRequest& request = sequences.request;
  request.devices = config.strategy.dp.value_or(1);
  PW_ASSIGN_OR_RETURN(const int64_t samples,
                      SamplesOf(config, sequences.source, request.devices));
  sequences.samples = static_cast<int>(samples);
  sequences.seed = given.seed.value_or(config.costs.seed.value_or(0));
  sequences.drawn = given.seed.has_value();
  request.max_token_len =
      given.max_token_len.value_or(sequences.source.longest());
  request.packer = given.packer.value_or(Packer::kLbMicro);
  PW_ASSIGN_OR_RETURN(request.cost, CostOf(config, model));
  request.least_microbatches = config.strategy.microbatches.value_or(1);
  sequences.base_sequence = BaseSequence(
      config, TraitsOf(request.packer).packs ? request.max_token_len
                                             : sequences.source.longest());
  sequences.base_samples = config.strategy.microbatch_size.value_or(1);
  sequences.has_model = model.has_value();
  sequences.works = WorksOfRun(config, request.cost, model);
  PW_RETURN_IF_ERROR(Locate(config, Draw(sequences.seed, &sequences)));
  return std::optional<PreparedSequences>(std::move(sequences));
}

RunConfig WithSequences(const RunConfig& config,
                        const std::optional<PreparedSequences>& sequences) {
  RunConfig with = config;
  if (!sequences) return with;
  with.strategy.microbatches = sequences->most_microbatches();
  if (sequences->has_model) {
    with.strategy.sequence = static_cast<int>(sequences->base_sequence);
  }
  return with;
}

absl::Status FinishSequences(const RunConfig& config, const RunSizes& sizes,
                             const std::optional<ModelSpec>& model,
                             DrawPlan* plan, PreparedRun* run) {
  if (!run->sequences) return absl::OkStatus();
  PreparedSequences& sequences = *run->sequences;
  sequences.schedules.clear();
  run->tokens = static_cast<double>(sequences.tokens);
  const DataParallelTraits& mode = TraitsOf(run->lower.data_parallel);
  if (sizes.dp > 1 && MeetsEveryMicrobatch(mode) &&
      !TraitsOf(sequences.request.packer).same_microbatches) {
    return RefuseDeadlock(config, sequences, mode.name);
  }
  if (run->schedule.lowered->directions == 2) {
    return FieldError(
        config.Field("sequences.lengths"),
        absl::StrCat("not with ", run->schedule.lowered->name,
                     ", which runs microbatches in two directions; allowed: a "
                     "schedule of one direction"));
  }
  if (run->offload) {
    return FieldError(config.Field("sequences.lengths"),
                      "not together with activations on the host "
                      "(strategy.offload, or a schedule with O passes); "
                      "allowed: one of them");
  }
  const int64_t base_tokens =
      sequences.base_sequence * config.strategy.microbatch_size.value_or(1);
  int64_t most_tokens = 0;
  for (const MicrobatchFactors& own : sequences.classes) {
    most_tokens = std::max(most_tokens, own.most_tokens);
  }
  if (model && most_tokens > base_tokens) {
    run->warnings.push_back(absl::StrCat(
        config.Field("strategy.sequence"), kMemoryOfBase, base_tokens,
        " tokens, and the longest has ", most_tokens));
  }
  DrawPlan alone;
  DrawPlan& shared = plan == nullptr ? alone : *plan;
  for (const MicrobatchFactors& own : sequences.classes) {
    const auto count = static_cast<int>(own.forward.size());
    const auto build =
        [&]() -> absl::StatusOr<std::shared_ptr<const Schedule>> {
      RunSizes fewer = sizes;
      fewer.microbatches = count;
      absl::StatusOr<PreparedSchedule> other = PrepareSchedule(
          config, fewer, model,
          PlanCostsOf(config, fewer, run->costs.passes, run->network.hop_s),
          nullptr, nullptr);
      PW_RETURN_IF_ERROR(
          Prefix(absl::StrCat("of the replicas with ", count, " microbatches"),
                 other.status()));
      return other->lowered;
    };
    std::shared_ptr<const Schedule> schedule;
    if (count != sizes.microbatches) {
      PW_ASSIGN_OR_RETURN(schedule, shared.ScheduleOf(count, build));
    }
    sequences.schedules.push_back(schedule);
  }
  return absl::OkStatus();
}

absl::Status TakeDraw(int64_t more, PreparedRun* run) {
  return TakeDraw(more, run, nullptr);
}

absl::Status TakeDraw(int64_t more, PreparedRun* run, DrawPlan* plan) {
  if (run->lower.jitter != nullptr) {
    Jitter jitter = *run->lower.jitter;
    jitter.seed += static_cast<uint64_t>(more);
    run->lower.jitter = std::make_shared<const Jitter>(std::move(jitter));
  }
  if (run->slow) Redraw(static_cast<uint64_t>(more), &*run->slow);
  if (run->network.slow) {
    Redraw(static_cast<uint64_t>(more), &*run->network.slow);
    run->network.links.cluster = run->network.slow->Slowed();
    run->lower.network.cluster = run->network.links.cluster;
  }
  if (!run->sequences) return absl::OkStatus();
  run->sequences->drawn = true;
  PW_RETURN_IF_ERROR(
      Locate(run->config, Draw(run->sequences->seed + more, &*run->sequences)));
  std::optional<ModelSpec> model;
  if (run->prepared_model) model = run->prepared_model->spec;
  const Schedule& schedule = *run->schedule.lowered;
  const StrategyChoice& strategy = run->config.strategy;
  const RunSizes sizes = {.pp = schedule.pp(),
                          .vpp = schedule.vpp(),
                          .dp = strategy.dp.value_or(1),
                          .tp = strategy.tp.value_or(1),
                          .cp = strategy.cp.value_or(1),
                          .microbatches = schedule.microbatches,
                          .slices = schedule.slices};
  return FinishSequences(run->config, sizes, model, plan, run);
}

}  // namespace pipewright

// Rules for schedule, costs and the rest.
#include <algorithm>
#include <set>
#include <vector>

#include "sim/config/idle_rules.h"
#include "sim/cost/contention.h"
#include "sim/program/lower.h"

namespace pipewright {
namespace {

// Does any operation of the model take another time with `first` than with
// `second`?
bool TimesDiffer(const PreparedRun& run, const AnalyticOptions& first,
                 const AnalyticOptions& second) {
  if (!run.prepared_model) return false;
  const PreparedModel& model = *run.prepared_model;
  std::set<BlockKind> seen;
  for (const std::vector<StageBlock>& blocks : model.layout.stages) {
    for (const StageBlock& block : blocks) {
      if (!seen.insert(block.kind).second) continue;
      const auto times = [&](const AnalyticOptions& options) {
        return BlockTimes(model.spec, model.training, options, block.kind,
                          block.first_layer);
      };
      const std::vector<OpTime> one = times(first);
      const std::vector<OpTime> other = times(second);
      for (size_t op = 0; op < one.size(); ++op) {
        for (int pass = 0; pass < kNumOpPasses; ++pass) {
          if (one[op].seconds[pass] != other[op].seconds[pass] ||
              one[op].comm_seconds[pass] != other[op].comm_seconds[pass]) {
            return true;
          }
        }
      }
    }
  }
  return false;
}

bool ClockMatters(const PreparedRun& run) {
  AnalyticOptions lasting = *run.costs.analytic;
  lasting.sustained = true;
  AnalyticOptions burst = lasting;
  burst.sustained = false;
  return TimesDiffer(run, lasting, burst);
}

// Do exchanges run beside passes?
bool ContentionMatters(const RunFacts& facts) {
  const PreparedRun& run = facts.run();
  // What comes with every pass, but for odc, whose pulls are no collectives.
  if (facts.shards_step() &&
      TraitsOf(run.lower.data_parallel).shards_gradients &&
      run.lower.data_parallel != DataParallel::kOdc &&
      run.lower.layers.shard_group != 1) {
    const LayerOptions& layers = run.lower.layers;
    if (GathersLayers(run.lower)
            ? layers.reshard_after_forward || !layers.reduces_once
            : run.lower.shard_blocks == ShardBlocks::kPass) {
      return true;
    }
  }
  if (run.prepared_model) {
    const Execution& execution = run.prepared_model->training.execution;
    if (execution.overlap_experts || execution.braided_tensor) return true;
  }
  AnalyticOptions apart = *run.costs.analytic;
  apart.contention = 1;
  AnalyticOptions beside = apart;
  beside.contention = ContentionOf(apart.device);
  return TimesDiffer(run, apart, beside);
}

// sequences.seed is costs.seed unless it is given, which then also shuffles a
// list of lengths.
bool SeedDrawsLengths(const RunFacts& facts) {
  const std::optional<PreparedSequences>& sequences = facts.run().sequences;
  return sequences && !sequences->drawn && !sequences->source.is_list();
}

// Their seeds are costs.seed unless they are given.
bool SeedDrawsReality(const RunFacts& facts) {
  const RunConfig& config = facts.config();
  return (facts.run().DrawsSlow() && !config.slow.seed) ||
         (facts.run().failing && !config.reliability.seed);
}

}  // namespace

const std::vector<IdleRule>& CostRules() {
  static const std::vector<IdleRule> rules = {
      {{"schedule.params.pair", "costs.pair_factor"},
       [](const RunFacts& facts) {
         return Unless(facts.HasPair(),
                       "in a schedule without overlapped pairs (X&Y)");
       }},
      {{"costs.uniform.recompute"},
       [](const RunFacts& facts) {
         return Unless(
             facts.recomputes() || facts.HasPass(PassKind::kRecompute),
             "on the run without R passes or a model that recomputes "
             "(strategy.recompute)");
       }},
      {{"costs.uniform.offload"},
       [](const RunFacts& facts) {
         return Unless(facts.run().offload || facts.HasPass(PassKind::kOffload),
                       "in a schedule without O passes");
       }},
      {{"costs.uniform.load"},
       [](const RunFacts& facts) {
         return Unless(facts.run().offload || facts.HasPass(PassKind::kLoad),
                       "in a schedule without L passes");
       }},
      {{"costs.p2p"},
       [](const RunFacts& facts) {
         return Unless(facts.sizes().pp > 1 || facts.sizes().dp > 1,
                       "with a single rank");
       }},
      {{"costs.hop_bytes"},
       [](const RunFacts& facts) {
         if (facts.sizes().pp == 1) return "with pp 1";
         if (facts.shape() != nullptr || facts.run().network.measured_hop) {
           return Unless(true, "");
         }
         return facts.config().costs.p2p_s
                    ? "on any time with costs.p2p, a pure delay"
                    : "on any time without a system";
       }},
      {{"costs.gradient_bytes"},
       [](const RunFacts& facts) {
         // It tells the parameters of an optimizer on the host.
         if (facts.offload() != nullptr && facts.model() == nullptr) {
           return Unless(true, "");
         }
         if (!facts.has_copies()) return NoCopies(facts);
         if (!facts.synchronises()) return "where no gradients are reduced";
         // Owners add them, where hops are free too.
         if (facts.mode().mode == DataParallel::kOdc) return Unless(true, "");
         return NeedsSystem(facts);
       }},
      {{"costs.optimizer_time"},
       [](const RunFacts& facts) {
         return Unless(facts.run().lower.optimizer != OptimizerMode::kNone ||
                           facts.run().schedule.lowered->update_every > 0,
                       "with strategy.optimizer none");
       }},
      {{"costs.optimizer_time"},
       [](const RunFacts& facts) {
         return Unless(facts.offload() == nullptr,
                       "with an optimizer on the host, whose time follows from "
                       "system.host");
       }},
      {{"costs.validation_time"},
       [](const RunFacts& facts) {
         return Unless(
             facts.run().lower.optimizer == OptimizerMode::kPostValidated,
             "unless strategy.optimizer is post-validated");
       }},
      {{"costs.rollback_time"},
       [](const RunFacts& facts) {
         return Unless(!facts.config().strategy.rollback_iterations.empty(),
                       "without strategy.rollback_iterations");
       }},
      {{"costs.prediction_time"},
       [](const RunFacts& facts) {
         return Unless(facts.run().schedule.lowered->update_every == 1,
                       "unless every backward is a step of its own");
       }},
      {{"costs.held_until_weight"},
       [](const RunFacts& facts) {
         return Unless(*facts.config().costs.held_until_weight == 1 ||
                           facts.HeldMatters(),
                       "in a schedule whose peaks do not depend on it");
       }},
      {{"costs.seed"},
       [](const RunFacts& facts) {
         return Unless(facts.run().lower.jitter != nullptr ||
                           SeedDrawsLengths(facts) || SeedDrawsReality(facts),
                       "without costs.jitter");
       }},
      {{"costs.scale_shapes", "costs.interference"},
       [](const RunFacts& facts) {
         return Unless(facts.run().costs.profile.has_value(),
                       "without costs.profile");
       }},
      {{"costs.scale_shapes"},
       [](const RunFacts& facts) {
         const std::vector<ProfiledTime>& times =
             facts.run().costs.profile->costs.times;
         return Unless(!*facts.config().costs.scale_shapes ||
                           std::any_of(times.begin(), times.end(),
                                       [](const ProfiledTime& time) {
                                         return time.how ==
                                                ProfiledTime::How::kScaled;
                                       }),
                       "where the profile has the model's shapes");
       }},
      {{"costs.analytic.clock"},
       [](const RunFacts& facts) -> const char* {
         const std::optional<AnalyticOptions>& analytic =
             facts.run().costs.analytic;
         if (!analytic || analytic->silicon == nullptr) {
           return "without tables of measured rates (costs.analytic.silicon)";
         }
         return Unless(
             ClockMatters(facts.run()),
             "on any time where no operation draws more than the board "
             "gives");
       }},
      {{"costs.analytic.kernels"},
       [](const RunFacts& facts) {
         return Unless(facts.run().costs.analytic.has_value(),
                       "without estimated times (costs.analytic)");
       }},
      {{"costs.analytic.contention"},
       [](const RunFacts& facts) -> const char* {
         if (!facts.run().costs.analytic) {
           return "without estimated times (costs.analytic)";
         }
         return Unless(ContentionMatters(facts),
                       "where no collective or exchange runs beside passes");
       }},
      {{"costs.analytic.speed_range"},
       [](const RunFacts& facts) -> const char* {
         const std::optional<AnalyticOptions>& analytic =
             facts.run().costs.analytic;
         if (!analytic || analytic->silicon == nullptr ||
             !analytic->sustained) {
           return "without measured rates under a lasting load "
                  "(costs.analytic.silicon, costs.analytic.clock)";
         }
         return Unless(
             facts.sizes().devices() > 1 && ClockMatters(facts.run()),
             "with one device, or where no operation draws more than the "
             "board gives");
       }},
      {{"costs.price_per_device_hour"},
       [](const RunFacts& facts) {
         return Unless(facts.run().tokens.has_value(),
                       "without tokens to pay for (a model, or "
                       "strategy.microbatch_size and strategy.sequence)");
       }},
      {{"network"},
       [](const RunFacts& facts) {
         if (const char* why = NeedsSystem(facts)) return why;
         return Unless(facts.run().engine == "simgrid",
                       "with engine fast, on which no transfers share a link");
       }},
  };
  return rules;
}

}  // namespace pipewright

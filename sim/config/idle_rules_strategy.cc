// Rules for the strategy.
#include "sim/config/idle_rules.h"
#include "sim/program/lower.h"

namespace pipewright {
namespace {

const char* NeedsLayers(const RunFacts& facts) {
  const bool odc = facts.mode().mode == DataParallel::kOdc;
  const bool layers = facts.mode().shards_weights &&
                      facts.run().lower.shard_blocks == ShardBlocks::kLayer;
  if (!odc && !layers) {
    return "unless strategy.shard_blocks is layer with fsdp, or "
           "strategy.data_parallel is odc";
  }
  if (!facts.has_copies()) return NoCopies(facts);
  return Unless(!facts.free_network(), "on any time while hops are free");
}

// Does any layer have work that runs again?
bool AnyRunsAgain(const RunFacts& facts) {
  const PreparedModel& model = *facts.run().prepared_model;
  for (const std::vector<StageBlock>& blocks : model.layout.stages) {
    double before = 0;
    for (const StageBlock& block : blocks) {
      if (!IsLayer(block.kind)) continue;
      const double count = static_cast<double>(block.count) * block.part;
      const bool any = model.training.RecomputedLayers(before, count) > 0;
      before += count;
      if (!any) continue;
      for (const ModelOp& op : model.Ops(block.kind, block.first_layer)) {
        if (RecomputedPart(op, model.training.recompute) > 0) return true;
      }
    }
  }
  return false;
}

}  // namespace

const std::vector<IdleRule>& StrategyRules() {
  static const std::vector<IdleRule> rules = {
      {{"strategy.tp", "strategy.cp"},
       [](const RunFacts& facts) {
         return Unless(facts.sizes().tp * facts.sizes().cp == 1 ||
                           facts.model() != nullptr ||
                           facts.shape() != nullptr || facts.run().tokens ||
                           (facts.sizes().cp > 1 && facts.synchronises() &&
                            !facts.free_network()),
                       "on any time without a model or a system");
       }},
      {{"strategy.ep"},
       [](const RunFacts& facts) {
         return Unless(
             facts.config().strategy.ep == 1 || facts.model() != nullptr,
             kNoModel);
       }},
      {{"strategy.sequence_parallel"},
       [](const RunFacts& facts) {
         if (!*facts.config().strategy.sequence_parallel) {
           return Unless(true, "");
         }
         if (facts.model() == nullptr) return kNoModel;
         return Unless(facts.sizes().tp > 1, "with tp 1");
       }},
      {{"strategy.scatter_gather"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         if (facts.sizes().tp == 1) return "with tp 1";
         if (facts.training()->sequence_parallel) {
           return "with sequence parallelism";
         }
         if (facts.config().costs.hop_bytes) {
           return "with costs.hop_bytes, which is what one device sends";
         }
         return Unless(facts.sizes().pp > 1, "with pp 1");
       }},
      {{"strategy.dp"},
       [](const RunFacts& facts) {
         const bool seen = facts.model() != nullptr ||
                           facts.shape() != nullptr || facts.run().tokens ||
                           facts.run().slow || facts.run().failing;
         if (facts.sizes().dp == 1 || seen) return Unless(true, "");
         if (facts.free_network()) return "on any time while hops are free";
         return Unless(facts.synchronises() ||
                           facts.run().lower.optimizer != OptimizerMode::kNone,
                       "on any time where replicas are not synchronised");
       }},
      {{"strategy.global_batch"},
       [](const RunFacts& facts) {
         const RunConfig& config = facts.config();
         const bool all_given =
             (config.strategy.microbatches || config.schedule.file) &&
             (config.strategy.dp || facts.sizes().dp == 1);
         return Unless(!all_given,
                       "beyond a check where the microbatches and dp are "
                       "given");
       }},
      {{"strategy.data_parallel"},
       [](const RunFacts& facts) {
         const DataParallelTraits& mode =
             TraitsOf(*facts.config().strategy.data_parallel);
         if (!mode.reduces) return Unless(true, "");
         const bool shards_memory =
             facts.model() != nullptr && mode.shards_step;
         if (shards_memory && facts.sizes().dp * facts.sizes().cp > 1) {
           return Unless(true, "");
         }
         if (!facts.has_copies()) return NoCopies(facts);
         return Unless(!facts.free_network(),
                       "on any time while hops are free");
       }},
      {{"strategy.overlap_gradients"},
       [](const RunFacts& facts) {
         if (*facts.config().strategy.overlap_gradients) {
           return Unless(true, "");
         }
         if (!facts.synchronises()) return "where no gradients are reduced";
         if (facts.mode().shards_gradients) {
           return "with zero2, fsdp and odc, which reduce after every backward "
                  "pass";
         }
         if (facts.free_network()) return "while hops are free";
         return Unless(facts.OverlapMatters(),
                       "where every reduction comes after the last pass");
       }},
      {{"strategy.shard_blocks"},
       [](const RunFacts& facts) {
         if (!facts.mode().shards_gradients) {
           return "unless strategy.data_parallel is zero2 or fsdp";
         }
         if (facts.mode().mode == DataParallel::kOdc) {
           return "with odc, which always goes layer by layer";
         }
         if (!facts.has_copies()) return NoCopies(facts);
         return Unless(!facts.free_network(), "while hops are free");
       }},
      {{"strategy.reshard_after_forward", "strategy.near_group",
        "strategy.gather_type", "strategy.one_comm_stream"},
       [](const RunFacts& facts) { return NeedsLayers(facts); }},
      // Owners add as much as their part is, where hops are free too.
      {{"strategy.shard_group"},
       [](const RunFacts& facts) {
         const bool adds =
             facts.mode().mode == DataParallel::kOdc && facts.sizes().dp > 1;
         return adds ? Unless(true, "") : NeedsLayers(facts);
       }},
      {{"strategy.near_group"},
       [](const RunFacts& facts) {
         const bool kept =
             !facts.config().strategy.reshard_after_forward.value_or(true);
         return Unless(!kept || facts.mode().mode == DataParallel::kOdc,
                       "with strategy.reshard_after_forward false, which keeps "
                       "what is gathered");
       }},
      {{"strategy.pull_flows", "strategy.owner_poll"},
       [](const RunFacts& facts) {
         return Unless(facts.mode().mode == DataParallel::kOdc,
                       "unless strategy.data_parallel is odc");
       }},
      {{"strategy.pull_flows"},
       [](const RunFacts& facts) { return NeedsLayers(facts); }},
      // A push waits for its owner where hops are free too.
      {{"strategy.owner_poll"},
       [](const RunFacts& facts) {
         return Unless(facts.sizes().dp > 1, "with dp 1");
       }},
      {{"strategy.waiting"},
       [](const RunFacts& facts) {
         return Unless(facts.sizes().pp > 1 ||
                           facts.run().lower.wait_rule == WaitRule::kBuffered,
                       "with pp 1");
       }},
      {{"strategy.collectives"},
       [](const RunFacts& facts) {
         if (facts.shape() == nullptr) return NeedsSystem(facts);
         const CollectiveAlgorithm wanted =
             facts.run().lower.network.collectives;
         // Who asks for the fastest may be told that it is the ring.
         return Unless(wanted == CollectiveAlgorithm::kRing ||
                           (wanted == CollectiveAlgorithm::kFastest &&
                            facts.CollectivesSpanNodes()) ||
                           facts.LeavesRings(),
                       "where all collectives of gradients and parameters are "
                       "rings anyway");
       }},
      {{"strategy.mapping"},
       [](const RunFacts& facts) {
         if (facts.shape() == nullptr) return NeedsSystem(facts);
         return Unless(facts.config().strategy.mapping[0] == "dp-pp" ||
                           facts.MappingMatters(),
                       "where it places the ranks as dp-pp does");
       }},
      {{"strategy.optimizer"},
       [](const RunFacts& facts) {
         const OptimizerMode mode = facts.run().lower.optimizer;
         const bool alone = facts.sizes().pp == 1 && facts.sizes().dp == 1;
         if (!alone || mode == OptimizerMode::kNone) return Unless(true, "");
         if (facts.run().lower.costs.optimizer_s == 0) {
           return "on a single rank whose step takes no time";
         }
         return Unless(mode == OptimizerMode::kSynchronised,
                       "other than that of synchronised on a single rank");
       }},
      {{"strategy.optimizer_ratio", "strategy.optimizer_stride",
        "strategy.subgroup_size", "strategy.gradient_flush"},
       [](const RunFacts& facts) {
         return Unless(facts.offload() != nullptr,
                       "with strategy.optimizer_placement gpu");
       }},
      {{"strategy.optimizer_ratio"},
       [](const RunFacts& facts) {
         return Unless(TraitsOf(facts.offload()->placement).has_ratio,
                       "unless the placement is twinflow or "
                       "deep-optimizer-states");
       }},
      {{"strategy.optimizer_stride"},
       [](const RunFacts& facts) {
         return Unless(TraitsOf(facts.offload()->placement).has_stride,
                       "unless the placement is deep-optimizer-states");
       }},
      {{"strategy.gradient_flush"},
       [](const RunFacts& facts) {
         return Unless(
             facts.offload()->placement != OptimizerPlacement::kSuperOffload,
             "with superoffload, whose gradients never block");
       }},
      {{"strategy.validation"},
       [](const RunFacts& facts) {
         return Unless(
             facts.run().lower.optimizer == OptimizerMode::kPostValidated,
             "unless strategy.optimizer is post-validated");
       }},
      {{"strategy.zero"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         return Unless(*facts.config().strategy.zero == 0 ||
                           facts.sizes().dp * facts.sizes().cp > 1,
                       NoCopies(facts));
       }},
  };
  return rules;
}

const std::vector<IdleRule>& TrainingRules() {
  static const std::vector<IdleRule> rules = {
      {{"strategy.master_bytes_per_parameter",
        "strategy.moment_bytes_per_parameter", "strategy.attention",
        "strategy.precision", "strategy.fused_cross_entropy",
        "strategy.framework", "strategy.layers", "strategy.layout",
        "strategy.split", "strategy.vocabulary", "strategy.memory_context",
        "strategy.fragmentation"},
       NeedsModel},
      {{"strategy.precision"},
       [](const RunFacts& facts) {
         // These have the bytes of others, and times of their own.
         const Precision precision = *facts.config().strategy.precision;
         return Unless(facts.run().costs.analytic.has_value() ||
                           (precision != Precision::kFp8Tensorwise &&
                            precision != Precision::kMxfp8),
                       "other than that of fp8 (fp8-tensorwise) and fp8-block "
                       "(mxfp8) without estimated times (costs.analytic)");
       }},
      {{"strategy.fused_optimizer"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         if (!facts.run().costs.analytic) {
           return "without estimated times (costs.analytic)";
         }
         if (facts.config().costs.optimizer_s) {
           return "with costs.optimizer_time";
         }
         if (facts.offload() != nullptr) {
           return "with an optimizer on the host";
         }
         return Unless(facts.run().lower.optimizer != OptimizerMode::kNone ||
                           facts.run().schedule.lowered->update_every > 0,
                       "with strategy.optimizer none");
       }},
      {{"strategy.plain_cross_entropy"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         return Unless(!facts.training()->fused_cross_entropy,
                       "with strategy.fused_cross_entropy true");
       }},
      {{"strategy.parameter_bytes_per_parameter"},
       [](const RunFacts& facts) {
         const std::optional<PreparedModel>& model = facts.run().prepared_model;
         // Frozen weights have none.
         const bool masters = model && model->training.master_bytes > 0 &&
                              model->spec.frozen_layers == 0 &&
                              model->spec.lora_rank == 0;
         const bool layers =
             facts.has_copies() && !facts.run().lower.layers.stages.empty();
         return Unless(!masters || !layers,
                       "layer by layer, where shards are of the master weights "
                       "and strategy.gather_type is what is gathered");
       }},
      {{"strategy.parameter_bytes_per_parameter"},
       [](const RunFacts& facts) {
         return Unless(facts.model() != nullptr ||
                           (facts.shards_step() && !facts.free_network()),
                       "without a model or a sharded optimizer");
       }},
      {{"strategy.gradient_bytes_per_parameter"},
       [](const RunFacts& facts) {
         return Unless(facts.model() != nullptr || facts.offload() != nullptr ||
                           (facts.shards_step() && !facts.free_network()),
                       "without a model or a sharded optimizer");
       }},
      {{"strategy.microbatch_size", "strategy.sequence"},
       [](const RunFacts& facts) {
         return Unless(facts.run().tokens.has_value(),
                       "without a model or both of strategy.microbatch_size "
                       "and strategy.sequence");
       }},
      {{"strategy.split"},
       [](const RunFacts& facts) {
         return Unless(*facts.config().strategy.split == LayerSplit::kEven ||
                           facts.SplitMatters(),
                       "where the even split is balanced");
       }},
      {{"strategy.vocabulary"},
       [](const RunFacts& facts) {
         return Unless(
             facts.training()->vocabulary == VocabularyPlacement::kEnds ||
                 facts.run().schedule.lowered->stages() > 1,
             "with one stage");
       }},
      {{"strategy.recompute"},
       [](const RunFacts& facts) {
         const StrategyChoice& strategy = facts.config().strategy;
         if (*strategy.recompute == Recompute::kNone) return Unless(true, "");
         if (facts.model() == nullptr) return kNoModel;
         return Unless(
             AnyRunsAgain(facts),
             facts.training()->recompute_every > 1
                 ? "as no layer that strategy.recompute_every counts within "
                   "its stage runs anything again"
                 : "as no layer has a module of strategy.recompute_modules");
       }},
      {{"strategy.recompute_modules"},
       [](const RunFacts& facts) {
         if (!facts.recomputes() ||
             facts.training()->recompute != Recompute::kSelective) {
           return "unless strategy.recompute is selective";
         }
         return Unless(AnyRunsAgain(facts), "as no layer has such a module");
       }},
      {{"strategy.narrow_weights"},
       [](const RunFacts& facts) {
         return Unless(facts.model() != nullptr, kNoModel);
       }},
      {{"strategy.offload_chunks", "strategy.offload_fraction"},
       [](const RunFacts& facts) {
         const auto& offload = facts.run().offload;
         return Unless(offload && offload->mode != OffloadMode::kNone,
                       "unless strategy.offload is selective or full");
       }},
      {{"strategy.offload_tensors"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         return Unless(facts.run().offload.has_value(),
                       "where nothing is offloaded");
       }},
      {{"strategy.offload_sharing"},
       [](const RunFacts& facts) {
         const auto& offload = facts.run().offload;
         return Unless(
             offload && offload->ranks_share,
             "where no two ranks or replicas copy over one PCIe switch");
       }},
      {{"costs.offload_ratio"},
       [](const RunFacts& facts) {
         return Unless(facts.run().offload.has_value(),
                       "where nothing is offloaded");
       }},
      {{"strategy.whole_gradients"},
       [](const RunFacts& facts) {
         const TrainingSpec* const training = facts.training();
         return Unless(training != nullptr && training->zero >= 3 &&
                           training->sharded.shard_group > 0 &&
                           facts.has_copies(),
                       "unless layers are sharded over several holders "
                       "(strategy.shard_blocks layer)");
       }},
      {{"strategy.shard_copies"},
       [](const RunFacts& facts) {
         const PreparedRun& run = facts.run();
         return Unless(run.costs.analytic.has_value() &&
                           run.lower.data_parallel == DataParallel::kFsdp &&
                           GathersLayers(run.lower),
                       "unless estimated layers are sharded one by one "
                       "(costs.analytic, strategy.shard_blocks layer)");
       }},
      {{"strategy.recompute_layers", "strategy.recompute_every"},
       [](const RunFacts& facts) {
         return Unless(facts.recomputes(),
                       "unless strategy.recompute is given");
       }},
      {{"strategy.recompute_stops_early"},
       [](const RunFacts& facts) {
         return Unless(facts.recomputes() &&
                           facts.training()->recompute == Recompute::kFull,
                       "unless strategy.recompute is full");
       }},
      {{"strategy.recompute_stops_early"},
       [](const RunFacts& facts) {
         return Unless(!facts.run().costs.profile,
                       "on any time with costs.profile, whose passes were "
                       "measured");
       }},
      {{"strategy.recompute_chunks"},
       [](const RunFacts& facts) {
         return Unless(facts.recomputes(),
                       "unless strategy.recompute is given");
       }},
  };
  return rules;
}

}  // namespace pipewright

#include "sim/config/idle_options.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/run_facts.h"

namespace pipewright {
namespace {

// Why the fields change nothing in a run; null where they may. A value that
// asks for nothing ("none", 1) needs no warning.
struct IdleRule {
  std::vector<const char*> fields;  // one that ends in '.' is a section
  const char* (*why)(const RunFacts& facts);
};

const char* Unless(bool matters, const char* words) {
  return matters ? nullptr : words;
}

constexpr char kNoModel[] = "without a model";

const char* WithoutSystem(const RunFacts& facts) {
  return facts.config().costs.p2p_s ? "with costs.p2p, a pure delay"
                                    : "without a system";
}

const char* NeedsSystem(const RunFacts& facts) {
  return Unless(facts.shape() != nullptr, WithoutSystem(facts));
}

const char* NeedsModel(const RunFacts& facts) {
  return Unless(facts.model() != nullptr, kNoModel);
}

// A system whose links carry nothing, and whose device is nobody's.
const char* UsesSystem(const RunFacts& facts) {
  return Unless(facts.model() != nullptr || facts.Crosses("", false),
                "since nothing crosses its links and no model is given");
}

const char* HasTreeTraffic(const RunFacts& facts) {
  if (facts.shape()->shape != "fat-tree") return "unless the shape is fat-tree";
  return Unless(facts.Crosses("leaf", false),
                "since nothing goes from leaf to leaf");
}

const std::vector<IdleRule>& ModelRules() {
  static const std::vector<IdleRule> rules = {
      {{"model.expert_ffn_hidden", "model.shared_ffn_hidden",
        "model.first_dense_layers"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->has_experts(), "without model.experts");
       }},
      {{"model.ffn_hidden"},
       [](const RunFacts& facts) {
         return Unless(!facts.model()->IsExpertLayer(0),
                       "where every layer has experts");
       }},
      {{"model.q_lora_rank", "model.qk_nope_head_dim", "model.qk_rope_head_dim",
        "model.v_head_dim"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->has_mla(), "without model.kv_lora_rank");
       }},
      {{"model.kv_heads", "model.head_dim", "model.qkv_bias"},
       [](const RunFacts& facts) {
         return Unless(!facts.model()->has_mla(),
                       "with latent attention (model.kv_lora_rank)");
       }},
      {{"model.sequence"},
       [](const RunFacts& facts) {
         return Unless(!facts.config().strategy.sequence,
                       "with strategy.sequence");
       }},
  };
  return rules;
}

const std::vector<IdleRule>& SystemRules() {
  static const std::vector<IdleRule> rules = {
      {{"system.memory"}, NeedsModel},
      {{"system.devices_per_node", "system.nics_per_node",
        "system.pcie_per_switch", "system.nodes_per_leaf",
        "system.oversubscription", "system.nvlink.", "system.nic.",
        "system.pcie.", "system.device_name"},
       NeedsSystem},
      {{"system.preset", "system.file", "system.shape", "system.nodes",
        "system.devices_per_node"},
       UsesSystem},
      {{"system.pcie_per_switch", "system.pcie."},
       [](const RunFacts&) {
         return "since no run copies bytes to the host yet (O and L take "
                "costs.uniform.offload and costs.uniform.load)";
       }},
      {{"system.shape"},
       [](const RunFacts& facts) {
         const SystemChoice& system = facts.config().system;
         return Unless(
             !(system.preset || system.file) || facts.SpansNodes(),
             "besides a preset or file while all ranks are on one node");
       }},
      {{"system.nodes"},
       [](const RunFacts& facts) {
         return Unless(facts.SpansNodes(), "while all ranks are on one node");
       }},
      {{"system.nodes_per_leaf", "system.oversubscription"}, HasTreeTraffic},
      {{"system.nics_per_node", "system.nic."},
       [](const RunFacts& facts) {
         return Unless(facts.Crosses("/nic", false),
                       "since nothing leaves a node");
       }},
      {{"system.nvlink."},
       [](const RunFacts& facts) {
         return Unless(facts.Crosses("nvlink", false),
                       "since nothing goes over NVLink");
       }},
      {{"system.device_name"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         return Unless(
             facts.config().costs.analytic_device.value_or("auto") == "auto",
             "with costs.analytic.device");
       }},
  };
  return rules;
}

const std::vector<IdleRule>& StrategyRules() {
  static const std::vector<IdleRule> rules = {
      {{"strategy.tp", "strategy.cp"},
       [](const RunFacts& facts) {
         return Unless(facts.sizes().tp * facts.sizes().cp == 1 ||
                           facts.model() != nullptr ||
                           facts.shape() != nullptr || facts.run().tokens,
                       "without a model or a system");
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
         return Unless(facts.sizes().pp > 1, "with pp 1");
       }},
      {{"strategy.dp"},
       [](const RunFacts& facts) {
         return Unless(facts.sizes().dp == 1 || facts.model() != nullptr ||
                           facts.shape() != nullptr || facts.run().tokens ||
                           (facts.synchronises() && !facts.free_network()),
                       "on any time while hops are free or gradients are not "
                       "synchronised");
       }},
      {{"strategy.data_parallel"},
       [](const RunFacts& facts) {
         const DataParallel kind = *facts.config().strategy.data_parallel;
         if (kind == DataParallel::kNone) return Unless(true, "");
         const bool shards_memory =
             facts.model() != nullptr && ZeroStageOf(kind) > 0;
         if (shards_memory && facts.sizes().dp * facts.sizes().cp > 1) {
           return Unless(true, "");
         }
         if (!facts.has_copies()) return "with dp 1";
         return Unless(!facts.free_network(),
                       "on any time while hops are free");
       }},
      {{"strategy.overlap_gradients"},
       [](const RunFacts& facts) {
         if (*facts.config().strategy.overlap_gradients) {
           return Unless(true, "");
         }
         if (!facts.synchronises()) return "where no gradients are reduced";
         if (facts.run().lower.data_parallel >= DataParallel::kZero2) {
           return "with zero2 and fsdp, which reduce behind every backward";
         }
         if (facts.free_network()) return "while hops are free";
         return Unless(facts.OverlapMatters(),
                       "where every reduction stands behind the last pass");
       }},
      {{"strategy.shard_blocks"},
       [](const RunFacts& facts) {
         if (facts.run().lower.data_parallel < DataParallel::kZero2) {
           return "unless strategy.data_parallel is zero2 or fsdp";
         }
         if (facts.sizes().dp == 1) return "with dp 1";
         return Unless(!facts.free_network(), "while hops are free");
       }},
      {{"strategy.waiting"},
       [](const RunFacts& facts) {
         return Unless(facts.sizes().pp > 1 ||
                           facts.run().lower.wait_rule == WaitRule::kBuffered,
                       "with pp 1");
       }},
      {{"strategy.mapping"},
       [](const RunFacts& facts) {
         if (facts.shape() == nullptr) return WithoutSystem(facts);
         return Unless(facts.config().strategy.mapping[0] == "dp-pp" ||
                           facts.MappingMatters(),
                       "where it places the ranks as dp-pp does");
       }},
      {{"strategy.optimizer"},
       [](const RunFacts& facts) {
         const bool alone = facts.sizes().pp == 1 && facts.sizes().dp == 1;
         return Unless(facts.run().lower.optimizer == OptimizerMode::kNone ||
                           !alone || facts.run().lower.costs.optimizer_s > 0,
                       "on a single rank whose step takes no time");
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
                       "with dp * cp = 1");
       }},
  };
  return rules;
}

const std::vector<IdleRule>& TrainingRules() {
  static const std::vector<IdleRule> rules = {
      {{"strategy.master_bytes_per_parameter",
        "strategy.moment_bytes_per_parameter", "strategy.attention",
        "strategy.precision", "strategy.fused_cross_entropy", "strategy.layers",
        "strategy.layout", "strategy.split", "strategy.vocabulary",
        "strategy.memory_context", "strategy.fragmentation"},
       NeedsModel},
      {{"strategy.gradient_bytes_per_parameter",
        "strategy.parameter_bytes_per_parameter"},
       [](const RunFacts& facts) {
         return Unless(facts.model() != nullptr ||
                           (facts.shards_step() && !facts.free_network()),
                       "without a model or a sharded optimizer");
       }},
      {{"strategy.microbatch_size", "strategy.sequence"},
       [](const RunFacts& facts) {
         return Unless(facts.run().tokens.has_value(),
                       "without a model or both of strategy.microbatch_size "
                       "and strategy.sequence");
       }},
      {{"strategy.recompute"},
       [](const RunFacts& facts) {
         const StrategyChoice& strategy = facts.config().strategy;
         if (*strategy.recompute == Recompute::kNone) return Unless(true, "");
         if (facts.model() == nullptr) return kNoModel;
         return Unless(*strategy.recompute != Recompute::kSelective ||
                           !facts.training()->flash_attention,
                       "with flash attention, which stores no scores");
       }},
      {{"strategy.recompute_chunks"},
       [](const RunFacts& facts) {
         return Unless(facts.recomputes(),
                       "unless strategy.recompute is given");
       }},
  };
  return rules;
}

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
             "without R passes and without a model that recomputes "
             "(strategy.recompute)");
       }},
      {{"costs.uniform.offload"},
       [](const RunFacts& facts) {
         return Unless(facts.HasPass(PassKind::kOffload),
                       "in a schedule without O passes");
       }},
      {{"costs.uniform.load"},
       [](const RunFacts& facts) {
         return Unless(facts.HasPass(PassKind::kLoad),
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
         return NeedsSystem(facts);
       }},
      {{"costs.gradient_bytes"},
       [](const RunFacts& facts) {
         if (!facts.has_copies()) return "with dp 1";
         if (!facts.synchronises()) return "where no gradients are reduced";
         return NeedsSystem(facts);
       }},
      {{"costs.optimizer_time"},
       [](const RunFacts& facts) {
         return Unless(facts.run().lower.optimizer != OptimizerMode::kNone ||
                           facts.run().schedule->update_every > 0,
                       "with strategy.optimizer none");
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
         return Unless(facts.run().schedule->update_every == 1,
                       "unless every backward is a step of its own");
       }},
      {{"costs.held_until_weight"},
       [](const RunFacts& facts) {
         return Unless(*facts.config().costs.held_until_weight == 1 ||
                           facts.HasPass(PassKind::kBackwardWeight),
                       "in a schedule without W passes");
       }},
      {{"costs.seed"},
       [](const RunFacts& facts) {
         return Unless(facts.run().lower.jitter != nullptr,
                       "without costs.jitter");
       }},
      {{"costs.scale_shapes", "costs.interference"},
       [](const RunFacts& facts) {
         return Unless(facts.run().profile.has_value(),
                       "without costs.profile");
       }},
      {{"costs.scale_shapes"},
       [](const RunFacts& facts) {
         const std::vector<ProfiledTime>& times =
             facts.run().profile->costs.times;
         return Unless(!*facts.config().costs.scale_shapes ||
                           std::any_of(times.begin(), times.end(),
                                       [](const ProfiledTime& time) {
                                         return time.how ==
                                                ProfiledTime::How::kScaled;
                                       }),
                       "where the profile has the model's shapes");
       }},
      {{"costs.price_per_device_hour"},
       [](const RunFacts& facts) {
         return Unless(facts.run().tokens.has_value(),
                       "without tokens to pay for (a model, or "
                       "strategy.microbatch_size and strategy.sequence)");
       }},
      {{"network"}, NeedsSystem},
  };
  return rules;
}

bool Covers(const IdleRule& rule, const std::string& path) {
  return std::any_of(
      rule.fields.begin(), rule.fields.end(), [&](const std::string& field) {
        return field == path ||
               (field.back() == '.' && absl::StartsWith(path, field));
      });
}

// The first reason that holds; null where the field may matter.
const char* WhyIdle(const RunFacts& facts, const std::string& path) {
  for (const auto* rules : {&ModelRules(), &SystemRules(), &StrategyRules(),
                            &TrainingRules(), &CostRules()}) {
    for (const IdleRule& rule : *rules) {
      if (!Covers(rule, path)) continue;
      if (const char* why = rule.why(facts)) return why;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<IdleOption> FindIdleOptions(const PreparedRun& run,
                                        const RunSizes& sizes,
                                        const ShapeParams* shape,
                                        double hop_s) {
  const RunFacts facts(run, sizes, shape, hop_s);
  std::vector<IdleOption> idle;
  for (const std::string& path : GivenPaths(run.config)) {
    const char* why = WhyIdle(facts, path);
    if (why == nullptr) continue;
    idle.push_back(
        {path, absl::StrCat(run.config.Field(path), " has no effect ", why)});
  }
  return idle;
}

}  // namespace pipewright

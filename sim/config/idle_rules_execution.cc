// Rules for how layers are launched and exchanged.
#include "sim/config/idle_rules.h"
#include "sim/cost/op_time.h"
#include "sim/cost/silicon.h"

namespace pipewright {
namespace {

// Only estimates know of these.
const char* NeedsEstimate(const RunFacts& facts) {
  return Unless(facts.run().costs.analytic.has_value(),
                "without estimated pass times (costs.analytic)");
}

const char* NeedsExperts(const RunFacts& facts) {
  if (facts.model() == nullptr) return kNoModel;
  return Unless(facts.model()->has_experts(), "without model.experts");
}

// Exchanges with experts.
const char* NeedsExchange(const RunFacts& facts) {
  if (const char* why = NeedsExperts(facts)) return why;
  if (facts.training()->ep == 1) return "with ep 1";
  return NeedsEstimate(facts);
}

// Do experts of a group stand on several nodes?
bool ExpertsCrossNodes(const RunFacts& facts) {
  if (facts.run().costs.analytic) {
    const auto& nodes = facts.run().costs.analytic->network.nodes_of_group;
    if (nodes[static_cast<int>(CommGroup::kExpert)] > 1) return true;
  }
  return facts.shape() != nullptr &&
         facts.training()->ep * facts.training()->etp() >
             facts.shape()->devices_per_node;
}

}  // namespace

const std::vector<IdleRule>& ExecutionRules() {
  static const std::vector<IdleRule> rules = {
      {{"strategy.fp8_attention"}, &NeedsEstimate},
      {{"strategy.fp8_attention"},
       [](const RunFacts& facts) {
         const AnalyticOptions& analytic = *facts.run().costs.analytic;
         const TrainingSpec& training = *facts.training();
         if (!training.flash_attention)
           return "with strategy.attention unfused";
         const double dim =
             0.5 * static_cast<double>(facts.model()->QueryDim() +
                                       facts.model()->ValueDim());
         return Unless(
             analytic.silicon != nullptr &&
                 analytic.silicon
                     ->Attention("fp8", true, facts.model()->causal, dim, 1,
                                 static_cast<double>(training.sequence))
                     .has_value(),
             "where no such kernel of this width of heads was measured");
       }},
      {{"strategy.context"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         if (facts.sizes().cp == 1) return "with cp 1";
         return NeedsEstimate(facts);
       }},
      {{"strategy.etp"},
       [](const RunFacts& facts) {
         if (const char* why = NeedsExperts(facts)) return why;
         return Unless(facts.training()->etp() < facts.sizes().tp,
                       "where it is strategy.tp");
       }},
      {{"strategy.dispatch"}, &NeedsExchange},
      {{"strategy.dispatch"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->experts_per_token > 1,
                       "where a token has one expert");
       }},
      {{"strategy.expert_nodes"}, &NeedsExchange},
      {{"strategy.expert_nodes"},
       [](const RunFacts& facts) {
         if (facts.training()->execution.dispatch != ExpertDispatch::kOnce) {
           return "unless strategy.dispatch is once: every copy is sent";
         }
         return Unless(ExpertsCrossNodes(facts),
                       "where experts are on one node");
       }},
      {{"strategy.expert_load"},
       [](const RunFacts& facts) {
         if (const char* why = NeedsExperts(facts)) return why;
         return Unless(!facts.run().costs.profile.has_value(),
                       "on the products of experts, whose times are measured "
                       "(costs.profile)");
       }},
      {{"strategy.fused_experts"},
       [](const RunFacts& facts) {
         if (const char* why = NeedsExperts(facts)) return why;
         if (!facts.model()->gated) return "without model.gated";
         if (const char* why = NeedsEstimate(facts)) return why;
         const AnalyticOptions& analytic = *facts.run().costs.analytic;
         if (analytic.silicon == nullptr) {
           return "without tables of measured rates (costs.analytic.silicon)";
         }
         return Unless(HasFusedExperts(analytic, *facts.training()),
                       "where no such layer was measured in "
                       "strategy.precision");
       }},
      {{"strategy.overlap_experts"},
       [](const RunFacts& facts) {
         if (const char* why = NeedsExchange(facts)) return why;
         return Unless(facts.sizes().microbatches > 1, "with one microbatch");
       }},
      {{"strategy.overlap_tensor"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         if (facts.sizes().tp == 1) return "with tp 1";
         if (!facts.training()->sequence_parallel) {
           return "without strategy.sequence_parallel";
         }
         if (const char* why = NeedsEstimate(facts)) return why;
         return Unless(
             facts.run().costs.analytic->kernels != FrameworkKernels::kEager,
             "with costs.analytic.kernels eager");
       }},
      {{"strategy.braided_tensor"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         if (facts.sizes().tp == 1) return "with tp 1";
         if (const char* why = NeedsEstimate(facts)) return why;
         return Unless(facts.sizes().microbatches > 1, "with one microbatch");
       }},
      {{"strategy.launch"}, &NeedsEstimate},
      {{"strategy.graph_parts"},
       [](const RunFacts& facts) {
         if (const char* why = NeedsEstimate(facts)) return why;
         return Unless(facts.training()->execution.launch == Launch::kGraphs,
                       "unless strategy.launch is graphs");
       }},
      {{"costs.analytic.launch_time"}, &NeedsEstimate},
  };
  return rules;
}

}  // namespace pipewright

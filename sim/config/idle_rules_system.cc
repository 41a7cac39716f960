// Rules for model and system.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/config/idle_rules.h"
#include "sim/config/pcie_switches.h"
#include "sim/config/shape_params.h"
#include "sim/topology/node_params.h"

namespace pipewright {
namespace {

bool NamesDevice(const RunFacts& facts) {
  return facts.config().costs.analytic_device.value_or("auto") != "auto";
}

// Then dp follows from how many devices there are.
bool DevicesSetReplicas(const RunFacts& facts) {
  const StrategyChoice& strategy = facts.config().strategy;
  return strategy.global_batch.has_value() && !strategy.dp;
}

// A system whose links carry nothing, and whose device is nobody's.
const char* UsesSystem(const RunFacts& facts) {
  if (facts.offload() != nullptr) return nullptr;
  if (facts.Crosses("", RunFacts::Load::kAny)) return nullptr;
  if (facts.model() == nullptr) {
    return "on any time since nothing crosses its links and no model is given";
  }
  return Unless(!NamesDevice(facts),
                "on any time or limit since nothing crosses its links and "
                "costs.analytic.device names another device");
}

// Do messages go by way of hosts?
bool Stages(const RunFacts& facts) {
  return facts.shape() != nullptr && HostTreeOf(*facts.shape()).stages_messages;
}

const char* CopiesToHost(const RunFacts& facts) {
  if (Stages(facts) && facts.Crosses("/pcie", RunFacts::Load::kAny)) {
    return nullptr;
  }
  return Unless(
      !facts.run().lower.activation_bytes.empty() || facts.offload() != nullptr,
      "where no bytes are copied to the host, or where their time is given");
}

// Does the memory of hosts decide any time?
bool MemoryMatters(const RunFacts& facts) {
  const PreparedRun& run = facts.run();
  if (facts.shape() != nullptr && facts.shape()->host.bytes_per_s <= 0) {
    return false;
  }
  if (facts.StepsSo(SubgroupStep::kHost) ||
      facts.StepsSo(SubgroupStep::kHostTriggers) ||
      (Stages(facts) && facts.Crosses("/pcie", RunFacts::Load::kAny))) {
    return true;
  }
  return !run.lower.activation_bytes.empty() &&
         CopiesFillMemory(run.network.links, run.lower.replicas,
                          run.schedule.lowered->pp());
}

// Nothing but copies, and messages that hosts stage, crosses the links of PCIe
// roots and NUMA nodes.
std::string WhyNodeParamIsIdle(const RunFacts& facts, const ShapeParam& param) {
  if (param.key == kNetworkStaging) {
    const char* const link = Stages(facts) ? "/pcie" : "nic";
    return facts.Crosses(link, RunFacts::Load::kAny)
               ? ""
               : "since no message goes from node to node";
  }
  const char* const copies = CopiesToHost(facts);
  if (copies != nullptr) return copies;
  if (facts.run().network.links.cluster == nullptr) return "";
  for (const Link& link : facts.run().network.links.cluster->links()) {
    const absl::string_view name = link.name;
    if (absl::StrContains(name, absl::StrCat("/", param.links))) return "";
  }
  return param.links == "root"
             ? "unless system.params.root_bandwidth is above 0"
             : "unless system.params.host_numa is first and "
               "system.params.numa_nodes above 1";
}

}  // namespace

const char* NeedsModel(const RunFacts& facts) {
  return Unless(facts.model() != nullptr, kNoModel);
}

const char* NeedsSystem(const RunFacts& facts) {
  return Unless(facts.shape() != nullptr, facts.config().costs.p2p_s
                                              ? "with costs.p2p, a pure delay"
                                              : "without a system");
}

const std::vector<IdleRule>& ModelRules() {
  static const std::vector<IdleRule> rules = {
      {{"model.expert_ffn_hidden", "model.shared_ffn_hidden",
        "model.first_dense_layers", "model.expert_layer_every",
        "model.router_bias", "model.expert_bias", "model.shared_gate"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->has_experts(), "without model.experts");
       }},
      {{"model.shared_gate"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->shared_ffn_hidden > 0,
                       "without model.shared_ffn_hidden");
       }},
      {{"model.qk_norm_whole", "model.qk_norm_weights"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->qk_norm, "without model.qk_norm");
       }},
      {{"model.qk_norm_whole"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->qk_norm_weights,
                       "with a norm that has no weights");
       }},
      {{"model.projection_bias"},
       [](const RunFacts& facts) {
         return Unless(!facts.model()->bias, "with model.bias");
       }},
      {{"model.ffn_hidden"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->has_dense_layers(),
                       "where every layer has experts");
       }},
      {{"model.q_lora_rank", "model.qk_nope_head_dim", "model.qk_rope_head_dim",
        "model.v_head_dim"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->has_mla(), "without model.kv_lora_rank");
       }},
      {{"model.window"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->window == 0 ||
                           facts.model()->window < facts.training()->sequence,
                       "where no sequence is longer");
       }},
      {{"model.window"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->window == 0 ||
                           facts.model()->full_attention_every != 1,
                       "with model.full_attention_every 1");
       }},
      {{"model.full_attention_every", "model.full_attention_first",
        "model.chunked_window"},
       [](const RunFacts& facts) {
         return Unless(facts.model()->window > 0, "without model.window");
       }},
      {{"model.kv_heads", "model.head_dim", "model.qkv_bias", "model.qk_norm",
        "model.qk_norm_whole", "model.qk_norm_weights",
        "model.projection_bias"},
       [](const RunFacts& facts) {
         return Unless(!facts.model()->has_mla(),
                       "with latent attention (model.kv_lora_rank)");
       }},
      {{"model.tied_embeddings"},
       [](const RunFacts& facts) {
         return Unless(facts.TableIsShared(),
                       "while embedding and head are on different ranks, each "
                       "with a table of its own, and no step sums their "
                       "gradients");
       }},
      {{"model.sequence"},
       [](const RunFacts& facts) {
         return Unless(!facts.config().strategy.sequence,
                       "with strategy.sequence");
       }},
      {{"model.sequence"},
       [](const RunFacts& facts) {
         return Unless(!facts.run().sequences,
                       "beside sequences, whose longest counts");
       }},
  };
  return rules;
}

namespace {

// Do exchanges cross trunks, which have the latency of cards?
bool WaitsBetweenNodes(const RunFacts& facts) {
  if (!facts.run().costs.analytic) return false;
  const auto& between = facts.run().costs.analytic->network.between;
  return std::any_of(between.begin(), between.end(),
                     [](const BetweenNodes& each) {
                       return each.ring_latency_s > 0 || each.latency_s > 0;
                     });
}

}  // namespace

const std::vector<IdleRule>& SystemRules() {
  static const std::vector<IdleRule> rules = {
      {{"system.memory"}, NeedsModel},
      {{"system.devices_per_node", "system.nics_per_node",
        "system.pcie_per_switch", "system.params.", "system.nvlink.",
        "system.nic.", "system.pcie.", "system.host.", "system.device_name"},
       NeedsSystem},
      {{"system.preset", "system.file", "system.shape", "system.nodes",
        "system.devices_per_node"},
       UsesSystem},
      {{"system.pcie_per_switch", "system.pcie."}, CopiesToHost},
      {{"system.host_memory"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         return Unless(
             facts.run().memory && facts.run().memory->host_limit_bytes,
             "where nothing is kept on the host");
       }},
      {{"system.shape"},
       [](const RunFacts& facts) {
         const SystemChoice& system = facts.config().system;
         if (facts.SpansNodes()) return Unless(true, "");
         if (system.preset || system.file) {
           return "beside a preset or file while all ranks are on one node";
         }
         return Unless(*system.shape == "node",
                       "other than that of node while all ranks are on one "
                       "node");
       }},
      {{"system.devices_per_node"},
       [](const RunFacts& facts) {
         return Unless(
             facts.SpansNodes() || DevicesSetReplicas(facts) ||
                 (facts.run().engine != "fast" && MemoryMatters(facts)),
             "beyond that one node has room for all ranks");
       }},
      {{"system.nodes"},
       [](const RunFacts& facts) {
         return Unless(facts.SpansNodes() || DevicesSetReplicas(facts),
                       "while all ranks are on one node");
       }},
      {{"system.nics_per_node", "system.nic.bandwidth", "system.nic.latency"},
       [](const RunFacts& facts) {
         return Unless(facts.Crosses("/nic", RunFacts::Load::kAny),
                       "since nothing leaves a node");
       }},
      {{"system.nics_per_node"},
       [](const RunFacts& facts) {
         return Unless(facts.run().engine != "fast" || facts.SharesCards(),
                       "on engine fast, where only collectives share a card");
       }},
      {{"system.nic.latency"},
       [](const RunFacts& facts) {
         return Unless(facts.Crosses("/nic", RunFacts::Load::kMessages) ||
                           WaitsBetweenNodes(facts),
                       "since only estimated exchanges leave a node");
       }},
      {{"system.nic.bandwidth"},
       [](const RunFacts& facts) {
         return Unless(facts.Crosses("/nic", RunFacts::Load::kBytes),
                       "since only messages without bytes leave a node");
       }},
      {{"system.nvlink.bandwidth", "system.nvlink.latency"},
       [](const RunFacts& facts) {
         return Unless(facts.Crosses("nvlink", RunFacts::Load::kAny),
                       "since nothing goes over NVLink");
       }},
      {{"system.nvlink.latency"},
       [](const RunFacts& facts) {
         return Unless(facts.Crosses("nvlink", RunFacts::Load::kMessages),
                       "since only estimated exchanges go over NVLink");
       }},
      {{"system.nvlink.bandwidth"},
       [](const RunFacts& facts) {
         return Unless(facts.Crosses("nvlink", RunFacts::Load::kBytes),
                       "since only messages without bytes go over NVLink");
       }},
      {{"system.device_name"},
       [](const RunFacts& facts) {
         if (facts.model() == nullptr) return kNoModel;
         return Unless(!NamesDevice(facts), "with costs.analytic.device");
       }},
  };
  return rules;
}

const std::vector<IdleRule>& HostRules() {
  static const std::vector<IdleRule> rules = {
      {{"system.host.memory_bandwidth"},
       [](const RunFacts& facts) {
         return Unless(MemoryMatters(facts),
                       "where the host steps nothing, stages no messages, and "
                       "copies of all devices at once do not fill its memory");
       }},
      {{"system.host.adam_bytes_per_parameter",
        "system.host.cast_bytes_per_parameter", "system.host.adam_rate",
        "system.host.cast_rate", "system.host.flush_rate", "system.host.slots",
        "system.host.device_adam_rate"},
       [](const RunFacts& facts) {
         return Unless(facts.offload() != nullptr,
                       "unless strategy.optimizer_placement puts the "
                       "optimizer on the host");
       }},
      {{"system.pcie_per_switch"},
       [](const RunFacts& facts) {
         return Unless(facts.run().engine != "fast",
                       "on engine fast, where nobody shares a switch");
       }},
      {{"system.host.adam_bytes_per_parameter",
        "system.host.cast_bytes_per_parameter"},
       [](const RunFacts& facts) {
         return Unless(facts.shape()->host.bytes_per_s > 0,
                       "without system.host.memory_bandwidth");
       }},
      {{"system.host.adam_bytes_per_parameter", "system.host.adam_rate",
        "system.host.cast_bytes_per_parameter", "system.host.cast_rate"},
       [](const RunFacts& facts) {
         return Unless(facts.StepsSo(SubgroupStep::kHost) ||
                           facts.StepsSo(SubgroupStep::kHostTriggers),
                       "where the host steps nothing");
       }},
      {{"system.host.cast_bytes_per_parameter", "system.host.cast_rate"},
       [](const RunFacts& facts) {
         return Unless(
             facts.offload()->placement != OptimizerPlacement::kSuperOffload,
             "with superoffload, whose device casts");
       }},
      {{"system.host.slots"},
       [](const RunFacts& facts) {
         return Unless(facts.offload()->placement ==
                           OptimizerPlacement::kDeepOptimizerStates,
                       "unless the placement is deep-optimizer-states: the "
                       "others never cast beside a step");
       }},
      {{"system.host.flush_rate"},
       [](const RunFacts& facts) {
         return Unless(facts.offload()->flush == GradientFlush::kBlocking &&
                           facts.offload()->placement !=
                               OptimizerPlacement::kSuperOffload,
                       "unless strategy.gradient_flush is blocking");
       }},
      {{"system.host.device_adam_rate"},
       [](const RunFacts& facts) {
         return Unless(
             facts.offload()->placement == OptimizerPlacement::kSuperOffload ||
                 facts.StepsSo(SubgroupStep::kDevice) ||
                 facts.StepsSo(SubgroupStep::kResident),
             "where the device steps nothing");
       }},
  };
  return rules;
}

std::string WhyShapeParamIsIdle(const RunFacts& facts, absl::string_view key) {
  const ShapeInfo* shape = FindShape(facts.shape()->shape);
  const ShapeParam* param =
      shape == nullptr ? nullptr : FindShapeParam(*shape, key);
  if (param == nullptr) {
    return absl::StrCat(
        "unless the shape is ",
        absl::StrJoin(ShapesWithParam(key), " or ",
                      [](std::string* out, const ShapeInfo* other) {
                        out->append(other->name);
                      }));
  }
  const std::vector<ShapeParam>& of_node = NodeParams();
  if (std::any_of(of_node.begin(), of_node.end(), [&](const ShapeParam& each) {
        return each.key == param->key;
      })) {
    return WhyNodeParamIsIdle(facts, *param);
  }
  const bool matters =
      param->links.empty() || facts.Crosses(param->links, RunFacts::Load::kAny);
  return matters
             ? ""
             : absl::StrCat("since nothing crosses a ", param->links, " link");
}

}  // namespace pipewright

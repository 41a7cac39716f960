#include "sim/config/unused_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/check.h"
#include "sim/config/config_fields.h"
#include "sim/config/shape_params.h"
#include "sim/cost/op_time.h"
#include "sim/schedule/registry.h"
#include "sim/topology/node_params.h"

namespace pipewright {
namespace {

struct Facts {
  const PreparedRun& run;
  const RunSizes& sizes;

  const LowerOptions& lower() const { return run.lower; }
  const ShapeParams* shape() const { return run.network.system_shape(); }
  const DataParallelTraits& mode() const {
    return TraitsOf(run.lower.data_parallel);
  }
  bool has_copies() const {
    return sizes.holders() > 1 || run.schedule.lowered->directions > 1;
  }
  bool reduces() const { return has_copies() && mode().reduces; }
  bool links_take_time() const {
    return shape() != nullptr || run.network.hop_s > 0 ||
           run.lower.network.measured != nullptr;
  }
};

bool SpansNodes(const Facts& facts) {
  if (facts.shape() == nullptr) return false;
  const Network& links = facts.run.network.links;
  const auto node_of = [&](int replica, int rank, int index) {
    const int device = links.mapping->DeviceOf(replica, rank, index);
    return links.cluster->devices()[device].node;
  };
  const int first = node_of(0, 0, 0);
  for (int replica = 0; replica < facts.sizes.dp; ++replica) {
    for (int rank = 0; rank < facts.sizes.pp; ++rank) {
      for (int index = 0; index < links.mapping->devices_per_rank(); ++index) {
        if (node_of(replica, rank, index) != first) return true;
      }
    }
  }
  return false;
}

// Does a system carry or limit anything?
bool UsesSystem(const Facts& facts) {
  const std::string device =
      facts.run.config.costs.analytic_device.value_or("auto");
  return facts.sizes.devices() > 1 || facts.lower().offload.active() ||
         (facts.run.prepared_model && device == "auto");
}

bool HasPartitions(const Facts& facts) {
  return facts.shape() != nullptr || facts.run.tokens ||
         (facts.sizes.cp > 1 && facts.reduces() && facts.links_take_time());
}

bool HasReplicas(const Facts& facts) {
  const PreparedRun& run = facts.run;
  const bool meet =
      facts.reduces() || run.lower.optimizer != OptimizerMode::kNone;
  return facts.shape() != nullptr || run.tokens || run.slow || run.failing ||
         (meet && facts.links_take_time());
}

bool HasPairs(const Facts& facts) {
  const auto& orders = facts.run.schedule.written->orders;
  return std::any_of(orders.begin(), orders.end(), [](const auto& order) {
    return std::any_of(order->begin(), order->end(),
                       [](Pass pass) { return pass.joint_with_next(); });
  });
}

bool RecomputesPasses(const Facts& facts) {
  const std::optional<PreparedModel>& model = facts.run.prepared_model;
  return facts.run.schedule.lowered->Has(PassKind::kRecompute) ||
         (model && model->training.recompute != Recompute::kNone);
}

// Does any layer that counts have work that strategy.recompute runs again, or
// with `any_work` any at all? Always without it.
bool HasRecomputed(const Facts& facts, bool any_work) {
  const std::optional<PreparedModel>& model = facts.run.prepared_model;
  if (!model || model->training.recompute == Recompute::kNone) return true;
  for (const std::vector<StageBlock>& blocks : model->layout.stages) {
    double before = 0;
    for (const StageBlock& block : blocks) {
      if (!IsLayer(block.kind)) continue;
      const double count = static_cast<double>(block.count) * block.part;
      const bool any = model->training.RecomputedLayers(before, count) > 0;
      before += count;
      if (!any) continue;
      if (any_work) return true;
      for (const ModelOp& op : model->Ops(block.kind, block.first_layer)) {
        if (RecomputedPart(op, model->training.recompute) > 0) return true;
      }
    }
  }
  return false;
}

bool TalksOverPcie(const Facts& facts) {
  return facts.shape() != nullptr && facts.sizes.devices() > 1 &&
         HostTreeOf(*facts.shape()).talks_over_pcie;
}

bool CopiesToHost(const Facts& facts) {
  return !facts.lower().activation_bytes.empty() ||
         facts.lower().offload.active() ||
         (facts.shape() != nullptr &&
          HostTreeOf(*facts.shape()).stages_messages) ||
         TalksOverPcie(facts);
}

// Their seeds are costs.seed unless they are given.
bool DrawsWithSeed(const Facts& facts) {
  const PreparedRun& run = facts.run;
  return run.lower.jitter != nullptr ||
         (run.sequences && !run.sequences->drawn &&
          !run.sequences->source.is_list()) ||
         (run.DrawsSlow() && !run.config.slow.seed) ||
         (run.failing && !run.config.reliability.seed);
}

// Names that Field.needs may have, besides paths.
struct Condition {
  const char* name;
  bool (*holds)(const Facts& facts);
  const char* missing;
};

constexpr Condition kConditions[] = {
    {"model",
     [](const Facts& facts) { return facts.run.prepared_model.has_value(); },
     "without a model"},
    {"dense layers",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return model && model->spec.has_dense_layers();
     },
     "if every layer has experts"},
    {"Mamba layers",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return model && model->spec.Has(Mixer::kMamba);
     },
     "without Mamba layers (model.pattern)"},
    {"gated delta layers",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return model && model->spec.Has(Mixer::kDelta);
     },
     "without gated delta layers (model.pattern)"},
    {"layers with a scan",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return model && model->spec.has_scans();
     },
     "without Mamba or gated delta layers (model.pattern)"},
    {"sequences above the window",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return model && model->spec.window < model->training.sequence;
     },
     "if no sequence is longer"},
    {"system", [](const Facts& facts) { return facts.shape() != nullptr; },
     "without a system"},
    {"used system", &UsesSystem,
     "on any time or limit since nothing crosses its links"},
    {"nodes", &SpansNodes, "while all ranks are on one node"},
    {"several nodes",
     [](const Facts& facts) {
       const StrategyChoice& strategy = facts.run.config.strategy;
       const std::vector<std::string>& defaulted = facts.run.config.defaulted;
       // Nodes may say how many replicas there are.
       return SpansNodes(facts) || (strategy.global_batch && !strategy.dp) ||
              std::count(defaulted.begin(), defaulted.end(), "strategy.dp") > 0;
     },
     "while all ranks are on one node"},
    {"several chunks",
     [](const Facts& facts) {
       return facts.sizes.vpp > 1 || facts.run.schedule.lowered->directions > 1;
     },
     "in a schedule with one chunk a rank"},
    {"several devices",
     [](const Facts& facts) { return facts.sizes.devices() > 1; },
     "with one device"},
    // Other values than an order of dimensions place even those of one.
    {"several orders",
     [](const Facts& facts) {
       const RunSizes& sizes = facts.sizes;
       const auto& mapping = facts.run.config.strategy.mapping;
       return mapping.empty() || !absl::StrContains(mapping[0], "pp") ||
              (sizes.pp > 1) + (sizes.dp > 1) + (sizes.tp * sizes.cp > 1) > 1;
     },
     "unless two of pp, dp and tp * cp are above 1"},
    {"experts on several nodes",
     [](const Facts& facts) {
       const auto& analytic = facts.run.costs.analytic;
       const auto& model = facts.run.prepared_model;
       const auto group = static_cast<int>(CommGroup::kExpert);
       return (analytic && analytic->network.nodes_of_group[group] > 1) ||
              (facts.shape() != nullptr && model &&
               model->training.ep * model->training.etp() >
                   facts.shape()->devices_per_node);
     },
     "while experts are on one node"},
    {"links", [](const Facts& facts) { return facts.links_take_time(); },
     "on any time while hops are free"},
    {"sharing", [](const Facts& facts) { return facts.run.engine != "fast"; },
     "with engine fast"},
    {"tokens", [](const Facts& facts) { return facts.run.tokens.has_value(); },
     "without a model (or strategy.microbatch_size and strategy.sequence)"},
    {"partitions", &HasPartitions, "on any time without a model or a system"},
    {"replicas", &HasReplicas,
     "on any time without a model, a system or exchanges that take time"},
    {"rates",
     [](const Facts& facts) {
       const auto& analytic = facts.run.costs.analytic;
       return analytic && analytic->silicon != nullptr;
     },
     "without tables of measured rates (costs.analytic.silicon)"},
    {"rates of fused experts",
     [](const Facts& facts) {
       const auto& analytic = facts.run.costs.analytic;
       return facts.run.prepared_model && analytic && analytic->silicon &&
              HasFusedExperts(*analytic, facts.run.prepared_model->training);
     },
     "if no such layer was measured in strategy.precision"},
    {"later tokens with more work",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return model && model->spec.causal && model->spec.window == 0 &&
              model->training.execution.context != ContextExchange::kAllToAll;
     },
     "where all devices of a context have as much to do"},
    {"sequence parallelism",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return model && model->training.sequence_parallel;
     },
     "without strategy.sequence_parallel"},
    {"groups of heads",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return model && model->spec.HasKeyGroups(facts.sizes.tp);
     },
     "where each query head of a device has keys of its own"},
    {"copies", [](const Facts& facts) { return facts.has_copies(); },
     "with dp * cp = 1"},
    {"reduction", [](const Facts& facts) { return facts.reduces(); },
     "if no gradients are reduced"},
    {"time for bytes",
     [](const Facts& facts) {
       return facts.shape() != nullptr ||
              facts.lower().network.measured != nullptr ||
              facts.mode().mode == DataParallel::kOdc;
     },
     "on any time without a system"},
    {"sharded gradients",
     [](const Facts& facts) { return facts.mode().shards_gradients; },
     "unless strategy.data_parallel is zero2, fsdp or odc"},
    {"sharded steps",
     [](const Facts& facts) {
       return facts.reduces() && facts.mode().shards_step &&
              facts.links_take_time();
     },
     "without a sharded optimizer whose exchanges take time"},
    {"layers",
     [](const Facts& facts) {
       return facts.mode().mode == DataParallel::kOdc ||
              (facts.mode().shards_weights &&
               facts.lower().shard_blocks == ShardBlocks::kLayer);
     },
     "unless strategy.shard_blocks is layer with fsdp, or "
     "strategy.data_parallel is odc"},
    {"sharded states",
     [](const Facts& facts) { return facts.mode().shards_step; },
     "unless strategy.data_parallel is zero1 or zero2"},
    {"moments",
     [](const Facts& facts) {
       const auto& model = facts.run.prepared_model;
       return !model ||
              model->training.optimizer.kind == OptimizerKind::kAdam ||
              model->training.optimizer.is_muon();
     },
     "unless strategy.optimizer_kind is adam or muon"},
    {"steps",
     [](const Facts& facts) {
       return facts.lower().optimizer != OptimizerMode::kNone ||
              facts.run.schedule.lowered->update_every > 0;
     },
     "with strategy.optimizer none"},
    {"steps at every backward",
     [](const Facts& facts) {
       return facts.run.schedule.lowered->update_every == 1;
     },
     "unless every backward is a step of its own"},
    {"recomputed passes", &RecomputesPasses,
     "on the run without R passes or a model that recomputes "
     "(strategy.recompute)"},
    {"recomputed layers",
     [](const Facts& facts) { return HasRecomputed(facts, true); },
     "as no layer that strategy.recompute_every counts within its stage runs "
     "anything again"},
    {"recomputed work",
     [](const Facts& facts) { return HasRecomputed(facts, false); },
     "as no layer has a module of strategy.recompute_modules"},
    {"W passes",
     [](const Facts& facts) {
       return facts.run.schedule.lowered->Has(PassKind::kBackwardWeight);
     },
     "in a schedule without W passes"},
    {"offload",
     [](const Facts& facts) {
       // A search has known what copies take, if it has chosen none.
       return facts.run.offload.has_value() ||
              facts.run.schedule.lowered->Has(PassKind::kOffload) ||
              facts.run.schedule.params.count("offload") > 0;
     },
     "if nothing is offloaded"},
    {"copies to the host", &CopiesToHost, "if no bytes are copied to the host"},
    {"PCIe between devices", &TalksOverPcie, "if devices talk over NVLink"},
    {"host memory",
     [](const Facts& facts) {
       return facts.run.memory && facts.run.memory->host_limit_bytes;
     },
     "if nothing is kept on the host"},
    {"draws", &DrawsWithSeed, "without costs.jitter"},
    {"pairs", &HasPairs, "in a schedule without overlapped pairs (X&Y)"},
};

const ConfigField* FieldOf(absl::string_view path) {
  for (const ConfigField& field : ConfigFields()) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

// Is the value the field's default, or, if a rule stands for that, nothing?
bool IsUsual(const ConfigField& field, const RunConfig& config) {
  const std::string value = ValueOf(field, config);
  absl::string_view usual = field.fallback;
  if (value == usual) return true;
  if (field.kind == FieldKind::kTexts) return false;
  usual = usual.substr(0, usual.find_first_of(",;"));
  if (!usual.empty() && usual.find_first_of(" '") == usual.npos) {
    return value == usual;
  }
  return value == "false" || value == "none" || value == "0";
}

// Is the field given, or its number or property in the model, and not usual?
bool IsInEffect(absl::string_view path, const Facts& facts) {
  if (facts.run.prepared_model) {
    const ModelSpec& spec = facts.run.prepared_model->spec;
    for (const ModelSizeRow& row : ModelSizeRows()) {
      if (row.path == path) return spec.*row.size != 0;
    }
    for (const ModelPropertyRow& row : ModelPropertyRows()) {
      if (row.path == path) return spec.*row.property;
    }
  }
  const ConfigField* const field = FieldOf(path);
  PW_CHECK(field != nullptr);
  return IsGiven(*field, facts.run.config) &&
         !IsUsual(*field, facts.run.config);
}

int SizeOf(absl::string_view name, const Facts& facts) {
  const RunSizes& sizes = facts.sizes;
  const std::pair<absl::string_view, int> all[] = {
      {"pp", sizes.pp},
      {"dp", sizes.dp},
      {"tp", sizes.tp},
      {"cp", sizes.cp},
      {"ep", facts.run.config.strategy.ep.value_or(1)},
      {"microbatches", sizes.microbatches}};
  for (const auto& [own, size] : all) {
    if (own == name) return size;
  }
  PW_CHECK(false);
}

const Condition* FindCondition(absl::string_view name) {
  for (const Condition& condition : kConditions) {
    if (name == condition.name) return &condition;
  }
  return nullptr;
}

// What is missing of one need; "" if nothing.
std::string MissingOf(absl::string_view need, const Facts& facts) {
  absl::string_view name = need;
  const bool is_excluded = absl::ConsumePrefix(&name, "no ");
  const std::vector<std::string> sides = absl::StrSplit(name, " = ");
  if (is_excluded) {
    if (!MissingOf(name, facts).empty()) return "";
    if (sides.size() == 1) return absl::StrCat("with ", name);
    return absl::StrCat("with ", sides[0], " ",
                        ValueOf(*FieldOf(sides[0]), facts.run.config));
  }
  if (const Condition* const condition = FindCondition(name)) {
    return condition->holds(facts) ? "" : condition->missing;
  }
  if (absl::ConsumeSuffix(&name, " > 1")) {
    return SizeOf(name, facts) > 1 ? "" : absl::StrCat("with ", name, " 1");
  }
  if (sides.size() == 1) {
    return IsInEffect(need, facts) ? "" : absl::StrCat("without ", need);
  }
  const ConfigField* const field = FieldOf(sides[0]);
  PW_CHECK(field != nullptr);
  const std::vector<std::string> values = absl::StrSplit(sides[1], '|');
  const bool is_one = IsGiven(*field, facts.run.config) &&
                      std::count(values.begin(), values.end(),
                                 ValueOf(*field, facts.run.config)) > 0;
  return is_one ? ""
                : absl::StrCat("unless ", sides[0], " is ",
                               absl::StrJoin(values, " or "));
}

// "without A", "without B": "without A or B".
std::string Joined(const std::vector<std::string>& all) {
  std::string text, word;
  for (absl::string_view missing : all) {
    const bool is_same = !word.empty() && absl::ConsumePrefix(&missing, word);
    if (!is_same) word = std::string(missing.substr(0, missing.find(' ') + 1));
    const bool is_either = is_same && (word == "without " || word == "unless ");
    absl::StrAppend(&text,
                    text.empty() ? ""
                    : is_either  ? " or "
                                 : " and ",
                    missing);
  }
  return text;
}

// What a key of system.params lacks: another shape has it, or it is for links
// between nodes or to hosts.
std::string MissingOfParam(const std::string& key, const Facts& facts) {
  const ShapeInfo* const info = FindShape(facts.shape()->shape);
  const std::vector<ShapeParam>& in_node = NodeParams();
  if (std::any_of(in_node.begin(), in_node.end(),
                  [&](const ShapeParam& param) { return param.key == key; })) {
    return MissingOf(
        key == kPciePeers ? "PCIe between devices" : "copies to the host",
        facts);
  }
  if (info != nullptr && FindShapeParam(*info, key) != nullptr) {
    return MissingOf("nodes", facts);
  }
  return absl::StrCat(
      "unless the shape is ",
      absl::StrJoin(ShapesWithParam(key), " or ",
                    [](std::string* out, const ShapeInfo* other) {
                      out->append(other->name);
                    }));
}

}  // namespace

std::string MissingNeed(absl::string_view needs, const PreparedRun& run,
                        const RunSizes& sizes) {
  const Facts facts = {run, sizes};
  for (const absl::string_view need :
       absl::StrSplit(needs, ", ", absl::SkipEmpty())) {
    std::vector<std::string> missing;
    for (const absl::string_view one : absl::StrSplit(need, " or ")) {
      missing.push_back(MissingOf(one, facts));
      if (missing.back().empty()) break;
    }
    if (!missing.back().empty()) return Joined(missing);
  }
  return "";
}

std::vector<UnusedField> FindUnusedFields(const PreparedRun& run,
                                          const RunSizes& sizes) {
  std::vector<UnusedField> unused;
  const RunConfig& config = run.config;
  const std::vector<std::string>& defaulted = config.defaulted;
  const auto add = [&](const std::string& path, const std::string& missing) {
    if (missing.empty() ||
        std::count(defaulted.begin(), defaulted.end(), path)) {
      return;
    }
    unused.push_back(
        {path, absl::StrCat(config.Field(path), " has no effect ", missing)});
  };
  for (const ConfigField& field : ConfigFields()) {
    if (*field.needs == '\0' || !IsGiven(field, config)) continue;
    const std::string missing = MissingNeed(field.needs, run, sizes);
    if (field.kind != FieldKind::kPairs) {
      if (!IsUsual(field, config)) add(field.path, missing);
      continue;
    }
    for (const auto& [key, value] : PairsOf(field, config)) {
      const std::string path = absl::StrCat(field.path, ".", key);
      if (absl::StartsWith(path, "system.")) {
        add(path,
            missing.empty() ? MissingOfParam(key, {run, sizes}) : missing);
      } else if (key == PairParam().key) {
        // Other keys of schedule.params are the schedule's to refuse.
        add(path, missing);
      }
    }
  }
  return unused;
}

}  // namespace pipewright

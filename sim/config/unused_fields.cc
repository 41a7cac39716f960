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
    const bool odc = run.lower.data_parallel == DataParallel::kOdc;
    return (odc ? sizes.dp : sizes.holders()) > 1 ||
           run.schedule.lowered->directions > 1;
  }
  bool splits_sequence() const {
    return run.prepared_model && run.prepared_model->training.sequence_parallel;
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

bool HasPairs(const Facts& facts) {
  const auto& orders = facts.run.schedule.written->orders;
  return std::any_of(orders.begin(), orders.end(), [](const auto& order) {
    return std::any_of(order->begin(), order->end(),
                       [](Pass pass) { return pass.joint_with_next(); });
  });
}

bool CopiesToHost(const Facts& facts) {
  return !facts.lower().activation_bytes.empty() ||
         facts.lower().offload.active() ||
         (facts.shape() != nullptr &&
          HostTreeOf(*facts.shape()).stages_messages);
}

// Their seeds are costs.seed unless they are given.
bool DrawsWithSeed(const Facts& facts) {
  const PreparedRun& run = facts.run;
  const RunConfig& config = run.config;
  return run.lower.jitter != nullptr ||
         (run.sequences && !run.sequences->drawn &&
          !run.sequences->source.is_list()) ||
         (run.DrawsSlow() && !config.slow.seed) ||
         (run.failing && !config.reliability.seed);
}

bool GathersByLayer(const Facts& facts) {
  const bool layers = facts.mode().shards_weights &&
                      facts.lower().shard_blocks == ShardBlocks::kLayer;
  return layers || facts.mode().mode == DataParallel::kOdc;
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
    {"system", [](const Facts& facts) { return facts.shape() != nullptr; },
     "without a system"},
    {"nodes", &SpansNodes, "while all ranks are on one node"},
    {"links",
     [](const Facts& facts) {
       return facts.shape() != nullptr || facts.run.network.hop_s > 0 ||
              facts.lower().network.measured != nullptr;
     },
     "while hops are free"},
    {"simgrid",
     [](const Facts& facts) { return facts.run.engine == "simgrid"; },
     "with engine fast, on which nothing shares a link"},
    {"tokens", [](const Facts& facts) { return facts.run.tokens.has_value(); },
     "without a model (or strategy.microbatch_size and strategy.sequence)"},
    {"rates",
     [](const Facts& facts) {
       const std::optional<AnalyticOptions>& analytic =
           facts.run.costs.analytic;
       return analytic && analytic->silicon != nullptr;
     },
     "without tables of measured rates (costs.analytic.silicon)"},
    {"sequence parallelism",
     [](const Facts& facts) { return facts.splits_sequence(); },
     "without strategy.sequence_parallel"},
    {"whole sequences",
     [](const Facts& facts) { return !facts.splits_sequence(); },
     "with sequence parallelism"},
    {"copies", [](const Facts& facts) { return facts.has_copies(); },
     "with dp * cp = 1"},
    {"reduction",
     [](const Facts& facts) {
       return facts.has_copies() && facts.mode().reduces;
     },
     "if no gradients are reduced"},
    {"layers", &GathersByLayer,
     "unless strategy.shard_blocks is layer with fsdp, or "
     "strategy.data_parallel is odc"},
    {"steps",
     [](const Facts& facts) {
       return facts.lower().optimizer != OptimizerMode::kNone ||
              facts.run.schedule.lowered->update_every > 0;
     },
     "with strategy.optimizer none"},
    {"copies to the host", &CopiesToHost, "if no bytes are copied to the host"},
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

// Does the value ask for nothing that the run would not do anyway?
bool IsUsual(const ConfigField& field, const RunConfig& config) {
  const std::string value = ValueOf(field, config);
  const absl::string_view usual = field.fallback;
  return value == "false" || value == "none" || value == "0" ||
         value == usual.substr(0, usual.find_first_of(",;"));
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

bool HasPass(absl::string_view name, const Facts& facts) {
  for (int kind = 0; kind < kNumPassKinds; ++kind) {
    if (PassKindName(static_cast<PassKind>(kind)) != name) continue;
    return facts.run.schedule.lowered->Has(static_cast<PassKind>(kind));
  }
  PW_CHECK(false);
}

// What is missing of one need; "" if nothing.
std::string MissingOf(absl::string_view need, const Facts& facts) {
  for (const Condition& condition : kConditions) {
    if (need != condition.name) continue;
    return condition.holds(facts) ? "" : condition.missing;
  }
  absl::string_view name = need;
  if (absl::ConsumePrefix(&name, "no ")) {
    return IsInEffect(name, facts) ? absl::StrCat("with ", name) : "";
  }
  if (absl::ConsumeSuffix(&name, " > 1")) {
    return SizeOf(name, facts) > 1 ? "" : absl::StrCat("with ", name, " 1");
  }
  if (absl::ConsumeSuffix(&name, " passes")) {
    return HasPass(name, facts) ? ""
                                : absl::StrCat("in a schedule without ", need);
  }
  const std::vector<std::string> sides = absl::StrSplit(need, " = ");
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

// A key that another shape has than that of the run.
std::string MissingShape(absl::string_view key, const ShapeParams& shape) {
  const ShapeInfo* info = FindShape(shape.shape);
  if (info != nullptr && FindShapeParam(*info, key) != nullptr) return "";
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
    if (!missing.back().empty()) return absl::StrJoin(missing, " and ");
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
      add(absl::StrCat(field.path, ".", key),
          missing.empty() ? MissingShape(key, *run.network.shape) : missing);
    }
  }
  return unused;
}

}  // namespace pipewright

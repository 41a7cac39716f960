#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"
#include "sim/config/shape_params.h"
#include "sim/config/system_cluster.h"
#include "sim/program/network_time.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"

namespace pipewright {
namespace {

void OverlayLink(const LinkChoice& given, LinkClass* link) {
  if (given.bytes_per_s) link->bytes_per_s = *given.bytes_per_s;
  if (given.latency_s) link->latency_s = *given.latency_s;
  if (given.bytes_per_s || given.latency_s) link->source = "configuration";
}

absl::StatusOr<ShapeParams> BaseSystem(const RunConfig& config,
                                       RunContext* context) {
  const SystemChoice& given = config.system;
  if (given.preset && given.file) {
    return BothGiven(config.Field("system.file"),
                     config.Field("system.preset"));
  }
  if (given.preset) {
    absl::StatusOr<ShapeParams> system = context->System(*given.preset);
    PW_RETURN_IF_ERROR(Prefix(config.Field("system.preset"), system.status()));
    return system;
  }
  if (given.file) {
    return context->SystemFile(config.Field("system.file"), *given.file);
  }
  ShapeParams params;
  params.name = *given.shape;
  return params;
}

void OverlayHost(const HostChoice& given, HostClass* host) {
  const auto take = [](const auto& from, auto* to) {
    if (from) *to = *from;
  };
  take(given.memory_bytes_per_s, &host->bytes_per_s);
  take(given.adam_bytes_per_parameter, &host->adam_bytes);
  take(given.cast_bytes_per_parameter, &host->cast_bytes);
  take(given.adam_rate, &host->adam_rate);
  take(given.cast_rate, &host->cast_rate);
  take(given.flush_rate, &host->flush_rate);
  take(given.slots, &host->slots);
  take(given.device_adam_rate, &host->device_adam_rate);
}

ShapeParams SystemOf(const RunConfig& config, ShapeParams params) {
  const SystemChoice& given = config.system;
  if (given.shape) params.shape = *given.shape;
  if (given.devices_per_node) {
    params.devices_per_node = *given.devices_per_node;
  }
  if (given.nics_per_node) params.nics_per_node = *given.nics_per_node;
  if (given.pcie_per_switch) params.pcie_per_switch = *given.pcie_per_switch;
  OverlayShapeParams(given, &params);
  if (given.device_name) params.device_name = *given.device_name;
  if (given.memory_bytes) params.memory_bytes = *given.memory_bytes;
  if (given.host_memory_bytes) {
    params.host_memory_bytes = *given.host_memory_bytes;
  }
  OverlayLink(given.nvlink, &params.nvlink);
  OverlayLink(given.nic, &params.nic);
  OverlayLink(given.pcie, &params.pcie);
  OverlayHost(given.host, &params.host);
  return params;
}

// BuildCluster names fields as a system file does ("nvlink.bandwidth: ...");
// this adds the section and where the field, or the section that lacks it, was
// given.
absl::Status LocateInSystem(const RunConfig& config,
                            const absl::Status& status) {
  if (status.ok()) return status;
  std::string path =
      absl::StrCat("system.", PartsOf(status).field.value_or(""));
  const std::vector<std::string> known = ConfigPaths();
  if (!absl::StartsWith(path, "system.params.") &&
      std::find(known.begin(), known.end(), path) == known.end()) {
    return Prefix("system", status);
  }
  const absl::Status full = InSection("system", status);
  while (config.origins.count(path) == 0) {
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) return full;
    path.resize(dot);
  }
  return At(config.origins.at(path), full);
}

// The devices of strategy.mapping where it is a list; empty for an order.
absl::StatusOr<std::vector<int>> MappedDevices(const RunConfig& config) {
  const std::vector<std::string>& mapping = config.strategy.mapping;
  std::vector<int> devices;
  int device = 0;
  if (mapping.empty() ||
      (mapping.size() == 1 && !absl::SimpleAtoi(mapping[0], &device))) {
    return devices;
  }
  for (const std::string& text : mapping) {
    if (!absl::SimpleAtoi(text, &device) || device < 0) {
      return BadValue(config.Field("strategy.mapping"), text,
                      "dp-pp, pp-dp or another order of tp, cp, ep, dp and pp, "
                      "bitpipe, host-balance, or a device number a rank");
    }
    devices.push_back(device);
  }
  return devices;
}

absl::StatusOr<RankMapping> MapRanks(const RunConfig& config,
                                     const RunSizes& sizes,
                                     const ShapeParams& params,
                                     std::vector<int> devices, int available) {
  const std::vector<std::string>& given = config.strategy.mapping;
  if (!given.empty() && given[0] == kHostBalance) {
    PW_ASSIGN_OR_RETURN(devices, HostBalancedDevices(sizes.pp, sizes.dp,
                                                     params.devices_per_node,
                                                     sizes.tp * sizes.cp));
  }
  if (!devices.empty()) {
    return RankMapping::FromList(std::move(devices), sizes.pp, sizes.dp,
                                 available, sizes.tp * sizes.cp);
  }
  return RankMapping::FromOrder(given.empty() ? "dp-pp" : given[0], sizes.pp,
                                sizes.dp, available, sizes.tp * sizes.cp,
                                sizes.cp);
}

struct PlacedRanks {
  std::shared_ptr<const Cluster> cluster;
  RankMapping mapping;
};

// Builds the cluster with as many nodes as the run needs, which `params` gets,
// and places the ranks on it.
absl::StatusOr<PlacedRanks> PlaceRanks(const RunConfig& config,
                                       const RunSizes& sizes,
                                       ShapeParams* params, RunContext* context,
                                       std::vector<std::string>* warnings) {
  PW_ASSIGN_OR_RETURN(std::vector<int> devices, MappedDevices(config));
  PW_ASSIGN_OR_RETURN(
      params->nodes,
      NodesFor(config, sizes, params->devices_per_node, devices, warnings));
  absl::StatusOr<std::shared_ptr<const Cluster>> cluster =
      context->ClusterOf(*params);
  PW_RETURN_IF_ERROR(LocateInSystem(config, cluster.status()));
  absl::StatusOr<RankMapping> mapping = MapRanks(
      config, sizes, *params, std::move(devices), (*cluster)->num_devices());
  PW_RETURN_IF_ERROR(
      Prefix(config.Field("strategy.mapping"), mapping.status()));
  return PlacedRanks{*std::move(cluster), *std::move(mapping)};
}

absl::StatusOr<PreparedNetwork> OnSystem(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<PreparedProfile>& profile, double hop_bytes,
    absl::string_view engine, RunContext* context,
    std::vector<std::string>* warnings) {
  PW_ASSIGN_OR_RETURN(const ShapeParams base, BaseSystem(config, context));
  const std::string& own_shape = base.shape;
  ShapeParams params = SystemOf(config, base);
  PreparedNetwork prepared;
  ShapeParams catalogue = params;
  TakeMeasuredHost(config, profile, &params, &prepared.measured);
  std::shared_ptr<MeasuredPaths> paths =
      MeasuredPathsOf(config, profile, &params);
  PW_ASSIGN_OR_RETURN(PlacedRanks placed,
                      PlaceRanks(config, sizes, &params, context, warnings));
  if (sizes.pp > 1 && hop_bytes <= 0 && !config.costs.hop_bytes) {
    constexpr char kAllowed[] =
        "costs.hop_bytes (--hop-bytes 32MiB), or a model (--model), from which "
        "they follow";
    return WithValue(
        FieldError(config.Field("costs.hop_bytes"),
                   absl::StrCat("missing, and with a system the bytes of a hop "
                                "decide its time; allowed: ",
                                kAllowed)),
        "", kAllowed);
  }
  prepared.system = params.name.empty() ? params.shape : params.name;
  if (!own_shape.empty() && params.shape != own_shape) {
    absl::StrAppend(&prepared.system, " as ", params.shape);
  }
  prepared.name =
      absl::StrCat(prepared.system, ", ", params.nodes,
                   params.nodes == 1 ? " node" : " nodes", " (",
                   engine == "fast" ? "no contention" : engine, ")");
  prepared.shape = params;
  prepared.links.cluster = placed.cluster;
  catalogue.nodes = params.nodes;
  PW_ASSIGN_OR_RETURN(
      const std::shared_ptr<const Cluster> system,
      context->ClusterOf(paths == nullptr ? params : catalogue));
  TakeMeasuredPaths(std::move(paths), *system, &prepared);
  PW_ASSIGN_OR_RETURN(prepared.slow,
                      PrepareSlowLinks(config, prepared.links.cluster));
  if (prepared.slow) prepared.links.cluster = prepared.slow->Slowed();
  prepared.links.mapping =
      std::make_shared<const RankMapping>(std::move(placed.mapping));
  prepared.links.collectives =
      config.strategy.collectives.value_or(CollectiveAlgorithm::kRing);
  for (int rank = 0; rank + 1 < sizes.pp; ++rank) {
    prepared.hop_s =
        std::max(prepared.hop_s,
                 HopSeconds(prepared.links, 0, rank, rank + 1, hop_bytes));
  }
  return prepared;
}

}  // namespace

GroupMembersOf MembersOf(const TrainingSpec& training) {
  GroupMembersOf members = {1, 1, 1};
  members[static_cast<int>(CommGroup::kTensor)] = training.tp;
  members[static_cast<int>(CommGroup::kContext)] = training.cp;
  // Where groups of experts cut those of tensor parallelism nobody knows which
  // devices they are.
  if (training.etp() == training.tp) {
    members[static_cast<int>(CommGroup::kExpert)] = training.ep;
  }
  return members;
}

void PlaceGroups(const Network& links, const TrainingSpec& training,
                 AnalyticNetwork* network) {
  if (links.mapping == nullptr) return;
  network->between = PathsBetweenNodes(links, MembersOf(training));
  const RankMapping& mapping = *links.mapping;
  std::vector<int> on;  // nodes of a group
  // As many as the group that is on the most.
  const auto most = [&](int members, auto device_of, int* nodes) {
    on.clear();
    for (int member = 0; member < members; ++member) {
      on.push_back(links.cluster->devices()[device_of(member)].node);
    }
    std::sort(on.begin(), on.end());
    on.erase(std::unique(on.begin(), on.end()), on.end());
    *nodes = std::max(*nodes, static_cast<int>(on.size()));
  };
  const auto usual = [&](int members, int spread) {
    const int nodes =
        (spread + network->devices_per_node - 1) / network->devices_per_node;
    return std::clamp(nodes, 1, members);
  };
  int tensor = 1;
  int contexts = 1;
  int experts = 1;
  for (int replica = 0; replica < mapping.dp(); ++replica) {
    for (int rank = 0; rank < mapping.pp(); ++rank) {
      for (int context = 0; training.tp > 1 && context < training.cp;
           ++context) {
        most(
            training.tp,
            [&](int member) {
              return mapping.DeviceOf(replica, rank,
                                      context * training.tp + member);
            },
            &tensor);
      }
      for (int index = 0; training.cp > 1 && index < training.tp; ++index) {
        most(
            training.cp,
            [&](int member) {
              return mapping.DeviceOf(replica, rank,
                                      member * training.tp + index);
            },
            &contexts);
      }
    }
    // Groups that cut those of tensor parallelism are placed by their spread;
    // so are all where they are next to each other.
    if (training.ep == 1 || training.etp() != training.tp ||
        mapping.is_plain()) {
      continue;
    }
    for (int context = 0; context < training.cp; ++context) {
      const auto group =
          mapping.ExpertsWith(replica, context, training.cp, training.ep);
      most(
          training.ep,
          [&](int member) {
            return mapping.DeviceOf(group[member].first, 0,
                                    group[member].second * training.tp);
          },
          &experts);
    }
  }
  // What is as usual stays unsaid, so that runs share prices.
  const bool as_usual =
      mapping.is_plain() && tensor == usual(training.tp, training.tp) &&
      contexts == usual(training.cp, training.cp * training.tp);
  if (as_usual) return;
  if (mapping.is_plain() || training.etp() != training.tp) experts = 0;
  network->nodes_of_group = {tensor, contexts, experts};
}

absl::StatusOr<int> DevicesOfNode(const RunConfig& config,
                                  RunContext* context) {
  PW_ASSIGN_OR_RETURN(const ShapeParams base, BaseSystem(config, context));
  return std::max(SystemOf(config, base).devices_per_node, 1);
}

absl::StatusOr<std::string> DeviceOfNode(const RunConfig& config,
                                         RunContext* context) {
  PW_ASSIGN_OR_RETURN(const ShapeParams base, BaseSystem(config, context));
  return SystemOf(config, base).device_name;
}

absl::StatusOr<SystemCluster> ClusterOf(const RunConfig& config,
                                        RunContext* context) {
  if (!NamesSystem(config.system)) {
    constexpr char kAllowed[] = "system.preset, system.file or system.shape";
    return WithValue(
        FieldError("system", absl::StrCat("missing; allowed: ", kAllowed)), "",
        kAllowed);
  }
  PW_RETURN_IF_ERROR(CheckShapeParams(config));
  PW_ASSIGN_OR_RETURN(const ShapeParams base, BaseSystem(config, context));
  ShapeParams params = SystemOf(config, base);
  const ShapeInfo* const shape = FindShape(params.shape);
  if (config.system.nodes) {
    params.nodes = *config.system.nodes;
  } else if (shape != nullptr) {
    params.nodes = shape->example_nodes;
    for (const ShapeParam& param : shape->params) {
      if (param.kind != ShapeParam::Kind::kSizes) continue;
      if (params.own.count(param.key) == 0) continue;
      const std::vector<int> sizes = params.OwnSizes(param.key);
      if (sizes.empty()) continue;
      params.nodes = 1;
      for (const int size : sizes) params.nodes *= size;
    }
  }
  SystemCluster system;
  absl::StatusOr<ShapeParams> complete = CompleteParams(params);
  PW_RETURN_IF_ERROR(LocateInSystem(config, complete.status()));
  system.params = *std::move(complete);
  absl::StatusOr<Cluster> cluster = BuildCluster(params);
  PW_RETURN_IF_ERROR(LocateInSystem(config, cluster.status()));
  system.cluster = std::make_shared<const Cluster>(*std::move(cluster));
  return system;
}

namespace {

absl::StatusOr<PreparedNetwork> NetworkOfRun(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<PreparedProfile>& profile, double hop_bytes,
    absl::string_view engine, RunContext* context,
    std::vector<std::string>* warnings) {
  const std::optional<double> measured_s =
      MeasuredHop(config, profile, sizes.pp, hop_bytes, warnings);
  const std::optional<double>& p2p_s =
      measured_s ? measured_s : config.costs.p2p_s;
  if (NamesSystem(config.system)) {
    if (p2p_s) {
      return WithValue(
          FieldError(config.Field("costs.p2p"),
                     "a pure delay replaces the network, so it cannot be given "
                     "together with a system; allowed: one of them"),
          "", "one of them");
    }
    return OnSystem(config, sizes, profile, hop_bytes, engine, context,
                    warnings);
  }
  if (config.system.nodes) {
    constexpr char kAllowed[] =
        "together with system.preset, system.file or system.shape";
    return WithValue(
        FieldError(config.Field("system.nodes"),
                   absl::StrCat("no system is given; allowed: ", kAllowed)),
        absl::StrCat(*config.system.nodes), kAllowed);
  }
  PW_RETURN_IF_ERROR(PrepareSlowLinks(config, nullptr).status());
  const WaitRule waiting =
      config.strategy.waiting.value_or(WaitRule::kBuffered);
  if (waiting != WaitRule::kBuffered) {
    return BadValue(
        config.Field("strategy.waiting"), WaitRuleName(waiting),
        "buffered without a system: a pure delay does not block a rank");
  }
  const TimesInUnits units(InUnits(config));
  PreparedNetwork prepared;
  prepared.hop_s = p2p_s.value_or(0);
  prepared.links.hop_s = prepared.hop_s;
  prepared.name = p2p_s ? absl::StrCat("hop ", FormatSeconds(*p2p_s)) : "free";
  // One that takes no time is as good as none.
  prepared.measured_hop = measured_s.value_or(0) > 0;
  if (prepared.measured_hop) absl::StrAppend(&prepared.name, " (measured)");
  if (!p2p_s && sizes.pp > 1) {
    warnings->push_back(
        "neither p2p nor a system is given: hops between ranks cost nothing");
  }
  if (sizes.holders() > 1) {
    warnings->push_back(kFreeSynchronisation);
  }
  return prepared;
}

}  // namespace

absl::StatusOr<std::vector<double>> RankSlowness(const RunConfig& config,
                                                 const RunSizes& sizes,
                                                 RunContext* context) {
  std::vector<double> slowness;
  if (config.slow.devices.empty()) return slowness;
  RunConfig named = config;
  named.slow.devices_law.reset();
  std::optional<PlacedRanks> placed;
  if (NamesSystem(config.system)) {
    PW_ASSIGN_OR_RETURN(const ShapeParams base, BaseSystem(config, context));
    ShapeParams params = SystemOf(config, base);
    std::vector<std::string> said;  // again where the network is prepared
    PW_ASSIGN_OR_RETURN(placed,
                        PlaceRanks(config, sizes, &params, context, &said));
  }
  PW_ASSIGN_OR_RETURN(
      const std::optional<SlowDevices> slow,
      PrepareSlowDevices(named, sizes.pp, sizes.dp, sizes.tp * sizes.cp,
                         placed ? placed->cluster.get() : nullptr,
                         placed ? &placed->mapping : nullptr));
  const DeviceFactors factors = slow->OfRanks();
  slowness.assign(sizes.pp, 0);
  for (size_t index = 0; index < factors.size(); ++index) {
    double& most = slowness[index % slowness.size()];
    most = std::max(most, factors[index]);
  }
  return slowness;
}

absl::StatusOr<PreparedNetwork> PrepareNetwork(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<PreparedProfile>& profile, double hop_bytes,
    absl::string_view engine, RunContext* context,
    std::vector<std::string>* warnings) {
  absl::StatusOr<PreparedNetwork> network = NetworkOfRun(
      config, sizes, profile, hop_bytes, engine, context, warnings);
  if (network.ok()) network->links.context_parallel = sizes.cp;
  return network;
}

}  // namespace pipewright

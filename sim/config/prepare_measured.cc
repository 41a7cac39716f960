// What a profile measured of copies, messages and hosts, in place of what a
// system says of them.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/config/prepare_parts.h"
#include "sim/config/profile_device.h"
#include "sim/program/measured_paths.h"
#include "sim/program/network_time.h"

namespace pipewright {
namespace {

constexpr char kAloneFactor[] = "pcie_alone_factor";
constexpr char kParametersUnit[] = "parameters/s";

constexpr struct {
  PathEnds ends;
  MeasuredNumber::Use use;
  const char* name;
} kPathNames[] = {
    {PathEnds::kToHost, MeasuredNumber::Use::kCopies, "d2h"},
    {PathEnds::kToDevice, MeasuredNumber::Use::kCopies, "h2d"},
    {PathEnds::kInNode, MeasuredNumber::Use::kMessages, "send_recv in a node"},
    {PathEnds::kAcrossNodes, MeasuredNumber::Use::kMessages,
     "send_recv between nodes"}};

bool IsGiven(const LinkChoice& link) {
  return link.bytes_per_s || link.latency_s;
}

// Does the user say what messages with such ends take? Without NVLink (a
// bandwidth of 0) those in a node cross PCIe.
bool IsPathGiven(const RunConfig& config, const ShapeParams& shape,
                 PathEnds ends) {
  if (ends == PathEnds::kAcrossNodes) return IsGiven(config.system.nic);
  return shape.has_nvlink() && IsGiven(config.system.nvlink);
}

// Copies with their host, alone and both ways at once.
void AddCopies(const RunConfig& config, const PreparedProfile& profile,
               ShapeParams* params, MeasuredPaths* paths) {
  const auto times = [&](CopyDirection direction, bool beside) {
    return TimesOfCopies(*profile.profile, direction, beside);
  };
  const TimesBySize out = times(CopyDirection::kDeviceToHost, false);
  const TimesBySize in = times(CopyDirection::kHostToDevice, false);
  if (IsGiven(config.system.pcie) || out.empty() || in.empty()) return;
  const PathLine line = LineOf(in);
  if (!params->has_pcie()) {
    params->pcie = {line.bytes_per_s, line.latency_s,
                    absl::StrCat("profile ", profile.name)};
  }
  paths->Add(PathEnds::kToHost, out);
  paths->Add(PathEnds::kToDevice, in);
  const TimesBySize out_beside = times(CopyDirection::kDeviceToHost, true);
  const TimesBySize in_beside = times(CopyDirection::kHostToDevice, true);
  if (config.system.params.count(kAloneFactor) > 0 || out_beside.empty() ||
      in_beside.empty()) {
    return;
  }
  const double alone = LineOf(out).bytes_per_s + line.bytes_per_s;
  const double both =
      LineOf(out_beside).bytes_per_s + LineOf(in_beside).bytes_per_s;
  // Any factor above 1 makes a switch share a link of both directions.
  params->own[kAloneFactor] = both < alone ? "2" : "1";
  if (both < alone) paths->ShareBothWays(both);
}

// A cast to fp32 reads 2 bytes of a parameter and writes 4, as a copy of 3
// does. [numerics, bytes]
constexpr double kCastBytes = 2 + 4;

// Parameters a second.
double DeviceCastRate(const Profile& profile, double parameters) {
  const TimesBySize copies =
      TimesOfCopies(profile, CopyDirection::kDeviceToDevice);
  return copies.empty()
             ? profile.device_memory_bytes_per_s / kCastBytes
             : parameters / AtSize(copies, kCastBytes / 2 * parameters).seconds;
}

}  // namespace

void TakeMeasuredHost(const RunConfig& config,
                      const std::optional<PreparedProfile>& profile,
                      ShapeParams* params,
                      std::vector<MeasuredNumber>* numbers) {
  if (!profile || !IsOfDevice(*profile->profile, params->device_name)) return;
  const Profile& measured = *profile->profile;
  const HostChoice& given = config.system.host;
  HostClass& host = params->host;
  const auto take = [&](const auto& stands, const char* name, const char* unit,
                        double rate, double* value) {
    if (stands || !(rate > 0)) return;
    numbers->push_back(
        {MeasuredNumber::Use::kOptimizer, name, unit, rate, *value});
    *value = rate;
  };
  take(given.memory_bytes_per_s, "host memory bandwidth", "B/s",
       measured.host_memory_bytes_per_s / MeasuredDevices(measured),
       &host.bytes_per_s);
  const OptimizerEntry* step = nullptr;
  for (const OptimizerEntry& entry : measured.optimizers) {
    const bool is_larger =
        step == nullptr || entry.parameters > step->parameters;
    if (entry.where == "host" && entry.time.median_s > 0 && is_larger) {
      step = &entry;
    }
  }
  if (step != nullptr) {
    take(given.adam_rate, "host AdamW", kParametersUnit,
         static_cast<double>(step->parameters) / step->time.median_s,
         &host.adam_rate);
    // The step that was measured writes the 16-bit weights too.
    const bool casts =
        std::any_of(measured.passes.begin(), measured.passes.end(),
                    [](const PassEntry& pass) { return pass.type != "fp32"; });
    if (casts && !given.cast_rate && !given.cast_bytes_per_parameter) {
      host.cast_bytes = 0;
      host.cast_rate = std::numeric_limits<double>::infinity();
    }
  }
  const double parameters =
      config.strategy.subgroup_size.value_or(OptimizerOffload().subgroup_size);
  take(given.device_adam_rate, "device AdamW", kParametersUnit,
       parameters / ProfileOptimizerSeconds(measured, parameters)
                        .value_or(std::numeric_limits<double>::infinity()),
       &host.device_adam_rate);
  take(false, "device cast to fp32", kParametersUnit,
       DeviceCastRate(measured, parameters), &host.device_cast_rate);
}

std::shared_ptr<MeasuredPaths> MeasuredPathsOf(
    const RunConfig& config, const std::optional<PreparedProfile>& profile,
    ShapeParams* params) {
  if (!profile || !IsOfDevice(*profile->profile, params->device_name)) {
    return nullptr;
  }
  auto paths = std::make_shared<MeasuredPaths>();
  AddCopies(config, *profile, params, paths.get());
  for (const PathEnds ends : {PathEnds::kInNode, PathEnds::kAcrossNodes}) {
    if (IsPathGiven(config, *params, ends)) continue;
    paths->Add(ends, TimesOfSends(*profile->profile,
                                  ends == PathEnds::kInNode ? 1 : 2));
  }
  return paths;
}

void TakeMeasuredPaths(std::shared_ptr<MeasuredPaths> paths,
                       const Cluster& system, PreparedNetwork* network) {
  if (paths == nullptr || paths->empty()) return;
  auto cluster = std::make_shared<Cluster>(*network->links.cluster);
  paths->SetLinks(cluster.get());
  for (const auto& [ends, use, name] : kPathNames) {
    if (!paths->Has(ends)) continue;
    const std::vector<LinkId> route = RouteWith(system, ends);
    const PathLine line = paths->LineOfPath(ends);
    network->measured.push_back(
        {use, absl::StrCat(name, " bandwidth"), "B/s", line.bytes_per_s,
         route.empty() ? 0 : system.BandwidthOf(route)});
    network->measured.push_back({use, absl::StrCat(name, " latency"), "s",
                                 line.latency_s, system.LatencyOf(route)});
  }
  network->links.cluster = std::move(cluster);
  network->links.paths = std::move(paths);
}

void WarnOfUnusedMeasurements(const RunConfig& config, PreparedRun* run) {
  const ShapeParams* const shape = run->network.system_shape();
  const std::optional<PreparedProfile>& profile = run->costs.profile;
  if (!profile || shape == nullptr) return;
  const std::vector<TransferEntry>& transfers = profile->profile->transfers;
  const bool sends = std::any_of(
      transfers.begin(), transfers.end(),
      [](const auto& entry) { return entry.operation == "send_recv"; });
  const bool other = !IsOfDevice(*profile->profile, shape->device_name);
  const auto warn = [&](const char* what, absl::string_view why) {
    run->warnings.push_back(
        absl::StrCat("profile ", profile->name, ": its ", what, " not used: ",
                     other ? "it was measured on another device than the "
                             "system's"
                           : why,
                     "; the system's numbers stand"));
  };
  const MeasuredPaths* const paths = run->network.links.paths.get();
  const auto has = [&](PathEnds ends) {
    return paths != nullptr && paths->Has(ends);
  };
  const bool copies = run->offload || run->lower.offload.active();
  if (copies && !profile->profile->copies.empty() && !has(PathEnds::kToHost)) {
    warn("copies are", IsGiven(config.system.pcie)
                           ? "system.pcie is given"
                           : "they are not of both directions");
  }
  if (!sends || run->schedule.lowered->pp() == 1) return;
  for (int rank = 0; rank + 1 < run->schedule.lowered->pp(); ++rank) {
    const PathEnds ends = EndsOfHop(run->network.links, 0, rank, rank + 1);
    const bool in_node = ends == PathEnds::kInNode;
    if (has(ends) || IsPathGiven(config, *shape, ends)) continue;
    return warn("send_recv is",
                in_node ? "none is between GPUs of a node (over nccl, nodes 1; "
                          "a profile without nodes does not say on how many)"
                        : "none is between GPUs of two nodes (over nccl, nodes "
                          "2; a profile without nodes does not say on how "
                          "many)");
  }
}

}  // namespace pipewright

#include "calibrate/import_kineto.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "calibrate/statistics.h"
#include "sim/base/status.h"
#include "sim/profile/check.h"
#include "sim/trace/trace_events.h"

namespace pipewright {
namespace {

constexpr double kMicrosecond = 1e-6;
// The resolution of a trace: whole nanoseconds at best.
constexpr double kTraceResolution = 1e-9;

// The names are tried in this order, because "backward_weight" is a backward
// too.
constexpr Region kOrder[] = {Region::kBackwardWeight, Region::kBackwardInput,
                             Region::kBackwardFull, Region::kForward,
                             Region::kOptimizer};

constexpr std::pair<Region, ProfilePass> kPasses[] = {
    {Region::kForward, ProfilePass::kForward},
    {Region::kBackwardInput, ProfilePass::kBackwardInput},
    {Region::kBackwardWeight, ProfilePass::kBackwardWeight},
    {Region::kBackwardFull, ProfilePass::kBackwardFull}};

// Seconds, without the first ones.
std::vector<double> Samples(const std::vector<TraceRegion>& regions,
                            Region region, const KinetoOptions& options) {
  std::vector<double> samples;
  for (const TraceRegion& each : regions) {
    if (each.region != region) continue;
    const double micros =
        options.sum_kernels ? each.sum_us : each.end_us - each.start_us;
    if (micros > 0) samples.push_back(micros * kMicrosecond);
  }
  const auto skipped =
      std::min<size_t>(samples.size(), static_cast<size_t>(options.skip));
  samples.erase(samples.begin(),
                samples.begin() + static_cast<std::ptrdiff_t>(skipped));
  return samples;
}

}  // namespace

absl::StatusOr<Profile> ImportKineto(std::istream& in,
                                     const std::string& source_name,
                                     const KinetoOptions& options) {
  PW_ASSIGN_OR_RETURN(const std::vector<RegionPattern> patterns,
                      CompileRegions(options.patterns, kOrder));
  RegionReader reader(patterns,
                      {"user_annotation", "gpu_user_annotation", "cpu_op"});
  TraceHeader header;
  PW_RETURN_IF_ERROR(ReadTraceEvents(
      in, source_name,
      [&](const TraceEvent& event) { return reader.See(event); }, &header));
  const std::vector<TraceRegion> regions = reader.Finish();

  Profile profile;
  ProfileSource source = {.kind = "kineto",
                          .file = source_name,
                          .backend = "cuda",
                          .device = header.device,
                          .memory_bytes = header.device_memory_bytes};
  for (const auto& [region, pass] : kPasses) {
    std::vector<double> values = Samples(regions, region, options);
    if (values.empty()) continue;
    for (double& value : values) value /= static_cast<double>(options.layers);
    profile.passes.push_back({.model = options.model,
                              .part = options.part,
                              .pass = pass,
                              .type = options.type,
                              .microbatch_size = options.microbatch_size,
                              .sequence = options.sequence,
                              .tp = options.tp,
                              .ep = options.ep,
                              .time = Summarize({values}, kTraceResolution),
                              .implementation = "traced"});
  }
  if (profile.passes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        source_name,
        ": no region is a forward or a backward; allowed: patterns "
        "(--forward, --backward, --backward-input, "
        "--backward-weight) that match names in the trace (",
        absl::StrJoin(reader.other_names(), ", "), ")"));
  }
  const std::vector<double> steps =
      Samples(regions, Region::kOptimizer, options);
  if (!steps.empty() && options.parameters > 0) {
    profile.optimizers.push_back(
        {.where = "device",
         .parameters = options.parameters,
         .time = Summarize({steps}, kTraceResolution)});
  } else if (!steps.empty()) {
    source.warnings.push_back(
        "optimizer steps are left out: --parameters does not say of how "
        "many parameters");
  }
  if (!reader.has_kernels()) {
    source.warnings.push_back(
        "the trace has no GPU kernels: times are those of the host");
  }
  profile.sources.push_back(std::move(source));
  PW_RETURN_IF_ERROR(CheckProfile(profile, source_name));
  return profile;
}

}  // namespace pipewright

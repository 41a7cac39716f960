#include "sim/trace/trace_regions.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr size_t kNamesKept = 12;
constexpr size_t kNameSearched = 256;

int64_t Correlation(const TraceEvent& event) {
  const double* const value = event.Number("correlation");
  return value == nullptr ? -1 : std::llround(*value);
}

}  // namespace

absl::string_view DefaultRegionPattern(Region region) {
  switch (region) {
    case Region::kForward:
      return "^PP:\\d+F\\d+|"
             "^(?!.*(send|recv|hook|forward[-_ ]backward|"
             "(pre|post)[-_ ](forward|backward))).*"
             "(^|[^a-z])(forward|fwd)([^a-z]|$)";
    case Region::kBackwardInput:
      return "^PP:\\d+I\\d+|dgrad|(backward|bwd)[-_ ]input";
    case Region::kBackwardWeight:
      return "^PP:\\d+W\\d+|wgrad|backward_dw|(backward|bwd)[-_ ]weight";
    case Region::kBackwardFull:
      return "^PP:\\d+B\\d+|"
             "^(?!.*(send|recv|hook|forward[-_ ]backward|"
             "(pre|post)[-_ ](forward|backward))).*"
             "(^|[^a-z])(backward|bwd)([^a-z]|$)";
    case Region::kRecompute:
      return "recompute";
    case Region::kOptimizer:
      return "optimizer\\.step|optimizer[-_ ]step|(^|[^a-z])optimizer$";
  }
  return "";
}

absl::string_view RegionFlag(Region region) {
  switch (region) {
    case Region::kForward:
      return "--forward";
    case Region::kBackwardInput:
      return "--backward-input";
    case Region::kBackwardWeight:
      return "--backward-weight";
    case Region::kBackwardFull:
      return "--backward";
    case Region::kRecompute:
      return "--recompute";
    case Region::kOptimizer:
      return "--optimizer";
  }
  return "";
}

absl::StatusOr<std::vector<RegionPattern>> CompileRegions(
    const std::array<std::string, kNumRegions>& given,
    absl::Span<const Region> order) {
  std::vector<RegionPattern> patterns;
  for (const Region region : order) {
    std::string pattern = given[static_cast<int>(region)];
    if (pattern.empty()) pattern = std::string(DefaultRegionPattern(region));
    try {
      patterns.push_back({region, std::regex(pattern, std::regex::ECMAScript |
                                                          std::regex::icase)});
    } catch (const std::regex_error& error) {
      return BadValue(
          RegionFlag(region), pattern,
          absl::StrCat("a regular expression (", error.what(), ")"));
    }
  }
  return patterns;
}

absl::Status RegionReader::See(const TraceEvent& event) {
  if (event.phase != "X") return absl::OkStatus();
  if (!event.start_us || !event.duration_us) {
    return absl::InvalidArgumentError("ts, dur: are missing");
  }
  const double start_us = *event.start_us;
  const double end_us = start_us + *event.duration_us;
  const std::string& category = event.category;
  if (category == "kernel" || category == "gpu_memcpy" ||
      category == "gpu_memset") {
    kernels_.push_back({Correlation(event), start_us, end_us});
    return absl::OkStatus();
  }
  if (category == "cuda_runtime" || category == "cuda_driver") {
    launches_[Correlation(event)] = {event.process, event.thread, start_us};
    return absl::OkStatus();
  }
  if (!categories_.empty() && categories_.count(category) == 0) {
    return absl::OkStatus();
  }
  // The library's search takes time, and stack, with the length.
  const std::string start = event.name.substr(0, kNameSearched);
  for (const auto& [region, pattern] : patterns_) {
    if (!std::regex_search(start, pattern)) continue;
    named_.push_back({region, category == "gpu_user_annotation",
                      category == "cpu_op", event.name, event.process,
                      event.thread, start_us, end_us});
    return absl::OkStatus();
  }
  if (category != "cpu_op" && names_.size() < kNamesKept) {
    names_.insert(start);
  }
  return absl::OkStatus();
}

// A region on the device is the shadow of one on the host where there is one of
// that name. An operator is no region where the trace has marked regions of its
// kind: the operators of a backward run on a thread of their own, beside the
// mark.
void RegionReader::KeepOutermost() {
  std::stable_sort(
      named_.begin(), named_.end(),
      [](const Named& a, const Named& b) { return a.start_us < b.start_us; });
  std::set<std::string> on_host;
  std::set<Region> marked;
  for (const Named& named : named_) {
    if (!named.on_device) on_host.insert(named.name);
    if (!named.is_operator) marked.insert(named.region);
  }
  std::map<std::pair<std::string, Region>, double> covered_us;
  std::vector<Named> kept;
  for (Named& named : named_) {
    if (named.on_device && on_host.count(named.name) > 0) continue;
    if (named.is_operator && marked.count(named.region) > 0) continue;
    const auto entry = covered_us.try_emplace(
        {absl::StrCat(named.process, " ", named.thread), named.region},
        named.start_us);
    if (named.start_us < entry.first->second) continue;
    entry.first->second = named.end_us;
    kept.push_back(std::move(named));
  }
  named_ = std::move(kept);
}

bool RegionReader::OnDevice(const Named& named, const Launched& launched,
                            TraceRegion* region) {
  const auto first = std::lower_bound(
      launched.begin(), launched.end(), named.start_us,
      [](const auto& entry, double us) { return entry.first.start_us < us; });
  for (const bool own_thread : {true, false}) {
    bool any = false;
    region->sum_us = 0;
    for (auto at = first;
         at != launched.end() && at->first.start_us <= named.end_us; ++at) {
      if (own_thread && at->first.thread != named.thread) continue;
      const Kernel& kernel = at->second;
      region->start_us =
          any ? std::min(region->start_us, kernel.start_us) : kernel.start_us;
      region->end_us =
          any ? std::max(region->end_us, kernel.end_us) : kernel.end_us;
      region->sum_us += kernel.end_us - kernel.start_us;
      any = true;
    }
    if (any) return true;
  }
  return false;
}

std::vector<TraceRegion> RegionReader::Finish() {
  std::map<std::string, Launched> launched;
  for (const Kernel& kernel : kernels_) {
    const auto launch = launches_.find(kernel.correlation);
    if (launch == launches_.end()) continue;
    launched[launch->second.process].push_back({launch->second, kernel});
  }
  for (auto& [process, list] : launched) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) {
                       return a.first.start_us < b.first.start_us;
                     });
  }
  KeepOutermost();
  std::vector<TraceRegion> regions;
  for (const Named& named : named_) {
    TraceRegion region = {.region = named.region,
                          .process = named.process,
                          .start_us = named.start_us,
                          .end_us = named.end_us,
                          .sum_us = named.end_us - named.start_us};
    if (!kernels_.empty() && !named.on_device &&
        !OnDevice(named, launched[named.process], &region)) {
      continue;
    }
    regions.push_back(std::move(region));
  }
  return regions;
}

}  // namespace pipewright

#include "sim/trace/trace_regions.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr size_t kNamesKept = 12;
constexpr size_t kNameSearched = 256;
// Every node of a graph that PyTorch's autograd runs.
constexpr absl::string_view kAutogradNode = "autograd::engine::";
constexpr int64_t kNoCorrelation = -1;

bool IsBackward(Region region) {
  return region == Region::kBackwardInput ||
         region == Region::kBackwardWeight || region == Region::kBackwardFull;
}

std::string ThreadKey(absl::string_view process, absl::string_view thread) {
  return absl::StrCat(process, " ", thread);
}

int64_t Correlation(const TraceEvent& event) {
  const double* const value = event.Number("correlation");
  return value == nullptr ? kNoCorrelation : std::llround(*value);
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

namespace {

std::regex Compile(const std::string& pattern) {
  return std::regex(pattern, std::regex::ECMAScript | std::regex::icase);
}

// Compiled once: that takes a millisecond, and a job has a trace a rank.
const std::regex& DefaultRegex(Region region) {
  static const std::array<std::regex, kNumRegions> compiled = [] {
    std::array<std::regex, kNumRegions> all;
    for (int i = 0; i < kNumRegions; ++i) {
      all[i] =
          Compile(std::string(DefaultRegionPattern(static_cast<Region>(i))));
    }
    return all;
  }();
  return compiled[static_cast<int>(region)];
}

}  // namespace

absl::StatusOr<std::vector<RegionPattern>> CompileRegions(
    const std::array<std::string, kNumRegions>& given,
    absl::Span<const Region> order) {
  std::vector<RegionPattern> patterns;
  for (const Region region : order) {
    const std::string& pattern = given[static_cast<int>(region)];
    if (pattern.empty()) {
      patterns.push_back({region, DefaultRegex(region)});
      continue;
    }
    try {
      patterns.push_back({region, Compile(pattern)});
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
    kernels_.push_back(
        {Correlation(event), start_us, end_us, KernelName(event.name)});
    return absl::OkStatus();
  }
  if (category == "cuda_runtime" || category == "cuda_driver") {
    const int64_t correlation = Correlation(event);
    if (correlation == kNoCorrelation) return absl::OkStatus();
    launches_[correlation] = {event.process, event.thread, start_us};
    return absl::OkStatus();
  }
  if (category == "cpu_op" && absl::StartsWith(event.name, kAutogradNode)) {
    autograd_.insert(ThreadKey(event.process, event.thread));
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
        {ThreadKey(named.process, named.thread), named.region}, named.start_us);
    if (named.start_us < entry.first->second) continue;
    entry.first->second = named.end_us;
    kept.push_back(std::move(named));
  }
  named_ = std::move(kept);
}

int32_t RegionReader::KernelName(const std::string& name) {
  if (!keep_kernels_) return 0;
  const auto [found, is_new] = name_numbers_.try_emplace(
      name, static_cast<int32_t>(kernel_names_.size()));
  if (is_new) kernel_names_.push_back(name);
  return found->second;
}

bool RegionReader::OnDevice(const Named& named, const Launched& launched,
                            TraceRegion* region) const {
  const auto first = std::lower_bound(
      launched.begin(), launched.end(), named.start_us,
      [](const auto& entry, double us) { return entry.first.start_us < us; });
  const auto is_own = [&](const std::string& thread) {
    return thread == named.thread ||
           (IsBackward(named.region) &&
            autograd_.count(ThreadKey(named.process, thread)) > 0);
  };
  for (const bool own_threads : {true, false}) {
    bool any = false;
    region->sum_us = 0;
    for (auto at = first;
         at != launched.end() && at->first.start_us <= named.end_us; ++at) {
      if (own_threads && !is_own(at->first.thread)) continue;
      const Kernel& kernel = at->second;
      region->start_us =
          any ? std::min(region->start_us, kernel.start_us) : kernel.start_us;
      region->end_us =
          any ? std::max(region->end_us, kernel.end_us) : kernel.end_us;
      region->sum_us += kernel.end_us - kernel.start_us;
      any = true;
      if (!keep_kernels_) continue;
      region->kernels.push_back({at->first.thread, at->first.start_us,
                                 kernel.start_us, kernel.end_us, kernel.name});
    }
    if (any) return true;
  }
  return false;
}

std::vector<TraceRegion> RegionReader::Finish() {
  std::map<std::string, Launched> launched;
  for (const Kernel& kernel : kernels_) {
    const auto launch = launches_.find(kernel.correlation);
    if (launch == launches_.end()) {
      ++num_orphans_;
      continue;
    }
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
                          .thread = named.thread,
                          .name = named.name,
                          .host_start_us = named.start_us,
                          .host_end_us = named.end_us,
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

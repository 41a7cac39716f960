#include "sim/compare/foreign_regions.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

constexpr double kMicro = 1e-6;
constexpr size_t kNamesKept = 12;

// Asked in this order: "backward_weight" is a backward too, and a recomputed
// forward a forward.
constexpr Region kOrder[] = {Region::kOptimizer,      Region::kRecompute,
                             Region::kBackwardWeight, Region::kBackwardInput,
                             Region::kBackwardFull,   Region::kForward};

int64_t Correlation(const TraceEvent& event) {
  const double* const value = event.Number("correlation");
  return value == nullptr ? -1 : std::llround(*value);
}

}  // namespace

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
  for (const Region region : kOrder) {
    if (!std::regex_search(event.name, patterns_[static_cast<int>(region)])) {
      continue;
    }
    named_.push_back({region, category == "gpu_user_annotation", event.name,
                      event.process, event.thread, start_us, end_us});
    return absl::OkStatus();
  }
  if (category != "cpu_op" && names_.size() < kNamesKept) {
    names_.insert(event.name);
  }
  return absl::OkStatus();
}

// A region inside another of its kind is a part of it, and one on the device
// is the shadow of one on the host where there is one of that name.
void RegionReader::KeepOutermost() {
  std::stable_sort(
      named_.begin(), named_.end(),
      [](const Named& a, const Named& b) { return a.start_us < b.start_us; });
  std::set<std::string> on_host;
  for (const Named& named : named_) {
    if (!named.on_device) on_host.insert(named.name);
  }
  std::map<std::pair<std::string, Region>, double> covered_us;
  std::vector<Named> kept;
  for (Named& named : named_) {
    if (named.on_device && on_host.count(named.name) > 0) continue;
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
                            ForeignRegion* region) {
  const auto first = std::lower_bound(
      launched.begin(), launched.end(), named.start_us,
      [](const auto& entry, double us) { return entry.first.start_us < us; });
  for (const bool own_thread : {true, false}) {
    bool any = false;
    for (auto at = first;
         at != launched.end() && at->first.start_us <= named.end_us; ++at) {
      if (own_thread && at->first.thread != named.thread) continue;
      const double start_s = at->second.start_us * kMicro;
      const double end_s = at->second.end_us * kMicro;
      region->start_s = any ? std::min(region->start_s, start_s) : start_s;
      region->end_s = any ? std::max(region->end_s, end_s) : end_s;
      any = true;
    }
    if (any) return true;
  }
  return false;
}

std::vector<ForeignRegion> RegionReader::Finish() {
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
  std::vector<ForeignRegion> regions;
  for (const Named& named : named_) {
    ForeignRegion region = {named.region, named.process,
                            named.start_us * kMicro, named.end_us * kMicro};
    if (!kernels_.empty() && !named.on_device &&
        !OnDevice(named, launched[named.process], &region)) {
      continue;
    }
    regions.push_back(std::move(region));
  }
  std::stable_sort(regions.begin(), regions.end(),
                   [](const ForeignRegion& a, const ForeignRegion& b) {
                     return a.start_s < b.start_s;
                   });
  return regions;
}

}  // namespace pipewright

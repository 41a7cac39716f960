#include "calibrate/import_kineto.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "calibrate/kineto_events.h"
#include "calibrate/statistics.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kMicro = 1e-6;
// Of a trace: whole nanoseconds at best.
constexpr double kResolution = 1e-9;
constexpr size_t kNamesShown = 12;

// Asked in this order: "backward_weight" is a backward too.
constexpr RegionKind kOrder[] = {
    RegionKind::kBackwardWeight, RegionKind::kBackwardInput,
    RegionKind::kBackwardFull, RegionKind::kForward, RegionKind::kOptimizer};
constexpr const char* kFlags[] = {"--forward", "--backward-input",
                                  "--backward-weight", "--backward",
                                  "--optimizer"};

struct Region {
  RegionKind kind;
  bool on_device = false;  // gpu_user_annotation
  std::string name;
  std::string process;
  std::string thread;
  double start_us = 0;
  double end_us = 0;
};

struct Launch {
  std::string process;
  std::string thread;
  double start_us = 0;
};

struct Kernel {
  int64_t correlation = -1;
  double start_us = 0;
  double end_us = 0;
};

class Importer {
 public:
  Importer(const std::string& source, const KinetoOptions& options)
      : source_(source), options_(options) {}

  absl::Status ReadPatterns() {
    for (int kind = 0; kind < kNumRegionKinds; ++kind) {
      const std::string& given = options_.patterns[kind];
      const std::string pattern =
          given.empty()
              ? std::string(DefaultRegionPattern(static_cast<RegionKind>(kind)))
              : given;
      try {
        patterns_[kind] =
            std::regex(pattern, std::regex::ECMAScript | std::regex::icase);
      } catch (const std::regex_error& error) {
        return BadValue(
            kFlags[kind], pattern,
            absl::StrCat("a regular expression (", error.what(), ")"));
      }
    }
    return absl::OkStatus();
  }

  void See(const KinetoEvent& event) {
    if (event.phase != "X") return;
    const std::string& category = event.category;
    const double end_us = event.start_us + event.duration_us;
    if (category == "kernel" || category == "gpu_memcpy" ||
        category == "gpu_memset") {
      kernels_.push_back({event.correlation, event.start_us, end_us});
    } else if (category == "cuda_runtime" || category == "cuda_driver") {
      launches_[event.correlation] = {event.process, event.thread,
                                      event.start_us};
    } else if (category == "user_annotation" ||
               category == "gpu_user_annotation" || category == "cpu_op") {
      const std::optional<RegionKind> kind = KindOf(event.name);
      if (!kind) {
        if (category != "cpu_op" && names_.size() < kNamesShown) {
          names_.insert(event.name);
        }
        return;
      }
      regions_.push_back({*kind, category == "gpu_user_annotation", event.name,
                          event.process, event.thread, event.start_us, end_us});
    }
  }

  absl::StatusOr<Profile> Finish(const KinetoDevice& device) {
    std::array<std::vector<double>, kNumRegionKinds> samples;
    Place();
    KeepOutermost();
    for (const Region& region : regions_) {
      const std::optional<double> micros = Micros(region);
      if (micros && *micros > 0) {
        samples[static_cast<int>(region.kind)].push_back(*micros * kMicro);
      }
    }
    for (std::vector<double>& values : samples) {
      const auto skipped =
          std::min<size_t>(values.size(), static_cast<size_t>(options_.skip));
      values.erase(values.begin(),
                   values.begin() + static_cast<std::ptrdiff_t>(skipped));
    }
    return ProfileOf(samples, device);
  }

 private:
  std::optional<RegionKind> KindOf(const std::string& name) const {
    for (const RegionKind kind : kOrder) {
      if (std::regex_search(name, patterns_[static_cast<int>(kind)])) {
        return kind;
      }
    }
    return {};
  }

  // Kernels by when and where they were launched.
  void Place() {
    for (const Kernel& kernel : kernels_) {
      const auto launch = launches_.find(kernel.correlation);
      if (launch == launches_.end()) continue;
      launched_[launch->second.process].push_back({launch->second, kernel});
    }
    for (auto& [process, list] : launched_) {
      std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
        return a.first.start_us < b.first.start_us;
      });
    }
    std::stable_sort(regions_.begin(), regions_.end(),
                     [](const Region& a, const Region& b) {
                       return a.start_us < b.start_us;
                     });
  }

  // A region inside another of its kind is a part of it, and one on the device
  // is the shadow of one on the host where there is one of that name.
  void KeepOutermost() {
    std::set<std::string> on_host;
    for (const Region& region : regions_) {
      if (!region.on_device) on_host.insert(region.name);
    }
    std::map<std::pair<std::string, RegionKind>, double> covered_us;
    std::vector<Region> kept;
    for (const Region& region : regions_) {
      if (region.on_device && on_host.count(region.name) > 0) continue;
      double& end_us =
          covered_us
              .try_emplace({absl::StrCat(region.process, " ", region.thread),
                            region.kind},
                           -1)
              .first->second;
      if (region.start_us < end_us) continue;
      end_us = region.end_us;
      kept.push_back(region);
    }
    regions_ = std::move(kept);
  }

  // What the region took on the device: of the kernels launched inside it by
  // its own thread or, where that launched none (autograd has threads of its
  // own), by any. Without kernels in the trace its own length.
  std::optional<double> Micros(const Region& region) const {
    if (region.on_device || kernels_.empty()) {
      return region.end_us - region.start_us;
    }
    const auto list = launched_.find(region.process);
    if (list == launched_.end()) return {};
    for (const bool own_thread : {true, false}) {
      double first_us = 0;
      double last_us = 0;
      double sum_us = 0;
      bool any = false;
      auto at = std::lower_bound(list->second.begin(), list->second.end(),
                                 region.start_us,
                                 [](const auto& entry, double start_us) {
                                   return entry.first.start_us < start_us;
                                 });
      for (; at != list->second.end() && at->first.start_us <= region.end_us;
           ++at) {
        if (own_thread && at->first.thread != region.thread) continue;
        const Kernel& kernel = at->second;
        first_us = any ? std::min(first_us, kernel.start_us) : kernel.start_us;
        last_us = std::max(last_us, kernel.end_us);
        sum_us += kernel.end_us - kernel.start_us;
        any = true;
      }
      if (any) return options_.sum_kernels ? sum_us : last_us - first_us;
    }
    return {};
  }

  absl::StatusOr<Profile> ProfileOf(
      const std::array<std::vector<double>, kNumRegionKinds>& samples,
      const KinetoDevice& device) const {
    Profile profile;
    ProfileSource source = {.kind = "kineto",
                            .file = source_,
                            .backend = "cuda",
                            .device = device.name,
                            .memory_bytes = device.memory_bytes};
    constexpr ProfilePass kPasses[] = {
        ProfilePass::kForward, ProfilePass::kBackwardInput,
        ProfilePass::kBackwardWeight, ProfilePass::kBackwardFull};
    for (int kind = 0; kind < 4; ++kind) {
      std::vector<double> values = samples[kind];
      if (values.empty()) continue;
      for (double& value : values) {
        value /= static_cast<double>(options_.layers);
      }
      profile.passes.push_back({.model = options_.model,
                                .part = ProfilePart::kLayer,
                                .pass = kPasses[kind],
                                .type = options_.type,
                                .microbatch_size = options_.microbatch_size,
                                .sequence = options_.sequence,
                                .tp = options_.tp,
                                .time = Summarize({values}, kResolution),
                                .implementation = "traced"});
    }
    if (profile.passes.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          source_,
          ": no region is a forward or a backward; allowed: patterns "
          "(--forward, --backward, --backward-input, "
          "--backward-weight) that match names in the trace (",
          absl::StrJoin(names_, ", "), ")"));
    }
    const std::vector<double>& steps =
        samples[static_cast<int>(RegionKind::kOptimizer)];
    if (!steps.empty() && options_.parameters > 0) {
      profile.optimizers.push_back({.where = "device",
                                    .parameters = options_.parameters,
                                    .time = Summarize({steps}, kResolution)});
    } else if (!steps.empty()) {
      source.warnings.push_back(
          "optimizer steps are left out: --parameters does not say of how "
          "many parameters");
    }
    if (kernels_.empty()) {
      source.warnings.push_back(
          "the trace has no GPU kernels: times are those of the host");
    }
    profile.sources.push_back(std::move(source));
    return profile;
  }

  const std::string& source_;
  const KinetoOptions& options_;
  std::array<std::regex, kNumRegionKinds> patterns_;
  std::vector<Region> regions_;
  std::vector<Kernel> kernels_;
  std::map<int64_t, Launch> launches_;
  std::map<std::string, std::vector<std::pair<Launch, Kernel>>> launched_;
  std::set<std::string> names_;  // some that are no region of ours
};

}  // namespace

absl::string_view DefaultRegionPattern(RegionKind kind) {
  switch (kind) {
    case RegionKind::kForward:
      return "^PP:\\d+F\\d+|(^|[^a-z])(forward|fwd)([^a-z]|$)";
    case RegionKind::kBackwardInput:
      return "^PP:\\d+I\\d+|dgrad|(backward|bwd)[-_ ]input";
    case RegionKind::kBackwardWeight:
      return "^PP:\\d+W\\d+|wgrad|backward_dw|(backward|bwd)[-_ ]weight";
    case RegionKind::kBackwardFull:
      return "^PP:\\d+B\\d+|(^|[^a-z])(backward|bwd)([^a-z]|$)";
    case RegionKind::kOptimizer:
      return "optimizer\\.step|optimizer[-_ ]step|(^|[^a-z])optimizer$";
  }
  return "";
}

absl::StatusOr<Profile> ImportKineto(std::istream& in,
                                     const std::string& source_name,
                                     const KinetoOptions& options) {
  Importer importer(source_name, options);
  PW_RETURN_IF_ERROR(importer.ReadPatterns());
  KinetoDevice device;
  PW_RETURN_IF_ERROR(ReadKineto(
      in, source_name, [&](const KinetoEvent& event) { importer.See(event); },
      &device));
  return importer.Finish(device);
}

}  // namespace pipewright

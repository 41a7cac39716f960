#include "calibrate/kineto_layers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

bool IsPassOfLayers(Region region) {
  return region != Region::kOptimizer && region != Region::kRecompute;
}

std::string NameRegion(const RegionParts& parts) {
  return absl::StrCat("'", parts.region->name, "' at ",
                      parts.region->host_start_us, " us");
}

// No default would do: a region is as long as its layers together.
absl::Status NobodyTells(const KinetoRank& rank, const LayersSaid& said,
                         int64_t repeats) {
  return MissingValue(
      "--layers",
      absl::StrCat(
          "with --kineto, the layers that one region of a pass goes through, "
          "by which its time is divided, where the trace does not tell them (",
          rank.source, " has no modules (with_stack) and no marks of layers",
          repeats > 0 ? absl::StrCat("; the kernels of a forward repeat ",
                                     repeats, " times")
                      : "",
          "). Of regions around a whole forward these are the layers of the "
          "rank's stage",
          said.of_model > 0
              ? absl::StrCat(" (the model's ", said.of_model,
                             " over the stages; all of them without a "
                             "pipeline)")
              : "",
          ", of regions around each layer 1"));
}

absl::Status CheckRepeats(const KinetoRank& rank, const RegionParts& forward,
                          int64_t repeats, int64_t layers,
                          std::vector<std::string>* warnings) {
  if (repeats == 0 || repeats == layers) return absl::OkStatus();
  const std::string what =
      absl::StrCat("the kernels of ", NameRegion(forward), " in ", rank.source,
                   " repeat ", repeats, " times");
  if (repeats % layers != 0) {
    return BadValue("--layers", absl::StrCat(layers),
                    absl::StrCat("a divisor of ", repeats, ": ", what));
  }
  warnings->push_back(absl::StrCat(what, ", --layers is ", layers));
  return absl::OkStatus();
}

}  // namespace

absl::Status SetLayers(const KinetoRank& rank, const LayersSaid& said,
                       std::vector<RegionParts>* regions,
                       std::vector<std::string>* warnings) {
  std::set<int64_t> of_forwards;
  const RegionParts* first = nullptr;
  for (const RegionParts& parts : *regions) {
    if (parts.region->region != Region::kForward) continue;
    if (first == nullptr) first = &parts;
    if (parts.layers > 0) of_forwards.insert(parts.layers);
  }
  const int64_t repeats = first == nullptr || !of_forwards.empty()
                              ? 0
                              : RepeatsOf(first->layer_kernels);
  bool told = false;
  for (RegionParts& parts : *regions) {
    if (!IsPassOfLayers(parts.region->region)) continue;
    const bool forward = parts.region->region == Region::kForward;
    if (parts.layers > 0) {
      told = true;
      if (said.of_region > 0 && parts.layers != said.of_region) {
        return BadValue(
            "--layers", absl::StrCat(said.of_region),
            absl::StrCat("the ", parts.layers, " layers that ", rank.source,
                         " tells: ", NameRegion(parts), " goes through ",
                         parts.layers, " like ", parts.layer_name));
      }
      if (!forward && !of_forwards.empty() &&
          of_forwards.count(parts.layers) == 0) {
        return BadValue(FieldPlace::InFile(rank.source, 0, "traceEvents"),
                        absl::StrCat(NameRegion(parts), " goes through ",
                                     parts.layers, " layers"),
                        absl::StrCat("the ", absl::StrJoin(of_forwards, " or "),
                                     " of a forward"));
      }
      continue;
    }
    if (said.of_region > 0) {
      parts.layers = said.of_region;
    } else if (!forward && of_forwards.size() == 1) {
      parts.layers = *of_forwards.begin();
    } else {
      return NobodyTells(rank, said, repeats);
    }
  }
  if (told || first == nullptr) return absl::OkStatus();
  return CheckRepeats(rank, *first, repeats, said.of_region, warnings);
}

absl::Status CheckModelLayers(
    const std::vector<KinetoRank>& ranks, const KinetoLayout& layout,
    const std::vector<std::vector<RegionParts>>& regions, int64_t of_model) {
  if (of_model <= 0) return absl::OkStatus();
  // By pipeline rank.
  std::map<int64_t, std::pair<int64_t, const KinetoRank*>> told;
  for (size_t index = 0; index < ranks.size(); ++index) {
    std::set<std::string> ids;
    for (const RegionParts& parts : regions[index]) {
      ids.insert(parts.layer_ids.begin(), parts.layer_ids.end());
    }
    if (ids.empty()) continue;
    const auto layers = static_cast<int64_t>(ids.size());
    const auto [found, is_new] =
        told.try_emplace(layout.pipeline[index], layers, &ranks[index]);
    if (!is_new && found->second.first != layers) {
      return BadValue(
          FieldPlace::InFile(ranks[index].source, 0, "traceEvents"),
          absl::StrCat(layers, " layers"),
          absl::StrCat("the ", found->second.first, " of ",
                       found->second.second->source, ", of the same stage"));
    }
  }
  if (told.empty()) return absl::OkStatus();
  int64_t sum = 0;
  std::vector<std::string> list;
  for (const auto& [rank, layers] : told) {
    sum += layers.first;
    list.push_back(absl::StrCat(layers.second->source, ": ", layers.first));
  }
  const bool whole =
      layout.pp > 0 && static_cast<int64_t>(told.size()) == layout.pp;
  if (sum > of_model || (whole && sum < of_model)) {
    return BadValue(
        "--model", absl::StrCat(of_model, " layers"),
        absl::StrCat("a model of the ", sum, " layers that the traces tell (",
                     absl::StrJoin(list, ", "), ")"));
  }
  return absl::OkStatus();
}

namespace {

// The search takes the square of it.
constexpr size_t kMostSearched = 8'000;
constexpr double kNearlyAll = 0.8;

}  // namespace

int64_t RepeatsOf(const std::vector<int32_t>& names) {
  const size_t count = names.size();
  if (count > kMostSearched) return 0;
  for (size_t period = 2; period <= count / 2; ++period) {
    size_t longest = 0;
    size_t run = 0;
    size_t end = 0;
    for (size_t at = 0; at + period < count; ++at) {
      run = names[at] == names[at + period] ? run + 1 : 0;
      if (run > longest) end = at;
      longest = std::max(longest, run);
    }
    const auto covered = static_cast<double>(longest + period);
    if (longest < period || covered < kNearlyAll * static_cast<double>(count)) {
      continue;
    }
    const auto block = names.begin() + static_cast<std::ptrdiff_t>(end);
    const bool is_one_name =
        std::all_of(block, block + static_cast<std::ptrdiff_t>(period),
                    [&](int32_t name) { return name == *block; });
    if (is_one_name) return 0;
    return static_cast<int64_t>((longest + period) / period);
  }
  return 0;
}

}  // namespace pipewright

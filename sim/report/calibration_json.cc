#include "sim/report/calibration_json.h"

#include <vector>

#include "sim/base/json.h"
#include "sim/cost/profile_shape.h"
#include "sim/profile/diff.h"

namespace pipewright {
namespace {

using enum ProfilePass;

Json Interval(double low_s, double high_s) {
  return high_s > 0 ? Json::array({low_s, high_s}) : Json();
}

Json TimeJson(const NamedTime& named) {
  const Distribution& time = *named.time;
  return {
      {"key", named.key},
      {"count", time.count},
      {"outliers", time.outliers},
      {"median_s", time.median_s},
      {"confidence_s", Interval(time.confidence_low_s, time.confidence_high_s)},
      {"prediction_s",
       Interval(time.prediction_low_s, time.prediction_high_s)}};
}

const PassEntry* FindPass(const Profile& profile, const SplitEntry& split,
                          ProfilePass pass) {
  for (const PassEntry& entry : profile.passes) {
    if (entry.pass == pass && IsSplitOf(split, entry)) return &entry;
  }
  return nullptr;
}

}  // namespace

SplitNumbers SplitNumbersOf(const Profile& profile, const SplitEntry& split) {
  double sum = 0;
  std::vector<ProfilePass> passes = {kForward, kBackwardInput, kBackwardWeight};
  if (split.recompute) passes.push_back(kRecompute);
  double before_backward = 0;
  for (const ProfilePass pass : passes) {
    const PassEntry* entry = FindPass(profile, split, pass);
    if (entry == nullptr) return {};
    sum += entry->time.median_s;
    if (pass == kForward || pass == kRecompute) {
      before_backward += entry->time.median_s;
    }
  }
  const double fused = split.fused.median_s - before_backward;
  return {split.chain.median_s / sum,
          fused > 0 ? (split.chain.median_s - before_backward) / fused : 0};
}

Json CalibrationJson(const Profile& profile) {
  Json report;
  report["complete"] = profile.complete;
  report["sources"] = Json::array();
  for (const ProfileSource& source : profile.sources) {
    report["sources"].push_back({{"kind", source.kind},
                                 {"date", source.date},
                                 {"device", source.device},
                                 {"backend", source.backend},
                                 {"libraries", source.libraries},
                                 {"seconds", source.seconds},
                                 {"warnings", source.warnings}});
  }
  report["times"] = Json::array();
  for (const NamedTime& time : AllTimes(profile)) {
    report["times"].push_back(TimeJson(time));
  }
  report["kernels"] = Json::array();
  for (const KernelEntry& entry : profile.kernels) {
    const double seconds = entry.time.median_s;
    const auto rate = [seconds](double amount) {
      return amount > 0 && seconds > 0 ? Json(amount / seconds) : Json();
    };
    report["kernels"].push_back({{"key", KeyOf(entry)},
                                 {"flops_per_s", rate(entry.flops)},
                                 {"bytes_per_s", rate(entry.bytes)},
                                 {"implementation", entry.implementation}});
  }
  report["splits"] = Json::array();
  for (const SplitEntry& split : profile.splits) {
    const SplitNumbers numbers = SplitNumbersOf(profile, split);
    report["splits"].push_back({{"key", KeyOf(split)},
                                {"chain_over_sum", numbers.chain},
                                {"split_over_fused", numbers.price}});
  }
  report["interference"] = Json::array();
  for (const InterferenceEntry& entry : profile.interference) {
    report["interference"].push_back(
        {{"key", KeyOf(entry)},
         {"pass_slowdown", entry.pass_slowdown},
         {"pass_interval", {entry.pass_low, entry.pass_high}},
         {"beside_slowdown", entry.beside_slowdown},
         {"beside_interval", {entry.beside_low, entry.beside_high}}});
  }
  report["transfers"] = Json::array();
  for (const TransferEntry& entry : profile.transfers) {
    const double seconds = entry.time.median_s;
    const auto rate = [seconds](double bytes) {
      return seconds > 0 ? Json(bytes / seconds) : Json();
    };
    report["transfers"].push_back(
        {{"key", KeyOf(entry)},
         {"bytes_per_s", rate(static_cast<double>(entry.bytes))},
         {"bus_bytes_per_s", rate(BusBytes(entry))}});
  }
  report["host_memory_bytes_per_s"] = profile.host_memory_bytes_per_s;
  report["device_memory_bytes_per_s"] = profile.device_memory_bytes_per_s;
  return report;
}

}  // namespace pipewright

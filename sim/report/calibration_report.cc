#include "sim/report/calibration_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"
#include "sim/cost/profile_shape.h"
#include "sim/profile/diff.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

// F, (R,) B, W back to back over the sum of the three by themselves, and the
// price of the split: (B+W) / BW. 0 where a pass is missing.
struct SplitNumbers {
  double chain = 0;
  double price = 0;
};

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
         {"pass_interval", Json::array({entry.pass_low, entry.pass_high})},
         {"beside_slowdown", entry.beside_slowdown},
         {"beside_interval",
          Json::array({entry.beside_low, entry.beside_high})}});
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

constexpr size_t kNoisiest = 5;

// Half of the 95 % confidence interval over the median; none where it is not
// known.
std::optional<double> Noise(const Distribution& time) {
  if (time.median_s <= 0 || time.confidence_high_s <= 0) return {};
  return (time.confidence_high_s - time.confidence_low_s) / 2 / time.median_s;
}

void AppendSources(const Profile& profile, std::string* text) {
  for (const ProfileSource& source : profile.sources) {
    absl::StrAppend(
        text, source.kind, ", ", source.date, ", ", source.device,
        source.libraries.empty() ? "" : ", ", source.libraries,
        source.seconds > 0 ? absl::StrFormat(", %.0f s", source.seconds) : "",
        "\n");
    for (const std::string& warning : source.warnings) {
      absl::StrAppend(text, "  warning: ", warning, "\n");
    }
  }
  if (!profile.complete) {
    absl::StrAppend(text, "incomplete: the run was interrupted\n");
  }
}

// A line a part and shape: its F, B, W, BW, R.
void AppendPasses(const Profile& profile, std::string* text) {
  if (profile.passes.empty()) return;
  std::vector<std::string> order;
  std::map<std::string, std::map<ProfilePass, const PassEntry*>> lines;
  for (const PassEntry& entry : profile.passes) {
    PassEntry shape = entry;
    shape.pass = kForward;
    const std::string key = absl::StrReplaceAll(KeyOf(shape), {{" F ", " "}});
    if (lines.count(key) == 0) order.push_back(key);
    lines[key][entry.pass] = &entry;
  }
  size_t width = 0;
  for (const std::string& key : order) width = std::max(width, key.size());
  absl::StrAppendFormat(text, "\n%-*s", static_cast<int>(width), "passes");
  for (int pass = 0; pass < kNumProfilePasses; ++pass) {
    absl::StrAppendFormat(text, "  %9s",
                          ProfilePassName(static_cast<ProfilePass>(pass)));
  }
  absl::StrAppend(text, "   products in F B W\n");
  for (const std::string& key : order) {
    absl::StrAppendFormat(text, "%-*s", static_cast<int>(width), key);
    const auto& line = lines[key];
    for (int pass = 0; pass < kNumProfilePasses; ++pass) {
      const auto found = line.find(static_cast<ProfilePass>(pass));
      absl::StrAppendFormat(text, "  %9s",
                            found == line.end()
                                ? "-"
                                : FormatSeconds(found->second->time.median_s));
    }
    absl::StrAppend(text, "  ");
    for (const ProfilePass pass : {kForward, kBackwardInput, kBackwardWeight}) {
      const auto found = line.find(pass);
      if (found == line.end() || found->second->gemm_s <= 0) continue;
      absl::StrAppendFormat(
          text, " %3.0f %%",
          100 * found->second->gemm_s / found->second->time.median_s);
    }
    absl::StrAppend(text, "\n");
  }
}

// Small passes once more, launched as one.
void AppendGraphs(const Profile& profile, std::string* text) {
  bool first = true;
  for (const PassEntry& entry : profile.passes) {
    if (entry.graph.count == 0) continue;
    if (first) absl::StrAppend(text, "\nas one CUDA graph; over the above\n");
    first = false;
    absl::StrAppendFormat(text, "%-40s %10s  %.3f\n", KeyOf(entry),
                          FormatSeconds(entry.graph.median_s),
                          entry.graph.median_s / entry.time.median_s);
  }
}

void AppendSplits(const Profile& profile, std::string* text) {
  if (profile.splits.empty()) return;
  absl::StrAppend(text,
                  "\nback to back over the sum of the passes alone; price of "
                  "the split, (B+W) / BW\n");
  for (const SplitEntry& split : profile.splits) {
    const SplitNumbers numbers = SplitNumbersOf(profile, split);
    absl::StrAppendFormat(text, "%s  %.3f  %.3f\n", KeyOf(split), numbers.chain,
                          numbers.price);
  }
}

template <class Entry>
void AppendTimes(absl::string_view title, const std::vector<Entry>& entries,
                 std::string* text) {
  if (entries.empty()) return;
  absl::StrAppend(text, "\n", title, "\n");
  for (const Entry& entry : entries) {
    const std::optional<double> noise = Noise(entry.time);
    absl::StrAppendFormat(
        text, "%-40s %10s  %s\n", KeyOf(entry),
        FormatSeconds(entry.time.median_s),
        noise ? absl::StrFormat("+-%.1f %%", 100 * *noise) : "-");
  }
}

// With the bus bandwidth, which tells sizes and numbers of ranks apart that
// reach what the links give from those that do not.
void AppendTransfers(const Profile& profile, std::string* text) {
  if (profile.transfers.empty()) return;
  absl::StrAppend(text, "\ntransfers; bus bandwidth as nccl-tests has it\n");
  for (const TransferEntry& entry : profile.transfers) {
    const std::optional<double> noise = Noise(entry.time);
    const double seconds = entry.time.median_s;
    absl::StrAppendFormat(
        text, "%-40s %10s  %9s  %s\n", KeyOf(entry), FormatSeconds(seconds),
        noise ? absl::StrFormat("+-%.1f %%", 100 * *noise) : "-",
        seconds > 0 ? FormatBandwidth(BusBytes(entry) / seconds) : "-");
  }
}

// What a single kernel achieves: FLOPs where it is made of matrix products,
// else what it reads and writes.
std::string RateText(const KernelEntry& entry) {
  if (entry.time.median_s <= 0) return "-";
  if (entry.flops > 0) {
    return absl::StrFormat("%.3g TFLOP/s",
                           entry.flops / entry.time.median_s / 1e12);
  }
  return FormatBandwidth(entry.bytes / entry.time.median_s);
}

void AppendKernels(const Profile& profile, std::string* text) {
  if (profile.kernels.empty()) return;
  absl::StrAppend(text, "\nsingle kernels\n");
  for (const KernelEntry& entry : profile.kernels) {
    const std::optional<double> noise = Noise(entry.time);
    absl::StrAppendFormat(
        text, "%-48s %10s  %9s  %s%s\n", KeyOf(entry),
        FormatSeconds(entry.time.median_s),
        noise ? absl::StrFormat("+-%.1f %%", 100 * *noise) : "-",
        RateText(entry),
        entry.implementation.empty()
            ? ""
            : absl::StrCat("  ", entry.implementation));
  }
}

void AppendInterference(const Profile& profile, std::string* text) {
  if (profile.interference.empty()) return;
  absl::StrAppend(text,
                  "\nslow-down of the pass, and of what runs beside it "
                  "(95 % intervals)\n");
  for (const InterferenceEntry& entry : profile.interference) {
    absl::StrAppendFormat(
        text, "%-22s %.3f (%.3f to %.3f)   %.3f (%.3f to %.3f)\n", KeyOf(entry),
        entry.pass_slowdown, entry.pass_low, entry.pass_high,
        entry.beside_slowdown, entry.beside_low, entry.beside_high);
  }
}

void AppendNoise(const Profile& profile, std::string* text) {
  std::vector<NamedTime> times = AllTimes(profile);
  times.erase(std::remove_if(times.begin(), times.end(),
                             [](const NamedTime& time) {
                               return !Noise(*time.time).has_value();
                             }),
              times.end());
  if (times.empty()) return;
  std::sort(times.begin(), times.end(),
            [](const NamedTime& one, const NamedTime& other) {
              return Noise(*one.time) > Noise(*other.time);
            });
  absl::StrAppendFormat(text,
                        "\nnoise: half of them are known to +-%.2g %%; "
                        "the noisiest:\n",
                        100 * *Noise(*times[times.size() / 2].time));
  for (size_t index = 0; index < std::min(kNoisiest, times.size()); ++index) {
    absl::StrAppendFormat(text, "  +-%.1f %%  %s\n",
                          100 * *Noise(*times[index].time), times[index].key);
  }
}

// How far measured shapes are missed when predicted from the others.
void AppendLeftOut(const Profile& profile, std::string* text) {
  const std::vector<LeftOutRow> rows = LeaveOneOut(profile);
  if (rows.empty()) return;
  std::vector<double> all;
  absl::StrAppend(text, "\ninterpolation, each shape left out: median error\n");
  for (const LeftOutRow& row : rows) {
    all.insert(all.end(), row.errors.begin(), row.errors.end());
    absl::StrAppendFormat(text, "  %5.1f %%  %s (%d shapes)\n",
                          100 * MedianMagnitude(row.errors), row.name,
                          row.errors.size());
  }
  absl::StrAppendFormat(text, "  %5.1f %%  of all %d\n",
                        100 * MedianMagnitude(all), all.size());
}

std::string ToText(const Profile& profile) {
  std::string text;
  AppendSources(profile, &text);
  AppendPasses(profile, &text);
  AppendGraphs(profile, &text);
  AppendSplits(profile, &text);
  AppendKernels(profile, &text);
  AppendTimes("optimizer", profile.optimizers, &text);
  AppendTimes("copies", profile.copies, &text);
  AppendTransfers(profile, &text);
  AppendInterference(profile, &text);
  if (profile.host_memory_bytes_per_s > 0) {
    absl::StrAppend(&text, "\nmemory of the host: ",
                    FormatBandwidth(profile.host_memory_bytes_per_s), "\n");
  }
  if (profile.device_memory_bytes_per_s > 0) {
    absl::StrAppend(&text, "memory of the device: ",
                    FormatBandwidth(profile.device_memory_bytes_per_s), "\n");
  }
  AppendNoise(profile, &text);
  AppendLeftOut(profile, &text);
  return text;
}

// "layer R", for each that has no entry of the model's shape.
std::vector<std::string> MissingPasses(const Profile& profile,
                                       const ModelSpec& spec,
                                       const ProfileModel& model) {
  std::vector<std::string> missing;
  std::vector<ProfilePart> parts = {ProfilePart::kEmbedding};
  for (const ProfilePart part : LayerPartsOf(spec)) parts.push_back(part);
  parts.push_back(ProfilePart::kHead);
  for (const ProfilePart part : parts) {
    for (int index = 0; index < kNumProfilePasses; ++index) {
      const auto pass = static_cast<ProfilePass>(index);
      // Only layers are recomputed.
      if (pass == kRecompute && !IsLayer(part)) continue;
      const bool there = std::any_of(
          profile.passes.begin(), profile.passes.end(),
          [&](const PassEntry& entry) {
            return entry.part == part && entry.pass == pass &&
                   entry.slices == 0 && SameShape(part, entry.model, model);
          });
      if (there) continue;
      missing.push_back(
          absl::StrCat(ProfilePartName(part), " ", ProfilePassName(pass)));
    }
  }
  return missing;
}

// "b1 s4096 tp1 bf16", of the F of the model's layers, those of experts where
// it has such.
std::vector<std::string> MeasuredShapes(const Profile& profile,
                                        const ModelSpec& spec,
                                        const ProfileModel& model) {
  const ProfilePart part = LayerPartsOf(spec).back();
  std::vector<std::string> shapes;
  for (const PassEntry& entry : profile.passes) {
    if (entry.part != part || entry.pass != kForward ||
        !SameShape(entry.part, entry.model, model)) {
      continue;
    }
    shapes.push_back(absl::StrCat(
        "b", entry.microbatch_size, " s", entry.sequence, " tp", entry.tp,
        entry.ep > 1 ? absl::StrCat(" ep", entry.ep) : "",
        entry.slices > 0 ? absl::StrCat(" 1/", entry.slices, " slice") : "",
        " ", entry.type));
  }
  return shapes;
}

double Share(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

}  // namespace

std::string CalibrationReport(const Profile& profile, bool json) {
  return json ? absl::StrCat(CalibrationJson(profile).dump(2), "\n")
              : ToText(profile);
}

absl::StatusOr<std::string> CalibrationReport(const Profile& profile,
                                              const ModelSpec& model,
                                              bool json) {
  PW_ASSIGN_OR_RETURN(const ProfileModel wanted, ProfileModelOf(model));
  const std::vector<std::string> shapes =
      MeasuredShapes(profile, model, wanted);
  const std::vector<std::string> missing =
      MissingPasses(profile, model, wanted);
  if (json) {
    Json report = CalibrationJson(profile);
    report["model"] = {
        {"name", model.name}, {"shapes", shapes}, {"missing", missing}};
    return absl::StrCat(report.dump(2), "\n");
  }
  return absl::StrCat(
      ToText(profile), "\nmodel ", model.name, ": ",
      shapes.empty() ? "no shape of its layer is measured"
                     : absl::StrCat("measured ", absl::StrJoin(shapes, ", ")),
      missing.empty()
          ? ""
          : absl::StrCat("; missing: ", absl::StrJoin(missing, ", ")),
      "\n");
}

std::string DiffReport(const Profile& before, const Profile& after, bool json) {
  const ProfileDiff diff = DiffProfiles(before, after);
  const auto significant = std::count_if(
      diff.times.begin(), diff.times.end(),
      [](const TimeDifference& time) { return time.significant; });
  if (json) {
    Json report = {{"compared", diff.times.size()},
                   {"significant", significant},
                   {"times", Json::array()},
                   {"only_before", diff.only_before},
                   {"only_after", diff.only_after}};
    for (const TimeDifference& time : diff.times) {
      report["times"].push_back(
          {{"key", time.key},
           {"before_s", time.before_s},
           {"after_s", time.after_s},
           {"ratio", time.ratio},
           {"interval", Json::array({time.ratio_low, time.ratio_high})},
           {"drift_known", time.drift},
           {"interval_known", time.known},
           {"significant",
            time.known ? Json(time.significant) : Json(nullptr)}});
    }
    return absl::StrCat(report.dump(2), "\n");
  }
  std::string text = absl::StrFormat(
      "%d times in both, %d differ by more than noise and drift "
      "(90 %% intervals)\n",
      diff.times.size(), significant);
  for (const TimeDifference& time : diff.times) {
    if (!time.known) {
      absl::StrAppendFormat(&text,
                            "%-60s %10s -> %10s  x%.3f  interval not known\n",
                            time.key, FormatSeconds(time.before_s),
                            FormatSeconds(time.after_s), time.ratio);
      continue;
    }
    if (!time.significant) continue;
    absl::StrAppendFormat(
        &text, "%-60s %10s -> %10s  x%.3f (%.3f to %.3f)%s\n", time.key,
        FormatSeconds(time.before_s), FormatSeconds(time.after_s), time.ratio,
        time.ratio_low, time.ratio_high, time.drift ? "" : "  drift not known");
  }
  for (const std::string& key : diff.only_before) {
    absl::StrAppend(&text, "only in the first: ", key, "\n");
  }
  for (const std::string& key : diff.only_after) {
    absl::StrAppend(&text, "only in the second: ", key, "\n");
  }
  return text;
}

std::string CoverageReport(const std::vector<Profile>& profiles) {
  std::string text = absl::StrFormat(
      "medians of later runs inside the 90 %% prediction interval of earlier "
      "ones, of %d runs\n%-26s %18s  %18s\n",
      profiles.size(), "", "all later runs", "the next run");
  for (const IntervalCoverage& row : CoverageOf(profiles)) {
    if (row.compared == 0) continue;
    absl::StrAppendFormat(
        &text, "%-26s %7d of %7d %5.1f %%  %5d of %5d %5.1f %%\n", row.name,
        row.inside, row.compared, 100 * Share(row.inside, row.compared),
        row.next_inside, row.next_compared,
        100 * Share(row.next_inside, row.next_compared));
  }
  return text;
}

std::string CoverageCsv(const std::vector<Profile>& profiles) {
  std::string text =
      "kind,inside,compared,share,next_inside,next_compared,next_share\n";
  for (const IntervalCoverage& row : CoverageOf(profiles)) {
    if (row.compared == 0) continue;
    absl::StrAppendFormat(
        &text, "%s,%d,%d,%.4f,%d,%d,%.4f\n", row.name, row.inside, row.compared,
        Share(row.inside, row.compared), row.next_inside, row.next_compared,
        Share(row.next_inside, row.next_compared));
  }
  return text;
}

}  // namespace pipewright

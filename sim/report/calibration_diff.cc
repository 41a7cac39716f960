#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/profile/diff.h"
#include "sim/report/calibration_report.h"

namespace pipewright {
namespace {

double Share(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

}  // namespace

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
           {"interval", {time.ratio_low, time.ratio_high}},
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

#include "sim/report/profile_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/base/statistics.h"
#include "sim/report/format.h"

namespace pipewright {
namespace {

std::string FormatNumber(const MeasuredNumber& of, double value) {
  if (of.unit == "s") return FormatSeconds(value);
  if (of.unit == "B/s") return FormatBandwidth(value);
  return absl::StrFormat("%.4g %s", value, of.unit);
}

}  // namespace

ProfileReport ReportProfile(const Profile& profile, std::string name,
                            const ProfileCosts& measured,
                            const PassCosts& costs) {
  ProfileReport report;
  report.name = std::move(name);
  report.description = DescribeProfile(profile);
  report.type = measured.type;
  report.times = measured.times;
  report.stages = costs.stages;
  report.optimizer_s = costs.optimizer_s;
  report.split_price = measured.split_price;
  // A step in fp8 takes this one.
  report.unused_kernels = static_cast<int>(
      std::count_if(profile.kernels.begin(), profile.kernels.end(),
                    [](const KernelEntry& entry) {
                      return entry.name != "quantize.weights";
                    }));
  std::vector<double> errors;
  for (const LeftOutRow& row : LeaveOneOut(profile)) {
    errors.insert(errors.end(), row.errors.begin(), row.errors.end());
  }
  report.left_out_shapes = static_cast<int>(errors.size());
  report.left_out_median = MedianMagnitude(std::move(errors));
  return report;
}

Json ProfileCostsToJson(const ProfileReport& report) {
  Json out = {{"source", "profile"},
              {"profile", report.name},
              {"measured_on", report.description},
              {"type", report.type},
              {"optimizer_s", report.optimizer_s}};
  if (report.split_price > 0) out["split_price"] = report.split_price;
  if (report.left_out_shapes > 0) {
    out["left_out_error_median"] = report.left_out_median;
    out["left_out_shapes"] = report.left_out_shapes;
  }
  out["interference"] = report.interference;
  if (!report.collectives.empty()) out["collectives"] = report.collectives;
  if (!report.measured.empty()) {
    Json numbers = Json::array();
    for (const MeasuredNumber& number : report.measured) {
      numbers.push_back(
          {{"name", number.name},
           {"unit", number.unit},
           {"measured", number.measured},
           {"system", number.system > 0 ? Json(number.system) : Json()}});
    }
    out["measured"] = std::move(numbers);
  }
  if (report.unused_kernels > 0) {
    Json unused = {{"kernels", report.unused_kernels}};
    out["unused"] = std::move(unused);
  }
  Json stages = Json::array();
  for (const StageCosts& stage : report.stages) {
    stages.push_back({{"forward_s", stage.forward_s},
                      {"backward_input_s", stage.backward_input_s},
                      {"backward_weight_s", stage.backward_weight_s},
                      {"backward_full_s",
                       stage.backward_full_s > 0
                           ? stage.backward_full_s
                           : stage.backward_input_s + stage.backward_weight_s},
                      {"recompute_s", stage.recompute_s}});
  }
  out["stages"] = std::move(stages);
  Json passes = Json::array();
  for (const ProfiledTime& time : report.times) {
    Json row = {{"part", std::string(ProfilePartName(time.part))},
                {"pass", std::string(ProfilePassName(time.pass))},
                {"how", HowName(time.how)},
                {"seconds", time.seconds},
                {"noise", time.noise},
                {"shapes", time.points}};
    if (time.nearest->pp > 0) row["rank"] = time.nearest->rank;
    row["error"] = time.error < 0 ? Json() : Json(time.error);
    passes.push_back(std::move(row));
  }
  out["passes"] = std::move(passes);
  return out;
}

std::string ProfileCostsToText(const ProfileReport& report) {
  std::string out = absl::StrCat("pass times of profile ", report.name, " (",
                                 report.description, "), ", report.type, ":\n");
  absl::StrAppendFormat(&out, "%-14s %12s %10s %10s %8s  %s\n", "", "time",
                        "noise", "error", "shapes", "how");
  for (const ProfiledTime& time : report.times) {
    absl::StrAppendFormat(
        &out, "%-14s %12s %10s %10s %8d  %s\n",
        absl::StrCat(
            ProfilePartName(time.part), " ", ProfilePassName(time.pass),
            time.nearest->pp > 0 ? absl::StrCat(" rank ", time.nearest->rank)
                                 : ""),
        FormatSeconds(time.seconds), FormatPercent(time.noise),
        time.error < 0 ? "unknown" : FormatPercent(time.error), time.points,
        HowName(time.how));
  }
  absl::StrAppend(&out,
                  "  noise: half of the 90 % interval for the median of a "
                  "fresh calibration; error: of the interpolation\n");
  if (report.split_price > 0) {
    absl::StrAppendFormat(&out, "  price of the split, (B + W) / BW: %.3f\n",
                          report.split_price);
  }
  if (!report.interference.empty()) {
    absl::StrAppend(&out,
                    "  interference of passes and what runs beside them: ",
                    report.interference, "\n");
  }
  if (!report.collectives.empty()) {
    absl::StrAppend(&out, "  collectives of gradients and parameters: ",
                    report.collectives, ", measured\n");
  }
  for (const MeasuredNumber& number : report.measured) {
    absl::StrAppend(&out, "  ", number.name, ": ",
                    FormatNumber(number, number.measured), ", measured (",
                    number.system > 0
                        ? absl::StrCat("the system has ",
                                       FormatNumber(number, number.system))
                        : "no system says it",
                    ")\n");
  }
  if (report.unused_kernels > 0) {
    absl::StrAppend(&out, "  not used: ", report.unused_kernels,
                    " single kernels, which no time here is made of\n");
  }
  if (report.left_out_shapes > 0) {
    absl::StrAppendFormat(
        &out,
        "  measured shapes left out, predicted from the others: median error "
        "%s of %d\n",
        FormatPercent(report.left_out_median), report.left_out_shapes);
  }
  return out;
}

}  // namespace pipewright

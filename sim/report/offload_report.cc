#include "sim/report/offload_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"

namespace pipewright {

double OffloadReport::exposed_s() const {
  double most_s = 0;
  for (const RankOffloadReport& rank : ranks) {
    most_s = std::max(most_s, rank.exposed_s);
  }
  return most_s;
}

double OffloadReport::held_back_s() const {
  double most_s = 0;
  for (const RankOffloadReport& rank : ranks) {
    most_s = std::max(most_s, rank.held_back_s);
  }
  return most_s;
}

Json OffloadToJson(const OffloadReport& report) {
  Json ranks = Json::array();
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankOffloadReport& row = report.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"activations", row.activations},
                     {"candidates", row.candidates},
                     {"offloaded", row.offloaded},
                     {"exposed_s", row.exposed_s},
                     {"held_back_s", row.held_back_s}});
  }
  Json out = {{"mode", report.mode},
              {"ratio", report.has_ratio ? Json::array({report.least_ratio,
                                                        report.most_ratio})
                                         : Json()},
              {"devices_on_switch", report.devices_on_switch},
              {"exposed_s", report.exposed_s()},
              {"held_back_s", report.held_back_s()}};
  if (report.step_cost_s) out["step_cost_s"] = *report.step_cost_s;
  if (report.cost_left_out) {
    out["step_cost_s"] = nullptr;
    out["step_cost_left_out"] = true;
  }
  out["ranks"] = std::move(ranks);
  return out;
}

std::string OffloadToText(const OffloadReport& report) {
  int64_t activations = 0;
  int64_t candidates = 0;
  int64_t offloaded = 0;
  for (const RankOffloadReport& rank : report.ranks) {
    activations += rank.activations;
    candidates += rank.candidates;
    offloaded += rank.offloaded;
  }
  const std::string ratio =
      !report.has_ratio ? "none"
      : report.most_ratio - report.least_ratio <= 0.005 * report.most_ratio
          ? absl::StrFormat("%.3g", report.most_ratio)
          : absl::StrFormat("%.3g to %.3g", report.least_ratio,
                            report.most_ratio);
  std::string out = absl::StrFormat(
      "%-14s %10s  %d of %d activations wait on the host%s\n", "offload",
      report.mode, offloaded, activations,
      candidates > offloaded
          ? absl::StrFormat(" (%d more do not fit between their passes)",
                            candidates - offloaded)
          : "");
  absl::StrAppendFormat(
      &out, "%-14s %10s  O and L over F, B and W of a chunk%s", "  k", ratio,
      report.has_ratio ? "" : ", which take no time");
  if (report.devices_on_switch > 1) {
    absl::StrAppendFormat(&out, ", %d devices copying over a PCIe switch",
                          report.devices_on_switch);
  }
  absl::StrAppendFormat(&out,
                        "\n%-14s %10s  passes wait for a load alone, on the "
                        "rank that waits longest\n",
                        "  exposed", FormatSeconds(report.exposed_s()));
  if (report.step_cost_s) {
    absl::StrAppendFormat(&out,
                          "%-14s %10s  longer than with copies that take no "
                          "time\n",
                          "  step", FormatSeconds(*report.step_cost_s));
  } else if (report.cost_left_out) {
    absl::StrAppendFormat(&out,
                          "%-14s %10s  what copies cost it takes a second run, "
                          "left out above a million operations\n",
                          "  step", "-");
  }
  if (report.held_back_s() > 0) {
    absl::StrAppendFormat(&out,
                          "%-14s %10s  and until an offload has given memory "
                          "back\n",
                          "  held back", FormatSeconds(report.held_back_s()));
  }
  return out;
}

}  // namespace pipewright

#include "sim/report/offload_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"

namespace pipewright {

RankOffloadReport OffloadReport::Total() const {
  RankOffloadReport all;
  for (const RankOffloadReport& rank : ranks) {
    all.activations += rank.activations;
    all.candidates += rank.candidates;
    all.offloaded += rank.offloaded;
    all.exposed_s = std::max(all.exposed_s, rank.exposed_s);
    all.held_back_s = std::max(all.held_back_s, rank.held_back_s);
  }
  return all;
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
  const RankOffloadReport all = report.Total();
  Json out = {{"mode", report.mode},
              {"ratio", report.has_ratio ? Json::array({report.least_ratio,
                                                        report.most_ratio})
                                         : Json()},
              {"devices_on_switch", report.devices_on_switch},
              {"exposed_s", all.exposed_s},
              {"held_back_s", all.held_back_s}};
  if (report.step_cost_s) out["step_cost_s"] = *report.step_cost_s;
  if (report.cost_left_out) {
    out["step_cost_s"] = nullptr;
    out["step_cost_left_out"] = true;
  }
  out["ranks"] = std::move(ranks);
  return out;
}

std::string OffloadToText(const OffloadReport& report) {
  const RankOffloadReport all = report.Total();
  const std::string ratio =
      !report.has_ratio ? "none"
      : report.most_ratio - report.least_ratio <= 0.005 * report.most_ratio
          ? absl::StrFormat("%.3g", report.most_ratio)
          : absl::StrFormat("%.3g to %.3g", report.least_ratio,
                            report.most_ratio);
  std::string out = ReportLine(
      "offload", report.mode,
      absl::StrCat(all.offloaded, " of ", all.activations,
                   " activations wait on the host",
                   all.candidates > all.offloaded
                       ? absl::StrCat(" (", all.candidates - all.offloaded,
                                      " more do not fit between their passes)")
                       : ""));
  out += ReportLine(
      "  k", ratio,
      absl::StrCat("O and L over F, B and W of a chunk",
                   report.has_ratio ? "" : ", which take no time",
                   report.devices_on_switch > 1
                       ? absl::StrCat(", ", report.devices_on_switch,
                                      " devices copying over a PCIe switch")
                       : ""));
  out += ReportLine(
      "  exposed", FormatSeconds(all.exposed_s),
      "passes wait for a load alone, on the rank that waits longest");
  if (report.step_cost_s) {
    out += ReportLine("  step", FormatSeconds(*report.step_cost_s),
                      "longer than with copies that take no time");
  } else if (report.cost_left_out) {
    out += ReportLine("  step", "-",
                      "what copies cost it takes a second run, left out above "
                      "a million operations");
  }
  if (all.held_back_s > 0) {
    out += ReportLine("  held back", FormatSeconds(all.held_back_s),
                      "and until an offload has given memory back");
  }
  return out;
}

}  // namespace pipewright

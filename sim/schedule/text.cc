#include "sim/schedule/text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/schedule/token.h"

namespace pipewright {

std::string ScheduleToText(const Schedule& schedule) {
  std::string text = absl::StrCat(
      "pipewright-schedule 1\npp ", schedule.pp(), " vpp ", schedule.vpp(),
      " microbatches ", schedule.microbatches, " slices ", schedule.slices,
      " replicas ", schedule.directions,
      schedule.unit > 0 ? absl::StrCat(" unit ", schedule.unit) : "",
      schedule.update_every > 0
          ? absl::StrCat(" update_every ", schedule.update_every)
          : "",
      " placement ", schedule.placement.ToString());
  if (schedule.backward != BackwardRule::kChain) {
    absl::StrAppend(&text, " backward ", BackwardRuleName(schedule.backward));
  }
  text += '\n';
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    absl::StrAppend(&text, rank, ":");
    if (!schedule.order(rank).empty()) text += ' ';
    AppendOrder(schedule, rank, ' ', &text);
    text += '\n';
  }
  return text;
}

std::string ScheduleToJson(const Schedule& schedule) {
  std::string placement = schedule.placement.ToString();
  placement = schedule.placement.shape() == Placement::Shape::kList
                  ? absl::StrCat(
                        "[", absl::StrReplaceAll(placement, {{" ", ", "}}), "]")
                  : absl::StrCat("\"", placement, "\"");
  std::string json = absl::StrCat(
      "{\n  \"format\": \"pipewright-schedule\",\n  \"version\": 1,\n",
      "  \"pp\": ", schedule.pp(), ",\n  \"vpp\": ", schedule.vpp(),
      ",\n  \"microbatches\": ", schedule.microbatches,
      ",\n  \"slices\": ", schedule.slices,
      ",\n  \"replicas\": ", schedule.directions,
      schedule.unit > 0 ? absl::StrCat(",\n  \"unit\": ", schedule.unit) : "",
      schedule.update_every > 0
          ? absl::StrCat(",\n  \"update_every\": ", schedule.update_every)
          : "",
      ",\n  \"placement\": ", placement);
  if (schedule.backward != BackwardRule::kChain) {
    absl::StrAppend(&json, ",\n  \"backward\": \"",
                    BackwardRuleName(schedule.backward), "\"");
  }
  absl::StrAppend(&json, ",\n  \"orders\": [");
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    absl::StrAppend(&json, rank == 0 ? "" : ",", "\n    \"");
    AppendOrder(schedule, rank, ' ', &json);
    json += '"';
  }
  absl::StrAppend(&json, "\n  ]\n}\n");
  return json;
}

std::string ScheduleToCsv(const Schedule& schedule) {
  std::string csv;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    AppendOrder(schedule, rank, ',', &csv);
    csv += '\n';
  }
  return csv;
}

}  // namespace pipewright

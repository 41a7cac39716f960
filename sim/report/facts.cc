#include "sim/report/facts.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pipewright {

std::vector<ReportFact> FactsOf(const Report& report) {
  std::vector<ReportFact> facts;
  const auto add = [&facts](absl::string_view name, const auto& value,
                            std::string note = "") {
    facts.push_back({std::string(name), absl::StrCat(value), std::move(note)});
  };
  add("pp", report.pp);
  add("vpp", report.vpp);
  add("microbatches", report.microbatches);
  if (report.slices > 1) add("slices", report.slices);
  for (const auto& [key, value] : report.params) {
    facts.push_back({key, value, "", ReportFact::Kind::kOwnParam});
  }
  if (report.tp > 1) add("tp", report.tp);
  if (report.cp > 1) {
    add("cp", report.cp,
        report.dp == 1 && report.gradient_sync != "none"
            ? absl::StrCat("gradients: ", report.gradient_sync)
            : "");
  }
  if (report.dp > 1) {
    add("dp", report.dp, absl::StrCat("gradients: ", report.gradient_sync));
  }
  if (report.optimizer != "none") add("optimizer", report.optimizer);
  if (!report.optimizer_placement.empty()) {
    add("optimizer states", report.optimizer_placement,
        report.optimizer_stride > 0
            ? absl::StrCat("stride ", report.optimizer_stride)
            : "");
  }
  if (report.waiting != "buffered") add("waiting", report.waiting);
  if (!report.model.empty()) add("model", report.model);
  if (report.costs) {
    add("pass times estimated for", report.costs->device.name);
  }
  if (report.profile) {
    facts.push_back({"pass times of profile", report.profile->name, "",
                     ReportFact::Kind::kProfile});
  }
  if (!report.engine.empty()) {
    add("engine", report.engine,
        report.activities
            ? absl::StrCat(report.activities->execs, " Exec, ",
                           report.activities->comms, " Comm of SimGrid")
            : "");
  }
  if (!report.network.empty()) add("network", report.network);
  return facts;
}

std::string FactText(const ReportFact& fact) {
  std::string text = absl::StrCat(fact.name, " ", fact.value);
  if (!fact.note.empty()) absl::StrAppend(&text, " (", fact.note, ")");
  return text;
}

const ReportFact* FindFact(const std::vector<ReportFact>& facts,
                           absl::string_view name) {
  for (const ReportFact& fact : facts) {
    if (fact.name == name && fact.kind == ReportFact::Kind::kPlain) {
      return &fact;
    }
  }
  return nullptr;
}

std::string PictureTitle(const Report& report) {
  const std::vector<ReportFact> facts = FactsOf(report);
  std::string title = report.schedule;
  for (const absl::string_view name : {"pp", "vpp", "dp"}) {
    const ReportFact* fact = FindFact(facts, name);
    if (fact == nullptr || (name == "vpp" && report.vpp == 1)) continue;
    absl::StrAppend(&title, ", ", fact->name, " ", fact->value);
  }
  absl::StrAppend(&title, ", ", FindFact(facts, "microbatches")->value,
                  " microbatches");
  for (const ReportFact& fact : facts) {
    if (fact.kind != ReportFact::Kind::kOwnParam) continue;
    absl::StrAppend(&title, ", ", FactText(fact));
  }
  return title;
}

}  // namespace pipewright

#include "sim/report/facts.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/program/program.h"
#include "sim/report/html.h"

namespace pipewright::facts_test {
namespace {

Report Everything() {
  Report report;
  report.schedule = "zb-v";
  report.pp = 4;
  report.vpp = 2;
  report.microbatches = 8;
  report.slices = 3;
  // A parameter may be called as a fact is.
  report.params = {{"model", "own"}, {"variant", "handcrafted"}};
  report.tp = 5;
  report.cp = 6;
  report.dp = 7;
  report.gradient_sync = "zero1";
  report.optimizer = "synchronised";
  report.waiting = "batched";
  report.model = "llama3-8b";
  report.costs.emplace();
  report.costs->device.name = "h100";
  report.engine = "fast";
  report.network = "free";
  return report;
}

constexpr char kAll[] =
    "pp 4, vpp 2, microbatches 8, slices 3, model own, variant handcrafted, "
    "tp 5, cp 6, dp 7 (gradients: zero1), optimizer synchronised, waiting "
    "batched, model llama3-8b, pass times estimated for h100, engine fast, "
    "network free";

TEST_CASE("facts: text and page say the same", "[report]") {
  const Report report = Everything();
  CHECK(absl::StartsWith(ReportToText(report),
                         absl::StrCat("zb-v: ", kAll, "\n\n")));
  const std::string page = ReportHtml(report, Program(), {});
  size_t from = 0;
  for (const ReportFact& fact : FactsOf(report)) {
    INFO(FactText(fact));
    from = page.find(FactText(fact), from);
    REQUIRE(from != std::string::npos);
  }
}

TEST_CASE("facts: one is found by its name, a parameter is not", "[report]") {
  const std::vector<ReportFact> facts = FactsOf(Everything());
  REQUIRE(FindFact(facts, "model") != nullptr);
  CHECK(FindFact(facts, "model")->value == "llama3-8b");
  CHECK(FindFact(facts, "variant") == nullptr);
  CHECK(FindFact(FactsOf(Report()), "dp") == nullptr);
}

TEST_CASE("facts: a title names sizes and parameters", "[report]") {
  Report report = Everything();
  CHECK(PictureTitle(report) ==
        "zb-v, pp 4, vpp 2, dp 7, 8 microbatches, model own, variant "
        "handcrafted");
  report.vpp = report.dp = 1;
  report.params.clear();
  CHECK(PictureTitle(report) == "zb-v, pp 4, 8 microbatches");
}

}  // namespace
}  // namespace pipewright::facts_test

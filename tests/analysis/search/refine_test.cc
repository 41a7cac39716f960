// `plan --refine` and Ctrl-C of a search for an order.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/analysis/search/plan.h"
#include "sim/base/file.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::refine_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;

// Layers that do not divide, on four ranks.
std::vector<std::string> PlanWords(const std::string& memory,
                                   const std::string& more) {
  return absl::StrSplit(
      absl::StrCat("plan --model llama3-8b --set model.layers=11 --analytic "
                   "--system dgx-h100 --nodes 1 --global-batch 16 "
                   "--no-confirm --fix tp=2 --fix pp=4 --fix cp=1 "
                   "--fix microbatch_size=1 --fix offload=none "
                   "--fix recompute=none --fix layout=ends "
                   "--fix data_parallel=ddp --progress none --memory ",
                   memory, " ", more),
      ' ', absl::SkipEmpty());
}

// "pipewright ..." as a shell reads it, by a process of its own.
BinaryResult RunCommand(const std::string& command) {
  return testing::RunProgram(
      {"sh", "-c",
       absl::StrCat("'", testing::BinaryPath(), "'",
                    absl::StripPrefix(command, "pipewright"))});
}

// What the command of a layout reports.
Json ReportOf(const std::string& command) {
  const BinaryResult run = RunCommand(command + " --json");
  INFO(command << run.err);
  REQUIRE(run.exit_code == 0);
  return Json::parse(run.out);
}

TEST_CASE("plan: a refined order is that of its command, and never slower",
          "[search]") {
  const std::string more =
      "--fix schedule=1f1b,zb-h1,interleaved-1f1b,chimera --fix vpp=1,2 "
      "--top 9 ";
  int gains = 0, refused = 0;
  // With little and with much memory.
  for (const char* memory : {"17GiB", "40GiB"}) {
    const BinaryResult plain = RunBinary(PlanWords(memory, more + "--json"));
    const BinaryResult refined =
        RunBinary(PlanWords(memory, more + "--refine 6 --json"));
    INFO(plain.err << refined.err);
    REQUIRE(plain.exit_code == 0);
    REQUIRE(refined.exit_code == 0);
    const Json before = Json::parse(plain.out);
    const Json after = Json::parse(refined.out);
    CHECK(before["refined"].empty());
    CHECK(before["ranked"] == after["ranked"]);
    CHECK(before["best"] == after["best"]);
    // As many as asked for or as there are, and one that cannot be searched.
    const size_t rows = after["refined"].size();
    REQUIRE(rows >= 5);
    REQUIRE(rows <= 7);
    std::set<std::string> layouts;
    for (const Json& row : after["refined"]) {
      const Json& from = row["from"];
      INFO(row.dump(1));
      const double from_s = from["iteration_s"].get<double>();
      layouts.insert(absl::StrCat(from["layout"].get<std::string>(), " ",
                                  from["vpp"].get<int>(), " ",
                                  from["schedule"] == "chimera"));
      if (row["found_order"].is_null()) {
        ++refused;
        CHECK(from["schedule"] == "chimera");
        CHECK(absl::StrContains(row["why_not"].get<std::string>(),
                                "two directions"));
        continue;
      }
      const double found_s = row["iteration_s"].get<double>();
      const Json& order = row["found_order"];
      CHECK(order["least_time_s"].get<double>() <=
            order["time_s"].get<double>() * (1 + 1e-9));
      CHECK(order["least_time_s"].get<double>() <= from_s);
      const Json report = ReportOf(row["command"].get<std::string>());
      CHECK(report["schedule"] == "optimal");
      CHECK(report["iteration_s"].get<double>() ==
            Approx(found_s).epsilon(1e-9));
      CHECK(report["found_order"] == order);
      for (const char* same : {"pp", "vpp", "tp", "dp", "microbatches"}) {
        CHECK(report[same] == from[same]);
      }
      const Json& peaks = report["peak_memory_bytes"];
      CHECK(*std::max_element(peaks.begin(), peaks.end()) ==
            row["peak_memory_bytes"]);
      if (!row["why_not"].is_null()) {
        CHECK(row["gain"] == 0);
        continue;
      }
      ++gains;
      CHECK(report["fits"] == true);
      CHECK(found_s < from_s);
      CHECK(row["gain"].get<double>() ==
            Approx(1 - found_s / from_s).epsilon(1e-9));
    }
    // Rows that differ by the schedule alone are one layout.
    CHECK(layouts.size() == rows);
    const BinaryResult text = RunBinary(PlanWords(memory, more + "--refine 6"));
    INFO(text.out);
    CHECK(absl::StrContains(text.out, "\nsearched orders\n  "));
    CHECK(absl::StrContains(text.out, " % less)"));
    CHECK(absl::StrContains(text.out, ", no order below "));
    for (const Json& row : after["refined"]) {
      if (!row["why_not"].is_null()) continue;
      CHECK(absl::StrContains(text.out,
                              row["command"].get<std::string>() + "\n"));
    }
  }
  CHECK(gains > 5);
  CHECK(refused > 0);
  // An order that is searched for already, and one without a better.
  const BinaryResult again = RunBinary(PlanWords(
      "17GiB", "--fix schedule=optimal --fix vpp=1 --refine 1 --json"));
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(Json::parse(again.out)["refined"][0]["why_not"] ==
        "its order is searched already");
  CHECK(RunBinary(PlanWords("17GiB", "--refine -1")).exit_code == 2);
}

TEST_CASE("plan: a refined order is written where the target can say it",
          "[search]") {
  const TemporaryFolder folder;
  const auto emit = [&](const char* target, const std::string& file) {
    return RunBinary(absl::StrSplit(
        absl::StrCat("plan --model llama3-8b --system dgx-h100 --nodes 1 "
                     "--global-batch 16 --no-confirm --fix tp=2 --fix pp=4 "
                     "--fix vpp=1 --fix cp=1 --fix microbatch_size=1 "
                     "--fix schedule=1f1b --progress none --refine 1 --json "
                     "--emit ",
                     target, " --emit-file ", folder.Path(file)),
        ' '));
  };
  const BinaryResult torchtitan = emit("torchtitan", "run.py");
  INFO(torchtitan.out << torchtitan.err);
  REQUIRE(torchtitan.exit_code == 0);
  CHECK(!absl::StrContains(torchtitan.err, "not written"));
  const Json row = Json::parse(torchtitan.out)["refined"][0];
  CHECK(row["why_not"].is_null());
  // The order of its command, which is not that of 1F1B.
  const std::string order = ReadFile(folder.Path("run.csv")).value_or("");
  CHECK(absl::StrContains(order, "W0"));
  const BinaryResult again = RunCommand(
      absl::StrReplaceAll(row["command"].get<std::string>(),
                          {{" simulate ", " schedule --format torch-csv "}}));
  CHECK(again.exit_code == 0);
  CHECK(order == again.out);

  const BinaryResult megatron = emit("megatron", "run.sh");
  INFO(megatron.out << megatron.err);
  CHECK(megatron.exit_code == 0);
  CHECK(Json::parse(megatron.out)["refined"][0]["why_not"].is_null());
  CHECK(absl::StrContains(megatron.err,
                          "the order that was found is not written: "));
}

// Has the program begun, and does it catch SIGINT?
bool Catches(int process) {
  std::error_code error;
  if (!std::filesystem::equivalent(absl::StrCat("/proc/", process, "/exe"),
                                   testing::BinaryPath(), error)) {
    return false;  // still the test itself
  }
  const std::string status =
      ReadFile(absl::StrCat("/proc/", process, "/status")).value_or("");
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::StartsWith(line, "SigCgt:")) continue;
    uint64_t mask = 0;
    return absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line.substr(7)),
                               &mask) &&
           (mask >> 1 & 1) != 0;
  }
  return false;
}

TEST_CASE("optimal: Ctrl-C gives the best so far", "[search]") {
  const std::string words =
      "--pp 8 --microbatches 40 --max-activations 3 --forward 10ms "
      "--backward-input 10.5ms --backward-weight 8ms --p2p 1ms "
      "--param steps=1000000000";
  const auto interrupted = [&](const std::string& verb) {
    return testing::InterruptBinary(
        absl::StrSplit(absl::StrCat(verb, " ", words), ' '),
        [](int process, const std::string&) { return Catches(process); });
  };
  const BinaryResult run =
      interrupted("simulate --engine fast --json --schedule optimal");
  INFO(run.out << run.err);
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(run.err, "stopped by a signal"));
  const Json found = Json::parse(run.out)["found_order"];
  CHECK(found["cut"] == true);
  CHECK(found["steps"].get<int64_t>() > 0);
  CHECK(found["time_s"].get<double>() >= found["least_time_s"].get<double>());
  CHECK(found["time_s"].get<double>() <= found["start_time_s"].get<double>());

  const BinaryResult order = interrupted("schedule optimal");
  INFO(order.out << order.err);
  CHECK(order.exit_code == 1);
  CHECK(absl::StrContains(order.err, "stopped by a signal"));
  const auto read = ParseScheduleFile(order.out, "test");
  REQUIRE(read.ok());
  CHECK(VerifySchedule(read->schedule).ok());
  // A schedule that does not search ends at once.
  CHECK(
      RunBinary(
          absl::StrSplit(
              "simulate --engine fast --schedule 1f1b --pp 2 --microbatches 4",
              ' '))
          .exit_code == 0);
}

PlanRequest SmallRequest() {
  std::vector<ConfigEdit> edits;
  for (const auto& [path, value] :
       std::vector<std::pair<const char*, const char*>>{
           {"model.preset", "llama3-8b"},
           {"model.layers", "11"},
           {"system.preset", "dgx-h100"},
           {"system.nodes", "1"},
           {"system.memory", "17GiB"},
           {"costs.analytic.device", "auto"}}) {
    edits.push_back({path, value, "test"});
  }
  PlanRequest request;
  request.base = ReadConfig("", "", {edits}).value();
  request.global_batch = 16;
  request.fixed = {{"tp", {"2"}},         {"pp", {"4"}},
                   {"cp", {"1"}},         {"microbatch_size", {"1"}},
                   {"offload", {"none"}}, {"recompute", {"none"}},
                   {"layout", {"ends"}},  {"data_parallel", {"ddp"}},
                   {"vpp", {"1"}},        {"schedule", {"1f1b"}}};
  return request;
}

TEST_CASE("plan: what is cut while it refines keeps what it has", "[search]") {
  const auto plan = [](PlanOptions options) {
    RunContext context;
    options.confirm = false;
    return MakePlan(SmallRequest(), options, &context).value();
  };
  int asked = 0;
  const PlanOutcome before = plan({.stops = [&] {
    ++asked;
    return PlanCut::kNone;
  }});
  REQUIRE(before.cut == PlanCut::kNone);
  const int until = asked + 20;
  asked = 0;
  const PlanOutcome cut = plan(
      {.stops =
           [&] { return ++asked > until ? PlanCut::kSignal : PlanCut::kNone; },
       .refined = 5});
  CHECK(cut.cut == PlanCut::kSignal);
  REQUIRE(cut.ranked.size() == before.ranked.size());
  CHECK(cut.ranked[0].iteration_s == before.ranked[0].iteration_s);
  REQUIRE(cut.refined.size() == 1);
  REQUIRE(cut.refined[0].found);
  CHECK(cut.refined[0].found->is_cut);
  CHECK(absl::StrContains(PlanToText(cut), ", cut\n"));
  CHECK(absl::StrContains(PlanToText(cut),
                          "the search had ended, what follows it had not"));
  CHECK(Json::parse(PlanToJson(cut))["refined"][0]["found_order"]["cut"] ==
        true);
}

}  // namespace
}  // namespace pipewright::refine_test

// What `pipewright execute` says about each way to run, and its pictures.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/report/run_to_train.h"
#include "sim/base/file.h"
#include "sim/config/prepare.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::execute_modes_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using testing::WordsOf;

// With hops of 1 ms, unless `more` says what links there are.
BinaryResult Execute(const std::string& more) {
  const bool links =
      absl::StrContains(more, "--p2p ") || absl::StrContains(more, "--system ");
  return RunBinary(WordsOf(absl::StrCat(
      "execute --model gpt-tiny --set model.hidden=64 --set "
      "model.ffn_hidden=256 --schedule 1f1b --pp 2 --microbatches 4 --steps 2 "
      "--json ",
      links ? "" : "--p2p 1ms ", more)));
}

bool AssumesTimes(const std::vector<std::string>& warnings) {
  return std::any_of(warnings.begin(), warnings.end(), [](const auto& text) {
    return absl::StrContains(text, "no pass times are given");
  });
}

TEST_CASE("cli: execute assumes pass times on the paced clock alone",
          "[cli][execute][long]") {
  for (const char* const clock : {"--clock virtual", "--clock real --p2p 0ms",
                                  "--clock virtual --replay-rank all"}) {
    const BinaryResult run = Execute(clock);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK_FALSE(AssumesTimes({run.err}));
    CHECK_FALSE(AssumesTimes(
        Json::parse(run.out)["warnings"].get<std::vector<std::string>>()));
  }
  const auto config = ReadConfig(
      "schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 4}", "a.yaml");
  REQUIRE(config.ok());
  for (const ClockKind clock :
       {ClockKind::kVirtual, ClockKind::kPaced, ClockKind::kReal}) {
    const auto run = Prepare(WithoutUnexecuted(*config, clock));
    REQUIRE(run.ok());
    CHECK(AssumesTimes(run->warnings) == (clock == ClockKind::kPaced));
  }
  const auto simulated = Prepare(*config);
  REQUIRE(simulated.ok());
  CHECK(AssumesTimes(simulated->warnings));
}

constexpr char kTimes[] =
    "--forward 6ms --backward-input 6ms --backward-weight 6ms --engine fast ";

TEST_CASE("cli: execute draws what it has measured", "[cli][execute]") {
  const TemporaryFolder folder;
  std::string more = kTimes;
  for (const char* const name : {"svg", "html", "trace", "perfetto"}) {
    absl::StrAppend(&more, " --", name, " ", folder.Path(name));
  }
  const BinaryResult run = Execute(more);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  CHECK(report["execute"]["check"]["same_bits"] == true);
  CHECK(report["execute"]["replay"] == nullptr);
  CHECK(report["execute"]["predicted_span_s"].size() == 2);
  const std::string svg = *ReadFile(folder.Path("svg"));
  CHECK(
      absl::StrContains(svg, "1f1b, pp 2, 4 microbatches, executed, virtual"));
  CHECK(absl::StrContains(svg, "rank 1"));
  const std::string html = *ReadFile(folder.Path("html"));
  for (const char* const text :
       {"Gradients agree with the sequential run: bit for bit",
        "measured over predicted", "<svg", "not validated",
        "links and copies take the model"}) {
    INFO(text);
    CHECK(absl::StrContains(html, text));
  }
  CHECK(Json::parse(*ReadFile(folder.Path("trace")))["traceEvents"].size() >
        16);
}

TEST_CASE("cli: each way to execute says what it does not validate",
          "[cli][execute][long]") {
  struct Case {
    const char* more;
    const char* says;
    bool checked;
  };
  const TemporaryFolder folder;
  for (const auto& [more, says, checked] :
       {Case{"", "links and copies take the model's time", true},
        Case{"--clock real --p2p 0ms", "threads of one machine stand for",
             true},
        Case{"--clock paced", "no kernel has run", false},
        Case{"--one-at-a-time", "one rank computes at a time", true},
        Case{"--replay-rank 1", "no gradient is checked", false},
        Case{"--replay-rank all", "every link and collective", false},
        Case{"--replay-rank all --clock real",
             "devices that compute at the same time", false}}) {
    const BinaryResult run = Execute(
        absl::StrCat(kTimes, more, " --html ", folder.Path("page.html")));
    INFO(says << run.err);
    REQUIRE(run.exit_code == 0);
    const Json execute = Json::parse(run.out)["execute"];
    CHECK(absl::StrContains(execute["not_validated"].get<std::string>(), says));
    CHECK(execute["check"].is_null() == !checked);
    CHECK(absl::StrContains(*ReadFile(folder.Path("page.html")),
                            "nothing says that the gradients are right") ==
          !checked);
  }
}

TEST_CASE("cli: a rank alone stands among the predicted others",
          "[cli][execute]") {
  const BinaryResult run = Execute(absl::StrCat(kTimes, "--replay-rank 1"));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  const Json& replay = report["execute"]["replay"];
  REQUIRE(replay["ranks"].size() == 1);
  CHECK(replay["ranks"][0]["rank"] == 1);
  CHECK(replay["passes"] == 1);
  // Four microbatches of 18 ms on the one that has not run.
  CHECK(report["ranks"][0]["busy_s"].get<double>() ==
        Approx(0.072).epsilon(1e-9));
  CHECK(report["ranks"][1]["busy_s"].get<double>() > 0);
  CHECK(report["ranks"][1]["busy_s"].get<double>() !=
        Approx(0.072).epsilon(1e-9));
  CHECK(report["execute"]["peak_bytes"][0] == 0);
  CHECK(report["execute"]["peak_bytes"][1].get<double>() > 1e6);
}

TEST_CASE("cli: what only the prediction would have is refused",
          "[cli][execute][long]") {
  struct Case {
    const char* more;
    const char* says;
  };
  for (const auto& [more, says] :
       {Case{"--clock real",
             "costs.p2p: 1 ms is not allowed; allowed: 0ms, or --clock virtual "
             "or paced"},
        Case{"--clock real --system dgx-h100",
             "system: dgx-h100 is not allowed; allowed: none, --clock virtual"},
        Case{"--set costs.microbatch_factor=1,2,1,1",
             "costs.microbatch_factor: 2 is not allowed; allowed: 1, or "
             "--clock paced"},
        Case{"--clock real --p2p 0ms --set costs.microbatch_factor=1,2,1,1",
             "costs.microbatch_factor: 2"},
        Case{"--pair-factor 0.9",
             "costs.pair_factor: 0.9 is not allowed; allowed: 1, or --clock "
             "paced"},
        Case{"--interference on", "costs.interference: on"},
        Case{"--clock paced --interference on", "costs.interference: on"}}) {
    const BinaryResult run = Execute(absl::StrCat(kTimes, more));
    INFO(says << "\n" << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, says));
    const auto refusal = Json::try_parse(run.out);
    REQUIRE(refusal.is_object());
    CHECK(refusal.size() == 1);
    CHECK(refusal["error"]["exit"] == 2);
  }
  // The paced clock has them, and a rank alone gets what the hops bring.
  for (const char* const more :
       {"--clock paced --set costs.microbatch_factor=1,2,1,1",
        "--clock real --replay-rank all"}) {
    const BinaryResult run = Execute(absl::StrCat(kTimes, more));
    INFO(run.err);
    CHECK(run.exit_code == 0);
  }
}

TEST_CASE("cli: ways to execute that do not go together", "[cli][execute]") {
  struct Case {
    const char* more;
    const char* says;
  };
  for (const auto& [more, says] :
       {Case{"--replay-rank 2", "0 to 1, all"},
        Case{"--replay-rank one", "0 to 1, all"},
        Case{"--replay-rank 1", "how long the other ranks take"},
        Case{"--replay-rank all --clock paced --forward 1ms --backward 2ms",
             "virtual or real"},
        Case{"--green-contexts", "--device cuda"}}) {
    const BinaryResult run = Execute(more);
    INFO(says << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, says));
  }
}

}  // namespace
}  // namespace pipewright::execute_modes_test

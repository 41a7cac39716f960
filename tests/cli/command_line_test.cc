#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/sweep/points.h"
#include "sim/base/file.h"
#include "sim/base/version.h"
#include "sim/config/flags.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::command_line_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using Arguments = std::vector<std::string>;

constexpr char kSchedule[] =
    "pipewright-schedule 1\n"
    "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
    "0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1\n";

const Arguments kRun = {"simulate", "--schedule",
                        "zb-h1",    "--pp",
                        "8",        "--microbatches",
                        "24",       "--forward",
                        "18.522ms", "--backward-input",
                        "18.086ms", "--backward-weight",
                        "9.337ms",  "--p2p",
                        "0.601ms"};

Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("cli: a run needs no file, on both engines", "[cli]") {
  for (const char* engine : {"fast", "simgrid"}) {
    const BinaryResult run =
        RunBinary(With(kRun, {"--engine", engine, "--json"}));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(run.err.empty());
    const Json report = Json::parse(run.out);
    CHECK(report["engine"] == engine);
    CHECK(report["bubble_fraction"]["per_rank"].get<double>() ==
          Approx(0.1585).margin(5e-5));
    CHECK(report["ops"] == 8 * 24 * 3);
    CHECK(report["peak_activations"].size() == 8);
  }
}

TEST_CASE("cli: simgrid is the default engine of simulate", "[cli]") {
  const BinaryResult run = RunBinary(With(kRun, {"--json"}));
  REQUIRE(run.exit_code == 0);
  CHECK(Json::parse(run.out)["engine"] == "simgrid");
}

TEST_CASE("cli: warnings go to standard error, JSON stays alone", "[cli]") {
  const BinaryResult run =
      RunBinary({"simulate", "--schedule", "1f1b", "--pp", "2",
                 "--microbatches", "4", "--engine", "fast", "--json"});
  REQUIRE(run.exit_code == 0);
  CHECK(absl::StrContains(run.err, "warning: no pass times"));
  CHECK(absl::StrContains(run.err, "warning: neither p2p nor a system"));
  CHECK(Json::parse(run.out)["warnings"].size() == 2);
}

TEST_CASE("cli: flags win over --set, and --set over the file", "[cli]") {
  const TemporaryFolder folder;
  const std::string config = folder.Write(
      "run.yaml",
      "strategy: {pp: 2, microbatches: 4}\nschedule: {name: gpipe}\n"
      "engine: fast\n");
  const BinaryResult run =
      RunBinary({"simulate", config, "--set", "strategy.pp=3", "--set",
                 "strategy.microbatches=5", "--pp", "4", "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  CHECK(report["pp"] == 4);
  CHECK(report["microbatches"] == 5);
  CHECK(report["schedule"] == "gpipe");
}

TEST_CASE("cli: --help all names every flag's path", "[cli]") {
  const BinaryResult help = RunBinary({"simulate", "--help", "all"});
  CHECK(help.exit_code == 0);
  CHECK(help.err.empty());
  for (const ConfigFlag& flag : ConfigFlags()) {
    INFO(flag.flag);
    CHECK(absl::StrContains(help.out, flag.flag));
    CHECK(absl::StrContains(help.out, absl::StrCat(flag.path, ": ")));
  }
  const BinaryResult all = RunBinary({"--help"});
  CHECK(all.exit_code == 0);
  for (const char* verb : {"simulate", "schedule", "check", "sweep", "plan",
                           "explain", "plot", "calibrate", "execute", "compare",
                           "reproduce", "list", "init", "version"}) {
    CHECK(absl::StrContains(all.out, verb));
  }
}

TEST_CASE("cli: every output file is written", "[cli]") {
  const TemporaryFolder folder;
  const BinaryResult run = RunBinary(With(
      kRun,
      {"--engine", "fast", "-o", folder.Path("report.txt"), "--svg",
       folder.Path("grid.svg"), "--trace", folder.Path("t.json"), "--perfetto",
       folder.Path("t.pb"), "--html", folder.Path("report.html")}));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(run.out.empty());
  CHECK(folder.Files() ==
        Arguments{"grid.svg", "report.html", "report.txt", "t.json", "t.pb"});
  CHECK(absl::StrContains(ReadFile(folder.Path("grid.svg")).value(), "<svg"));
  CHECK(Json::parse(ReadFile(folder.Path("t.json")).value())
            .contains("traceEvents"));
  CHECK(absl::StrContains(ReadFile(folder.Path("report.txt")).value(),
                          "15.85 %"));
}

TEST_CASE("cli: schedule prints forms that read back", "[cli]") {
  const TemporaryFolder folder;
  const Arguments build = {"schedule", "1f1b",           "--pp",
                           "2",        "--microbatches", "2"};
  const BinaryResult text = RunBinary(build);
  REQUIRE(text.exit_code == 0);
  CHECK(text.out == kSchedule);
  const std::string file = folder.Write("x.pws", text.out);
  const BinaryResult as_json =
      RunBinary({"schedule", file, "--format", "json"});
  REQUIRE(as_json.exit_code == 0);
  CHECK(Json::parse(as_json.out)["pp"] == 2);
  const std::string json_file = folder.Write("x.json", as_json.out);
  CHECK(RunBinary({"schedule", json_file}).out == kSchedule);
  CHECK(RunBinary(With(build, {"--json"})).out == as_json.out);
  CHECK(RunBinary(With(build, {"--format", "csv"})).out ==
        "F0,F1,BW0,BW1\nF0,BW0,F1,BW1\n");
  CHECK(absl::StrContains(RunBinary(With(build, {"--format", "svg"})).out,
                          "<svg"));
  // A file simulates as the schedule that it was made of.
  const Arguments rest = {"--engine",  "fast", "--json",     "--p2p", "1ms",
                          "--forward", "1ms",  "--backward", "2ms"};
  const BinaryResult from_file =
      RunBinary(With({"simulate", "--schedule", file}, rest));
  const BinaryResult from_name = RunBinary(With(
      {"simulate", "--schedule", "1f1b", "--pp", "2", "--microbatches", "2"},
      rest));
  REQUIRE(from_file.exit_code == 0);
  CHECK(Json::parse(from_file.out)["span_s"] ==
        Json::parse(from_name.out)["span_s"]);
}

TEST_CASE("cli: check tells legal, oversized and broken files apart", "[cli]") {
  const TemporaryFolder folder;
  const std::string good = folder.Write("good.pws", kSchedule);
  const BinaryResult legal = RunBinary({"check", good, "--json"});
  CHECK(legal.exit_code == 0);
  CHECK(Json::parse(legal.out)["valid"] == true);
  CHECK(Json::parse(legal.out)["ops"] == 8);
  CHECK(Json::parse(legal.out)["peak_activations"] ==
        std::vector<double>{2.0, 1.0});

  const BinaryResult fits =
      RunBinary({"check", good, "--max-activations", "2", "--json"});
  CHECK(fits.exit_code == 0);
  CHECK(Json::parse(fits.out)["fits"] == true);
  const BinaryResult large =
      RunBinary({"check", good, "--max-activations", "1.5", "--json"});
  CHECK(large.exit_code == 3);
  CHECK(Json::parse(large.out)["fits"] == false);
  CHECK(absl::StrContains(large.err, "1.5 is exceeded"));

  std::string text = kSchedule;
  const std::string missing =
      folder.Write("missing.pws", text.replace(text.find("F1 "), 3, ""));
  const BinaryResult broken = RunBinary({"check", missing, "--json"});
  CHECK(broken.exit_code == 4);
  CHECK(Json::parse(broken.out)["valid"] == false);
  CHECK(absl::StrContains(broken.err, "missing.pws"));

  const std::string deadlock = folder.Write(
      "deadlock.pws",
      "pipewright-schedule 1\n"
      "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
      "0: F0 BW0 F1 BW1\n1: F1 BW1 F0 BW0\n");
  const BinaryResult blocked = RunBinary({"check", deadlock});
  CHECK(blocked.exit_code == 4);
  CHECK(absl::StrContains(blocked.err, ">"));
}

TEST_CASE("cli: list gives one object a kind", "[cli]") {
  for (const char* kind :
       {"schedules", "topologies", "systems", "models", "devices"}) {
    const BinaryResult list = RunBinary({"list", kind, "--json"});
    INFO(list.err);
    REQUIRE(list.exit_code == 0);
    const Json rows = Json::parse(list.out)[kind];
    REQUIRE(!rows.empty());
    const BinaryResult text = RunBinary({"list", kind});
    for (const Json& row : rows) {
      CHECK(absl::StrContains(text.out, row["name"].get<std::string>()));
    }
  }
  const Json models =
      Json::parse(RunBinary({"list", "models", "--json"}).out)["models"];
  for (const Json& model : models) {
    if (model["name"] == "llama3-8b") CHECK(model["parameters"] == 8030261248);
    if (model["name"] == "mixtral-8x7b") {
      CHECK(model["parameters"] == 46702792704);
      CHECK(model["active_parameters"] == 12879925248);
      CHECK(model["experts"] == 8);
    }
    CHECK(model["source"] != "");
  }
  const std::string text = RunBinary({"list", "models"}).out;
  CHECK(absl::StrContains(text, "8.030 B"));
  CHECK(absl::StrContains(text, "12.88 B"));
}

TEST_CASE("cli: the template of init runs", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("run.yaml");
  CHECK(RunBinary({"init", "-o", file}).exit_code == 0);
  CHECK(ReadFile(file).value() == RunBinary({"init"}).out);
  const BinaryResult run =
      RunBinary({"simulate", file, "--engine", "fast", "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.err.empty());
  CHECK(Json::parse(run.out)["schedule"] == "zb-h1");
  // Somebody's configuration is not overwritten.
  const BinaryResult again = RunBinary({"init", "-o", file});
  CHECK(again.exit_code == 2);
  CHECK(absl::StrContains(again.err, "does not exist yet"));
}

TEST_CASE("cli: --set takes the name of a flag", "[cli]") {
  const auto run = [](const std::string& set) {
    return RunBinary({"simulate", "--microbatches", "8", "--engine", "fast",
                      "--set", set, "--json"});
  };
  const BinaryResult named = run("pp=4");
  INFO(named.err);
  CHECK(named.exit_code == 0);
  CHECK(named.out == run("strategy.pp=4").out);
  CHECK(absl::StrContains(run("pp=0").err, "--set pp=0: strategy.pp: 0"));
  // A section is none.
  CHECK(run("system=dgx-h100").exit_code == 2);
}

TEST_CASE("cli: what is missing is said with what may stand there", "[cli]") {
  const auto said = [](const Arguments& words) {
    const BinaryResult run = RunBinary(words);
    CHECK(run.exit_code == 2);
    return run.err;
  };
  CHECK(absl::StrContains(said({"simulate"}), "or a model"));
  CHECK(absl::StrContains(said({"list"}), "WHAT: missing; allowed: schedules"));
  CHECK(absl::StrContains(said({"reproduce"}), "zero-bubble-table5"));
  CHECK(absl::StrContains(said({"run", "llama3-8b"}),
                          "did you mean 'simulate'?"));
  CHECK(absl::StrContains(said({"simulate", "llama3-8b", "--gpus", "8"}),
                          "did you mean '--nodes'?"));
}

TEST_CASE("cli: version says what was built, and with what", "[cli]") {
  const BinaryResult text = RunBinary({"version"});
  CHECK(text.exit_code == 0);
  CHECK(absl::StrContains(text.out,
                          absl::StrCat("pipewright ", kVersion, "\n")));
  const Json json = Json::parse(RunBinary({"version", "--json"}).out);
  CHECK(json["version"] == kVersion);
  CHECK(json["model_version"] == kModelVersion);
  CHECK(absl::StrContains(json["compiler"].get<std::string>(), "."));
  if (!json["commit"].is_null()) {
    const std::string commit = json["commit"].get<std::string>();
    CHECK(commit.substr(0, commit.find('+'))
              .find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(json["commit_date"].get<std::string>().size() == 10);
    CHECK(absl::StrContains(text.out, commit));
  }
  for (const char* library :
       {"Abseil", "CLI11", "nlohmann-json", "protobuf", "SQLite", "yaml-cpp",
        "zlib", "SimGrid", "oneDNN", "MPI", "CUDA"}) {
    INFO(library);
    const std::string version = json["libraries"][library].get<std::string>();
    CHECK(absl::StrContains(text.out, version));
    CHECK(version.find_first_of("0123456789n") != std::string::npos);
  }
  const std::string citation =
      ReadFile(testing::SourcePath("CITATION.cff")).value();
  CHECK(absl::StrContains(citation,
                          absl::StrCat("version: ", kVersion, "\n")));
}

}  // namespace
}  // namespace pipewright::command_line_test

// check with a model, and the count of activations that it shares with
// simulate; one time for a whole backward.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::check_model_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

Json RunJson(Words words, int exit_code = 0) {
  words.push_back("--json");
  const BinaryResult run = RunBinary(words);
  INFO(absl::StrJoin(words, " ") << "\n" << run.err);
  CHECK(run.exit_code == exit_code);
  const Json report = Json::try_parse(run.out);
  REQUIRE(report.is_object());
  return report;
}

std::string Schedule(const TemporaryFolder& folder, const std::string& name) {
  const std::string path = folder.Path("order.pws");
  REQUIRE(RunBinary({"schedule", name, "--pp", "4", "--microbatches", "8", "-o",
                     path})
              .exit_code == 0);
  return path;
}

TEST_CASE("check: counts activations as simulate does, in the same words",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string file = Schedule(folder, "zb-h1");
  const std::string estimated = folder.Write(
      "estimated.yaml",
      "model: {preset: llama3-8b}\nsystem: {preset: dgx-h100, memory: 900GiB}\n"
      "costs: {analytic: {}}\n");
  const Words checks[] = {{"check", file},
                          {"check", file, "--held-until-weight", "0.25"},
                          {"check", file, "--model", "llama3-8b"},
                          {"check", file, "--config", estimated}};
  const Words runs[] = {
      {"simulate", "--schedule", file},
      {"simulate", "--schedule", file, "--held-until-weight", "0.25"},
      {"simulate", "--schedule", file, "--model", "llama3-8b", "--forward",
       "1ms", "--backward", "2ms"},
      {"simulate", estimated, "--schedule", file}};
  std::vector<double> held;
  for (size_t index = 0; index < 4; ++index) {
    Words run = runs[index];
    run.insert(run.end(), {"--engine", "fast"});
    const Json checked = RunJson(checks[index]);
    const Json simulated = RunJson(run);
    CHECK(checked["peak_activations"] == simulated["peak_activations"]);
    CHECK(checked["held_until_weight"] == simulated["held_until_weight"]);
    held.push_back(checked["held_until_weight"].get<double>());
    // The sentence behind "microbatches" is one.
    const std::string check_text = RunBinary(checks[index]).out;
    const std::string run_text = RunBinary(run).out;
    const size_t at = check_text.find("in microbatches through");
    REQUIRE(at != std::string::npos);
    const std::string note =
        check_text.substr(at, check_text.find('\n', at) - at);
    CHECK(absl::StrContains(note, "held_until_weight"));
    CHECK(absl::StrContains(run_text, note));
  }
  // They are four different counts, so equality above says something.
  CHECK(held[0] == 1);
  CHECK(held[1] == 0.25);
  CHECK(held[2] == 1);
  CHECK(held[3] < 1);
}

TEST_CASE("check: --model tells what memory an order takes", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = Schedule(folder, "1f1b");
  const Json simulated = RunJson(
      {"simulate", "--schedule", file, "--model", "llama3-8b", "--memory",
       "900GiB", "--engine", "fast", "--forward", "1ms", "--backward", "2ms"});
  const Json checked = RunJson({"check", file, "--model", "llama3-8b"});
  CHECK(checked["memory"]["ranks"] == simulated["memory"]["ranks"]);
  CHECK(!checked.contains("fits"));
  const Json fits =
      RunJson({"check", file, "--model", "llama3-8b", "--memory", "900GiB"});
  CHECK(fits["fits"] == true);
  const Json over =
      RunJson({"check", file, "--model", "llama3-8b", "--memory", "1GiB"}, 3);
  CHECK(over["fits"] == false);
  CHECK(over["error"]["exit"] == 3);
  CHECK(over["error"]["field"] == "system.memory");
  CHECK(absl::StrContains(
      RunBinary({"check", file, "--model", "llama3-8b"}).out, "memory: rank "));
  const BinaryResult bare = RunBinary({"check", file, "--memory", "1GiB"});
  CHECK(bare.exit_code == 2);
  CHECK(absl::StrContains(bare.err, "with --model"));
}

TEST_CASE("costs: one time for a backward is half B and half W", "[cli]") {
  const Words base = {"simulate", "--schedule",     "zb-h1", "--pp",
                      "4",        "--microbatches", "8",     "--engine",
                      "fast",     "--p2p",          "1ms"};
  const auto with = [&](Words more) {
    Words words = base;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Json whole = RunJson(with({"--forward", "3ms", "--backward", "10ms"}));
  const Json halves = RunJson(with({"--forward", "3ms", "--backward-input",
                                    "5ms", "--backward-weight", "5ms"}));
  REQUIRE(whole["warnings"].size() == 1);
  CHECK(whole["warnings"][0] ==
        "--backward: costs.uniform.backward: half of it is taken for B "
        "(backward_input), half for W (backward_weight), 5 ms each");
  CHECK(whole.without("warnings") == halves.without("warnings"));
  const Json list = RunJson(with(
      {"--forward", "3ms,3ms,3ms,3ms", "--backward", "10ms,10ms,10ms,10ms"}));
  CHECK(list["iteration_s"].get<double>() ==
        Approx(halves["iteration_s"].get<double>()));

  const TemporaryFolder folder;
  const std::string file = folder.Write(
      "run.yaml",
      "schedule: {name: zb-h1}\nstrategy: {pp: 4, microbatches: 8}\n"
      "costs: {p2p: 1ms, uniform: {forward_ms: 3, backward_ms: 10}}\n");
  CHECK(RunJson({"simulate", file, "--engine", "fast"})["iteration_s"] ==
        halves["iteration_s"]);
  // A flag puts aside what the file says in the other way.
  CHECK(RunJson({"simulate", file, "--engine", "fast", "--backward-input",
                 "5ms", "--backward-weight", "5ms"})["warnings"]
            .empty());
  for (const char* const other : {"--backward-input", "--backward-weight"}) {
    const BinaryResult both = RunBinary(
        with({"--forward", "3ms", "--backward", "10ms", other, "5ms"}));
    INFO(both.err);
    CHECK(both.exit_code == 2);
    CHECK(absl::StrContains(both.err,
                            "--backward: costs.uniform.backward: given "
                            "together with"));
    CHECK(absl::StrContains(both.err, other));
  }
}

}  // namespace
}  // namespace pipewright::check_model_test

// Runs that nobody gave times: in units of a pass everywhere, in seconds
// nowhere.
#include <catch2/catch.hpp>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"
#include "tests/support/run_here.h"

namespace pipewright::defaults_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunHere;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

const Words kUnits = {"simulate",       "--schedule", "1f1b",     "--pp", "4",
                      "--microbatches", "8",          "--engine", "fast"};
const Words kTimes = {"--forward", "1s", "--backward", "2s"};

Words Plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// "3 s", "1.5 ms", "(us)": a number of seconds, or a column of them.
bool HasSeconds(const std::string& text) {
  static const std::regex seconds(
      R"((^|[^\w.])([0-9.]+ |\()(s|ms|us|ns)($|[^\w/]))");
  return std::regex_search(text, seconds);
}

std::string Out(const Words& words) {
  const BinaryResult run = RunHere(words);
  INFO(run.err);
  CHECK(run.exit_code == 0);
  return run.out;
}

TEST_CASE("units: the report has no seconds, tokens or MFU", "[cli]") {
  // A 1F1B step is (m + p - 1)(F + B + W).
  const std::string text = Out(kUnits);
  CHECK(absl::StrContains(text, "33 units"));
  CHECK(absl::StrContains(text, "busy (units)"));
  CHECK(!HasSeconds(text));
  CHECK(HasSeconds(Out(Plus(kUnits, kTimes))));
  const Words tokens = {"--sequence", "1024", "--microbatch-size", "2"};
  const Json units = Json::parse(Out(Plus(Plus(kUnits, tokens), {"--json"})));
  CHECK(units["time_unit"] == "unit");
  CHECK(units["span_s"]["global"] == 33);
  CHECK(!units.contains("tokens_per_s"));
  CHECK(!units.contains("mfu"));
  const Json seconds =
      Json::parse(Out(Plus(Plus(Plus(kUnits, kTimes), tokens), {"--json"})));
  CHECK(seconds["time_unit"] == "s");
  CHECK(seconds.contains("tokens_per_s"));
  CHECK(seconds["bubble_fraction"] == units["bubble_fraction"]);
}

TEST_CASE("units: axes and pages have none either", "[cli]") {
  const TemporaryFolder folder;
  Out(Plus(kUnits, {"--svg", folder.Path("a.svg"), "--html",
                    folder.Path("a.html"), "-o", folder.Path("a.txt")}));
  const std::string svg = ReadFile(folder.Path("a.svg")).value();
  CHECK(absl::StrContains(svg, "(units)"));
  CHECK(!HasSeconds(svg));
  const std::string html = ReadFile(folder.Path("a.html")).value();
  CHECK(absl::StrContains(html, "33 units"));
  CHECK(absl::StrContains(html, "\"inUnits\":true"));
  // Scripts and their data have words of their own.
  const std::string body = html.substr(0, html.find("<script"));
  CHECK(!HasSeconds(body));
  Words explain = kUnits;
  explain[0] = "explain";
  CHECK(absl::StrContains(Out(explain), "step 33 units"));
  CHECK(!HasSeconds(Out(explain)));
  CHECK(Json::parse(Out(Plus(explain, {"--json"})))["time_unit"] == "unit");
  Out(Plus(explain,
           {"--svg", folder.Path("b.svg"), "-o", folder.Path("b.txt")}));
  const std::string parts = ReadFile(folder.Path("b.svg")).value();
  CHECK(absl::StrContains(parts, "33 units"));
  CHECK(!HasSeconds(parts));
  const std::string draws =
      Out(Plus(kUnits, {"--jitter", "3%", "--seeds", "4"}));
  CHECK(absl::StrContains(draws, "units"));
  CHECK(!HasSeconds(draws));
}

TEST_CASE("units: traces and hops say so", "[cli]") {
  const TemporaryFolder folder;
  const auto marks = [&folder](const Words& more) {
    const std::string chrome = folder.Path("a.json");
    const std::string perfetto = folder.Path("a.pftrace");
    const std::string text = Out(
        Plus(Plus(kUnits, more), {"--trace", chrome, "--perfetto", perfetto}));
    const std::string mark = "1 s stands for 1 unit of a pass";
    return absl::StrCat(
        absl::StrContains(ReadFile(chrome).value(), mark) ? "chrome " : "",
        absl::StrContains(ReadFile(perfetto).value(), mark) ? "perfetto " : "",
        HasSeconds(text) ? "seconds" : "units");
  };
  CHECK(marks({"--p2p", "0"}) == "chrome perfetto units");
  CHECK(marks(kTimes) == "seconds");
}

TEST_CASE("units: they are compared with units alone", "[cli]") {
  const TemporaryFolder folder;
  const std::string units = folder.Path("units.json");
  const std::string slower = folder.Path("slower.json");
  const std::string seconds = folder.Path("seconds.json");
  const Words text = {"-o", folder.Path("report.txt")};
  Out(Plus(Plus(kUnits, text), {"--trace", units}));
  Out(Plus(Plus(kUnits, text),
           {"--slow-devices", "rank1*2", "--trace", slower}));
  Out(Plus(Plus(Plus(kUnits, kTimes), text), {"--trace", seconds}));
  const std::string both = Out({"compare", units, slower});
  CHECK(absl::StrContains(both, "(units)"));
  CHECK(!HasSeconds(both));
  for (const Words& words :
       {Words{"compare", units, seconds}, Words{"compare", seconds, units}}) {
    const BinaryResult run = RunHere(words);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, "in units of a pass"));
  }
  const BinaryResult draws = RunHere(
      Plus(kUnits, {"--jitter", "3%", "--seeds", "2", "--versus",
                    "costs.uniform.forward=1s,costs.uniform.backward=2s"}));
  CHECK(draws.exit_code == 2);
  CHECK(absl::StrContains(draws.err, "to both, or to neither"));
}

TEST_CASE("units: sweeps and figures say so", "[cli]") {
  const TemporaryFolder folder;
  const std::string rows = folder.Path("rows.sqlite");
  const std::string text =
      Out({"sweep", "--schedule", "1f1b", "--microbatches", "8", "--engine",
           "fast", "--sweep", "strategy.pp=2,4", "-o", rows, "-j", "1"});
  CHECK(absl::StrContains(text, "iteration in units of a pass"));
  const std::string svg = folder.Path("f.svg");
  Out({"plot", rows, "--x", "pp", "--y", "iteration_s", "-o", svg});
  CHECK(absl::StrContains(ReadFile(svg).value(), ", units<"));
  const std::string units = folder.Path("units.json");
  const std::string seconds = folder.Path("seconds.json");
  Out(Plus(kUnits, {"--json", "-o", units}));
  Out(Plus(Plus(kUnits, kTimes), {"--json", "-o", seconds}));
  const BinaryResult mixed =
      RunHere({"plot", units, seconds, "--x", "pp", "--y", "iteration_s"});
  CHECK(mixed.exit_code == 2);
  CHECK(absl::StrContains(mixed.err, "in units of a pass"));
  // Ratios have no unit.
  Out({"plot", units, seconds, "--x", "pp", "--y", "bubble_fraction.per_rank"});
}

TEST_CASE("units: a plan needs times or a model", "[cli]") {
  const BinaryResult plan =
      RunHere({"plan", "--fix", "nodes=8", "--global-batch", "64"});
  CHECK(plan.exit_code == 2);
  CHECK(absl::StrContains(plan.err, "a model on a system"));
}

TEST_CASE("defaults: check needs no times of a model", "[cli]") {
  const TemporaryFolder folder;
  const std::string order = folder.Path("order.pws");
  Out({"schedule", "1f1b", "--pp", "4", "--microbatches", "8", "-o", order});
  const std::string text =
      Out({"check", order, "--model", "llama3-8b", "--memory", "640GiB"});
  CHECK(absl::StrContains(text, "memory: "));
  CHECK(RunHere({"schedule", "1f1b", "--model", "llama3-8b"}).exit_code == 2);
}

}  // namespace
}  // namespace pipewright::defaults_test

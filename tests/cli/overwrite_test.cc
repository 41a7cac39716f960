// No verb writes a file that the same call reads, nor two outputs to one file,
// nor a format under another format's name. The outputs are those that the
// command line itself has; one without a call in the table fails.
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "sim/cli/verbs.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::overwrite_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::RunProgram;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

// "calibrate import" -> its flags that name a file to write.
void Collect(const CLI::App* verb, const std::string& path,
             std::map<std::string, Words>* outputs) {
  for (const CLI::Option* option : verb->get_options()) {
    if (option->get_group() == "Output" && option->get_type_name() == "FILE") {
      (*outputs)[path].push_back(option->get_name());
    }
  }
  for (const CLI::App* below : verb->get_subcommands(nullptr)) {
    Collect(below,
            path.empty() ? below->get_name()
                         : absl::StrCat(path, " ", below->get_name()),
            outputs);
  }
}

std::map<std::string, Words> OutputsOfVerbs() {
  CLI::App app;
  Action action;
  AddVerbs(&app, &action);
  std::map<std::string, Words> outputs;
  Collect(&app, "", &outputs);
  return outputs;
}

struct Call {
  Words words;   // all but outputs
  Words inputs;  // files that it reads
};

// A call of each verb that gets as far as its outputs are looked at.
std::map<std::string, Call> Calls(const TemporaryFolder& folder) {
  const std::string schedule = folder.Write("s.pws", "none");
  const std::string model = folder.Write("m.json", "{}");
  const std::string system = folder.Write("s.textproto", "");
  const std::string profile = folder.Write("p.txtpb", "");
  const std::string config = folder.Write(
      "k.yaml",
      "schedule: {file: s.pws}\nmodel: {hf: m.json}\nsystem: {file: "
      "s.textproto}\ncosts: {profile: ./p.txtpb}\n");
  const Words all = {config, schedule, model, system, profile};
  const std::string first = folder.Write("a.json", "{}");
  const std::string second = folder.Write("b.json", "{}");
  const std::string other = folder.Write("q.txtpb", "");
  return {
      {"simulate", {{"simulate", config}, all}},
      {"schedule", {{"schedule", "--config", config}, all}},
      {"list", {{"list", "schedules", "--config", config}, all}},
      {"compare", {{"compare", first, second}, {first, second}}},
      {"reproduce",
       {{"reproduce", "zero-bubble-table5", "--engine", "fast", "--diff",
         first},
        {first}}},
      {"execute", {{"execute", config}, all}},
      {"init", {{"init"}, {}}},
      {"plan", {{"plan", config, "--global-batch", "8"}, all}},
      {"explain", {{"explain", config}, all}},
      {"plot", {{"plot", first, second}, {first, second}}},
      {"diagnose", {{"diagnose", first}, {first}}},
      {"sweep", {{"sweep", config, "--sweep", "strategy.pp=1,2"}, all}},
      {"calibrate",
       {{"calibrate", "--model", "gpt-tiny", "--merge", profile}, {profile}}},
      {"calibrate coverage",
       {{"calibrate", "coverage", profile, other}, {profile, other}}},
      {"calibrate system",
       {{"calibrate", "system", profile, "--system", "dgx-h100"}, {profile}}},
      {"calibrate import",
       {{"calibrate", "import", "--kineto", first, "--nccl-tests", second,
         "--nvbandwidth", model, "--model", "gpt-tiny"},
        {first, second, model}}},
  };
}

Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// `other`: a flag that may be named instead.
void CheckRefused(const Words& words, const std::string& flag,
                  const std::string& part, const std::string& kept,
                  const std::string& other = "") {
  const std::string before = kept.empty() ? "" : ReadFile(kept).value();
  const BinaryResult run = RunBinary(words);
  INFO(absl::StrJoin(words, " ") << "\n" << run.err);
  CHECK(run.exit_code == 2);
  const auto names = [&run](const std::string& name) {
    return absl::StrContains(run.err, absl::StrCat("error: ", name, ": "));
  };
  CHECK((names(flag) || (!other.empty() && names(other))));
  CHECK(absl::StrContains(run.err, part));
  if (!kept.empty()) CHECK(ReadFile(kept).value() == before);
}

TEST_CASE("overwrite: no output of any verb is one of its inputs", "[cli]") {
  const TemporaryFolder folder;
  const std::map<std::string, Call> calls = Calls(folder);
  for (const auto& [verb, flags] : OutputsOfVerbs()) {
    INFO(verb << ": has outputs, but no call in this test");
    REQUIRE(calls.count(verb) == 1);
    const Call& call = calls.at(verb);
    for (const std::string& flag : flags) {
      for (const std::string& input : call.inputs) {
        CheckRefused(With(call.words, {flag, input}), flag,
                     "which this call reads", input);
      }
    }
  }
}

TEST_CASE("overwrite: links are seen through", "[cli]") {
  const TemporaryFolder folder;
  const Call call = Calls(folder).at("simulate");
  const std::string config = call.inputs[0];
  const std::string soft = folder.Path("soft");
  const std::string hard = folder.Path("hard");
  const std::string other = folder.Path("other");
  REQUIRE(::symlink("k.yaml", soft.c_str()) == 0);
  REQUIRE(::link(config.c_str(), hard.c_str()) == 0);
  REQUIRE(::symlink(".", other.c_str()) == 0);
  for (const std::string& path :
       {soft, hard, other + "/k.yaml", folder.Path("./k.yaml")}) {
    CheckRefused(With(call.words, {"-o", path}), "-o", "which this call reads",
                 config);
  }
  // Two outputs, of which neither is there yet.
  CheckRefused(
      With(call.words, {"--svg", folder.Path("new"), "--html", other + "/new"}),
      "--html", "another file than that of --svg", "");
}

TEST_CASE("overwrite: no two outputs of a verb are one file", "[cli]") {
  const TemporaryFolder folder;
  const std::map<std::string, Call> calls = Calls(folder);
  const std::string there = folder.Write("there", "old");
  for (const auto& [verb, flags] : OutputsOfVerbs()) {
    for (size_t one = 0; one < flags.size(); ++one) {
      for (size_t two = one + 1; two < flags.size(); ++two) {
        CheckRefused(
            With(calls.at(verb).words, {flags[one], there, flags[two], there}),
            flags[two], "another file than that of", there, flags[one]);
      }
    }
  }
  // What calibrate writes on the way counts too.
  const std::string partial = folder.Write("x.partial", "");
  CheckRefused({"calibrate", "--model", "gpt-tiny", "--merge", partial, "-o",
                folder.Path("x")},
               "-o", "which this call reads", partial);
}

TEST_CASE("overwrite: an ending that is another format's is refused", "[cli]") {
  const TemporaryFolder folder;
  const std::map<std::string, Call> calls = Calls(folder);
  for (const auto& [verb, flags] : OutputsOfVerbs()) {
    for (const std::string& flag : flags) {
      for (const char* const name : {"t.pdf", "t.PNG", "t.json.gz"}) {
        // Figures are written in these.
        if (verb == "plot" && flag == "-o") continue;
        if (flag == "--figure" && !absl::EndsWith(name, ".gz")) continue;
        if (flag == "--trace" && absl::EndsWith(name, ".gz")) continue;
        CheckRefused(With(calls.at(verb).words, {flag, folder.Path(name)}),
                     flag, "in no format's ending", "");
      }
    }
  }
  const Words small = {"simulate",       "--schedule", "1f1b",     "--pp", "2",
                       "--microbatches", "2",          "--engine", "fast"};
  for (const Words& wrong :
       {Words{"--svg", "t.html"}, Words{"--trace", "x.svg"},
        Words{"--html", "x.json"}, Words{"-o", "r.json"},
        Words{"--trace", "t.svg.gz"}, Words{"--perfetto", "t.json.gz"},
        Words{"--svg", "t.svg.gz"}, Words{"--json", "-o", "r.txt"}}) {
    Words words = With(small, wrong);
    words.back() = folder.Path(words.back());
    CheckRefused(words, wrong[wrong.size() - 2], "in no format's ending", "");
  }
  for (const Words& right :
       {Words{"--svg", "t.svg"}, Words{"--svg", "t"}, Words{"--svg", "t.v2"},
        Words{"--svg", ".svgs"}, Words{"-o", "r.txt"},
        Words{"--json", "-o", "r.json"}, Words{"--json", "-o", "r"}}) {
    Words words = With(small, right);
    words.back() = folder.Path(words.back());
    const BinaryResult run = RunBinary(words);
    INFO(run.err);
    CHECK(run.exit_code == 0);
    CHECK(std::filesystem::exists(words.back()));
  }
}

TEST_CASE("overwrite: standard output is a file like others", "[cli]") {
  const TemporaryFolder folder;
  const std::string words =
      "simulate --schedule 1f1b --pp 2 --microbatches 2 --engine fast ";
  const auto shell = [&](const std::string& line) {
    return RunProgram({"sh", "-c",
                       absl::StrCat("cd '", folder.Path(""), "' && '",
                                    testing::BinaryPath(), "' ", line)});
  };
  folder.Write("k.yaml", "schedule: {name: 1f1b}\n");
  const BinaryResult onto = shell(words + "k.yaml >> k.yaml");
  CHECK(onto.exit_code == 2);
  CHECK(absl::StrContains(onto.err, "which this call reads"));
  const BinaryResult same = shell(words + "--svg out > out");
  CHECK(same.exit_code == 2);
  CHECK(absl::StrContains(same.err, "standard output"));
  // By its name it is fine, and nothing is lost of either.
  const BinaryResult both = shell(words + "--svg /dev/stdout > both; cat both");
  INFO(both.err);
  CHECK(both.exit_code == 0);
  CHECK(absl::StrContains(both.out, "<svg"));
  CHECK(absl::StrContains(both.out, "iteration time"));
  const BinaryResult piped = shell(words + "--svg /dev/stdout | cat");
  CHECK(absl::StrContains(piped.out, "<svg"));
  CHECK(absl::StrContains(piped.out, "iteration time"));
  CHECK(shell(words + "--svg /dev/null --html /dev/null").exit_code == 0);
  // With --json standard output is one object.
  const BinaryResult mixed = shell(words + "--json --svg /dev/stdout | cat");
  CHECK(absl::StrContains(mixed.err, "--svg: /dev/stdout is not allowed"));
  CHECK_FALSE(absl::StrContains(mixed.out, "<svg"));
  const BinaryResult apart =
      shell(words + "--json -o run.json --svg /dev/stdout");
  CHECK(apart.exit_code == 0);
  CHECK(absl::StrContains(apart.out, "<svg"));
  CHECK_FALSE(absl::StrContains(apart.out, "iteration_s"));
}

}  // namespace
}  // namespace pipewright::overwrite_test

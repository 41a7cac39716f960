// Completion and the manual page hold what the command line itself has.
#include "sim/cli/completion.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/cli/verbs.h"
#include "sim/schedule/registry.h"
#include "tests/support/run_binary.h"
#include "tests/support/run_here.h"

namespace pipewright::completion_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::VerbTable;
using Words = std::vector<std::string>;

bool OnPath(const std::string& program) {
  return RunProgram({"sh", "-c", absl::StrCat("command -v ", program)})
             .exit_code == 0;
}

// What bash offers for the last of `words`.
Words Offered(const TemporaryFolder& folder, const std::string& script,
              const Words& words) {
  std::string quoted;
  for (const std::string& word : words)
    absl::StrAppend(&quoted, " '", word, "'");
  const std::string file = folder.Write(
      "ask.sh",
      absl::StrCat("source '", script, "'\nCOMP_WORDS=(", quoted,
                   ")\nCOMP_CWORD=", words.size() - 1,
                   "\n_pipewright\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"));
  const BinaryResult run = RunProgram({"bash", file});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  Words offered = absl::StrSplit(run.out, '\n', absl::SkipEmpty());
  std::sort(offered.begin(), offered.end());
  return offered;
}

bool Has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST_CASE("completion: bash offers verbs, flags and values", "[cli]") {
  const TemporaryFolder folder;
  const std::string script =
      folder.Write("pipewright.bash", RunBinary({"completion", "bash"}).out);
  const auto offered = [&](const Words& words) {
    return Offered(folder, script, words);
  };
  CHECK(offered({"pipewright", "sim"}) == Words{"simulate"});
  CHECK(offered({"pipewright", "calibrate", "imp"}) == Words{"import"});
  CHECK(offered({"pipewright", "simulate", "--engine", ""}) ==
        Words{"fast", "fluid", "simgrid"});
  CHECK(offered({"pipewright", "simulate", "--engine", "=", "fa"}) ==
        Words{"fast"});
  CHECK(offered({"pipewright", "simulate", "--engine", "="}) ==
        Words{"fast", "fluid", "simgrid"});
  CHECK(offered({"pipewright", "simulate", "--microb"}) ==
        Words{"--microbatch-size", "--microbatches"});
  CHECK(offered({"pipewright", "list", "sch"}) == Words{"schedules"});
  CHECK(Has(offered({"pipewright", "simulate", "--model", "llama3-"}),
            "llama3-70b"));
  CHECK(offered({"pipewright", "simulate", "--system", "dgx-h1"}) ==
        Words{"dgx-h100"});
  // Names where words stand, and behind = of a field.
  CHECK(offered({"pipewright", "simulate", "llama3-7"}) == Words{"llama3-70b"});
  CHECK(offered({"pipewright", "plan", "llama3-7"}) == Words{"llama3-70b"});
  CHECK(offered({"pipewright", "help", "sim"}) == Words{"simulate"});
  CHECK(offered({"pipewright", "help", "exit"}) == Words{"exit-codes"});
  CHECK(offered({"pipewright", "simulate", "--set", "system.shape", "=",
                 "rail"}) == Words{"rail-optimised"});
  CHECK(Has(offered({"pipewright", "simulate", "--analytic", "h2"}), "h200"));
  CHECK(Has(offered({"pipewright", "calibrate", "import", "--device", "h1"}),
            "h100"));
  // What may stand alone is followed by options, too.
  CHECK(offered({"pipewright", "simulate", "--analytic", "--microbatch-"}) ==
        Words{"--microbatch-size"});
  // A number has no values, and the option after it is one again.
  CHECK(offered({"pipewright", "simulate", "--pp", ""}).empty());
  CHECK(Has(offered({"pipewright", "simulate", "--pp", "4", "--v"}), "--vpp"));
  // An option of another verb is not offered.
  CHECK(offered({"pipewright", "version", "--microb"}).empty());
  Words schedules;
  for (const ScheduleInfo* info : AllSchedules()) {
    schedules.push_back(info->name);
  }
  const Words found = offered({"pipewright", "simulate", "--schedule", ""});
  for (const std::string& name : schedules) {
    INFO(name);
    CHECK(Has(found, name));
  }
  // Files too.
  const std::string file = folder.Write("mine.yaml", "");
  CHECK(offered({"pipewright", "simulate", file.substr(0, file.size() - 3)}) ==
        Words{file});
}

TEST_CASE("completion: every shell's script holds every verb and option",
          "[cli]") {
  const std::vector<VerbRow> table = VerbTable();
  const std::string bash = BashCompletion(table);
  const std::string zsh = ZshCompletion(table);
  const std::string fish = FishCompletion(table);
  const std::string man = ManualPage(table);
  CHECK(RunBinary({"completion", "zsh"}).out == zsh);
  CHECK(RunBinary({"completion", "fish"}).out == fish);
  CHECK(RunBinary({"man"}).out == man);
  int options = 0;
  for (const VerbRow& verb : table) {
    INFO(verb.path);
    CHECK(absl::StrContains(bash, verb.path));
    CHECK(absl::StrContains(fish, verb.path));
    for (const OptionRow& option : verb.options) {
      for (const std::string& name : option.names) {
        ++options;
        INFO(name);
        CHECK(absl::StrContains(bash, name));
        CHECK(absl::StrContains(zsh, absl::StrCat(name, ":")));
        CHECK(absl::StrContains(fish,
                                absl::StartsWith(name, "--")
                                    ? absl::StrCat(" -l ", name.substr(2))
                                    : absl::StrCat(" -s ", name.substr(1))));
      }
    }
  }
  CHECK(options > 200);
  // Verbs of later versions are no offer.
  CHECK_FALSE(absl::StrContains(man, "not available in this version"));
}

// The table has names that stand in no field of the configuration; each verb
// says itself which ones it takes.
TEST_CASE("completion: named values are those that the verb takes", "[cli]") {
  struct Asked {
    Words words;
    std::string verb;
    std::string option;
  };
  const std::vector<Asked> all = {
      {{"list", "none-such"}, "list", "WHAT"},
      {{"init", "none-such"}, "init", "WHAT"},
      {{"completion", "none-such"}, "completion", "SHELL"},
      {{"reproduce", "none-such"}, "reproduce", "NAME"},
      {{"schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--format",
        "none-such"},
       "schedule",
       "--format"},
  };
  for (const Asked& asked : all) {
    const BinaryResult run = RunBinary(asked.words);
    INFO(run.err);
    CHECK(run.exit_code == 2);
    bool seen = false;
    for (const VerbRow& verb : VerbTable()) {
      for (const OptionRow& option : verb.options) {
        if (verb.path != asked.verb || (option.place != asked.option &&
                                        !Has(option.names, asked.option))) {
          continue;
        }
        seen = true;
        CHECK_FALSE(option.values.empty());
        // To the end of the list.
        const std::string names = absl::StrJoin(option.values, ", ");
        CHECK(absl::StrContains(run.err, names));
        CHECK_FALSE(absl::StrContains(run.err, names + ", "));
      }
    }
    CHECK(seen);
  }
}

TEST_CASE("completion: zsh and fish read their scripts", "[cli]") {
  const TemporaryFolder folder;
  const std::string zsh =
      folder.Write("_pipewright", RunBinary({"completion", "zsh"}).out);
  const std::string fish =
      folder.Write("p.fish", RunBinary({"completion", "fish"}).out);
  if (OnPath("zsh")) {
    const BinaryResult run = RunProgram({"zsh", "-n", zsh});
    INFO(run.err);
    CHECK(run.exit_code == 0);
  } else {
    WARN("skipped: no zsh");
  }
  if (OnPath("fish")) {
    const BinaryResult run = RunProgram(
        {"fish", "--no-config", "-c",
         absl::StrCat("source ", fish,
                      "; complete -C 'pipewright simulate --engine '")});
    INFO(run.out << run.err);
    CHECK(run.exit_code == 0);
    CHECK(absl::StrContains(run.out, "fast"));
    CHECK(absl::StrContains(run.out, "simgrid"));
  } else {
    WARN("skipped: no fish");
  }
}

TEST_CASE("completion: the manual page is clean mdoc", "[cli]") {
  const BinaryResult page = RunBinary({"man"});
  REQUIRE(page.exit_code == 0);
  CHECK(absl::StrContains(page.out, ".Ss simulate"));
  if (!OnPath("mandoc")) {
    WARN("skipped: no mandoc");
    return;
  }
  const TemporaryFolder folder;
  const std::string file = folder.Write("pipewright.1", page.out);
  const BinaryResult lint = RunProgram({"mandoc", "-Tlint", file});
  INFO(lint.out << lint.err);
  CHECK(lint.exit_code == 0);
  CHECK(lint.out.empty());
  const BinaryResult shown = RunProgram({"mandoc", "-Tascii", file});
  CHECK(absl::StrContains(shown.out, "microbatches"));
}

TEST_CASE("init: the template of a system is a system", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("mine.textproto");
  REQUIRE(RunBinary({"init", "system", "-o", file}).exit_code == 0);
  const BinaryResult run = RunBinary(
      {"simulate", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
       "--forward", "1ms", "--backward", "2ms", "--hop-bytes", "1MiB",
       "--system", file, "--engine", "fast", "--json"});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(RunBinary({"init", "run"}).out == RunBinary({"init"}).out);
  const BinaryResult other = RunBinary({"init", "none"});
  CHECK(other.exit_code == 2);
  CHECK(absl::StrContains(other.err, "run, system"));
}

}  // namespace
}  // namespace pipewright::completion_test

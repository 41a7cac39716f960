// Help in layers: a page for each verb that fits a screen, and examples that
// run.
#include "sim/cli/help.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/file.h"
#include "sim/cli/option_table.h"
#include "sim/cli/verbs.h"
#include "sim/config/flags.h"
#include "tests/support/execute_job.h"
#include "tests/support/kineto_trace.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"
#include "tests/support/run_here.h"

namespace pipewright::help_test {
namespace {

using testing::BinaryResult;
using testing::RunHere;
using testing::TemporaryFolder;
using testing::VerbTable;
using testing::WordsOf;
using Words = std::vector<std::string>;

// Columns of UTF-8.
size_t Columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xc0) != 0x80;
  });
}

TEST_CASE("help: every verb's page fits a screen and names its own options",
          "[cli]") {
  int verbs = 0;
  for (const VerbRow& verb : VerbTable()) {
    Words words = WordsOf(verb.path);
    words.push_back("--help");
    const BinaryResult page = RunHere(words);
    INFO(verb.path << "\n" << page.out);
    CHECK(page.exit_code == 0);
    CHECK(page.err.empty());
    const Words lines = absl::StrSplit(page.out, '\n');
    CHECK(lines.size() - 1 <= kMostHelpLines);
    for (const std::string& line : lines) {
      INFO(line);
      CHECK(Columns(line) <= kMostHelpColumns);
    }
    for (const OptionRow& option : verb.options) {
      if (option.group == kConfigGroup || option.group.empty()) continue;
      const std::string& name =
          option.names.empty() ? option.place : option.names.back();
      INFO(name);
      CHECK(absl::StrContains(page.out, name));
    }
    // The same by the verb `help`, and whatever stands before --help.
    Words asked = {"help"};
    for (const std::string& word : WordsOf(verb.path)) asked.push_back(word);
    CHECK(RunHere(asked).out == page.out);
    if (!verb.path.empty()) {
      CHECK(absl::StrContains(page.out, "Usage: pipewright " + verb.path));
      CHECK(absl::StrContains(page.out,
                              "pipewright " + verb.path + " --help all"));
      ++verbs;
    }
    CHECK((HelpExamples(verb.path).empty() ||
           absl::StrContains(page.out, "Examples:")));
  }
  CHECK(verbs > 20);
  CHECK(RunHere({"simulate", "--pp", "0", "-h"}).out ==
        RunHere({"help", "simulate"}).out);
}

TEST_CASE("help: all has every option", "[cli]") {
  for (const VerbRow& verb : VerbTable()) {
    if (verb.path.empty()) continue;
    Words words = WordsOf(verb.path);
    words.insert(words.end(), {"--help", "all"});
    const BinaryResult page = RunHere(words);
    INFO(verb.path);
    CHECK(page.exit_code == 0);
    for (const OptionRow& option : verb.options) {
      for (const std::string& name : option.names) {
        INFO(name);
        CHECK((option.group.empty() || absl::StrContains(page.out, name)));
      }
    }
  }
}

TEST_CASE("help: topics have every flag of the configuration", "[cli]") {
  std::string all;
  for (const std::string& topic : HelpTopics()) {
    const BinaryResult page = RunHere({"help", topic});
    INFO(topic);
    CHECK(page.exit_code == 0);
    for (const std::string& line : Words(absl::StrSplit(page.out, '\n'))) {
      INFO(line);
      CHECK(Columns(line) <= kMostHelpColumns);
    }
    all += page.out;
  }
  for (const ConfigFlag& flag : ConfigFlags()) {
    // engine, network and iterations have no section.
    if (!absl::StrContains(flag.path, '.')) continue;
    INFO(flag.flag);
    CHECK(absl::StrContains(all, absl::StrCat("\n  ", flag.flag, " ")));
  }
  CHECK(absl::StrContains(RunHere({"help", "defaults"}).out, "1f1b"));
  // Of the program, not of the verb that asks.
  CHECK(absl::StrContains(RunHere({"help", "all"}).out, "reproduce"));
  CHECK(absl::StrContains(RunHere({"help", "exit-codes"}).out, "deadlocks"));
}

TEST_CASE("help: what is no topic is refused with the nearest", "[cli]") {
  const BinaryResult run = RunHere({"help", "simulat"});
  CHECK(run.exit_code == 2);
  CHECK(absl::StrContains(run.err, "did you mean 'simulate'?"));
  CHECK(RunHere({"help", "simulate", "more"}).exit_code == 2);
}

// Lines of a page that begin with the program's name, without their notes.
Words ExampleLines(const std::string& page) {
  Words lines;
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, "pipewright ")) continue;
    lines.emplace_back(
        absl::StripAsciiWhitespace(line.substr(0, line.find("  #"))));
  }
  return lines;
}

// What the user has of his own, where an example names it.
void WriteUsersFiles(const TemporaryFolder& folder) {
  folder.Write("train.sh",
               "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 24 "
               "--hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
               "--max-position-embeddings 1024 --micro-batch-size 1 "
               "--global-batch-size 64 --vocab-size 50257 --bf16\n");
  std::string log;
  // The steps of `compare`'s own prediction: (4 + 2 - 1) * 3 ms.
  for (int step = 1; step <= 5; ++step) {
    absl::StrAppend(&log, " iteration ", step,
                    "/ 5 | consumed samples: 4 | elapsed time per iteration "
                    "(ms): 15.0 | global batch size: 4 |\n");
  }
  folder.Write("train.log", log);
  folder.Write("config.json",
               R"({"model_type": "llama", "hidden_size": 1024,
                   "intermediate_size": 2816, "num_attention_heads": 8,
                   "num_key_value_heads": 8, "num_hidden_layers": 8,
                   "vocab_size": 32000, "max_position_embeddings": 8192})");
  testing::FakeRank rank;
  rank.layers = 16;  // gpt-tiny has them
  folder.Write("trace.json", testing::FakeTrace(rank));
  std::filesystem::create_directory(folder.Path("traces"));
  for (int number = 0; number < 4; ++number) {
    testing::FakeRank of_four = rank;
    of_four.rank = number;
    of_four.world_size = 4;
    of_four.layers = 4;
    of_four.has_embedding = number == 0;
    of_four.has_head = number == 3;
    folder.Write(absl::StrCat("traces/rank", number, ".json"),
                 testing::FakeTrace(of_four));
  }
  folder.Write(
      "all_reduce.txt",
      "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809\n"
      "#  Rank  0 Group  0 Pid      1 on       node device  0 [0000:00:00] "
      "NVIDIA H100 80GB HBM3\n"
      "#  Rank  1 Group  0 Pid      1 on       node device  1 [0000:00:01] "
      "NVIDIA H100 80GB HBM3\n"
      "#       size         count      type   redop    root     time   algbw   "
      "busbw #wrong     time   algbw   busbw #wrong\n"
      "     1048576        262144     float     sum      -1    20.00   52.43   "
      "52.43      0    20.00   52.43   52.43      0\n");
  std::filesystem::create_directory(folder.Path("csv"));
  folder.Write("csv/gemm.csv",
               "dtype,m,n,k,latency_ms\nbfloat16,128,256,512,0.010\n");
}

// A profile as the page of calibrate makes it.
std::string QuickProfile() {
  static const auto* const text = [] {
    const TemporaryFolder folder;
    const std::string path = folder.Path("cpu.textproto");
    const BinaryResult run =
        RunHere({"calibrate", "--quick", "--model", "gpt-tiny", "--budget",
                 "0s", "-o", path});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return new std::string(ReadFile(path).value());
  }();
  return *text;
}

// Files that examples of other pages make.
void MakeBefore(const std::string& page, const TemporaryFolder& folder) {
  const auto run = [](const std::string& line) {
    const BinaryResult result = RunHere(WordsOf(line));
    INFO(line << "\n" << result.err);
    CHECK(result.exit_code == 0);
  };
  if (page == "plot") {
    run("sweep gpt2-xl --system dgx-h100 --microbatches 16 --sweep "
        "strategy.pp=1,2,4 -o runs.sqlite");
  }
  if (page == "sweep") run("init sweep -o sweep.yaml");
  if (!absl::StartsWith(page, "calibrate ")) return;
  for (const char* name : {"cpu", "monday", "friday"}) {
    folder.Write(absl::StrCat(name, ".textproto"), QuickProfile());
  }
}

// Examples that search or measure for long, with what ends them sooner.
Words Shorter(const std::string& line) {
  if (absl::StartsWith(line, "plan ")) return {"--max-candidates", "20"};
  if (absl::StartsWith(line, "calibrate --")) return {"--budget", "0s"};
  return {};
}

TEST_CASE("help: every example of every page runs", "[cli][long]") {
  const std::filesystem::path before = std::filesystem::current_path();
  std::map<std::string, std::string> pages;  // by what stands behind "help"
  for (const VerbRow& verb : VerbTable()) {
    pages[verb.path] = RunHere([&] {
                         Words words = WordsOf(verb.path);
                         words.push_back("--help");
                         return words;
                       }())
                           .out;
  }
  for (const std::string& topic : HelpTopics()) {
    pages.try_emplace(topic, RunHere({"help", topic}).out);
  }
  int run = 0;
  int on_gpus = 0;
  for (const auto& [name, page] : pages) {
    const TemporaryFolder folder;
    WriteUsersFiles(folder);
    std::filesystem::current_path(folder.Path(""));
    MakeBefore(name, folder);
    const Words lines = ExampleLines(page);
    CHECK(lines.size() >= HelpExamples(name).size());
    for (const std::string& line : lines) {
      Words words;
      for (const std::string& word : WordsOf(line)) {
        if (word != "*.textproto") {
          words.push_back(word);
          continue;
        }
        words.insert(words.end(), {"monday.textproto", "friday.textproto"});
      }
      const Words shorter = Shorter(line);
      words.insert(words.end(), shorter.begin(), shorter.end());
      const BinaryResult result = RunHere(words);
      INFO(name << ": pipewright " << line << "\n" << result.err);
      if (absl::StrContains(line, "--device cuda") && result.exit_code != 0) {
        // Up to where the GPU is looked for.
        CHECK(result.exit_code == 1);
        CHECK(absl::StrContains(result.err, "cuda"));
        // What it would have measured.
        std::filesystem::copy_file(
            testing::SourcePath("calibrate/profiles/h100-llama3-8b.txtpb"),
            "gpu.textproto", std::filesystem::copy_options::overwrite_existing);
        ++on_gpus;
        continue;
      }
      CHECK(result.exit_code == 0);
      ++run;
    }
    std::filesystem::current_path(before);
  }
  CHECK(run > 75);
  CHECK(on_gpus <= 2);
}

}  // namespace
}  // namespace pipewright::help_test

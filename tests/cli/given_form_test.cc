// What stands behind a verb: a configuration, a model, a framework's file.
#include "sim/cli/given_form.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"
#include "tests/support/run_here.h"

namespace pipewright::given_form_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunHere;
using testing::SourcePath;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

GivenForm Form(const std::string& given) {
  const absl::StatusOr<GivenForm> form = FormOf(given);
  INFO(given << ": " << form.status());
  REQUIRE(form.ok());
  return *form;
}

constexpr char kHuggingFace[] =
    R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 32, "vocab_size": 128256,
        "max_position_embeddings": 8192, "tie_word_embeddings": false})";

TEST_CASE("given: files of frameworks are told from configurations", "[cli]") {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("tests/foreign/files"))) {
    const std::string path = entry.path().string();
    INFO(path);
    CHECK(Form(path) == GivenForm::kFramework);
    ++files;
  }
  CHECK(files > 20);
  const TemporaryFolder folder;
  for (const std::string what : {"run", "system", "sweep"}) {
    const std::string yaml = folder.Path(absl::StrCat(what, ".yaml"));
    const std::string path =
        what == "system" ? folder.Path("system.textproto") : yaml;
    REQUIRE(RunHere({"init", what, "-o", path}).exit_code == 0);
    CHECK(Form(path) == GivenForm::kConfiguration);
  }
  CHECK(Form(folder.Write("a.json", R"({"strategy": {"pp": 4}})")) ==
        GivenForm::kConfiguration);
  CHECK(Form(folder.Write("plain", "---\nstrategy: {pp: 4}\n")) ==
        GivenForm::kConfiguration);
  CHECK(Form(folder.Path("absent.yaml")) == GivenForm::kConfiguration);
  CHECK(Form(folder.Write("config.json", kHuggingFace)) ==
        GivenForm::kHuggingFace);
  CHECK(Form(folder.Path("")) == GivenForm::kHuggingFace);
  CHECK(Form("llama3-8b") == GivenForm::kPreset);
  CHECK(Form("Qwen/Qwen3-8B") == GivenForm::kHuggingFace);
}

TEST_CASE("given: a model stands where a configuration does", "[cli]") {
  const TemporaryFolder folder;
  folder.Write("config.json", kHuggingFace);
  const Words rest = {"--system", "dgx-h100", "--microbatches", "8",     "--pp",
                      "8",        "--engine", "fast",           "--json"};
  const auto with = [&](Words words) {
    words.insert(words.begin(), "simulate");
    words.insert(words.end(), rest.begin(), rest.end());
    const BinaryResult run = RunHere(words);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return Json::parse(run.out);
  };
  const Json flag = with({"--model", "llama3-8b"});
  CHECK(with({"llama3-8b"}) == flag);
  for (const std::string& path :
       {folder.Path("config.json"), folder.Path("")}) {
    const Json report = with({path});
    CHECK(report["iteration_s"] == flag["iteration_s"]);
    CHECK(report["model"] == path);
  }
  const std::string script =
      SourcePath("tests/foreign/files/deepspeed_pipeline.json");
  const Words args = {"--model", "llama3-8b", "--dp", "1"};
  Words plain = {script};
  plain.insert(plain.end(), args.begin(), args.end());
  Words named = {"--from-args", script};
  named.insert(named.end(), args.begin(), args.end());
  plain.insert(plain.begin(), "simulate");
  named.insert(named.begin(), "simulate");
  for (Words* const words : {&plain, &named}) {
    words->insert(words->end(), {"--system", "dgx-h100", "--json"});
  }
  const BinaryResult one = RunHere(plain);
  CHECK(absl::StrContains(one.out, "iteration_s"));
  CHECK(one.out == RunHere(named).out);
}

TEST_CASE("given: what is neither a file nor a model is refused", "[cli]") {
  const BinaryResult typo =
      RunHere({"simulate", "lama3-8b", "--system", "dgx-h100"});
  CHECK(typo.exit_code == 2);
  CHECK(absl::StrContains(typo.err, "did you mean 'llama3-8b'?"));
  const BinaryResult twice = RunHere(
      {"plan", "llama3-8b", "--model", "llama3-70b", "--system", "dgx-h100"});
  CHECK(twice.exit_code == 2);
  CHECK(absl::StrContains(twice.err, "beside --model"));
}

TEST_CASE("given: what a verb has written is told from a configuration",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string report = folder.Path("report.json");
  const std::string trace = folder.Path("trace.json");
  const Words words = {"simulate", "--pp", "2",    "--microbatches", "4",
                       "--json",   "-o",   report, "--trace",        trace};
  REQUIRE(RunHere(words).exit_code == 0);
  for (const auto& [path, said] : {std::pair(report, "a report (pipewright "),
                                   std::pair(trace, "a trace (pipewright ")}) {
    const BinaryResult run = RunHere({"simulate", path});
    INFO(run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, said));
  }
}

TEST_CASE("given: of a preset and a file of its name one is taken, and said",
          "[cli]") {
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.Path(""));
  const auto said = [](const Words& given) {
    Words words = {"simulate", "--system", "dgx-h100",       "--pp", "4",
                   "--tp",     "2",        "--microbatches", "8"};
    words.insert(words.begin() + 1, given.begin(), given.end());
    const BinaryResult run = RunHere(words);
    INFO(run.err);
    CHECK(run.exit_code == 0);
    return run.err;
  };
  const std::string alone = said({"llama3-8b"});
  CHECK(!absl::StrContains(alone, "CONFIG"));
  std::filesystem::create_directory("llama3-8b");
  // A folder of something else is none.
  CHECK(said({"llama3-8b"}) == alone);
  folder.Write("llama3-8b/config.json", kHuggingFace);
  CHECK(absl::StrContains(said({"llama3-8b"}),
                          "'llama3-8b' is taken as the preset; the folder of "
                          "that name is ./llama3-8b"));
  CHECK(!absl::StrContains(said({"./llama3-8b"}), "CONFIG"));
  CHECK(!absl::StrContains(said({"--model", "llama3-8b"}), "CONFIG"));
  folder.Write("llama3-70b", "model: {preset: llama3-8b}\n");
  CHECK(absl::StrContains(said({"llama3-70b"}),
                          "'llama3-70b' is taken as the file of that name; the "
                          "preset is --model llama3-70b"));
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace pipewright::given_form_test

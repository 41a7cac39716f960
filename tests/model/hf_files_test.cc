// Where a Hugging Face model's file is found.
#include "sim/model/hf_files.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/run_binary.h"

namespace pipewright::hf_files_test {
namespace {

void Put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

std::string Found(const std::string& given) {
  const auto file = HuggingFaceFile(given);
  return file.ok() ? *file : std::string(file.status().message());
}

// A variable of the environment, as it was when this ends.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) {
      before_ = before;
      had_ = true;
    }
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (had_) {
      ::setenv(name_, before_.c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

TEST_CASE("model: a file, a folder or an id gives a config.json", "[model]") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Path("model/config.json");
  Put(file, "{}");
  CHECK(Found(file) == file);
  CHECK(Found(folder.Path("model")) == file);
  CHECK(Found(folder.Path("none.json")) == folder.Path("none.json"));
  Put(folder.Path("empty/readme"), "");
  CHECK(absl::StrContains(Found(folder.Path("empty")),
                          "a folder without a config.json"));

  const Variable home("HF_HOME", folder.Path("home"));
  const Variable hub("HF_HUB_CACHE", "");
  const std::string cached = folder.Path("home/hub/models--Qwen--Qwen3-8B");
  CHECK(Found("Qwen/Qwen3-8B") ==
        absl::StrCat("Qwen/Qwen3-8B: no file, no folder and not in the cache (",
                     cached,
                     "); fetch https://huggingface.co/Qwen/Qwen3-8B/resolve/"
                     "main/config.json and give its path"));
  Put(cached + "/snapshots/aa/config.json", "{}");
  Put(cached + "/snapshots/bb/config.json", "{}");
  Put(cached + "/snapshots/cc/other.json", "{}");
  CHECK(Found("Qwen/Qwen3-8B") == cached + "/snapshots/bb/config.json");
  Put(cached + "/refs/main", "aa\n");
  CHECK(Found("Qwen/Qwen3-8B") == cached + "/snapshots/aa/config.json");
  // As a configuration in a folder names it.
  CHECK(Found("runs/Qwen/Qwen3-8B") == cached + "/snapshots/aa/config.json");
  const Variable other("HF_HUB_CACHE", folder.Path("elsewhere"));
  CHECK(absl::StrContains(Found("Qwen/Qwen3-8B"), "/elsewhere/models--Qwen"));
}

}  // namespace
}  // namespace pipewright::hf_files_test

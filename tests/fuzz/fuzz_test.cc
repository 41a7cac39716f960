// Every fuzz target over its corpus, then over seeded mutations of it: a fixed
// number of them, or as many as PIPEWRIGHT_FUZZ_SECONDS allow (the sanitizer
// build's test preset sets it). An input that aborts stays in
// fuzz-TARGET.input in the folder for temporary files.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/fuzz/targets.h"
#include "tests/support/paths.h"

namespace pipewright::fuzz_test {
namespace {

namespace fs = std::filesystem;
using testing::FuzzTarget;

std::string FuzzPath(absl::string_view folder, absl::string_view name) {
  return testing::SourcePath(absl::StrCat("tests/fuzz/", folder, "/", name));
}

std::vector<std::string> Corpus(absl::string_view name) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(FuzzPath("corpus", name))) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs;
  for (const std::string& file : files) inputs.push_back(*ReadFile(file));
  return inputs;
}

// libFuzzer's form: a word in quotes a line, with escapes as in C.
std::vector<std::string> Dictionary(absl::string_view name) {
  const std::string text =
      *ReadFile(FuzzPath("dictionary", absl::StrCat(name, ".dict")));
  std::vector<std::string> words;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::string word;
    REQUIRE(line.size() >= 2);
    REQUIRE(absl::CUnescape(line.substr(1, line.size() - 2), &word));
    words.push_back(word);
  }
  return words;
}

// The input at hand, in memory that is a file: it outlives an abort. A file for
// each process, as the sanitized tests run beside the others.
class LastInput {
 public:
  explicit LastInput(absl::string_view name)
      : path_(fs::temp_directory_path() /
              absl::StrCat("fuzz-", name, "-", ::getpid(), ".input")) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    REQUIRE(file_ >= 0);
    REQUIRE(::ftruncate(file_, kMost) == 0);
    memory_ = static_cast<char*>(
        ::mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    REQUIRE(memory_ != MAP_FAILED);
  }
  ~LastInput() {
    ::munmap(memory_, kMost);
    ::close(file_);
    fs::remove(path_);
  }
  LastInput(const LastInput&) = delete;
  LastInput& operator=(const LastInput&) = delete;

  // Behind the input come zeros.
  void Set(const std::string& input) {
    const size_t size = std::min(input.size(), kMost);
    std::memcpy(memory_, input.data(), size);
    if (size < used_) std::memset(memory_ + size, 0, used_ - size);
    used_ = size;
  }

 private:
  static constexpr size_t kMost = size_t{1} << 20;
  fs::path path_;
  int file_ = -1;
  char* memory_ = nullptr;
  size_t used_ = 0;
};

std::string Mutated(std::string input, const std::vector<std::string>& corpus,
                    const std::vector<std::string>& words,
                    std::mt19937& random) {
  for (unsigned edit = random() % 5; edit > 0; --edit) {
    if (input.empty()) input.push_back(' ');
    const size_t at = random() % input.size();
    switch (random() % 7) {
      case 0:
        input.erase(at, 1 + random() % 4);
        break;
      case 1:
        input.insert(at, words[random() % words.size()]);
        break;
      case 2:
        input[at] = static_cast<char>(random() % 256);
        break;
      case 3:
        std::swap(input[at], input[random() % input.size()]);
        break;
      case 4:
        input.insert(at, input.substr(random() % input.size(), 12));
        break;
      case 5: {
        const std::string& other = corpus[random() % corpus.size()];
        if (other.empty()) break;
        input.insert(at, other.substr(random() % other.size(), 24));
        break;
      }
      default:
        if (random() % 8 == 0) input.resize(at);
    }
  }
  return input;
}

// How many mutations of how many rounds were accepted.
struct Accepted {
  int corpus = 0;
  int mutations = 0;
  int rounds = 0;
};

Accepted RunTarget(const FuzzTarget& target, int rounds) {
  Accepted accepted;
  LastInput last(target.name);
  const std::vector<std::string> corpus = Corpus(target.name);
  REQUIRE(!corpus.empty());
  for (const std::string& input : corpus) {
    last.Set(input);
    accepted.corpus += target.run(input) ? 1 : 0;
  }
  const std::vector<std::string> words = Dictionary(target.name);
  REQUIRE(!words.empty());
  using Clock = std::chrono::steady_clock;
  double seconds = 0;
  if (const char* text = std::getenv("PIPEWRIGHT_FUZZ_SECONDS")) {
    REQUIRE(absl::SimpleAtod(text, &seconds));
  }
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::mt19937 random(20240117);
  while (seconds > 0 ? Clock::now() < end : accepted.rounds < rounds) {
    const std::string input =
        Mutated(corpus[random() % corpus.size()], corpus, words, random);
    last.Set(input);
    accepted.mutations += target.run(input) ? 1 : 0;
    ++accepted.rounds;
  }
  return accepted;
}

const FuzzTarget& FindTarget(absl::string_view name) {
  for (const FuzzTarget& target : testing::FuzzTargets()) {
    if (target.name == name) return target;
  }
  FAIL("no fuzz target " << name);
  std::abort();
}

void CheckTarget(absl::string_view name, int rounds) {
  const Accepted accepted = RunTarget(FindTarget(name), rounds);
  INFO(name << ": " << accepted.corpus << " of the corpus, "
            << accepted.mutations << " of " << accepted.rounds);
  // Some of each, or the corpus says nothing.
  CHECK(accepted.corpus > 0);
  CHECK(accepted.mutations > 0);
  CHECK(accepted.mutations < accepted.rounds);
}

}  // namespace

TEST_CASE("fuzz: configurations", "[fuzz]") { CheckTarget("config", 8000); }

TEST_CASE("fuzz: Hugging Face files", "[fuzz]") {
  CheckTarget("hugging_face", 20000);
}

TEST_CASE("fuzz: schedule files", "[fuzz]") { CheckTarget("schedule", 8000); }

TEST_CASE("fuzz: PyTorch's schedule files", "[fuzz]") {
  CheckTarget("torch_csv", 8000);
}

TEST_CASE("fuzz: profiles", "[fuzz]") { CheckTarget("profile", 1000); }

TEST_CASE("fuzz: results of nccl-tests", "[fuzz]") {
  CheckTarget("nccl_tests", 4000);
}

TEST_CASE("fuzz: results of nvbandwidth", "[fuzz]") {
  CheckTarget("nvbandwidth", 4000);
}

TEST_CASE("fuzz: Kineto traces", "[fuzz]") { CheckTarget("kineto", 2000); }

TEST_CASE("fuzz: traces of our own", "[fuzz]") {
  CheckTarget("chrome_trace", 2000);
}

TEST_CASE("fuzz: tables of a measured job", "[fuzz]") {
  CheckTarget("job_table", 2000);
}

TEST_CASE("fuzz: training logs", "[fuzz]") {
  CheckTarget("training_log", 4000);
}

TEST_CASE("fuzz: frames between processes of a job", "[fuzz]") {
  CheckTarget("frames", 20000);
}

TEST_CASE("fuzz: programs on every engine", "[fuzz]") {
  CheckTarget("program", 1000);
}

TEST_CASE("fuzz: every target has a corpus, and every corpus a target",
          "[fuzz]") {
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(FuzzPath("corpus", ""))) {
    folders.push_back(entry.path().filename());
  }
  std::vector<std::string> names;
  for (const FuzzTarget& target : testing::FuzzTargets()) {
    names.emplace_back(target.name);
  }
  std::sort(folders.begin(), folders.end());
  std::sort(names.begin(), names.end());
  CHECK(folders == names);
}

}  // namespace pipewright::fuzz_test

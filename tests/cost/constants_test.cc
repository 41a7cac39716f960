// docs/dev/constants.md has every number of the cost model with class and source.
// UPDATE_GOLDEN=1 in the environment rewrites it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "sim/cost/device.h"
#include "tests/support/constants_page.h"
#include "tests/support/paths.h"

namespace pipewright::constants_test {
namespace {

using testing::Constant;
using testing::Constants;
using testing::ConstantsOf;
using testing::ConstantsOfDevices;
using testing::SourceText;

// Beside sim/cost: prices of a step, and of its memory.
const std::vector<std::string>& OtherSources() {
  static const auto* paths =
      new std::vector<std::string>{"sim/program/lower_beside.cc",
                                   "sim/program/lower_shards.cc",
                                   "sim/program/lower_layers.cc",
                                   "sim/program/collective_phases.cc",
                                   "sim/program/lane_exchanges.cc",
                                   "sim/program/lower_offload.cc",
                                   "sim/program/lowering.h",
                                   "sim/model/precision.cc",
                                   "sim/model/ops.cc",
                                   "sim/model/ops_attention.cc",
                                   "sim/model/ops_builder.h",
                                   "sim/model/ops_scan.cc",
                                   "sim/config/framework.cc",
                                   "sim/config/prepare_layers.cc",
                                   "sim/config/prepare_optimizer.cc",
                                   "sim/config/prepare_training.cc",
                                   "sim/memory/megatron_memory.cc",
                                   "sim/program/optimizer_plan.cc",
                                   "sim/model/packer.h"};
  return *paths;
}

SourceText Source(const std::string& path, bool is_model) {
  return {.path = path,
          .text = ReadFile(testing::SourcePath(path)).value(),
          .is_model = is_model};
}

// Files of a folder with one of these endings, by name.
std::vector<SourceText> Folder(const std::string& folder,
                               const std::vector<std::string>& endings) {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::SourcePath(folder))) {
    const std::string ending = entry.path().extension().string();
    if (std::find(endings.begin(), endings.end(), ending) != endings.end()) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  std::vector<SourceText> sources;
  for (const std::string& name : names) {
    sources.push_back(Source(absl::StrCat(folder, "/", name), true));
  }
  return sources;
}

Constants OfProgram() {
  std::vector<SourceText> sources = Folder("sim/cost", {".h", ".cc"});
  CHECK(sources.size() > 50);
  for (const std::string& path : OtherSources()) {
    sources.push_back(Source(path, false));
  }
  return ConstantsOf(sources);
}

Constants OfDevices() {
  return ConstantsOfDevices(Folder("devices", {".textproto"}));
}

TEST_CASE("constants: docs/dev/constants.md has all, each with a class",
          "[cost][docs]") {
  const Constants program = OfProgram();
  const Constants devices = OfDevices();
  INFO(absl::StrJoin(program.problems, "\n"));
  INFO(absl::StrJoin(devices.problems, "\n"));
  REQUIRE(program.problems.empty());
  REQUIRE(devices.problems.empty());
  CHECK(program.rows.size() > 150);
  const std::string page = ConstantsPage(program.rows, devices.rows);
  const std::string path = testing::SourcePath("docs/dev/constants.md");
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    REQUIRE(WriteFile(path, page).ok());
  }
  const absl::StatusOr<std::string> expected = ReadFile(path);
  REQUIRE(expected.ok());
  INFO("renew it: UPDATE_GOLDEN=1, tests constants: *");
  const bool is_fresh = page == *expected;
  CHECK(is_fresh);
}

// The lines of the files against the program's own reader.
TEST_CASE("constants: numbers of devices are those of the program",
          "[cost][docs]") {
  const Constants devices = OfDevices();
  size_t sources = 0;
  for (const DeviceSpec& device : AllDevices()) {
    size_t found = 0;
    for (const Constant& row : devices.rows) {
      if (row.file != device.name) continue;
      ++found;
      INFO(row.file << " " << row.name);
      const auto source = device.sources.find(row.name);
      REQUIRE(source != device.sources.end());
      CHECK(row.source == source->second);
      double value = 0;
      REQUIRE(absl::SimpleAtod(row.value, &value));
      if (row.name == "bf16_flops") CHECK(value == device.bf16_flops);
      if (row.name == "idle_watts") CHECK(value == device.idle_watts);
    }
    CHECK(found >= 11);
    sources += found;
  }
  CHECK(sources == devices.rows.size());
}

Constants Of(const std::string& text) {
  return ConstantsOf({{.path = "a.cc", .text = text, .is_model = true}});
}

TEST_CASE("constants: a comment's class, unit and values are read",
          "[cost][docs]") {
  const Constants read = Of(R"(
// Of a product (A. Nobody,
// section 2). [paper, us]
constexpr double kOne = 1.5e-6;
inline constexpr int kTwo[2][2] = {{1, 2},
                                   {3, 100'000}};

struct Pair {
  double first, second;
};
constexpr Pair kPair = {1, .25};  // behind it [measured]

// Names are no numbers.
constexpr char kName[] = "17 // 18";
constexpr bool IsOne(int value) { return value == 1; }

// Kernels, counted. [framework source]
int Kernels(int kind) {
  switch (kind) {
    case 1:
      return 12;  // of 13
  }
  return kind + 3;
}

// Whole numbers of a formula.
double Twice(double value) { return 2 * value * 1e-6 + 0.5; }
)");
  CHECK(read.problems == std::vector<std::string>());
  REQUIRE(read.rows.size() == 4);
  CHECK(read.rows[0].name == "kOne");
  CHECK(read.rows[0].value == "1.5e-6");
  CHECK(read.rows[0].unit == "us");
  CHECK(read.rows[0].kind == "paper");
  CHECK(read.rows[0].source == "Of a product (A. Nobody, section 2).");
  CHECK(read.rows[0].line == 4);
  CHECK(read.rows[1].value == "{{1, 2}, {3, 100'000}}");
  CHECK(read.rows[1].source == read.rows[0].source);
  CHECK(read.rows[2].kind == "measured");
  CHECK(read.rows[2].value == "{1, .25}");
  CHECK(read.rows[3].name == "Kernels()");
  CHECK(read.rows[3].value == "12; kind + 3");
}

TEST_CASE("constants: what has no class or an unknown one is named",
          "[cost][docs]") {
  const auto problem = [](const std::string& text) {
    const Constants read = Of(text);
    INFO(text);
    REQUIRE(read.problems.size() == 1);
    return read.problems[0];
  };
  CHECK(absl::StartsWith(problem("// Of a copy.\nconstexpr double kA = 3;\n"),
                         "a.cc:2: kA has no class"));
  CHECK(absl::StartsWith(
      problem("// Of a copy. [guess]\nconstexpr double kA = 3;\n"),
      "a.cc:2: kA: unknown class [guess]"));
  CHECK(absl::StartsWith(problem("double F(double a) { return 0.17 * a; }\n"),
                         "a.cc:1: 0.17 has no class"));
  CHECK(absl::StartsWith(problem("const int kA = 11;\n"),
                         "a.cc:1: 11 has no class"));
  CHECK(absl::StartsWith(problem("// [paper]\nint F() { return Value(); }\n"),
                         "a.cc:1: [paper] stands above no number"));
  // An empty line ends what a comment is of.
  const Constants apart = Of("// [paper]\n\nconstexpr double kA = 3;\n");
  REQUIRE(apart.problems.size() == 2);
  CHECK(absl::StartsWith(apart.problems[0], "a.cc:3: kA has no class"));
  const auto device = [](const std::string& first) {
    return ConstantsOfDevices(
        {{.path = "devices/a.textproto",
          .text = absl::StrCat("name: \"a\"\n", first,
                               "\n  value: 2e12\n  source: \"one, \"\n"
                               "          \"two\"\n}\n")}});
  };
  CHECK(device("bf16_flops {").problems.size() == 1);
  CHECK(device("bf16_flops {  # [guess]").problems.size() == 1);
  const Constants good = device("bf16_flops {  # [data sheet]");
  CHECK(good.problems.empty());
  REQUIRE(good.rows.size() == 1);
  CHECK(good.rows[0].value == "2e12");
  CHECK(good.rows[0].source == "one, two");
}

}  // namespace
}  // namespace pipewright::constants_test

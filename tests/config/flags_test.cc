#include "sim/config/flags.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/config/run_config.h"
#include "tests/support/run_binary.h"

namespace pipewright::flags_test {
namespace {

TEST_CASE("flags: every flag stands for a path of the schema", "[config]") {
  const std::vector<std::string> paths = ConfigPaths();
  const auto known = [&](const std::string& path) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
  };
  for (const ConfigFlag& flag : ConfigFlags()) {
    INFO(flag.flag);
    CHECK(known(flag.path));
    CHECK((flag.other_path.empty() || known(flag.other_path)));
  }
}

TEST_CASE("flags: a flag's value decides what it stands for", "[config]") {
  const auto path_of = [](const std::string& name, const std::string& value) {
    for (const ConfigFlag& flag : ConfigFlags()) {
      if (flag.flag != name) continue;
      const auto edit = EditOfFlag(flag, value);
      return edit.ok() ? edit->path : std::string(edit.status().message());
    }
    return std::string("no such flag");
  };
  CHECK(path_of("--schedule", "1f1b") == "schedule.name");
  CHECK(path_of("--schedule", "my/1f1b") == "schedule.file");
  CHECK(path_of("--schedule", "x.pws") == "schedule.file");
  CHECK(path_of("--schedule", "x.json") == "schedule.file");
  CHECK(path_of("--system", "dgx-h100") == "system.preset");
  CHECK(path_of("--system", "./dgx") == "system.file");
  CHECK(path_of("--forward", "1ms") == "costs.uniform.forward");
  CHECK(path_of("--forward", "1ms,2ms") == "costs.per_stage.forward");
  CHECK(path_of("--param", "a=b=c") == "schedule.params.a");
  CHECK(absl::StrContains(path_of("--param", "a"), "KEY=VALUE"));
  CHECK(absl::StrContains(path_of("--param", "a.b=1"), "without dots"));
  // A registered name wins over a file of that name.
  const testing::TemporaryFolder folder;
  folder.Write("gpipe", "x");
  folder.Write("no-schedule-of-ours", "x");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.Path(""));
  CHECK(path_of("--schedule", "gpipe") == "schedule.name");
  CHECK(path_of("--schedule", "no-schedule-of-ours") == "schedule.file");
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace pipewright::flags_test

// Inputs that never end, or burst: every reader refuses them with the file and
// the limit, in memory that is bounded.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/gzip_text.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::endless_input_test {
namespace {

using testing::BinaryPath;
using testing::BinaryResult;
using testing::RunProgram;
using testing::TemporaryFolder;

// The address sanitizer reserves more than any limit.
#if defined(PIPEWRIGHT_SANITIZED)
constexpr char kLimited[] = "";
#else
constexpr char kLimited[] = "ulimit -v 4000000; ";
#endif

BinaryResult Shell(const std::string& line) {
  return RunProgram({"sh", "-c", absl::StrCat(kLimited, line)});
}

void CheckRefused(const std::string& line,
                  const std::vector<std::string>& parts) {
  const BinaryResult run = Shell(line);
  INFO(line << "\n" << run.err);
  CHECK(run.exit_code == 2);
  for (const std::string& part : parts) {
    INFO(part);
    CHECK(absl::StrContains(run.err, part));
  }
}

TEST_CASE("endless: a device is no input of any verb", "[cli]") {
  const std::string run = absl::StrCat(BinaryPath(), " ");
  for (const char* const device : {"/dev/zero", "/dev/urandom"}) {
    const std::string at = absl::StrCat(" ", device);
    for (const char* const verb :
         {"simulate", "simulate --schedule", "simulate --pp 2 --model ",
          "schedule", "check", "check --config", "calibrate show",
          "execute --steps 1", "list schedules --html /tmp/none --config",
          "compare --summary", "diagnose"}) {
      const bool is_check = absl::StrContains(verb, "check --config");
      const bool is_model = absl::StrContains(verb, "--model");
      CheckRefused(
          absl::StrCat(run, verb, at, is_check ? " x" : "",
                       is_model ? " --schedule 1f1b --microbatches 2" : ""),
          {device, "a character device"});
    }
    CheckRefused(absl::StrCat(run, "compare", at, at),
                 {device, "a character device"});
    CheckRefused(absl::StrCat(run,
                              "simulate --schedule 1f1b --pp 2 "
                              "--microbatches 2 --model gpt-tiny "
                              "--profile",
                              at),
                 {device, "a character device"});
    CheckRefused(absl::StrCat(run,
                              "simulate --schedule 1f1b --pp 2 "
                              "--microbatches 2 --system",
                              at),
                 {device, "a character device"});
    for (const char* const from : {"--nccl-tests", "--nvbandwidth",
                                   "--model gpt-tiny --layers 1 --kineto"}) {
      CheckRefused(
          absl::StrCat(run, "calibrate import -o /tmp/none ", from, at),
          {device, "a character device"});
    }
  }
}

TEST_CASE("endless: a pipe without end is read up to the limit",
          "[cli][long]") {
  const std::string run = absl::StrCat("yes | ", BinaryPath(), " ");
  CheckRefused(run + "simulate /dev/stdin", {"/dev/stdin", "16 MiB"});
  CheckRefused(run + "check x --config /dev/stdin", {"/dev/stdin", "16 MiB"});
  CheckRefused(run + "check /dev/stdin", {"/dev/stdin", "1 GiB"});
  CheckRefused(run + "calibrate show /dev/stdin", {"/dev/stdin", "1 GiB"});
  CheckRefused(run + "diagnose /dev/stdin", {"/dev/stdin:1: step: missing"});
  CheckRefused(absl::StrCat("tr '\\0' 1 < /dev/zero | ", BinaryPath(),
                            " diagnose /dev/stdin"),
               {"/dev/stdin:1: a line of more than"});
  // Packed zeros that never end.
  CheckRefused(absl::StrCat("gzip -c /dev/zero | ", BinaryPath(),
                            " compare /dev/stdin /dev/stdin"),
               {"/dev/stdin"});
}

TEST_CASE("endless: a small gzip bomb is refused", "[cli]") {
  const TemporaryFolder folder;
  const std::string path =
      folder.Write("bomb.json.gz", testing::Gzip(std::string(1'000'000, '[')));
  CheckRefused(absl::StrCat(BinaryPath(), " compare '", path, "' '", path, "'"),
               {path});
}

TEST_CASE("endless: a gzip bomb is refused", "[cli][long]") {
  const TemporaryFolder folder;
  // What is skipped, what would be held, and what would be nested.
  const std::string bombs[] = {
      "{\"x\": \"" + std::string(100'000'000, 'a'),
      "{\"traceEvents\": [{\"name\": \"" + std::string(100'000'000, 'a'),
      std::string(100'000'000, '[')};
  for (const std::string& bomb : bombs) {
    const std::string path = folder.Write("bomb.json.gz", testing::Gzip(bomb));
    const std::string compare =
        absl::StrCat(BinaryPath(), " compare '", path, "' '", path, "'");
    CheckRefused(compare, {path});
    CheckRefused("PIPEWRIGHT_MAX_INPUT=1GiB " + compare, {path});
  }
}

TEST_CASE("endless: pipes and standard input are read", "[cli]") {
  const std::string yaml =
      "printf 'schedule: {name: 1f1b}\\nstrategy: {pp: 2, microbatches: 2}\\n'";
  const BinaryResult piped = Shell(absl::StrCat(
      yaml, " | ", BinaryPath(), " simulate /dev/stdin --engine fast"));
  INFO(piped.err);
  CHECK(piped.exit_code == 0);
  const BinaryResult schedule =
      Shell(absl::StrCat(BinaryPath(),
                         " schedule 1f1b --pp 2 --microbatches 2 "
                         "2>&- | ",
                         BinaryPath(), " check /dev/stdin"));
  INFO(schedule.err);
  CHECK(schedule.exit_code == 0);
}

}  // namespace
}  // namespace pipewright::endless_input_test

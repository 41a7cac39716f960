// Files as streams: gzip files read as what is in them, and broken ones say so.
#include "sim/base/gzip.h"

#include <catch2/catch.hpp>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "tests/support/gzip_text.h"
#include "tests/support/run_binary.h"

namespace pipewright::gzip_test {
namespace {

using testing::Gzip;
using testing::TemporaryFolder;

std::string Some(size_t bytes) {
  std::string text;
  for (size_t index = 0; text.size() < bytes; ++index) {
    text += std::to_string(index * index) + "\n";
  }
  return text;
}

struct Result {
  std::string text;
  absl::Status status;
};

Result ReadAll(const std::string& path) {
  const auto file = InputFile::Open(path);
  if (!file.ok()) return {"", file.status()};
  std::istream& in = (*file)->stream();
  Result result;
  result.text = std::string(std::istreambuf_iterator<char>(in), {});
  result.status = (*file)->status();
  return result;
}

TEST_CASE("gzip: plain and compressed files read alike", "[base]") {
  const TemporaryFolder folder;
  for (const size_t bytes : {1, 2, 1000, 300000}) {
    const std::string text = Some(bytes);
    CHECK(ReadAll(folder.Write("plain", text)).text == text);
    const Result expanded = ReadAll(folder.Write("packed", Gzip(text)));
    CHECK(expanded.status.ok());
    CHECK(expanded.text == text);
    // Two files in a row are one, as gzip itself has it.
    const Result both =
        ReadAll(folder.Write("both", Gzip(text) + Gzip("more")));
    CHECK(both.status.ok());
    CHECK(both.text == text + "more");
  }
}

TEST_CASE("gzip: what is broken, cut or empty is named", "[base]") {
  const TemporaryFolder folder;
  const std::string text = Some(300000);
  const std::string packed = Gzip(text);
  const auto refused = [&](const std::string& content) {
    const Result result = ReadAll(folder.Write("file", content));
    CHECK(result.status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(result.status.message(), "/file: "));
    return std::string(result.status.message());
  };
  CHECK(absl::StrContains(refused(packed.substr(0, packed.size() / 2)),
                          "ends in the middle"));
  std::string damaged = packed;
  for (size_t index = 100; index < 200; ++index) damaged[index] ^= 0x55;
  CHECK(absl::StrContains(refused(damaged), "is broken"));
  // The check sum at the end.
  std::string wrong = packed;
  wrong[wrong.size() - 6] ^= 1;
  CHECK(absl::StrContains(refused(wrong), "is broken"));
  CHECK(ReadAll(folder.Path("none")).status.code() ==
        absl::StatusCode::kNotFound);
  CHECK(ReadAll(folder.Write("empty", "")).status.code() ==
        absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace pipewright::gzip_test


#include <catch2/catch.hpp>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "sim/base/status.h"

namespace pipewright::exceptions_test {
namespace {

TEST_CASE("exceptions: whatever is thrown is a failure of ours", "[base]") {
  const auto thrown = [](const std::function<void()>& body) {
    const absl::Status status = WithoutExceptions([&] {
      body();
      return absl::OkStatus();
    });
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK(ExitCode(status) == 1);
    return std::string(status.message());
  };
  CHECK(thrown([] { throw std::bad_alloc(); }) == "out of memory");
  CHECK(thrown([] { throw std::bad_array_new_length(); }) == "out of memory");
  CHECK(thrown([] { std::string().reserve(~size_t{0}); }) == "out of memory");
  CHECK(thrown([] { throw std::runtime_error("a kernel"); }) == "a kernel");
  CHECK(thrown([] {
          throw std::system_error(
              std::make_error_code(std::errc::resource_unavailable_try_again));
        }) == "Resource temporarily unavailable");
  CHECK(thrown([] { throw 7; }) == "an exception of an unknown type");
}

TEST_CASE("exceptions: what is returned stays as it is", "[base]") {
  CHECK(WithoutExceptions([] { return absl::OkStatus(); }).ok());
  CHECK(WithoutExceptions([] {
          return absl::ResourceExhaustedError("does not fit");
        }) == absl::ResourceExhaustedError("does not fit"));
}

}  // namespace
}  // namespace pipewright::exceptions_test

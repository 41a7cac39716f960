// How the CUDA backend looks for cuBLASLt and cuDNN: what is missing must be
// said and never called.
#include "kernels/cuda/library.h"

#include <catch2/catch.hpp>

namespace pipewright::cuda {
namespace {

TEST_CASE("kernels: a library that is missing is named", "[kernels]") {
  Library library({"libpipewright_is_not_here.so.1"});
  double (*function)(double) = nullptr;
  library.Find("cos", &function);
  CHECK(function == nullptr);
  CHECK(library.error().find("libpipewright_is_not_here.so.1") !=
        std::string::npos);
}

TEST_CASE("kernels: the second name of a library is tried", "[kernels]") {
  Library library({"libpipewright_is_not_here.so.1", "libm.so.6"});
  double (*function)(double) = nullptr;
  library.Find("cos", &function);
  REQUIRE(library.error().empty());
  REQUIRE(function != nullptr);
  CHECK(function(0) == 1);
}

TEST_CASE("kernels: a library without a function is no library", "[kernels]") {
  Library library({"libpipewright_is_not_here.so.1", "libm.so.6"});
  double (*function)(double) = nullptr;
  library.Find("pipewright_has_no_such_function", &function);
  CHECK(function == nullptr);
  CHECK(library.error() == "it has no pipewright_has_no_such_function");
}

}  // namespace
}  // namespace pipewright::cuda

// Backends by name, and what is said where one is missing.
#include "kernels/loader.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>

namespace pipewright::loader_test {
namespace {

std::string Missing(const char* name) {
  char error[1024] = "";
  CHECK(pw_load_kernels(name, error, sizeof(error)) == nullptr);
  return error;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Sets an environment variable until the end of the scope.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST_CASE("kernels loader: the CPU is always there", "[kernels]") {
  char error[64] = "as it was";
  CHECK(pw_load_kernels("cpu", error, sizeof(error)) == pw_cpu_kernels());
  CHECK(std::string(error) == "as it was");
}

TEST_CASE("kernels loader: a name that is none", "[kernels]") {
  CHECK(Missing("tpu") == "'tpu' is no backend; there are cpu and cuda");
}

TEST_CASE("kernels loader: says which library is missing", "[kernels]") {
  const Environment chosen("PIPEWRIGHT_CUDA_LIBRARY", "/nowhere/lib.so");
  const std::string error = Missing("cuda");
  CHECK(Has(error, "/nowhere/lib.so"));
  CHECK(Has(error, "PIPEWRIGHT_CUDA_LIBRARY"));
}

TEST_CASE("kernels loader: a library of something else", "[kernels]") {
  const Environment chosen("PIPEWRIGHT_CUDA_LIBRARY", "libm.so.6");
  CHECK(Missing("cuda") == "libm.so.6 has no pw_cuda_kernels");
}

TEST_CASE("kernels loader: a message is cut to its room", "[kernels]") {
  char error[8] = "";
  CHECK(pw_load_kernels("tpu", error, sizeof(error)) == nullptr);
  CHECK(std::string(error) == "'tpu' i");
}

}  // namespace
}  // namespace pipewright::loader_test

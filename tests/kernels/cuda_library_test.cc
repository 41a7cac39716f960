// How the CUDA backend looks for cuBLASLt and cuDNN: what is missing must be
// said and never called.
#include "kernels/cuda/library.h"

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "kernels/cuda/numa.h"
#include "tests/support/run_binary.h"

namespace pipewright::cuda::cuda_library_test {
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

struct Cosine {
  explicit Cosine(Library loaded) : library(std::move(loaded)) {
    library.Find("cos", &cosine);
  }
  Library library;
  double (*cosine)(double);
};

TEST_CASE("kernels: a library that does not open gives way to the next",
          "[kernels]") {
  // Both load; the first one fails at its first call.
  const std::vector<std::string> places = {"libm.so.6", "libm.so.6"};
  int tried = 0;
  const auto opened = FirstThatOpens<Cosine>(
      places, [&tried](const Cosine&) { return ++tried == 2; });
  CHECK(tried == 2);
  REQUIRE(opened->library.error().empty());
  // None opens: the first complete one is kept, and says no error of its own.
  tried = 0;
  const auto kept = FirstThatOpens<Cosine>(
      {"libpipewright_is_not_here.so.1", "libm.so.6"},
      [&tried](const Cosine&) { return ++tried < 0; });
  CHECK(tried == 1);
  CHECK(kept->library.error().empty());
  // None is there: what is missing is named, and nothing is called.
  tried = 0;
  const auto missing = FirstThatOpens<Cosine>(
      {"libpipewright_is_not_here.so.2", "libpipewright_is_not_here.so.1"},
      [&tried](const Cosine&) { return ++tried > 0; });
  CHECK(tried == 0);
  CHECK(missing->library.error().find("libpipewright_is_not_here.so.2") !=
        std::string::npos);
}

TEST_CASE("kernels: the version that was compiled against comes first",
          "[kernels]") {
  CHECK(MajorsToTry(12) == std::vector<int>{12, 13, 11});
  const std::vector<std::string> places =
      LibraryPlaces("libpipewright_none", {12, 13});
  CHECK(places == std::vector<std::string>{"libpipewright_none.so.12",
                                           "libpipewright_none.so.13"});
}

TEST_CASE("kernels: libraries of Python's packages are found", "[kernels]") {
  const testing::TemporaryFolder root;
  const std::string folder =
      root.Path("env/lib/python3.11/site-packages/nvidia/cublas/lib");
  std::filesystem::create_directories(folder);
  const std::string file = folder + "/libpipewright_wheel.so.12";
  std::ofstream(file) << "not a library\n";
  const char* const before = std::getenv("VIRTUAL_ENV");
  const std::string kept = before == nullptr ? "" : before;
  setenv("VIRTUAL_ENV", root.Path("env").c_str(), 1);
  const std::vector<std::string> places =
      LibraryPlaces("libpipewright_wheel", {12, 13});
  if (before == nullptr) {
    unsetenv("VIRTUAL_ENV");
  } else {
    setenv("VIRTUAL_ENV", kept.c_str(), 1);
  }
  CHECK(places == std::vector<std::string>{"libpipewright_wheel.so.12", file,
                                           "libpipewright_wheel.so.13"});
}

TEST_CASE("kernels: the memory node of a device", "[kernels]") {
  const testing::TemporaryFolder root;
  const std::string device = root.Path("0000:1b:00.0");
  CHECK(NumaNodeOf("0000:1B:00.0", root.Path("")) == -1);
  std::filesystem::create_directories(device);
  std::ofstream(device + "/numa_node") << "1\n";
  CHECK(NumaNodeOf("0000:1B:00.0", root.Path("")) == 1);
  CHECK(NumaNodeOf("00000000:1B:00.0", root.Path("")) == 1);
  // What Linux says where there is one node only, or where nothing is known.
  std::ofstream(device + "/numa_node") << "-1\n";
  CHECK(NumaNodeOf("0000:1B:00.0", root.Path("")) == -1);
}

// CPUs that the calling thread may run on.
std::vector<int> Affinity() {
  cpu_set_t cpus;
  REQUIRE(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
  std::vector<int> numbers;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) numbers.push_back(cpu);
  }
  return numbers;
}

TEST_CASE("kernels: a thread is bound to the node of its device",
          "[kernels]") {
  CHECK(NumbersOf("0-2,8\n") == std::vector<int>{0, 1, 2, 8});
  CHECK(NumbersOf("").empty());
  CHECK(NumbersOf("3-1").empty());
  CHECK(NumbersOf("no list").empty());
  CHECK(NumbersOf("0-99999999").empty());
  const std::vector<int> before = Affinity();
  const testing::TemporaryFolder root;
  for (const char* node : {"/node0", "/node1", "/node2"}) {
    std::filesystem::create_directories(root.Path("") + node);
  }
  // A thread of its own: whatever it is bound to ends with it.
  std::thread thread([&] {
    // What the process may not use is left out.
    std::ofstream(root.Path("node0/cpulist")) << before.back() << ",1000-1020";
    REQUIRE(BindThread(0, root.Path("")));
    CHECK(Affinity() == std::vector<int>{before.back()});
    // Another device's node is that of the process, not of the last binding.
    std::ofstream(root.Path("node1/cpulist")) << before.front() << "\n";
    REQUIRE(BindThread(1, root.Path("")));
    CHECK(Affinity() == std::vector<int>{before.front()});
    // Nothing that it may use, nothing known: as before.
    std::ofstream(root.Path("node2/cpulist")) << "1000-1020\n";
    CHECK_FALSE(BindThread(2, root.Path("")));
    CHECK_FALSE(BindThread(3, root.Path("")));
    CHECK_FALSE(BindThread(-1, root.Path("")));
    CHECK(Affinity() == std::vector<int>{before.front()});
    UnbindThread();
    CHECK(Affinity() == before);
  });
  thread.join();
}

}  // namespace
}  // namespace pipewright::cuda::cuda_library_test

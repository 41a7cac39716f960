// What limits leave of a machine's memory, from files that are written here.
#include "kernels/cpu/free_memory.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/run_binary.h"

namespace pipewright::free_memory_test {
namespace {

constexpr int64_t kMiB = 1 << 20;

using Files = std::map<std::string, std::string>;

std::map<std::string, int64_t> Limits(const Files& files) {
  const testing::TemporaryFolder folder;
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = folder.Path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::map<std::string, int64_t> limits;
  for (const MemoryLimit& limit : MemoryLimits(folder.Path(""))) {
    if (limit.name == "ulimit -v") continue;  // this process has it
    CHECK(limits.emplace(limit.name, limit.free_bytes).second);
  }
  return limits;
}

std::string Bytes(int64_t mebibytes) {
  return std::to_string(mebibytes * kMiB) + "\n";
}

constexpr char kInfo[] =
    "MemTotal:        8192000 kB\nMemFree:          100000 kB\n"
    "MemAvailable:    4096 kB\n";

TEST_CASE("free memory: the machine alone", "[kernels]") {
  CHECK(Limits({{"proc/meminfo", kInfo}}) ==
        std::map<std::string, int64_t>{{"the machine", 4 * kMiB}});
  CHECK(Limits({}).empty());
  CHECK(Limits({{"proc/meminfo", "MemFree: 7 kB\n"}}).empty());
  CHECK(FreeMemory() > 0);
}

TEST_CASE("free memory: every group of version 2 above the process",
          "[kernels]") {
  const std::string top = "sys/fs/cgroup";
  const Files files = {
      {"proc/self/cgroup", "0::/job/step\n"},
      {top + "/job/memory.max", Bytes(100)},
      {top + "/job/memory.current", Bytes(30)},
      // Files that are cached can go.
      {top + "/job/memory.stat",
       "anon 5\nactive_file " + Bytes(4) + "inactive_file " + Bytes(6) +
           "file 3\n"},
      {top + "/job/step/memory.max", "max\n"},
      {top + "/job/step/memory.current", Bytes(20)},
      // Group of another process.
      {top + "/other/memory.max", Bytes(1)},
      {top + "/other/memory.current", Bytes(1)}};
  CHECK(Limits(files) ==
        std::map<std::string, int64_t>{{"control group /job", 80 * kMiB}});
  Files tight = files;
  tight[top + "/job/step/memory.max"] = Bytes(21);
  CHECK(Limits(tight).at("control group /job/step") == kMiB);
  // More is used than allowed.
  tight[top + "/job/step/memory.max"] = Bytes(19);
  CHECK(Limits(tight).at("control group /job/step") == 0);
}

TEST_CASE("free memory: version 1, and a container that sees its own root",
          "[kernels]") {
  const std::string top = "sys/fs/cgroup/memory";
  const Files files = {
      {"proc/self/cgroup",
       "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/\n"},
      {top + "/memory.limit_in_bytes", Bytes(64)},
      {top + "/memory.usage_in_bytes", Bytes(60)},
      {top + "/memory.stat", "cache 1\ntotal_inactive_file " + Bytes(2)}};
  CHECK(Limits(files) ==
        std::map<std::string, int64_t>{{"control group /", 6 * kMiB}});
  Files whole = files;
  whole[top + "/docker/x/memory.limit_in_bytes"] = Bytes(8);
  whole[top + "/docker/x/memory.usage_in_bytes"] = Bytes(3);
  CHECK(Limits(whole).at("control group /docker/x") == 5 * kMiB);
  // What version 1 says where there is no limit.
  whole[top + "/memory.limit_in_bytes"] = "9223372036854771712\n";
  CHECK(Limits(whole).size() == 1);
}

}  // namespace
}  // namespace pipewright::free_memory_test

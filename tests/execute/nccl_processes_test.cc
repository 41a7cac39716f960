// Transfers between GPUs of several processes, which are threads here: over
// tests/support/fake_mpi.h and fake_nccl.h.
#include "execute/transport/nccl_processes.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/fake_mpi.h"
#include "tests/support/fake_nccl.h"

namespace pipewright::nccl_processes_test {
namespace {

using testing::FakeDevice;
using testing::FakeKernels;
using testing::FakeMpi;
using testing::FakeMpiWorld;
using testing::FakeNccl;
using testing::FakeNcclWorld;

constexpr int64_t kMiB = 1 << 20;

struct Setup {
  int processes = 3;
  FakeDevice device;
  double timeout_s = 60;
  int without_nccl = -1;  // this process
  int on_node = 8;        // so many processes share a node
};

// Process 0 does `body`; the others serve and end well.
void Run(const Setup& setup,
         const std::function<void(ProcessGroup*,
                                  const NcclProcesses::Options&)>& body) {
  FakeMpiWorld mpi(setup.processes);
  const PwKernels* const kernels = FakeKernels(setup.device);
  const auto options = [&](int process) {
    NcclProcesses::Options out = {
        .nccl = FakeNccl(),
        .kernels = kernels,
        .device = process,
        .most_bytes = kMiB,
        .timeout_s = setup.timeout_s,
        .node = static_cast<uint64_t>(1 + process / setup.on_node)};
    if (process == setup.without_nccl) {
      out.nccl = absl::UnavailableError("no libnccl.so.2");
    }
    return out;
  };
  std::vector<absl::Status> served(static_cast<size_t>(setup.processes));
  std::vector<std::thread> threads;
  for (int process = 1; process < setup.processes; ++process) {
    threads.emplace_back([&, process] {
      FakeMpiWorld::Become(process);
      const auto job = ProcessGroup::Create(FakeMpi(), "fake", "-n").value();
      served[static_cast<size_t>(process)] =
          NcclProcesses::Serve(job.get(), options(process));
    });
  }
  FakeMpiWorld::Become(0);
  {
    const auto job = ProcessGroup::Create(FakeMpi(), "fake", "-n").value();
    body(job.get(), options(0));
    NcclProcesses::LetGo(job.get());
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : served) CHECK(status.ok());
}

TEST_CASE("nccl processes: times are the devices'", "[execute][nccl]") {
  FakeNcclWorld world;
  world.seconds = [](const std::string& kind, size_t bytes, size_t members) {
    return (kind == "send" ? 1 : 2) * 1e-6 * static_cast<double>(members) +
           static_cast<double>(bytes) / 100e9;
  };
  Run({}, [](ProcessGroup* job, const NcclProcesses::Options& options) {
    auto group = NcclProcesses::Create(job, options).value();
    CHECK(group->members() == 3);
    CHECK(group->most_bytes() == kMiB);
    REQUIRE(group->Join(2).ok());
    REQUIRE(group->Join(3).ok());
    CHECK(group->Time({OpKind::kSend, 2, kMiB, 3}).value() ==
          Approx(2e-6 + kMiB / 100e9));
    CHECK(group->Time({OpKind::kAllReduce, 3, 4096, 5}).value() ==
          Approx(6e-6 + 4096 / 100e9));
    // Queued, and awaited later.
    REQUIRE(group->Begin({OpKind::kAllReduce, 2, kMiB, 4}).ok());
    CHECK(group->End().value() == Approx(4e-6 + kMiB / 100e9));
  });
  CHECK(world.violations == std::vector<std::string>());
  CHECK(world.made == 5);
  CHECK(world.left == 5);
}

// As MPI, Slurm, sockets and --bootstrap start processes: one job of them.
TEST_CASE("nccl processes: the nodes that each group is on",
          "[execute][nccl]") {
  FakeNcclWorld world;
  const auto nodes = [](int on_node) {
    std::vector<int> of_members;
    Run({.processes = 4, .on_node = on_node},
        [&](ProcessGroup* job, const NcclProcesses::Options& options) {
          const auto group = NcclProcesses::Create(job, options).value();
          for (const int members : {2, 3, 4}) {
            of_members.push_back(group->nodes(members));
          }
        });
    return of_members;
  };
  CHECK(nodes(4) == std::vector<int>{1, 1, 1});
  CHECK(nodes(2) == std::vector<int>{1, 2, 2});
  CHECK(nodes(1) == std::vector<int>{2, 3, 4});
}

TEST_CASE("nccl processes: a node is known by its name, or NCCL_HOSTID",
          "[execute][nccl]") {
  const uint64_t here = NumberOfNode();
  CHECK(here == NumberOfNode());
  ::setenv("NCCL_HOSTID", "elsewhere", 1);
  const uint64_t elsewhere = NumberOfNode();
  ::setenv("NCCL_HOSTID", "nowhere", 1);
  CHECK(elsewhere != here);
  CHECK(NumberOfNode() != elsewhere);
  ::unsetenv("NCCL_HOSTID");
  CHECK(NumberOfNode() == here);
}

TEST_CASE("nccl processes: memory of the fullest decides", "[execute][nccl]") {
  FakeNcclWorld world;
  const auto most = [](const FakeDevice& device) {
    int64_t bytes = -1;
    Run({.device = device}, [&](ProcessGroup* job,
                                const NcclProcesses::Options& options) {
      const auto group = NcclProcesses::Create(job, options);
      if (group.ok()) bytes = (*group)->most_bytes();
      if (!group.ok()) {
        CHECK(group.status().code() == absl::StatusCode::kResourceExhausted);
      }
    });
    return bytes;
  };
  CHECK(most({.free_bytes = 8 * kMiB}) == kMiB / 2);
  CHECK(most({.largest_block = kMiB / 4}) == kMiB / 4);
  CHECK(most({.largest_block = 1000}) == -1);
}

// Process 0 hears the cause and goes on without; nobody hangs.
void CheckFails(FakeNcclWorld* world, const Setup& setup, const char* why) {
  Run(setup, [&](ProcessGroup* job, const NcclProcesses::Options& options) {
    auto group = NcclProcesses::Create(job, options);
    absl::Status status = group.status();
    if (status.ok()) status = (*group)->Join(3);
    if (status.ok()) {
      status = (*group)->Time({OpKind::kAllReduce, 3, 4096, 2}).status();
      CHECK((*group)->Time({OpKind::kAllReduce, 3, 4096, 2}).status() ==
            status);
    }
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StrContains(status.message(), why));
  });
  CHECK(world->aborted == world->made);
  CHECK(world->violations == std::vector<std::string>());
}

TEST_CASE("nccl processes: the failure of one ends the transfers of all",
          "[execute][nccl]") {
  for (const int process : {0, 2}) {
    FakeNcclWorld world;
    world.fails_alone = process;
    CheckFails(&world, {.timeout_s = 3600}, "fake: ");
  }
  for (const int process : {0, 1}) {
    FakeNcclWorld world;
    CheckFails(&world, {.timeout_s = 3600, .without_nccl = process},
               "no libnccl.so.2");
    CheckFails(
        &world,
        {.device = {.devices = 3, .missing = process}, .timeout_s = 3600},
        process == 0 ? "device 0" : "process 1, device 1");
  }
}

TEST_CASE("nccl processes: who never comes ends by the time-out",
          "[execute][nccl]") {
  FakeNcclWorld world;
  world.never_comes = 1;
  CheckFails(&world, {.timeout_s = 0.2}, "goes on for 0.2 s");
}

}  // namespace
}  // namespace pipewright::nccl_processes_test

// Messages between processes, over tests/support/fake_mpi.h.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "execute/transport/process_group.h"
#include "tests/support/fake_mpi.h"

namespace pipewright::mpi_job_test {
namespace {

using testing::FakeMpi;
using testing::FakeMpiWorld;

TEST_CASE("mpi: a message that does not come to its end stops no other",
          "[execute][mpi]") {
  FakeMpiWorld world(3);
  std::vector<std::unique_ptr<ProcessGroup>> jobs;
  for (const int process : {0, 1, 2}) {
    FakeMpiWorld::Become(process);
    jobs.push_back(ProcessGroup::Create(FakeMpi(), "fake", "-n").value());
  }
  world.Delay(1);
  const auto send = [&](int from, ProcessGroup::Tag tag,
                        const std::string& text) {
    FakeMpiWorld::Become(from);
    jobs[from]->Send(0, tag, text);
  };
  send(1, ProcessGroup::kPipeline, "large");
  send(1, ProcessGroup::kPipeline, "behind it");
  send(2, ProcessGroup::kPipeline, "other");
  send(2, ProcessGroup::kControl, "control");
  FakeMpiWorld::Become(0);
  const auto receive = [&](ProcessGroup::Tag tag) -> std::string {
    ProcessGroup::Incoming incoming;
    const Received received = jobs[0]->Receive(tag, 1e-3, &incoming);
    if (received != Received::kMessage) return "nothing";
    return std::string(incoming.text());
  };
  CHECK(receive(ProcessGroup::kPipeline) == "other");
  CHECK(receive(ProcessGroup::kPipeline) == "nothing");
  CHECK(receive(ProcessGroup::kControl) == "control");
  world.Arrive();
  CHECK(receive(ProcessGroup::kPipeline) == "large");
  CHECK(receive(ProcessGroup::kPipeline) == "behind it");
  CHECK(receive(ProcessGroup::kPipeline) == "nothing");
}

}  // namespace
}  // namespace pipewright::mpi_job_test

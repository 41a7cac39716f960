// Messages between processes, over tests/support/fake_mpi.h.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "execute/mpi_transport.h"
#include "tests/support/fake_mpi.h"

namespace pipewright {
namespace {

using testing::FakeMpi;
using testing::FakeMpiWorld;

TEST_CASE("mpi: a message that does not come to its end stops no other",
          "[execute][mpi]") {
  FakeMpiWorld world(3);
  std::vector<std::unique_ptr<MpiJob>> jobs;
  for (const int process : {0, 1, 2}) {
    FakeMpiWorld::Become(process);
    jobs.push_back(MpiJob::Create(FakeMpi(), "fake", "-n").value());
  }
  world.Delay(1);
  const auto send = [&](int from, MpiJob::Tag tag, const std::string& text) {
    FakeMpiWorld::Become(from);
    jobs[from]->Send(0, tag, text);
  };
  send(1, MpiJob::kPipeline, "large");
  send(1, MpiJob::kPipeline, "behind it");
  send(2, MpiJob::kPipeline, "other");
  send(2, MpiJob::kControl, "control");
  FakeMpiWorld::Become(0);
  const auto receive = [&](MpiJob::Tag tag) -> std::string {
    MpiJob::Incoming incoming;
    const Received received = jobs[0]->Receive(tag, 1e-3, &incoming);
    if (received != Received::kMessage) return "nothing";
    return std::string(incoming.text());
  };
  CHECK(receive(MpiJob::kPipeline) == "other");
  CHECK(receive(MpiJob::kPipeline) == "nothing");
  CHECK(receive(MpiJob::kControl) == "control");
  world.Arrive();
  CHECK(receive(MpiJob::kPipeline) == "large");
  CHECK(receive(MpiJob::kPipeline) == "behind it");
  CHECK(receive(MpiJob::kPipeline) == "nothing");
}

}  // namespace
}  // namespace pipewright

// What is queued on one communicator, and collectives on it, over
// tests/support/fake_nccl.h.
#include "execute/transport/nccl_comm.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "execute/train/model_worker.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/small_training.h"

namespace pipewright::nccl_comm_test {
namespace {

using testing::FakeNccl;
using testing::FakeNcclWorld;
using testing::MakeSmallTraining;
using testing::SmallTraining;

// What the members of a group do, by the operation alone.
class Group {
 public:
  explicit Group(int members) {
    PwNcclId id;
    FakeNccl()->make_id(&id);
    for (int self = 0; self < members; ++self) {
      PwNcclComm* comm = nullptr;
      FakeNccl()->join(0, &id, members, self, &comm);
      comms_.push_back(std::make_unique<NcclComm>(*FakeNccl(), comm));
    }
  }
  NcclComm& operator[](size_t member) { return *comms_[member]; }
  void Finish() {
    for (int round = 0; round < 100; ++round) {
      for (const auto& comm : comms_) REQUIRE(comm->Pump(60).ok());
    }
    for (const auto& comm : comms_) CHECK(comm->idle());
  }

 private:
  std::vector<std::unique_ptr<NcclComm>> comms_;
};

class HostWorker {
 public:
  static Payload Take(size_t bytes) {
    return {.data = std::shared_ptr<void>(std::malloc(bytes), std::free),
            .bytes = bytes,
            .on_device = true};
  }
  static Payload Of(const std::vector<float>& values) {
    Payload payload = Take(values.size() * 4);
    std::copy(values.begin(), values.end(),
              static_cast<float*>(payload.data.get()));
    if (values.empty()) return {};
    return payload;
  }
  static std::vector<float> Values(const Payload& payload) {
    const auto* const values = static_cast<const float*>(payload.data.get());
    return {values, values + payload.bytes / 4};
  }
};

std::unique_ptr<ModelWorker> MemoryWorker(const SmallTraining& training) {
  return *ModelWorker::Create(training.program, {0, 0}, training.model,
                              pw_cpu_kernels(), 0, {});
}

TEST_CASE("nccl: shards of one size are one call, others a group",
          "[execute][nccl]") {
  const absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 2, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  const std::unique_ptr<ModelWorker> worker = MemoryWorker(*training);
  for (const bool uneven : {false, true}) {
    INFO((uneven ? "uneven" : "even"));
    FakeNcclWorld world;
    {
      Group group(3);
      // Member m has the values of shard s as 100 m + 10 s + index.
      const std::vector<size_t> sizes =
          uneven ? std::vector<size_t>{2, 3, 1} : std::vector<size_t>{2, 2, 2};
      std::vector<std::shared_ptr<Collective>> scatters;
      std::vector<std::shared_ptr<Collective>> gathers;
      for (int self = 0; self < 3; ++self) {
        auto scatter = std::make_shared<Collective>();
        scatter->kind = OpKind::kReduceScatter;
        scatter->self = self;
        auto gather = std::make_shared<Collective>();
        gather->kind = OpKind::kAllGather;
        gather->self = self;
        for (int shard = 0; shard < 3; ++shard) {
          std::vector<float> values;
          for (size_t index = 0; index < sizes[shard]; ++index) {
            values.push_back(100.0f * self + 10.0f * shard + index);
          }
          scatter->give.push_back(HostWorker::Of(values));
          if (shard == self) gather->give.push_back(HostWorker::Of(values));
          gather->bytes.push_back(sizes[shard] * 4);
        }
        for (const auto& each : {scatter, gather}) {
          absl::StatusOr<NcclComm::Operation> operation =
              CombineOperation(each, worker.get());
          REQUIRE(operation.ok());
          group[self].Enqueue(*std::move(operation));
        }
        scatters.push_back(scatter);
        gathers.push_back(gather);
      }
      group.Finish();
      for (int self = 0; self < 3; ++self) {
        REQUIRE(scatters[self]->parts.size() == 1);
        std::vector<float> sum;
        for (size_t index = 0; index < sizes[self]; ++index) {
          sum.push_back(300 + 3 * (10.0f * self + index));
        }
        CHECK(HostWorker::Values(scatters[self]->parts[0]) == sum);
        REQUIRE(gathers[self]->parts.size() == 3);
        for (int member = 0; member < 3; ++member) {
          std::vector<float> theirs;
          for (size_t index = 0; index < sizes[member]; ++index) {
            theirs.push_back(100.0f * member + 10.0f * member + index);
          }
          CHECK(HostWorker::Values(gathers[self]->parts[member]) == theirs);
        }
      }
    }
    CHECK(world.violations == std::vector<std::string>());
    CHECK(world.ran[uneven ? "group of reduce" : "reduce_scatter"] == 1);
    CHECK(world.ran[uneven ? "group of broadcast" : "all_gather"] == 1);
    CHECK(world.left == 3);
  }
}

// An operation is not called while the one before goes on on the host, and
// has ended only when the device says so.
TEST_CASE("nccl: one call at a time on a communicator", "[execute][nccl]") {
  FakeNcclWorld world;
  world.calls_go_on = 5;
  std::vector<int> ended;
  {
    Group group(2);
    std::vector<Payload> blocks;
    for (int number = 0; number < 3; ++number) {
      const Payload from = HostWorker::Of({float(number), 7});
      const Payload into = HostWorker::Of({0, 0});
      blocks.push_back(into);
      group[0].Enqueue({.what = "send",
                        .issue = [from](const PwNccl& nccl, PwNcclComm* comm) {
                          return nccl.send(comm, from.data.get(), from.bytes,
                                           1);
                        }});
      group[1].Enqueue(
          {.what = "receive",
           .issue =
               [into](const PwNccl& nccl, PwNcclComm* comm) {
                 return nccl.receive(comm, into.data.get(), into.bytes, 0);
               },
           .ended = [&ended, number] { ended.push_back(number); }});
    }
    // The sender alone: nothing can end.
    for (int round = 0; round < 50; ++round) REQUIRE(group[0].Pump(60).ok());
    CHECK_FALSE(group[0].idle());
    group.Finish();
    CHECK(ended == std::vector<int>{0, 1, 2});
    for (int number = 0; number < 3; ++number) {
      CHECK(HostWorker::Values(blocks[number])[0] == number);
    }
  }
  CHECK(world.violations == std::vector<std::string>());
}

TEST_CASE("nccl: what is under way for too long is named", "[execute][nccl]") {
  FakeNcclWorld world;
  world.calls_go_on = 0;
  {
    Group group(2);
    const Payload from = HostWorker::Of({1});
    REQUIRE(group[1].Pump(60).ok());
    group[0].Enqueue({.what = "send of 4 bytes to rank 1",
                      .issue = [from](const PwNccl& nccl, PwNcclComm* comm) {
                        return nccl.send(comm, from.data.get(), from.bytes, 1);
                      }});
    const absl::Status status = group[0].Pump(-1);
    CHECK(absl::StrContains(status.message(),
                            "send of 4 bytes to rank 1: under way for longer"));
  }
  // It is aborted, the other leaves.
  CHECK(world.aborted == 1);
  CHECK(world.left == 1);
}

}  // namespace
}  // namespace pipewright::nccl_comm_test

// The NCCL transport without NCCL: over threads and tests/support/fake_nccl.h,
// which watches the library's rules.
#include "execute/nccl_transport.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/nccl_collective.h"
#include "execute/thread_transport.h"
#include "execute/training.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/run_binary.h"
#include "tests/support/small_training.h"

namespace pipewright {
namespace {

using testing::FakeNccl;
using testing::FakeNcclWorld;
using testing::MakeSmallTraining;
using testing::SmallTraining;

void Use(FakeNcclWorld*, TrainingOptions* options, bool own_thread,
         double timeout_s = 60) {
  options->execute.timeout_s = timeout_s;
  options->execute.data_path = [own_thread, timeout_s](const Program& program,
                                                       Address self,
                                                       Endpoint* control) {
    return std::make_unique<NcclEndpoint>(
        program, self, control,
        NcclOptions{.nccl = FakeNccl(),
                    .timeout_s = timeout_s,
                    .own_thread = own_thread});
  };
}

absl::StatusOr<TrainedRun> Train(const SmallTraining& training) {
  return TrainThreads(training.program, training.model, pw_cpu_kernels(),
                      training.options);
}

std::string Text(const CommPlan& plan) {
  std::string text = absl::StrCat(plan.group, ":");
  for (const Address& each : plan.members) {
    absl::StrAppend(&text, " ", each.replica, ".", each.rank);
  }
  return text;
}

TEST_CASE("nccl: a link for each direction, a communicator for each group",
          "[execute][nccl]") {
  const absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 2, 2, WaitRule::kBuffered);
  REQUIRE(training.ok());
  std::vector<std::string> plans;
  for (const CommPlan& plan : PlanComms(training->program)) {
    plans.push_back(Text(plan));
  }
  REQUIRE(plans.size() == 6);
  CHECK(plans[0] == "-1: 0.0 0.1");
  CHECK(plans[1] == "-1: 0.1 0.0");
  CHECK(plans[2] == "-1: 1.0 1.1");
  CHECK(plans[3] == "-1: 1.1 1.0");
  // The copies of a stage: ranks of one place in both replicas.
  CHECK(absl::EndsWith(plans[4], ": 0.0 1.0"));
  CHECK(absl::EndsWith(plans[5], ": 0.1 1.1"));
}

TEST_CASE("nccl: room for as many inputs as the order holds",
          "[execute][nccl]") {
  const absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  // 1F1B holds pp - rank microbatches (and 4 may be ahead).
  CHECK(BlocksHeld(training->program, 0) == 4 + 4);
  CHECK(BlocksHeld(training->program, 3) == 1 + 4);
}

TEST_CASE("nccl: the same bits as with threads", "[execute][nccl]") {
  struct Case {
    const char* schedule;
    int pp;
    int dp;
    WaitRule rule = WaitRule::kBuffered;
  };
  for (const auto& [schedule, pp, dp, rule] :
       {Case{"1f1b", 4, 1}, Case{"zb-v", 2, 1}, Case{"1f1b", 2, 2},
        Case{"zb-v", 2, 2}, Case{"dualpipe", 4, 1},
        Case{"gpipe", 2, 1, WaitRule::kRendezvous}}) {
    for (const bool own_thread : {false, true}) {
      INFO(schedule << " pp " << pp << " dp " << dp << " thread "
                    << own_thread);
      absl::StatusOr<SmallTraining> training =
          MakeSmallTraining(schedule, pp, dp, rule);
      REQUIRE(training.ok());
      const absl::StatusOr<TrainedRun> plain = Train(*training);
      INFO(plain.status());
      REQUIRE(plain.ok());
      FakeNcclWorld world;
      Use(&world, &training->options, own_thread);
      const absl::StatusOr<TrainedRun> run = Train(*training);
      INFO(run.status());
      REQUIRE(run.ok());
      CHECK(run->check.ok());
      const bool same = testing::BitsOf(*run) == testing::BitsOf(*plain);
      CHECK(same);
      CHECK(world.violations == std::vector<std::string>());
      CHECK(world.ran["send"] > 0);
      CHECK((world.ran["all_reduce"] > 0) ==
            (dp > 1 || absl::string_view(schedule) == "dualpipe"));
      // Every member leaves in good order.
      CHECK(world.made > 0);
      CHECK(world.left == world.made);
      CHECK(world.aborted == 0);
    }
  }
}

// Every transfer of a pass is one send: no more, no less.
TEST_CASE("nccl: as many sends as transfers of the schedule",
          "[execute][nccl]") {
  absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  FakeNcclWorld world;
  Use(&world, &training->options, true);
  REQUIRE(Train(*training).ok());
  const int links = 6;
  const int microbatches = 8;
  const int iterations = 2;
  CHECK(world.ran["send"] == links + links * microbatches * iterations);
}

TEST_CASE("nccl: what fails ends with the operations of every rank",
          "[execute][nccl]") {
  absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  for (const bool own_thread : {false, true}) {
    FakeNcclWorld world;
    // After the trial, in the run.
    world.fails = 2;
    world.fails_after = 5;
    Use(&world, &training->options, own_thread, 1);
    const absl::Status status = Train(*training).status();
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StrContains(status.message(), "NCCL"));
    for (int rank = 0; rank < 4; ++rank) {
      // Threads do not wait for each other before they start: some may not
      // have.
      bool named = false;
      for (const char* const how :
           {", iteration ", " has ended", ": did not start"}) {
        named |= absl::StrContains(status.message(),
                                   absl::StrCat("\nrank ", rank, how));
      }
      CHECK(named);
    }
    CHECK(absl::StrContains(status.message(), "waits for"));
    CHECK(world.aborted + world.left == world.made);
    CHECK(world.aborted > 0);
    CHECK(world.violations == std::vector<std::string>());
  }
}

TEST_CASE("nccl: a link that nobody answers ends in the time-out",
          "[execute][nccl]") {
  absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 2, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  FakeNcclWorld world;
  world.hangs = 1;
  Use(&world, &training->options, true, 0.5);
  const absl::Status status = Train(*training).status();
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(status.message(), "a first transfer goes on"));
  CHECK(absl::StrContains(status.message(), "rank 0: did not start"));
  CHECK(absl::StrContains(status.message(), "rank 1: did not start"));
  CHECK(world.aborted == world.made);
}

TEST_CASE("nccl: a message that is lost is told from a deadlock",
          "[execute][nccl]") {
  absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  FakeNcclWorld world;
  Use(&world, &training->options, true, 1);
  training->options.execute.faults.late_messages = {
      {.rank = 1, .number = 0, .seconds = -1}};
  const absl::Status status = Train(*training).status();
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(status.message(), "a message is lost"));
  CHECK(world.aborted == world.made);
}

TEST_CASE("nccl: a rank without a worker is known to the others at once",
          "[execute][nccl]") {
  const absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 2, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  FakeNcclWorld world;
  SmallTraining copy = *training;
  Use(&world, &copy.options, true, 1000);
  const MakeWorker make =
      [](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory on rank ", self.rank));
  };
  const absl::Status status =
      RunThreads(copy.program, make, copy.options.execute).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
}

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

TEST_CASE("nccl: without the library it says what is missing",
          "[execute][nccl]") {
  ::setenv("PIPEWRIGHT_NCCL_LIBRARY", "/nowhere/libpipewright_nccl.so", 1);
  const absl::Status status = LoadNccl().status();
  ::unsetenv("PIPEWRIGHT_NCCL_LIBRARY");
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(status.message(), "/nowhere/libpipewright_nccl.so"));
  CHECK(absl::StrContains(status.message(), "nccl.h"));
}

}  // namespace
}  // namespace pipewright

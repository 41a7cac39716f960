// Transfers that are timed between GPUs, without GPUs: over
// tests/support/fake_nccl.h, whose devices have a clock that a test writes.
#include "execute/transport/nccl_transfers.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/fake_nccl.h"

namespace pipewright::nccl_transfers_test {
namespace {

using testing::FakeKernels;
using testing::FakeNccl;
using testing::FakeNcclWorld;

constexpr int64_t kMiB = 1 << 20;

NcclTransfers::Options Of(int devices, double timeout_s = 60) {
  return {.nccl = FakeNccl(),
          .kernels = FakeKernels({.devices = devices}),
          .devices = devices,
          .most_bytes = kMiB,
          .timeout_s = timeout_s};
}

// A latency and a bandwidth; a member's bytes on its ring.
double Ring(const std::string& kind, size_t bytes, size_t members) {
  constexpr double kLatency_s = 5e-6;
  constexpr double kBandwidth = 200e9;
  const auto count = static_cast<double>(members);
  const double share = kind == "send"         ? 1
                       : kind == "all_reduce" ? 2 * (count - 1) / count
                                              : (count - 1) / count;
  return kLatency_s + share * static_cast<double>(bytes) / kBandwidth;
}

TEST_CASE("nccl transfers: a bandwidth comes out as it went in",
          "[execute][nccl]") {
  FakeNcclWorld world;
  world.seconds = Ring;
  {
    auto transfers = NcclTransfers::Create(Of(4)).value();
    CHECK(transfers->most_bytes() == kMiB);
    for (const int members : {2, 4}) REQUIRE(transfers->Join(members).ok());
    for (const int64_t bytes : {int64_t{4096}, kMiB}) {
      for (const int repeats : {1, 7}) {
        INFO(bytes << " bytes, " << repeats << " times");
        const auto time = [&](OpKind kind, int members) {
          return transfers->Time({kind, members, bytes, repeats}).value();
        };
        // There and back, halved.
        CHECK(time(OpKind::kSend, 2) == Approx(Ring("send", bytes, 2)));
        for (const int members : {2, 4}) {
          CHECK(time(OpKind::kAllReduce, members) ==
                Approx(Ring("all_reduce", bytes, members)));
          // Bytes are the whole buffer's, as TransferEntry has it.
          CHECK(time(OpKind::kAllGather, members) ==
                Approx(Ring("all_gather", bytes, members)));
          CHECK(time(OpKind::kReduceScatter, members) ==
                Approx(Ring("reduce_scatter", bytes, members)));
        }
      }
    }
    // In two steps, for what runs beside.
    REQUIRE(transfers->Begin({OpKind::kAllReduce, 4, kMiB, 3}).ok());
    CHECK(transfers->End().value() == Approx(Ring("all_reduce", kMiB, 4)));
  }
  CHECK(world.violations == std::vector<std::string>());
  CHECK(world.made == 2 + 4);
  CHECK(world.left == world.made);
  CHECK(world.aborted == 0);
  CHECK(world.ran["send"] > 0);
}

TEST_CASE("nccl transfers: three GPUs share what they cannot divide",
          "[execute][nccl]") {
  FakeNcclWorld world;
  auto transfers = NcclTransfers::Create(Of(3)).value();
  REQUIRE(transfers->Join(3).ok());
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter}) {
    CHECK(transfers->Time({kind, 3, 4096, 1}).ok());
  }
  CHECK(world.violations == std::vector<std::string>());
}

// Whatever goes wrong, all threads end, and the cause is named.
void CheckEnds(FakeNcclWorld* world, double timeout_s, const char* why) {
  {
    auto transfers = NcclTransfers::Create(Of(4, timeout_s)).value();
    absl::Status status = transfers->Join(4);
    if (status.ok()) {
      status = transfers->Time({OpKind::kAllReduce, 4, 4096, 2}).status();
    }
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    INFO(status);
    CHECK(absl::StrContains(status.message(), why));
    // It stays so.
    CHECK(transfers->Time({OpKind::kAllReduce, 4, 4096, 2}).status() == status);
    CHECK(transfers->Join(2) == status);
  }
  CHECK(world->violations == std::vector<std::string>());
  CHECK(world->aborted == world->made);
  CHECK(world->left == 0);
}

TEST_CASE("nccl transfers: the error of one ends the others",
          "[execute][nccl]") {
  // Nobody else hears of it from the library; an hour would be too long.
  for (const int member : {0, 3}) {
    FakeNcclWorld world;
    world.fails_alone = member;
    CheckEnds(&world, 3600, "fake: only this one fails");
  }
  FakeNcclWorld world;
  world.fails = 0;
  world.fails_after = 6;
  CheckEnds(&world, 3600, "fake: ");
}

TEST_CASE("nccl transfers: who never comes ends by the time-out",
          "[execute][nccl]") {
  FakeNcclWorld world;
  world.never_comes = 2;
  CheckEnds(&world, 0.2, "goes on for 0.2 s");
}

TEST_CASE("nccl transfers: a member alone does not join for ever",
          "[execute][nccl]") {
  FakeNcclWorld world;
  std::atomic<bool> given_up{false};
  PwNcclId id;
  FakeNccl()->make_id(&id);
  {
    auto member =
        NcclMember::Open({.nccl = FakeNccl(),
                          .kernels = FakeKernels({}),
                          .timeout_s = 0.1,
                          .given_up = [&] { return given_up.load(); }})
            .value();
    const absl::Status late = member->Join(id, 2);
    CHECK(late.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StrContains(late.message(), "joining 2 GPUs"));
    given_up = true;
    FakeNccl()->make_id(&id);
    member->CutOff();
    CHECK(member->Join(id, 2).code() == absl::StatusCode::kCancelled);
  }
  CHECK(world.aborted == 2);
}

TEST_CASE("nccl transfers: memory bounds what is transferred",
          "[execute][nccl]") {
  FakeNcclWorld world;
  const auto create = [](const testing::FakeDevice& device) {
    return NcclTransfers::Create({.nccl = FakeNccl(),
                                  .kernels = FakeKernels(device),
                                  .devices = 2,
                                  .most_bytes = kMiB});
  };
  // Two buffers, an eighth of what is free.
  CHECK(create({.free_bytes = 16 * kMiB, .devices = 2}).value()->most_bytes() ==
        kMiB);
  CHECK(create({.free_bytes = 16 * kMiB - 1, .devices = 2})
            .value()
            ->most_bytes() == kMiB / 2);
  // Free, but not in one piece.
  CHECK(
      create({.devices = 2, .largest_block = kMiB / 4}).value()->most_bytes() ==
      kMiB / 4);
  CHECK(create({.devices = 2, .largest_block = 1000}).status().code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK(create({.free_bytes = kMiB / 2, .devices = 2}).status().code() ==
        absl::StatusCode::kResourceExhausted);
  const absl::Status missing = create({.devices = 2, .missing = 1}).status();
  CHECK(missing.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(missing.message(), "device 1"));
}

}  // namespace
}  // namespace pipewright::nccl_transfers_test

// An owner's memory: what clients post is added once, in whatever pieces.
#include "execute/train/owner_memory.h"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "execute/run/shared_blocks.h"
#include "execute/transport/steady_seconds.h"

namespace pipewright::owner_memory_test {
namespace {

struct Owned {
  std::shared_ptr<SharedBlocks> blocks;
  std::vector<OwnerMemory> memories;
  std::vector<OwnerMemory*> all;
};

// Units of 7 and 3 elements over two owners: shards of 3, 4 and 1, 2.
Owned MakeOwned(int64_t buffer) {
  const std::vector<OwnerShape> shapes = {
      {.clients = 2, .shards = {3, 1}, .buffer = buffer},
      {.clients = 2, .shards = {4, 2}, .buffer = buffer}};
  Owned owned;
  absl::StatusOr<std::shared_ptr<SharedBlocks>> blocks =
      SharedBlocks::OfThreads({shapes[0].Bytes(), shapes[1].Bytes()});
  INFO(blocks.status());
  REQUIRE(blocks.ok());
  owned.blocks = *std::move(blocks);
  for (size_t index = 0; index < shapes.size(); ++index) {
    owned.memories.emplace_back(shapes[index], owned.blocks->block(index));
  }
  for (OwnerMemory& memory : owned.memories) owned.all.push_back(&memory);
  return owned;
}

TEST_CASE("owners: every client's gradients are added once, in any rounds",
          "[execute][replicas]") {
  for (const int64_t buffer : {1, 2, 3, 4, 100}) {
    Owned owned = MakeOwned(buffer);
    {
      OwnerService first(owned.all[0], 10e-6);
      OwnerService second(owned.all[1], 10e-6);
      std::vector<std::thread> clients;
      for (int client = 0; client < 2; ++client) {
        clients.emplace_back([&owned, client] {
          for (int push = 0; push < 5; ++push) {
            std::vector<float> values;
            for (int at = 0; at < 7; ++at) {
              values.push_back(static_cast<float>(at + 10 * client));
            }
            PushToOwners(owned.all, client, 0, values.data(), {0, 3}, 60, [] {
              return absl::OkStatus();
            }).IgnoreError();
          }
        });
      }
      for (std::thread& client : clients) client.join();
    }
    INFO("buffer " << buffer);
    for (int at = 0; at < 7; ++at) {
      const float* const sums =
          at < 3 ? owned.all[0]->sums(0) + at : owned.all[1]->sums(0) + at - 3;
      CHECK(*sums == 5 * (at + at + 10.0f));
    }
    // The other unit has none of it.
    CHECK(owned.all[0]->sums(1)[0] == 0);
    CHECK(owned.all[1]->sums(1)[1] == 0);
    const auto rounds = [buffer](int64_t shard) {
      return static_cast<uint64_t>(2 * 5 * ((shard + buffer - 1) / buffer));
    };
    for (const int owner : {0, 1}) {
      CHECK(owned.all[owner]->posted() == rounds(3 + owner));
      CHECK(owned.all[owner]->added() == rounds(3 + owner));
    }
  }
}

TEST_CASE("owners: memory that is not there is refused with its size",
          "[execute][replicas]") {
  const absl::Status status =
      SharedBlocks::OfThreads({size_t{1} << 50}).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(absl::StrContains(status.message(), "TiB of memory that ranks share"));
  CHECK(absl::StrContains(status.message(), "fewer replicas"));
}

TEST_CASE("owners: who adds nothing is named", "[execute][replicas]") {
  Owned owned = MakeOwned(4);
  OwnerService only(owned.all[0], 10e-6);
  const std::vector<float> values(7, 1);
  const absl::Status status =
      PushToOwners(owned.all, 1, 0, values.data(), {0, 3}, 0.05,
                   [] { return absl::OkStatus(); });
  CHECK(absl::IsUnavailable(status));
  CHECK(absl::StrContains(status.message(),
                          "replica 1 has not added what replica 1 pushed"));
}

TEST_CASE("owners: a service ends at once, and so does a push",
          "[execute][replicas]") {
  const double begin_s = SteadySeconds();
  {
    Owned owned = MakeOwned(4);
    // The next look is far away.
    OwnerService first(owned.all[0], 1e6);
    OwnerService second(owned.all[1], 1e6);
    while (SteadySeconds() - begin_s < 0.05) std::this_thread::yield();
    const std::vector<float> values(7, 1);
    int asked = 0;
    const absl::Status status =
        PushToOwners(owned.all, 1, 0, values.data(), {0, 3}, 60, [&asked] {
          return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("ends");
        });
    CHECK(absl::IsCancelled(status));
  }
  CHECK(SteadySeconds() - begin_s < 30);
}

}  // namespace
}  // namespace pipewright::owner_memory_test

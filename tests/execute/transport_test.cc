// Ends of a transport: what has left, what is under way, what a frame or a list
// claims, who needs a communicator.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "execute/transport/message.h"
#include "execute/transport/nccl_plan.h"
#include "execute/transport/socket_peer.h"
#include "execute/transport/thread_transport.h"
#include "execute/transport/wire.h"
#include "sim/program/program.h"
#include "tests/support/lowering.h"

namespace pipewright::transport_test {
namespace {

constexpr Address kFirst = {0, 0};
constexpr Address kSecond = {0, 1};
// Nobody waits for as long where all is well.
constexpr double kLong_s = 20;

Received Wait(ThreadFabric* fabric, double timeout_s) {
  RankMessage message;
  return fabric->endpoint(kFirst)->Receive(timeout_s, &message);
}

TEST_CASE("transport: a rank alone that waits is stuck", "[execute]") {
  ThreadFabric fabric(1, 2);
  fabric.endpoint(kFirst)->Send(kSecond, {.number = 1});
  fabric.endpoint(kFirst)->Send(kSecond, {.number = 2});
  Endpoint* const second = fabric.endpoint(kSecond);
  for (const int64_t number : {1, 2}) {
    RankMessage message;
    REQUIRE(second->Receive(0, &message) == Received::kMessage);
    CHECK(message.number == number);
    CHECK(message.from == kFirst);
  }
  RankMessage none;
  CHECK(second->Receive(0, &none) == Received::kTimeOut);
  // The other one could still send something.
  CHECK(Wait(&fabric, 0.01) == Received::kTimeOut);
  fabric.Leave(kSecond, /*lost=*/false);
  CHECK(Wait(&fabric, kLong_s) == Received::kStuck);
}

TEST_CASE(
    "transport: what a rank has not read is not under way when it has "
    "left",
    "[execute]") {
  for (const bool before : {true, false}) {
    CAPTURE(before);
    ThreadFabric fabric(1, 2);
    if (before) fabric.endpoint(kFirst)->Send(kSecond, {});
    fabric.Leave(kSecond, /*lost=*/false);
    if (!before) fabric.endpoint(kFirst)->Send(kSecond, {});
    CHECK(Wait(&fabric, kLong_s) == Received::kStuck);
  }
}

TEST_CASE("transport: who waits for a lost rank is not stuck", "[execute]") {
  ThreadFabric fabric(1, 2);
  fabric.Leave(kSecond, /*lost=*/true);
  CHECK(Wait(&fabric, kLong_s) == Received::kTimeOut);
}

TEST_CASE("transport: work elsewhere is no deadlock", "[execute]") {
  ThreadFabric fabric(1, 1);
  fabric.endpoint(kFirst)->Pending(+1);
  CHECK(Wait(&fabric, 0.01) == Received::kTimeOut);
  fabric.endpoint(kFirst)->Pending(-1);
  CHECK(Wait(&fabric, kLong_s) == Received::kStuck);
}

TEST_CASE("transport: a rank runs until it has left", "[execute]") {
  ThreadFabric fabric(2, 2);
  const Endpoint& first = *fabric.endpoint(kFirst);
  CHECK(first.RunsSince({1, 0}, 0));
  CHECK(first.RunsSince({1, 1}, 0));
  fabric.Leave({1, 0}, /*lost=*/false);
  CHECK_FALSE(first.RunsSince({1, 0}, 0));
  CHECK(first.RunsSince({1, 1}, 0));
}

TEST_CASE("transport: a list has as many values as there are bytes for",
          "[execute]") {
  WireWriter writer;
  writer.PutAll(std::vector<double>{1, 2, 3});
  writer.PutText("abc");
  WireReader reader(writer.bytes());
  CHECK(reader.GetAll<double>() == std::vector<double>{1, 2, 3});
  CHECK(reader.GetText() == "abc");
  CHECK(reader.ok());
  // Each claims three of eight bytes, or three of one.
  for (const size_t cut : {size_t{1}, size_t{8}, size_t{16}}) {
    WireWriter part;
    part.Put<uint64_t>(3);
    const std::string claimed =
        part.bytes() + std::string(3 * sizeof(double) - cut, 'x');
    WireReader of_list(claimed);
    CHECK(of_list.GetAll<double>().empty());
    CHECK_FALSE(of_list.ok());
  }
  WireWriter text;
  text.Put<uint64_t>(3);
  const std::string claimed = text.bytes() + "ab";
  WireReader of_text(claimed);
  CHECK(of_text.GetText().empty());
  CHECK_FALSE(of_text.ok());
}

// Two ends of one stream.
struct Peers {
  Peers() {
    int files[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, files) == 0);
    one = std::make_unique<SocketPeer>(0, files[0]);
    other = std::make_unique<SocketPeer>(1, files[1]);
  }
  std::unique_ptr<SocketPeer> one;
  std::unique_ptr<SocketPeer> other;
};

TEST_CASE("transport: what a process has sent is read after it has gone",
          "[execute]") {
  for (const bool says_bye : {false, true}) {
    CAPTURE(says_bye);
    Peers peers;
    peers.one->Put(1, "he", 2, "ad", 2);
    peers.one->Put(2, "", 0, nullptr, 0);
    if (says_bye) peers.one->Bye(absl::OkStatus());
    peers.one->Pump();
    CHECK_FALSE(peers.one->unsent());
    peers.one.reset();
    for (int time = 0; time < 2; ++time) {
      peers.other->Pump();
      CHECK(peers.other->closed());
      CHECK(peers.other->Loss().ok() == says_bye);
    }
    REQUIRE(peers.other->frames(1).size() == 1);
    CHECK(peers.other->frames(1).front() == "head");
    REQUIRE(peers.other->frames(2).size() == 1);
    CHECK(peers.other->frames(2).front().empty());
  }
}

LowerOptions Costs(int stages, int replicas) {
  LowerOptions options;
  options.costs.stages.assign(
      stages, {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  options.replicas = replicas;
  options.iterations = 1;
  return options;
}

TEST_CASE("transport: communicators go the way that data goes", "[execute]") {
  using Places = std::vector<Address>;
  // Activations one way, gradients the other.
  const Program hops = Lowered(Registered("1f1b", 2, 2), Costs(2, 1));
  const std::vector<CommPlan> plan = PlanComms(hops);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].members == Places{{0, 0}, {0, 1}});
  CHECK(plan[1].members == Places{{0, 1}, {0, 0}});
}

TEST_CASE("transport: there is room for what a rank holds at its most",
          "[execute]") {
  const Program program = Lowered(Registered("1f1b", 4, 8), Costs(4, 1));
  CHECK(BlocksHeld(program, 0) == 4 + 4);
  CHECK(BlocksHeld(program, 2) == 2 + 4);
  CHECK(BlocksHeld(program, 3) == 1 + 4);
}

TEST_CASE("transport: two replicas meet in collectives of gradients",
          "[execute]") {
  LowerOptions options = Costs(1, 2);
  options.data_parallel = DataParallel::kDdp;
  options.gradient_bytes = {64};
  options.optimizer = OptimizerMode::kSynchronised;
  const Program program = Lowered(Registered("1f1b", 1, 2), options);
  int combined = 0;
  for (const SideOp& op : program.ranks[0].side_ops) {
    combined += IsCombined(program, op) ? 1 : 0;
    // The norm is no collective of gradients.
    CHECK(IsCombined(program, op) ==
          (op.kind == OpKind::kAllReduce && op.stage == 0));
  }
  CHECK(combined == 1);
  CHECK(RankName(program, {1, 0}) == "rank 0 of replica 1");
  CHECK(RankName(Lowered(Registered("1f1b", 1, 2), Costs(1, 1)), {0, 0}) ==
        "rank 0");
}

}  // namespace
}  // namespace pipewright::transport_test

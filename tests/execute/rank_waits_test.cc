// How a rank waits, with others that say what the test has them say.
#include "execute/run/rank_waits.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "execute/run/rank_run.h"
#include "execute/transport/wire.h"
#include "sim/program/program.h"
#include "tests/support/lowered_1f1b.h"

namespace pipewright::rank_waits_test {
namespace {

using testing::Lowered;
using Kind = RankMessage::Kind;

std::string Traffic(std::vector<int64_t> sent, int64_t taken,
                    int64_t under_way = 0, bool goes_on = false) {
  WireWriter writer;
  writer.Put(taken);
  writer.Put(under_way);
  writer.Put(goes_on);
  writer.PutAll(sent);
  return writer.bytes();
}

// Rank 0's of two; rank 1 answers each question at once, if it has an answer.
class AnsweringEndpoint : public Endpoint {
 public:
  void Send(Address, RankMessage message) override {
    if (message.kind == Kind::kAsk && !answer.empty()) {
      Come({.kind = Kind::kAnswer,
            .number = message.number,
            .payload = HostPayload(answer)});
    }
    sent.push_back(std::move(message));
  }
  Received Receive(double, RankMessage* message) override {
    if (waiting_.empty()) return Received::kTimeOut;
    *message = std::move(waiting_.front());
    waiting_.pop_front();
    return Received::kMessage;
  }
  void Pending(int) override {}
  void Come(RankMessage message) {
    message.from = {0, 1};
    waiting_.push_back(std::move(message));
  }

  std::string answer;
  std::vector<RankMessage> sent;

 private:
  std::deque<RankMessage> waiting_;
};

struct Waiting {
  AnsweringEndpoint endpoint;
  RankRunOptions options;
  Program program = Lowered(2, /*copies=*/false).value();
  int taken = 0;
  RankWaits waits = RankWaits(
      program, {0, 0}, &endpoint, options,
      [this](const RankMessage&) {
        ++taken;
        return absl::OkStatus();
      },
      [] { return "blocked"; });
};

TEST_CASE("rank waits: two equal answers with all taken are a deadlock",
          "[execute]") {
  Waiting rank;
  rank.endpoint.answer = Traffic({0, 0}, 0);
  CHECK(rank.waits.Wait() == absl::FailedPreconditionError("blocked"));
  CHECK(rank.endpoint.sent.back().kind == Kind::kDeadlock);
}

TEST_CASE("rank waits: what is under way for another time-out is lost",
          "[execute]") {
  for (const int own : {0, 1, 2}) {
    Waiting rank;
    rank.endpoint.answer = Traffic({0, 0}, own == 2 ? 1 : 0, own == 1 ? 1 : 0);
    if (own != 1) rank.waits.SendTo({0, 1}, {});
    if (own == 2) rank.waits.BeginOwn();
    INFO(own);
    CHECK(rank.waits.Wait().ok());
    const absl::Status lost = rank.waits.Wait();
    CHECK(lost.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StrContains(lost.message(), "under way for longer"));
  }
}

TEST_CASE("rank waits: who goes on is awaited, who says nothing is lost",
          "[execute]") {
  Waiting rank;
  rank.endpoint.answer = Traffic({0, 0}, 0, 0, /*goes_on=*/true);
  for (int wait = 0; wait < 5; ++wait) CHECK(rank.waits.Wait().ok());
  rank.endpoint.answer.clear();
  const absl::Status lost = rank.waits.Wait();
  CHECK(lost.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(lost.message(), "rank 1: no answer"));
}

TEST_CASE("rank waits: questions are answered when the rank waits",
          "[execute]") {
  Waiting rank;
  rank.endpoint.Come({.kind = Kind::kToken});
  rank.endpoint.Come({.kind = Kind::kAsk, .number = 7});
  REQUIRE(rank.waits.Poll().ok());
  CHECK(rank.taken == 1);
  CHECK(rank.endpoint.sent.empty());
  REQUIRE(rank.waits.WaitFor(0).ok());
  REQUIRE(rank.endpoint.sent.size() == 1);
  CHECK(rank.endpoint.sent[0].number == 7);
  CHECK(TextOf(rank.endpoint.sent[0].payload) ==
        Traffic({0, 0}, 1, 0, /*goes_on=*/true));
}

TEST_CASE("rank waits: what one that has ended sent before is not forgotten",
          "[execute]") {
  Waiting rank;
  rank.endpoint.Come(
      {.kind = Kind::kDone, .payload = HostPayload(Traffic({1, 0}, 0))});
  REQUIRE(rank.waits.Poll().ok());
  CHECK(rank.waits.Wait().ok());
  rank.endpoint.Come({.kind = Kind::kToken});
  REQUIRE(rank.waits.Poll().ok());
  CHECK(rank.waits.Wait().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(rank.waits.ended());
  CHECK(rank.waits.AwaitOthers().ok());
  CHECK(rank.waits.ended());
}

}  // namespace
}  // namespace pipewright::rank_waits_test

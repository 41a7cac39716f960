// NCCL's rules as the stand-in has them (tests/emulation/nccl), without CUDA:
// members on streams that a test advances, over both kinds of board.
#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/emulation/nccl/board.h"
#include "tests/emulation/nccl/member.h"
#include "tests/support/run_binary.h"

namespace emulated_nccl::nccl_member_test {
namespace {

struct Stream {
  std::deque<std::shared_ptr<Operation>> queue;
  // Until nothing goes on.
  bool Advance() {
    bool moved = false;
    while (!queue.empty() && queue.front()->Step(0)) {
      queue.pop_front();
      moved = true;
    }
    return moved;
  }
};

// Members that meet on one board, with two streams each.
class Party {
 public:
  Party(const std::vector<std::shared_ptr<Board>>& boards, Rules rules = {}) {
    rules.violation = [this](const std::string& text) {
      violations.push_back(text);
    };
    const int count = static_cast<int>(boards.size());
    for (int self = 0; self < count; ++self) {
      members.push_back(std::make_shared<Member>(
          "party", boards[self], count, self, "", rules,
          [](std::shared_ptr<Operation> operation, void* stream) {
            static_cast<Stream*>(stream)->queue.push_back(std::move(operation));
          }));
    }
    streams.resize(2 * boards.size());
  }
  static std::vector<std::shared_ptr<Board>> InMemory(size_t count) {
    return std::vector<std::shared_ptr<Board>>(count, MemoryBoard());
  }

  void* StreamOf(size_t member, bool second = false) {
    return &streams[2 * member + (second ? 1 : 0)];
  }
  // What goes on, in any order of members that the test has chosen.
  void Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (Stream& stream : streams) moved = stream.Advance() || moved;
    }
  }
  bool AllEnded() const {
    for (const Stream& stream : streams) {
      if (!stream.queue.empty()) return false;
    }
    return true;
  }
  Result Sum(size_t member, std::vector<float>* values, bool second = false) {
    return members[member]->Add({.kind = Kind::kAllReduce,
                                 .from = values->data(),
                                 .into = values->data(),
                                 .count = values->size(),
                                 .value_bytes = 4,
                                 .type = 7},
                                StreamOf(member, second));
  }
  Result Give(size_t member, const std::vector<float>& values, int to) {
    return members[member]->Add({.kind = Kind::kSend,
                                 .from = values.data(),
                                 .count = values.size(),
                                 .value_bytes = 4,
                                 .type = 7,
                                 .peer = to},
                                StreamOf(member));
  }
  Result Take(size_t member, std::vector<float>* values, int from) {
    return members[member]->Add({.kind = Kind::kReceive,
                                 .into = values->data(),
                                 .count = values->size(),
                                 .value_bytes = 4,
                                 .type = 7,
                                 .peer = from},
                                StreamOf(member));
  }

  std::vector<std::string> violations;
  std::vector<std::shared_ptr<Member>> members;
  std::vector<Stream> streams;
};

using Floats = std::vector<float>;

// A board for each member, as processes have them.
std::vector<std::shared_ptr<Board>> OnFiles(const std::string& folder,
                                            size_t count) {
  std::vector<std::shared_ptr<Board>> boards;
  for (size_t member = 0; member < count; ++member) {
    boards.push_back(FileBoard(folder));
  }
  return boards;
}

TEST_CASE("emulated nccl: sums and transfers over both boards",
          "[execute][nccl]") {
  const pipewright::testing::TemporaryFolder folder;
  for (const bool files : {false, true}) {
    INFO("files " << files);
    Party party(files ? OnFiles(folder.Path("board"), 3) : Party::InMemory(3));
    std::vector<Floats> values = {{1, 2}, {10, 20}, {100, 200}};
    for (size_t member = 0; member < 3; ++member) {
      CHECK(party.members[member]->State() == Result::kSuccess);
      CHECK(party.Sum(member, &values[member]) == Result::kSuccess);
      party.Run();
      CHECK(party.AllEnded() == (member == 2));
    }
    for (const Floats& each : values) CHECK(each == Floats{111, 222});
    const Floats sent = {5, 6, 7};
    Floats taken(3);
    CHECK(party.Give(2, sent, 0) == Result::kSuccess);
    party.Run();
    CHECK_FALSE(party.AllEnded());  // nobody takes it
    CHECK(party.Take(0, &taken, 2) == Result::kSuccess);
    party.Run();
    CHECK(party.AllEnded());
    CHECK(taken == sent);
    for (const auto& member : party.members) member->Leave();
    CHECK(party.violations.empty());
  }
  CHECK(folder.Files().empty());  // nothing stays behind
}

TEST_CASE("emulated nccl: sums begin where the rules say", "[execute][nccl]") {
  // 1e8 + 1 is 1e8 in fp32, so that the order of a sum shows.
  const auto sum = [](int first) {
    Party party(Party::InMemory(3), {.first = first});
    std::vector<Floats> values = {{1e8F}, {-1e8F}, {1}};
    for (size_t member = 0; member < 3; ++member) {
      party.Sum(member, &values[member]);
    }
    party.Run();
    return values[1][0];
  };
  CHECK(sum(0) == 1);  // 1e8 - 1e8 + 1
  CHECK(sum(1) == 0);  // -1e8 + 1 + 1e8
  CHECK(sum(4) == sum(1));
}

TEST_CASE("emulated nccl: who waits for whom", "[execute][nccl]") {
  Party party(Party::InMemory(3), {.patience_s = 0});
  const Floats sent = {1};
  Floats taken(1);
  // Each sends first, and the third calls nothing.
  for (const size_t member : {0, 1}) {
    const int other = 1 - static_cast<int>(member);
    party.Give(member, sent, other);
    party.Take(member, &taken, other);
  }
  for (int round = 0; round < 3; ++round) party.Run();
  CHECK_FALSE(party.AllEnded());
  REQUIRE(party.violations.size() == 2);
  INFO(party.violations[1]);
  CHECK(absl::StrContains(party.violations[1],
                          "member 1 of 3 of party: it waits for ever, in send "
                          "of 1 values of type 7 to 0, for 0"));
  CHECK(absl::StrContains(party.violations[1],
                          "member 0 waits in send of 1 values of type 7 to 1"));
  CHECK(
      absl::StrContains(party.violations[1], "member 2 waits for nobody here"));
  // In groups the same calls meet.
  Party grouped(Party::InMemory(2));
  for (const size_t member : {0, 1}) {
    const int other = 1 - static_cast<int>(member);
    Group::Start();
    grouped.Give(member, sent, other);
    grouped.Take(member, &taken, other);
    CHECK(Group::End() == Result::kSuccess);
  }
  grouped.Run();
  CHECK(grouped.AllEnded());
}

TEST_CASE("emulated nccl: calls keep their order over streams",
          "[execute][nccl]") {
  Party party(Party::InMemory(2));
  std::vector<Floats> first = {{1}, {2}};
  std::vector<Floats> second = {{10}, {20}};
  // Member 1 queues its first call on the stream that is advanced last.
  party.Sum(0, &first[0], false);
  party.Sum(0, &second[0], true);
  party.Sum(1, &first[1], true);
  party.Sum(1, &second[1], false);
  party.Run();
  CHECK(party.AllEnded());
  CHECK(first[0] == Floats{3});
  CHECK(second[1] == Floats{30});
  CHECK(party.violations.empty());
}

TEST_CASE("emulated nccl: collectives out of order are noticed",
          "[execute][nccl]") {
  const auto run = [](bool swapped) {
    Party party(Party::InMemory(2));
    std::vector<Floats> two = {{1, 1}, {1, 1}};
    std::vector<Floats> one = {{1}, {1}};
    for (const size_t member : {0, 1}) {
      const bool turned = swapped && member == 1;
      party.Sum(member, turned ? &one[member] : &two[member]);
      party.Sum(member, turned ? &two[member] : &one[member]);
    }
    party.Run();
    CHECK(party.AllEnded() != swapped);
    for (const auto& member : party.members) {
      CHECK((member->State() == Result::kSuccess) != swapped);
    }
    return party.violations;
  };
  CHECK(run(false).empty());
  const std::vector<std::string> said = run(true);
  REQUIRE(said.size() == 1);
  CHECK(absl::StrContains(said[0], "call number 0"));
}

TEST_CASE("emulated nccl: what a member may not do", "[execute][nccl]") {
  Party party(Party::InMemory(2));
  Floats values(8);
  const auto add = [&](Kind kind, float* from, float* into, int peer = 0) {
    return party.members[1]->Add({.kind = kind,
                                  .from = from,
                                  .into = into,
                                  .count = 2,
                                  .value_bytes = 4,
                                  .peer = peer},
                                 party.StreamOf(1));
  };
  float* const at = values.data();
  CHECK(add(Kind::kSend, at, nullptr, 2) == Result::kInvalidArgument);
  CHECK(add(Kind::kSend, at, nullptr, 1) == Result::kInvalidUsage);
  CHECK(add(Kind::kBroadcast, at, at, -1) == Result::kInvalidArgument);
  CHECK(add(Kind::kAllReduce, nullptr, at) == Result::kInvalidArgument);
  CHECK(party.violations.empty());
  // Member 1's own place is the only one that is in place.
  CHECK(add(Kind::kAllGather, at, at) == Result::kInvalidArgument);
  CHECK(add(Kind::kReduceScatter, at, at) == Result::kInvalidArgument);
  CHECK(add(Kind::kAllReduce, at, at + 1) == Result::kInvalidArgument);
  CHECK(party.violations.size() == 3);
  CHECK(add(Kind::kAllGather, at + 2, at) == Result::kSuccess);
  CHECK(add(Kind::kReduceScatter, at, at + 2) == Result::kSuccess);
  // Its calls have not ended.
  party.members[1]->Leave();
  CHECK(party.violations.size() == 4);
  CHECK(Group::End() == Result::kInvalidUsage);
}

TEST_CASE("emulated nccl: a call while another goes on", "[execute][nccl]") {
  Party party(Party::InMemory(1), {.calls_go_on = 1});
  Floats values = {1};
  Member& member = *party.members[0];
  CHECK(member.State() == Result::kInProgress);
  CHECK(member.State() == Result::kSuccess);
  CHECK(party.Sum(0, &values) == Result::kInProgress);
  CHECK(party.Sum(0, &values) == Result::kInvalidArgument);
  REQUIRE(party.violations.size() == 1);
  CHECK(member.State() == Result::kInProgress);
  CHECK(party.Sum(0, &values) == Result::kInProgress);
}

TEST_CASE("emulated nccl: an abort ends own work, and fails the others'",
          "[execute][nccl]") {
  Party party(Party::InMemory(2));
  std::vector<Floats> values = {{1}, {2}};
  party.Sum(0, &values[0]);
  party.Run();
  party.members[1]->Abort();
  CHECK(party.members[0]->State() == Result::kRemoteError);
  party.Run();
  CHECK_FALSE(party.AllEnded());
  party.members[0]->Abort();
  party.Run();
  CHECK(party.AllEnded());
  CHECK(values[0] == Floats{1});  // nothing was written
}

TEST_CASE("emulated nccl: a device twice is refused", "[execute][nccl]") {
  const auto join = [](const std::string& second) {
    const std::shared_ptr<Board> board = MemoryBoard();
    std::vector<std::shared_ptr<Member>> members;
    int self = 0;
    for (const std::string& device : {std::string("GPU 0"), second}) {
      members.push_back(std::make_shared<Member>(
          "pair", board, 2, self++, device,
          Rules{.violation = [](const std::string&) {}},
          [](const std::shared_ptr<Operation>&, void*) {}));
    }
    CHECK(members[0]->State() == members[1]->State());
    return members[0]->State();
  };
  CHECK(join("GPU 1") == Result::kSuccess);
  CHECK(join("GPU 0") == Result::kInvalidUsage);
}

TEST_CASE("emulated nccl: a split orders by key", "[execute][nccl]") {
  Party party(Party::InMemory(4));
  std::vector<Member::Part> parts(4);
  const auto split = [&](int member) {
    const auto index = static_cast<size_t>(member);
    return party.members[index]->Split(member == 3 ? -1 : member % 2, -member,
                                       &parts[index]);
  };
  for (const int member : {0, 1, 2}) {
    CHECK(split(member) == Result::kInProgress);
  }
  for (const int member : {3, 2, 1, 0}) {
    CHECK(split(member) == Result::kSuccess);
  }
  CHECK(parts[3].members == 0);
  CHECK(parts[0].members == 2);
  CHECK(parts[0].self == 1);
  CHECK(parts[2].self == 0);
  CHECK(parts[0].name == parts[2].name);
  CHECK(parts[1].members == 1);
  CHECK(parts[1].name != parts[0].name);
}

}  // namespace
}  // namespace emulated_nccl::nccl_member_test

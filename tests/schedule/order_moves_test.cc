// What has moved between two orders, against all sets of passes that could have
// stayed.
#include "sim/schedule/order_moves.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"
#include "tests/support/random_schedule.h"
#include "tests/support/rounds.h"

namespace pipewright::order_moves_test {
namespace {

const KindMoves& Of(const OrderMoves& moves, PassKind kind) {
  return moves.kinds[static_cast<int>(kind)];
}

// "F0 B0 W0", on one rank.
Schedule ScheduleOf(const std::string& tokens) {
  ScheduleBuilder builder("test", Placement::Plain(1), 8);
  for (const absl::string_view token : absl::StrSplit(tokens, ' ')) {
    const PassKind kind = token[0] == 'F'   ? PassKind::kForward
                          : token[0] == 'B' ? PassKind::kBackwardInput
                          : token[0] == 'R' ? PassKind::kRecompute
                                            : PassKind::kBackwardWeight;
    builder.Add(0, kind, token[1] - '0');
  }
  return std::move(builder).Finish();
}

TEST_CASE("order moves: what is put off and what comes sooner", "[schedule]") {
  const auto moves = [](const char* from, const char* to, PassKind kind) {
    const KindMoves own =
        Of(CompareOrders(ScheduleOf(from), ScheduleOf(to)), kind);
    return std::vector<int64_t>{own.earlier, own.later, own.more, own.fewer};
  };
  using Counts = std::vector<int64_t>;
  constexpr auto kF = PassKind::kForward;
  constexpr auto kB = PassKind::kBackwardInput;
  constexpr auto kW = PassKind::kBackwardWeight;
  const char* const start = "F0 F1 B0 W0 B1 W1";
  CHECK(moves(start, start, kW) == Counts{0, 0, 0, 0});
  // Both W wait: not all other passes come sooner.
  CHECK(moves(start, "F0 F1 B0 B1 W0 W1", kW) == Counts{0, 1, 0, 0});
  CHECK(moves(start, "F0 F1 B0 B1 W0 W1", kB) == Counts{0, 0, 0, 0});
  // Of two neighbours the W has moved, before F before B.
  CHECK(moves("F0 B0 F1 W0", "F0 B0 W0 F1", kW) == Counts{1, 0, 0, 0});
  CHECK(moves("F0 B0 F1", "F0 F1 B0", kF) == Counts{1, 0, 0, 0});
  CHECK(moves("F0 B0 F1", "F0 F1 B0", kB) == Counts{0, 0, 0, 0});
  CHECK(moves("F0 B0 F1 F2", "F0 F1 F2 B0", kB) == Counts{0, 1, 0, 0});
  const char* const with_r = "F0 F1 R0 B0 W0 R1 B1 W1";
  CHECK(moves(start, with_r, PassKind::kRecompute) == Counts{0, 0, 2, 0});
  CHECK(moves(with_r, start, PassKind::kRecompute) == Counts{0, 0, 0, 2});
  CHECK(moves(start, with_r, kW) == Counts{0, 0, 0, 0});
}

// [kept passes, their ties], the best of all sets that rise.
std::pair<int, int> BestKept(const std::vector<Pass>& from,
                             const std::vector<Pass>& to) {
  std::pair<int, int> best;
  const auto place = [&](Pass pass) {
    return std::find(to.begin(), to.end(), pass) - to.begin();
  };
  for (uint32_t set = 0; set < 1U << from.size(); ++set) {
    std::pair<int, int> own;
    int64_t last = -1;
    bool rises = true;
    for (size_t index = 0; index < from.size() && rises; ++index) {
      if ((set >> index & 1) == 0) continue;
      rises = place(from[index]) > last;
      last = place(from[index]);
      ++own.first;
      const PassKind kind = from[index].kind();
      own.second += kind == PassKind::kBackwardInput ? 2
                    : kind == PassKind::kForward     ? 1
                                                     : 0;
    }
    if (rises) best = std::max(best, own);
  }
  return best;
}

TEST_CASE("order moves: as few as possible, against all sets", "[schedule]") {
  Random random(45);
  int moved = 0;
  for (int draw = 0; draw < testing::Rounds(100); ++draw) {
    std::vector<Pass> from;
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      for (const PassKind kind : {PassKind::kForward, PassKind::kBackwardInput,
                                  PassKind::kBackwardWeight}) {
        from.emplace_back(kind, microbatch);
      }
    }
    std::vector<Pass> to = from;
    for (int swap = random.Int(0, 6); swap > 0; --swap) {
      const int at = random.Int(0, 7);
      std::swap(to[at], to[random.Int(at, 8)]);
    }
    const auto schedule = [](const std::vector<Pass>& passes) {
      ScheduleBuilder builder("test", Placement::Plain(1), 3);
      for (const Pass pass : passes) builder.Add(0, pass);
      return std::move(builder).Finish();
    };
    const OrderMoves moves = CompareOrders(schedule(from), schedule(to));
    const OrderMoves back = CompareOrders(schedule(to), schedule(from));
    int kept = 9, ties = 9, sooner = 0, later_back = 0;
    for (const PassKind kind : {PassKind::kForward, PassKind::kBackwardInput,
                                PassKind::kBackwardWeight}) {
      const KindMoves& own = Of(moves, kind);
      CHECK(own.more + own.fewer == 0);
      const auto gone = static_cast<int>(own.earlier + own.later);
      kept -= gone;
      ties -= gone * (kind == PassKind::kBackwardInput ? 2
                      : kind == PassKind::kForward     ? 1
                                                       : 0);
      sooner += static_cast<int>(own.earlier + own.later);
      later_back +=
          static_cast<int>(Of(back, kind).earlier + Of(back, kind).later);
    }
    CHECK(std::pair(kept, ties) == BestKept(from, to));
    CHECK(sooner == later_back);
    moved += sooner;
  }
  CHECK(moved > 0);
}

TEST_CASE("order moves: stages elsewhere are not compared", "[schedule]") {
  ScheduleParams params;
  params.pp = 2;
  params.vpp = 2;
  params.microbatches = 4;
  params.own = {{"placement", "loop"}, {"steps", "50"}};
  const Schedule loop = BuildSchedule("optimal", params).value();
  params.own["placement"] = "v";
  const Schedule v = BuildSchedule("optimal", params).value();
  const OrderMoves moves = CompareOrders(loop, v);
  // Of 0 1 0 1 and 0 1 1 0 the last two.
  CHECK(moves.stages_elsewhere == 2);
  for (const KindMoves& own : moves.kinds) CHECK(own.more + own.fewer == 0);
  CHECK(CompareOrders(loop, loop).stages_elsewhere == 0);
  CHECK(CompareOrders(loop, loop).passes == 2 * 2 * 4 * 3);
}

TEST_CASE("order moves: a search keeps its start", "[schedule]") {
  ScheduleParams params;
  params.pp = 4;
  params.microbatches = 8;
  params.max_activations = 3;
  params.costs = {.forward = 1,
                  .backward_input = 1.05,
                  .backward_weight = 0.8,
                  .hop = 0.1,
                  .given = true};
  params.own = {{"steps", "3000"}};
  const Schedule schedule = BuildSchedule("optimal", params).value();
  REQUIRE(schedule.found);
  REQUIRE(schedule.found->from != nullptr);
  CHECK_FALSE(schedule.found->is_cut);
  int64_t moved = 0;
  const OrderMoves moves = CompareOrders(*schedule.found->from, schedule);
  for (const KindMoves& own : moves.kinds) {
    CHECK(own.more + own.fewer == 0);
    moved += own.earlier + own.later;
  }
  CHECK((moved > 0) == (schedule.found->time < schedule.found->start_time));
  // Nothing has moved without a step.
  params.own = {{"steps", "0"}};
  params.microbatches = 12;
  const Schedule still = BuildSchedule("optimal", params).value();
  for (const KindMoves& own : CompareOrders(*still.found->from, still).kinds) {
    CHECK(own.earlier + own.later + own.more + own.fewer == 0);
  }
  // A wish to stop ends it at once, with an order that is legal.
  params.own = {{"steps", "1000000000"}};
  int asked = 0;
  params.stops = [&] { return ++asked > 50; };
  const Schedule cut = BuildSchedule("optimal", params).value();
  CHECK(cut.found->is_cut);
  CHECK(cut.found->time <= cut.found->start_time);
  CHECK(asked < 100);
}

}  // namespace
}  // namespace pipewright::order_moves_test

// What looks at ranks in turn looks at them about as often as there are ranks
// and passes, in whatever order the stages lie on them.
#include "sim/schedule/rank_visits.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/fast_run.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/transfers.h"
#include "sim/schedule/verify.h"
#include "sim/schedule/verify_transfers.h"
#include "tests/support/lowering.h"
#include "tests/support/random_schedule.h"
#include "tests/support/rounds.h"

namespace pipewright::rank_visits_test {
namespace {

// Which rank has which stage.
std::vector<int> Shuffled(const std::string& how, int pp) {
  std::vector<int> ranks(pp);
  for (int stage = 0; stage < pp; ++stage) {
    ranks[stage] = how == "backwards"   ? pp - 1 - stage
                   : how != "both ends" ? stage
                   : stage % 2 == 0     ? stage / 2
                                        : pp - 1 - stage / 2;
  }
  if (how == "anyhow") {
    std::shuffle(ranks.begin(), ranks.end(), std::mt19937(12));
  }
  return ranks;
}

constexpr const char* kHow[] = {"in order", "backwards", "both ends", "anyhow"};

// All forwards, then all backwards.
std::shared_ptr<const Schedule> Pipeline(const std::string& how, int pp,
                                         int microbatches) {
  ScheduleBuilder builder("pipeline",
                          Placement::FromList(pp, Shuffled(how, pp)).value(),
                          microbatches);
  for (int rank = 0; rank < pp; ++rank) {
    for (const PassKind kind : {PassKind::kForward, PassKind::kBackwardFull}) {
      for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
        builder.Add(rank, kind, microbatch);
      }
    }
  }
  return std::make_shared<const Schedule>(std::move(builder).Finish());
}

TEST_CASE("visits: as many as ranks and passes", "[engine]") {
  for (const char* how : kHow) {
    for (const int microbatches : {1, 3}) {
      const int pp = 2000;
      const auto schedule = Pipeline(how, pp, microbatches);
      INFO(how << ", " << microbatches << " microbatches");
      REQUIRE(VerifySchedule(*schedule) == absl::OkStatus());
      const int64_t passes = schedule->num_passes();
      REQUIRE(passes == 2 * pp * microbatches);

      const auto times = Replay(*schedule, PlanCosts());
      REQUIRE(times.ok());
      CHECK(times->span_global == (pp + microbatches - 1) * 3);
      CHECK(times->visits <= 4 * (pp + passes));

      for (const WaitRule rule : {WaitRule::kBuffered, WaitRule::kRendezvous}) {
        LowerOptions options;
        options.costs = PassCosts::Uniform(pp, 1, {1, 1, 1});
        options.wait_rule = rule;
        options.iterations = 1;
        const Program program = Lowered(schedule, options);
        FastRun run(program, {}, nullptr);
        const auto summary = run.Run();
        INFO(summary.status());
        REQUIRE(summary.ok());
        CHECK(summary->iteration_end_s.front() == (pp + microbatches - 1) * 3);
        // The side that comes first to a transfer is looked at again.
        CHECK(run.visits() <= 8 * (pp + passes));
      }

      int64_t visits = 0;
      const std::vector<StepList> ahead =
          PostAhead(*schedule, PassSteps(*schedule), &visits);
      CHECK(visits <= 4 * (pp + passes));
      for (const Semantics semantics :
           {Semantics::kBuffered, Semantics::kRendezvous, Semantics::kNccl,
            Semantics::kBatched}) {
        ProgressFacts facts;
        CHECK(CheckProgress(*schedule,
                            semantics == Semantics::kRendezvous ||
                                    semantics == Semantics::kBatched
                                ? BlockingSteps(*schedule)
                                : ahead,
                            semantics, &facts) == absl::OkStatus());
        // A pipeline fills, and drains.
        CHECK(facts.steps == 2 * (pp + microbatches - 1));
        CHECK(facts.held_sends == 0);
        CHECK(facts.visits <= 4 * (pp + passes));
      }
    }
  }
}

TEST_CASE("visits: each rank that gets something is looked at", "[engine]") {
  Random random(7);
  for (int round = 0; round < testing::Rounds(200); ++round) {
    // Ranks pass on what they get; a rank has to get all that it waits for.
    const int ranks = random.Int(1, 30);
    std::vector<std::pair<int, int>> links;
    std::vector<int> missing(ranks, 0);
    for (int link = random.Int(0, 3 * ranks); link > 0; --link) {
      const int from = random.Int(0, ranks - 1);
      const int to = random.Int(0, ranks - 1);
      // No circle, in an order that is none of the ranks.
      if (from * 7 % ranks >= to * 7 % ranks) continue;
      links.emplace_back(from, to);
      ++missing[to];
    }
    if (ranks % 7 == 0) continue;
    RankVisits visits(ranks, links);
    std::vector<bool> done(ranks, false);
    int64_t calls = 0;
    visits.Run([&](int rank) {
      ++calls;
      if (done[rank] || missing[rank] > 0) return false;
      done[rank] = true;
      for (const auto& [from, to] : links) missing[to] -= from == rank ? 1 : 0;
      return true;
    });
    CHECK(std::count(done.begin(), done.end(), true) == ranks);
    CHECK(calls == visits.visits());
  }
}

// The rule itself: all ranks in turn, an entry each.
std::vector<StepList> PostInSweeps(const Schedule& schedule) {
  std::vector<StepList> placed(schedule.pp());
  std::vector<size_t> next(schedule.pp(), 0);
  std::vector<bool> there(MessageCount(schedule), false);
  for (bool progress = true; progress;) {
    progress = false;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      const RankOrder& order = schedule.order(rank);
      if (next[rank] == order.size()) continue;
      const size_t parts = order[next[rank]].joint_with_next() ? 2 : 1;
      const auto waits = [&](size_t part) {
        const Pass pass = order[next[rank] + part];
        return NeedsReceive(schedule, rank, pass) &&
               !there[MessageOf(schedule, rank, ReceiveOf(pass)).index];
      };
      if (waits(0) || (parts == 2 && waits(1))) continue;
      for (size_t part = 0; part < parts; ++part) {
        placed[rank].push_back({StepKind::kPass, order[next[rank] + part]});
      }
      for (size_t part = 0; part < parts; ++part) {
        const Pass pass = order[next[rank] + part];
        if (!NeedsSend(schedule, rank, pass)) continue;
        const Message message = MessageOf(schedule, rank, SendOf(pass));
        there[message.index] = true;
        placed[rank].push_back(SendOf(pass));
        const int stage =
            schedule.placement.StageOf(rank, pass.chunk(), pass.direction()) +
            (IsBackward(pass.kind()) ? -1 : 1);
        placed[message.peer].push_back(ReceiveOf(Pass(
            pass.kind(), pass.microbatch(), schedule.placement.ChunkOf(stage),
            pass.slice(), pass.direction())));
      }
      next[rank] += parts;
      progress = true;
    }
  }
  return placed;
}

TEST_CASE("visits: transfers are posted as all ranks in turn post them",
          "[schedule]") {
  Random random(8);
  int compared = 0;
  for (int round = 0; round < testing::Rounds(200); ++round) {
    const int pp = random.Int(1, 9);
    auto any = AnySchedule(AnyRow(random), pp, random.Int(1, 12));
    if (!any.ok()) continue;
    const Schedule schedule = WithJointPairs(*any, random);
    if (!VerifySchedule(schedule).ok()) continue;
    INFO(schedule.name << " round " << round);
    CHECK(PostAhead(schedule, PassSteps(schedule)) == PostInSweeps(schedule));
    ++compared;
  }
  for (const char* how : kHow) {
    const auto schedule = Pipeline(how, 40, 5);
    CHECK(PostAhead(*schedule, PassSteps(*schedule)) ==
          PostInSweeps(*schedule));
  }
  CHECK(compared > 20 * testing::Rounds(200) / 200);
}

}  // namespace
}  // namespace pipewright::rank_visits_test

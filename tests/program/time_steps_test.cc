// Time steps against PyTorch's own lists of actions, which are made here once
// more from the description of its rule.
#include "sim/program/time_steps.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/schedule/registry.h"
#include "sim/schedule/torch_csv.h"
#include "tests/support/lowering.h"

namespace pipewright::time_steps_test {
namespace {

// Forward or not, stage, microbatch; nothing: an empty step.
using Cell = std::optional<std::tuple<bool, int, int>>;
using Cells = std::vector<Cell>;

// torch/distributed/pipelining/schedules.py, ScheduleInterleaved1F1B
// (pytorch/pytorch 1fd7abc2f521). Rank r has r empty steps, its warm-up, empty
// steps up to vpp * pp + 2 (pp - 1 - r), then forward and backward in turn,
// then backwards with an empty step before each.
Cells Interleaved(int pp, int vpp, int microbatches, int rank) {
  const int rounds = std::max(1, microbatches / pp);
  const int group = microbatches / rounds;
  const int units = vpp * microbatches;
  const int warm_up = std::min((vpp - 1) * group + 2 * (pp - 1 - rank), units);
  std::vector<int> forwards(vpp, 0);
  std::vector<int> backwards(vpp, 0);
  const auto forward = [&](int op) -> Cell {
    const int chunk = op / group % vpp;
    return {{true, chunk * pp + rank, forwards[chunk]++}};
  };
  const auto backward = [&](int op) -> Cell {
    const int chunk = vpp - 1 - (op - warm_up) / group % vpp;
    return {{false, chunk * pp + rank, backwards[chunk]++}};
  };
  Cells cells(rank);
  for (int op = 0; op < units + warm_up; ++op) {
    if (op < warm_up) {
      cells.push_back(forward(op));
      const int turn = vpp * pp + 2 * (pp - 1 - rank) - (warm_up + rank);
      if (op == warm_up - 1) cells.resize(cells.size() + std::max(turn, 0));
      continue;
    }
    cells.push_back(op < units ? forward(op) : Cell());
    cells.push_back(backward(op));
  }
  return cells;
}

// ScheduleLoopedBFS: r empty steps, all forwards, two empty steps a hop, all
// backwards.
Cells LoopedBfs(int pp, int vpp, int microbatches, int rank) {
  Cells cells(rank);
  for (int chunk = 0; chunk < vpp; ++chunk) {
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      cells.push_back({{true, chunk * pp + rank, microbatch}});
    }
  }
  cells.resize(cells.size() + 2 * (pp - 1 - rank));
  for (int chunk = vpp - 1; chunk >= 0; --chunk) {
    for (int microbatch = microbatches - 1; microbatch >= 0; --microbatch) {
      cells.push_back({{false, chunk * pp + rank, microbatch}});
    }
  }
  return cells;
}

std::shared_ptr<const Schedule> Built(const std::string& name, int pp, int vpp,
                                      int microbatches,
                                      std::map<std::string, std::string> own) {
  auto built = BuildSchedule(name, {.pp = pp,
                                    .vpp = vpp,
                                    .microbatches = microbatches,
                                    .own = std::move(own)});
  INFO(built.status());
  REQUIRE(built.ok());
  return std::make_shared<const Schedule>(*std::move(built));
}

std::vector<std::vector<Action>> ActionsOf(
    const std::shared_ptr<const Schedule>& schedule) {
  LowerOptions options;
  options.costs = CostsOf(*schedule, {});
  auto steps = TimeStepsOf(Lowered(schedule, options));
  INFO(steps.status());
  REQUIRE(steps.ok());
  std::vector<std::vector<Action>> actions;
  for (const RankSteps& rank : *steps) actions.push_back(rank.actions);
  return actions;
}

// The steps of a schedule in PyTorch's form, without microbatches where it
// counts them in another order.
Cells CellsOf(const Schedule& schedule, int rank,
              const std::vector<Action>& actions, bool microbatches) {
  Cells cells;
  for (const Action& action : actions) {
    const Pass pass = schedule.order(rank)[action.end - 1];
    cells.resize(action.step);
    cells.push_back({{pass.kind() == PassKind::kForward,
                      schedule.placement.StageOf(rank, pass.chunk(), 0),
                      microbatches ? pass.microbatch() : 0}});
  }
  return cells;
}

// Every input is made in an earlier step. Where groups are no rounds of all
// ranks PyTorch's lists are not so: its ranks wait for ever or read a buffer
// before it is filled.
bool CanRun(const std::vector<Cells>& ranks, int stages) {
  std::map<std::tuple<bool, int, int>, size_t> made;
  for (const Cells& cells : ranks) {
    for (size_t step = 0; step < cells.size(); ++step) {
      if (cells[step]) made[*cells[step]] = step;
    }
  }
  for (const auto& [pass, step] : made) {
    auto [forward, stage, microbatch] = pass;
    stage += forward ? -1 : 1;
    if (stage < 0 || stage == stages) continue;
    if (made.at({forward, stage, microbatch}) >= step) return false;
  }
  return true;
}

TEST_CASE("time steps: PyTorch's interleaved 1F1B", "[program]") {
  int compared = 0;
  int rounds = 0;
  for (const int pp : {2, 3, 4, 8}) {
    for (const int vpp : {1, 2, 3}) {
      for (int microbatches = 1; microbatches <= 4 * pp; ++microbatches) {
        if (microbatches % std::max(1, microbatches / pp) != 0) continue;
        const auto schedule = Built("interleaved-1f1b", pp, vpp, microbatches,
                                    {{"rule", "torch"}});
        const auto steps = ActionsOf(schedule);
        std::vector<Cells> torch;
        for (int rank = 0; rank < pp; ++rank) {
          torch.push_back(Interleaved(pp, vpp, microbatches, rank));
        }
        INFO("pp " << pp << " vpp " << vpp << " microbatches " << microbatches);
        if (microbatches % pp == 0) {
          ++rounds;
          CHECK(CanRun(torch, pp * vpp));
        }
        if (!CanRun(torch, pp * vpp)) continue;
        ++compared;
        for (int rank = 0; rank < pp; ++rank) {
          INFO("rank " << rank);
          CHECK(CellsOf(*schedule, rank, steps[rank], true) == torch[rank]);
        }
      }
    }
  }
  CHECK(rounds == 4 * 3 * 4);
  CHECK(compared >= rounds);
}

std::vector<int64_t> StepNumbers(const std::vector<Action>& actions) {
  std::vector<int64_t> numbers;
  for (const Action& action : actions) numbers.push_back(action.step);
  return numbers;
}

// ScheduleInterleavedZeroBubble: r empty steps, the warm-up, one empty step a
// hop, all else without any. Rounds of all ranks need no more.
TEST_CASE("time steps: PyTorch's interleaved zero bubble", "[program]") {
  for (const int pp : {2, 4, 8}) {
    for (const int vpp : {2, 3}) {
      for (const int microbatches : {2 * pp, 4 * pp}) {
        const auto schedule =
            Built("interleaved-zb", pp, vpp, microbatches, {});
        const auto steps = ActionsOf(schedule);
        for (int rank = 0; rank < pp; ++rank) {
          INFO("pp " << pp << " vpp " << vpp << " rank " << rank);
          const int warm_up = (vpp - 1) * pp + pp - 1 - rank;
          std::vector<int64_t> torch;
          for (int action = 0; action < 3 * vpp * microbatches; ++action) {
            torch.push_back(action + rank +
                            (action < warm_up ? 0 : pp - 1 - rank));
          }
          CHECK(StepNumbers(steps[rank]) == torch);
        }
      }
    }
  }
}

TEST_CASE("time steps: PyTorch's looped BFS", "[program]") {
  for (const int pp : {2, 4, 8}) {
    for (const int vpp : {2, 3}) {
      const auto schedule = Built("looped-bfs", pp, vpp, 2 * pp, {});
      const auto steps = ActionsOf(schedule);
      for (int rank = 0; rank < pp; ++rank) {
        Cells torch = LoopedBfs(pp, vpp, 2 * pp, rank);
        for (Cell& cell : torch) {
          if (cell) std::get<2>(*cell) = 0;
        }
        CHECK(CellsOf(*schedule, rank, steps[rank], false) == torch);
      }
    }
  }
}

// 1F1B has no gaps of its own: each pass is as early as it can be.
TEST_CASE("time steps: as early as inputs allow", "[program]") {
  const auto plain = ActionsOf(Registered("1f1b", 2, 2));
  CHECK(StepNumbers(plain[0]) == std::vector<int64_t>{0, 1, 3, 5});
  CHECK(StepNumbers(plain[1]) == std::vector<int64_t>{1, 2, 3, 4});
  // An R is in the step of its backward, a block is one step, and a chunk that
  // follows on the same rank needs no step between.
  const auto again =
      ActionsOf(Parsed("pp 2 vpp 2 microbatches 1 placement v\n"
                       "0: F0.0 F0.1 R0.1 BW0.1 BW0.0\n"
                       "1: F0.0 F0.1 BW0.1 R0.0 BW0.0\n"));
  CHECK(StepNumbers(again[0]) == std::vector<int64_t>{0, 3, 4, 7});
  CHECK(StepNumbers(again[1]) == std::vector<int64_t>{1, 2, 5, 6});
}

TEST_CASE("time steps: empty cells of PyTorch's CSV", "[program]") {
  const auto file =
      ParseScheduleFile("0F0,0F1,,,,0B0,,0B1\n,1F0,,1B0,1F1,,1B1\n", "t.csv");
  INFO(file.status());
  REQUIRE(file.ok());
  const auto steps =
      ActionsOf(std::make_shared<const Schedule>(file->schedule));
  CHECK(StepNumbers(steps[0]) == std::vector<int64_t>{0, 1, 5, 7});
  CHECK(StepNumbers(steps[1]) == std::vector<int64_t>{1, 3, 4, 6});
}

TEST_CASE("time steps: passes that wait for each other", "[program]") {
  auto program = Lowered(Registered("1f1b", 2, 2), [] {
    LowerOptions options;
    options.costs = CostsOf(*Registered("1f1b", 2, 2), {});
    return options;
  }());
  auto order = std::make_shared<RankOrder>(*program.ranks[0].order);
  std::reverse(order->begin(), order->end());
  program.ranks[0].order = order;
  CHECK(TimeStepsOf(program).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace pipewright::time_steps_test

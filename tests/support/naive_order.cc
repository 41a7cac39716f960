#include "tests/support/naive_order.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "sim/schedule/builder.h"

namespace pipewright::testing {
namespace {

// (is it a forward, replica, stage, microbatch, slice) -> end.
using Results = std::map<std::tuple<bool, int, int, int, int>, int>;

int Length(PassKind kind, const SlotCosts& costs) {
  switch (kind) {
    case PassKind::kForward:
    case PassKind::kRecompute:
      return costs.forward;
    case PassKind::kBackwardInput:
      return costs.backward_input;
    case PassKind::kBackwardWeight:
      return costs.backward_weight;
    case PassKind::kBackwardFull:
      return costs.backward_input + costs.backward_weight;
    default:
      return 0;
  }
}

std::tuple<bool, int, int, int, int> KeyOf(bool forward, int stage, Pass pass) {
  return {forward, pass.direction(), stage, pass.microbatch(), pass.slice()};
}

// When the inputs of `pass` are there; nullopt while they are not.
std::optional<int> Arrival(const Schedule& schedule, int rank, Pass pass,
                           const Results& results) {
  const int stage =
      schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
  std::vector<std::tuple<bool, int, int, int, int>> inputs;
  if (pass.kind() == PassKind::kForward) {
    if (stage > 0) inputs.push_back(KeyOf(true, stage - 1, pass));
    if (pass.slice() > 0) {
      inputs.push_back(
          {true, pass.direction(), stage, pass.microbatch(), pass.slice() - 1});
    }
  } else if (IsBackward(pass.kind())) {
    inputs.push_back(KeyOf(true, stage, pass));
    if (stage + 1 < schedule.stages()) {
      inputs.push_back(KeyOf(false, stage + 1, pass));
    }
    if (pass.slice() + 1 < schedule.slices) {
      inputs.push_back({false, pass.direction(), stage, pass.microbatch(),
                        pass.slice() + 1});
    }
  } else if (pass.kind() == PassKind::kBackwardWeight) {
    inputs.push_back(KeyOf(false, stage, pass));
  }
  int arrival = 0;
  for (const auto& input : inputs) {
    const auto found = results.find(input);
    if (found == results.end()) return std::nullopt;
    arrival = std::max(arrival, found->second);
  }
  return arrival;
}

}  // namespace

std::optional<std::vector<std::vector<int>>> NaiveReplay(
    const Schedule& schedule, const SlotCosts& costs) {
  Results results;
  std::vector<std::vector<int>> starts(schedule.pp());
  std::vector<int> clocks(schedule.pp(), 0);
  bool progress = true;
  while (progress) {
    progress = false;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      const RankOrder& order = schedule.order(rank);
      while (starts[rank].size() < order.size()) {
        const size_t position = starts[rank].size();
        const size_t end =
            position + (order[position].joint_with_next() ? 2 : 1);
        int start = clocks[rank];
        int length = 0;
        bool ready = true;
        for (size_t index = position; index < end; ++index) {
          const auto arrival = Arrival(schedule, rank, order[index], results);
          ready = ready && arrival.has_value();
          start = std::max(start, arrival.value_or(0));
          length += Length(order[index].kind(), costs);
        }
        if (!ready) break;
        for (size_t index = position; index < end; ++index) {
          const Pass pass = order[index];
          starts[rank].push_back(start);
          if (pass.kind() == PassKind::kBackwardWeight ||
              pass.kind() == PassKind::kRecompute ||
              pass.kind() == PassKind::kSync) {
            continue;
          }
          const int stage =
              schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
          results[KeyOf(pass.kind() == PassKind::kForward, stage, pass)] =
              start + length;
        }
        clocks[rank] = start + length;
        progress = true;
      }
    }
  }
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    if (starts[rank].size() < schedule.order(rank).size()) return std::nullopt;
  }
  return starts;
}

std::string SlotGrid(const Schedule& schedule) {
  const auto starts = NaiveReplay(schedule);
  if (!starts.has_value()) return "deadlock\n";
  std::vector<std::vector<std::string>> rows(schedule.pp());
  size_t width = 1;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const RankOrder& order = schedule.order(rank);
    for (size_t position = 0; position < order.size(); ++position) {
      const std::string name = PassToString(schedule, order[position]);
      size_t start = (*starts)[rank][position];
      if (position > 0 && order[position - 1].joint_with_next()) {
        start += Length(order[position - 1].kind(), {});
      }
      const size_t end = start + Length(order[position].kind(), {});
      if (rows[rank].size() < end) rows[rank].resize(end, ".");
      for (size_t slot = start; slot < end; ++slot) rows[rank][slot] = name;
      width = std::max(width, name.size());
    }
  }
  std::string grid;
  for (const auto& row : rows) {
    std::string line;
    for (const std::string& cell : row) {
      absl::StrAppendFormat(&line, "%-*s ", static_cast<int>(width), cell);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    grid += line + "\n";
  }
  return grid;
}

Schedule PlainSchedule(Placement placement, int microbatches, int slices,
                       int replicas, bool split) {
  const int stages = placement.stages();
  ScheduleBuilder builder("plain", placement, microbatches, slices, replicas);
  for (int replica = 0; replica < replicas; ++replica) {
    const auto add = [&](PassKind kind, int stage, int microbatch, int slice) {
      builder.Add(placement.RankOf(stage, replica), kind, microbatch,
                  placement.ChunkOf(stage), slice, replica);
    };
    for (int microbatch = 0; microbatch < microbatches / replicas;
         ++microbatch) {
      for (int slice = 0; slice < slices; ++slice) {
        for (int stage = 0; stage < stages; ++stage) {
          add(PassKind::kForward, stage, microbatch, slice);
        }
      }
      for (int slice = slices - 1; slice >= 0; --slice) {
        for (int stage = stages - 1; stage >= 0; --stage) {
          add(split ? PassKind::kBackwardInput : PassKind::kBackwardFull, stage,
              microbatch, slice);
          if (split) add(PassKind::kBackwardWeight, stage, microbatch, slice);
        }
      }
    }
  }
  return std::move(builder).Finish();
}

}  // namespace pipewright::testing

#include "sim/schedule/order_task.h"

#include <algorithm>

#include "sim/schedule/builder.h"

namespace pipewright {
namespace {

constexpr PassKind kPassesOfKinds[] = {
    PassKind::kForward,   PassKind::kBackwardInput, PassKind::kBackwardWeight,
    PassKind::kRecompute, PassKind::kOffload,       PassKind::kFree,
    PassKind::kLoad};

}  // namespace

double WithRounding(double room) { return room * (1 + kLimitRounding); }

int64_t OrderTask::TicksOf(int kind, int stage) const {
  const PlanTicks& own = stages[stage];
  switch (kind) {
    case 0:
      return own.forward;
    case 1:
      return own.backward_input;
    case 2:
      return own.backward_weight;
    case kAgain:
      return own.again;
    case kOut:
      return own.out;
    case kIn:
      return own.in;
    default:
      return 0;
  }
}

int64_t OrderTask::Hop(int from, int to) const {
  return placement.RankOf(from) == placement.RankOf(to) ? 0 : stages[from].hop;
}

int OrderTask::InputOf(int pass) const {
  const int kind = KindOf(pass);
  const int stage = StageOf(pass);
  if (kind == 0) return stage == 0 ? -1 : pass - microbatches;
  if (kind == 1 && stage + 1 < num_stages()) return pass + microbatches;
  // R and O wait for F, FREE and L for O.
  const int behind = kind == kAgain ? kAgain
                     : kind == kOut ? kOut
                     : kind == kIn  ? kIn - kOut
                                    : 1;
  return pass - behind * num_stages() * microbatches;
}

int OrderTask::OutputOf(int pass) const {
  const int kind = KindOf(pass);
  const int stage = StageOf(pass);
  if (kind == 0 && stage + 1 < num_stages()) return pass + microbatches;
  return kind == 1 && stage > 0 ? pass - microbatches : -1;
}

double OrderTask::Taken(int pass) const {
  const int kind = KindOf(pass);
  const int stage = StageOf(pass);
  if (kind == 0) return kept[stage];
  if (kind == kAgain) return dropped[stage];
  if (kind == kOut) return 0;
  if (kind > kOut) return kind == kIn ? moved[stage] : -moved[stage];
  if (!splits) return -kept[stage];
  return kind == 1 ? left[stage] - kept[stage] : -left[stage];
}

double OrderTask::MostGone(int stage) const {
  return std::max(recomputes ? dropped[stage] : 0.0,
                  offloads ? moved[stage] : 0.0);
}

double OrderTask::MostOf(int stage) const {
  return splits ? std::max(kept[stage], left[stage]) : kept[stage];
}

double OrderTask::MostOnRank(int rank) const {
  double most = 0;
  for (int chunk = 0; chunk < placement.vpp(); ++chunk) {
    most += MostOf(placement.StageOf(rank, chunk));
  }
  return most;
}

bool OrderTask::Fits(const std::vector<int>& order, int rank) const {
  const double most = WithRounding(room[rank]);
  double held = 0;
  std::vector<char> again;  // [chunk, microbatch] an R comes
  const auto at = [&](int pass) -> char& {
    return again[placement.ChunkOf(StageOf(pass)) * microbatches +
                 MicrobatchOf(pass)];
  };
  if (recomputes) {
    again.resize(static_cast<size_t>(placement.vpp()) * microbatches);
    for (const int pass : order) at(pass) |= KindOf(pass) == kAgain;
  }
  for (const int pass : order) {
    held += Taken(pass);
    if (held > most) return false;
    if (recomputes && KindOf(pass) == 0 && at(pass)) {
      held -= dropped[StageOf(pass)];
    }
  }
  return true;
}

std::vector<char> OrderTask::RunAgain(const PassOrders& orders) const {
  std::vector<char> again;
  if (!recomputes) return again;
  again.resize(static_cast<size_t>(num_stages()) * microbatches);
  for (const std::vector<int>& order : orders) {
    for (const int pass : order) {
      if (KindOf(pass) == kAgain) again[InputOf(pass)] = 1;
    }
  }
  return again;
}

bool OrderTask::Fits(const PassOrders& orders) const {
  for (int rank = 0; rank < pp(); ++rank) {
    if (!Fits(orders[rank], rank)) return false;
  }
  return true;
}

std::vector<int> FitByR(const OrderTask& task, const std::vector<int>& order,
                        int rank) {
  const double most = WithRounding(task.room[rank]);
  const int m = task.microbatches;
  struct State {
    size_t backward = 0;  // where its B stands
    bool has_r = false;   // in `order`
    bool adds_r = false;
  };
  std::vector<State> states(static_cast<size_t>(task.placement.vpp()) * m);
  const auto state = [&](int pass) -> State& {
    return states[task.placement.ChunkOf(task.StageOf(pass)) * m +
                  task.MicrobatchOf(pass)];
  };
  for (size_t at = 0; at < order.size(); ++at) {
    const int kind = task.KindOf(order[at]);
    if (kind == 1) state(order[at]).backward = at;
    if (kind == OrderTask::kAgain) state(order[at]).has_r = true;
  }
  double held = 0;
  std::vector<int> whole;  // F whose B is to come, and which have no R
  std::vector<int> fitting;
  const auto run = [&](int pass) {
    while (held + task.Taken(pass) > most) {
      const auto last =
          std::max_element(whole.begin(), whole.end(), [&](int one, int two) {
            return state(one).backward < state(two).backward;
          });
      if (last == whole.end() || &state(*last) == &state(pass)) return false;
      state(*last).adds_r = true;
      held -= task.dropped[task.StageOf(*last)];
      whole.erase(last);
    }
    held += task.Taken(pass);
    fitting.push_back(pass);
    return true;
  };
  for (const int pass : order) {
    const int kind = task.KindOf(pass);
    if (kind == 1) {
      if (state(pass).adds_r &&
          !run(task.Number(OrderTask::kAgain, task.StageOf(pass),
                           task.MicrobatchOf(pass)))) {
        return {};
      }
      std::erase(whole, pass - task.num_stages() * m);
    }
    if (!run(pass)) return {};
    if (kind != 0) continue;
    if (state(pass).has_r) {
      held -= task.dropped[task.StageOf(pass)];
    } else {
      whole.push_back(pass);
    }
  }
  return fitting;
}

Schedule OrderTask::ToSchedule(absl::string_view name,
                               const PassOrders& orders) const {
  ScheduleBuilder builder(name, placement, microbatches);
  for (int rank = 0; rank < pp(); ++rank) {
    builder.Reserve(rank, std::ssize(orders[rank]));
    for (const int pass : orders[rank]) {
      const int kind = KindOf(pass);
      builder.Add(
          rank,
          kind == 1 && !splits ? PassKind::kBackwardFull : kPassesOfKinds[kind],
          MicrobatchOf(pass), placement.ChunkOf(StageOf(pass)));
    }
  }
  return std::move(builder).Finish();
}

PassOrders OrderTask::OrdersOf(const Schedule& schedule) const {
  bool alike = schedule.pp() == pp() && schedule.stages() == num_stages() &&
               schedule.microbatches == microbatches && schedule.slices == 1 &&
               schedule.directions == 1 && schedule.update_every == 0 &&
               schedule.backward == BackwardRule::kChain;
  for (int stage = 0; alike && stage < num_stages(); ++stage) {
    alike = schedule.placement.RankOf(stage) == placement.RankOf(stage);
  }
  if (!alike) return {};
  PassOrders orders(pp());
  // [kind * stages + stage] Passes so far: the order of microbatches is that
  // of starts.
  std::vector<int> counts(static_cast<size_t>(kinds()) * num_stages());
  for (int rank = 0; rank < pp(); ++rank) {
    const auto add = [&](int kind, int stage) {
      const int microbatch = counts[kind * num_stages() + stage]++;
      orders[rank].push_back(Number(kind, stage, microbatch));
    };
    for (const Pass pass : schedule.order(rank)) {
      const int stage = placement.StageOf(rank, pass.chunk());
      const PassKind kind = pass.kind();
      if (pass.joint_with_next()) return {};
      if (kind == PassKind::kForward) {
        add(0, stage);
      } else if (IsBackward(kind)) {
        add(1, stage);
        if (kind == PassKind::kBackwardFull && splits) add(2, stage);
      } else if (kind != PassKind::kBackwardWeight) {
        return {};
      } else if (splits) {
        add(2, stage);
      }
    }
  }
  return Fits(orders) ? orders : PassOrders();
}

OrderTimes::OrderTimes(const OrderTask& task)
    : task_(task),
      end_(task.num_numbers()),
      next_(task.pp()),
      clock_(task.pp()),
      out_(task.pp()),
      in_(task.pp()),
      is_waiting_(task.pp()) {
  for (int kind = 0; kind < task.num_kinds(); ++kind) {
    for (int stage = 0; stage < task.num_stages(); ++stage) {
      const int pass = task.Number(kind, stage, 0);
      Row row = {.ticks = task.TicksOf(kind, stage)};
      if (const int input = task.InputOf(pass); input >= 0) {
        row.input = input - pass;
        row.hop = task.Hop(task.StageOf(input), stage);
      }
      if (const int output = task.OutputOf(pass); output >= 0) {
        row.receiver = task.RankOf(output);
      }
      if (kind >= OrderTask::kOut) row.copy = kind;
      if (kind == 1 && task.offloads) {
        row.load = task.Number(OrderTask::kIn, stage, 0) - pass;
      }
      rows_.push_back(row);
    }
  }
}

// A copy runs beside the passes; a FREE lets the rank wait for the end of one.
void OrderTimes::RunCopy(const Row& row, int pass, int rank) {
  const int64_t before = end_[pass + row.input];
  if (row.copy == OrderTask::kFree) {
    end_[pass] = clock_[rank] = std::max(clock_[rank], before);
    return;
  }
  int64_t& stream = row.copy == OrderTask::kOut ? out_[rank] : in_[rank];
  stream = std::max({stream, clock_[rank], before}) + row.ticks;
  end_[pass] = stream;
}

void OrderTimes::Visit(const std::vector<int>& order, int rank) {
  while (next_[rank] < order.size()) {
    const int pass = order[next_[rank]];
    const Row& row = rows_[pass / task_.microbatches];
    if (row.copy != 0) {
      RunCopy(row, pass, rank);
      ++next_[rank];
      ++done_;
      continue;
    }
    int64_t ready = clock_[rank];
    if (row.load != 0) ready = std::max(ready, end_[pass + row.load]);
    if (row.input != 0) {
      const int64_t arrival = end_[pass + row.input];
      if (arrival < 0) return;
      ready = std::max(ready, arrival + row.hop);
    }
    clock_[rank] = end_[pass] = ready + row.ticks;
    ++next_[rank];
    ++done_;
    const int other = row.receiver;
    if (other < 0 || other == rank || is_waiting_[other]) continue;
    is_waiting_[other] = 1;
    waiting_.push_back(other);
  }
}

int64_t OrderTimes::Run(const PassOrders& orders) {
  std::fill(end_.begin(), end_.end(), -1);
  std::fill(next_.begin(), next_.end(), 0);
  std::fill(clock_.begin(), clock_.end(), 0);
  std::fill(out_.begin(), out_.end(), 0);
  std::fill(in_.begin(), in_.end(), 0);
  std::fill(is_waiting_.begin(), is_waiting_.end(), 1);
  waiting_.clear();
  for (int rank = task_.pp() - 1; rank >= 0; --rank) waiting_.push_back(rank);
  done_ = 0;
  while (!waiting_.empty()) {
    const int rank = waiting_.back();
    waiting_.pop_back();
    is_waiting_[rank] = 0;
    Visit(orders[rank], rank);
  }
  size_t passes = 0;
  for (const std::vector<int>& order : orders) passes += order.size();
  if (static_cast<size_t>(done_) != passes) return kEndless;
  int64_t longest = 0;
  for (int rank = 0; rank < task_.pp(); ++rank) {
    const int64_t first =
        task_.steps_together ? 0 : start(orders[rank].front());
    longest = std::max(longest, clock_[rank] - first);
  }
  return longest;
}

}  // namespace pipewright

#include "sim/schedule/order_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pipewright {
namespace {

// Work up to which each pair of microbatches is looked at.
constexpr int64_t kAllPairs = 20'000'000;

// Room of a rank with one stage, in microbatches. What B leaves beyond what F
// has kept is not counted. If passes may run again, or go to the host: those
// that do not hold more than what then stays, beside the one that runs.
class Room {
 public:
  Room(const OrderTask& task, int rank)
      : held_(task.splits ? std::min(1.0, task.left[rank] / task.kept[rank])
                          : 0),
        room_(WithRounding(task.most_room[rank]) / task.kept[rank]) {
    if (const double gone = task.MostGone(rank); gone > 0) {
      const double rest = 1 - gone / task.kept[rank];
      room_ = rest > 0 ? 1 + (room_ - 1) / rest : task.microbatches;
      held_ = rest > 0 ? std::min(1.0, held_ / rest) : 0;
    }
    room_ = std::min<double>(room_, task.microbatches);
    whole_ = static_cast<int>(room_ + kLimitRounding);
  }

  // Forwards that can have started before the B of microbatch 0.
  int whole() const { return whole_; }
  // Backwards, and W, that have ended before the F of a microbatch starts.
  int BackwardsBefore(int microbatch) const {
    return AtLeast(microbatch + 1 - room_);
  }
  int WeightsBefore(int microbatch) const {
    if (held_ <= 0) return 0;
    return AtLeast((microbatch + 1 - room_ - (1 - held_) * microbatch) / held_);
  }

 private:
  static int AtLeast(double count) {
    return std::max(0, static_cast<int>(std::ceil(count - kLimitRounding)));
  }

  double held_;
  double room_;
  int whole_;
};

// Longest paths over ranks first..last of a pipeline with one stage a rank,
// from the first F of `first` on.
class StartBounds {
 public:
  StartBounds(const OrderTask& task, int first, int last)
      : task_(task),
        first_(first),
        last_(last),
        microbatches_(task.microbatches),
        forward_(task.pp()),
        all_pairs_(int64_t{microbatches_} * microbatches_ * task.pp() <
                   kAllPairs) {
    for (int rank = 0; rank < task.pp(); ++rank) {
      rooms_.emplace_back(task, rank);
      if (rank < first || rank > last) continue;
      forward_[rank].resize(task.microbatches);
    }
    backward_ = forward_;
    for (int rank = last + 1; rank < task.pp(); ++rank) {
      const PlanTicks& own = task.stages[rank];
      beyond_ += own.forward + own.backward_input + 2 * own.hop;
    }
    for (int k = 0; k < microbatches_; ++k) {
      for (int rank = first; rank <= last; ++rank) BoundForward(rank, k);
      for (int rank = last; rank >= first; --rank) BoundBackward(rank, k);
    }
  }

  // The end of `rank`.
  int64_t End(int rank) const {
    const PlanTicks& own = task_.stages[rank];
    const int64_t back = own.backward_input + own.backward_weight;
    int64_t end = 0;
    for (int j = 0; j < microbatches_; ++j) {
      const int64_t left = microbatches_ - j;
      const int64_t forwards =
          std::max<int64_t>(0, left - rooms_[rank].whole());
      end =
          std::max({end, forward_[rank][j] + left * own.work(),
                    backward_[rank][j] + left * back + forwards * own.forward});
    }
    return end;
  }

 private:
  // Calls rule(j) for earlier microbatches: all, or those that matter most.
  template <class Rule>
  void ForEarlier(int rank, int k, const Rule& rule) const {
    if (all_pairs_) {
      for (int j = 0; j < k; ++j) rule(j);
      return;
    }
    const int room = rooms_[rank].whole();
    for (const int j : {0, k - room - 1, k - room, k - 1}) {
      if (j >= 0 && j < k) rule(j);
    }
  }

  void BoundForward(int rank, int k) {
    const PlanTicks& own = task_.stages[rank];
    const Room& room = rooms_[rank];
    int64_t start = 0;
    if (rank > first_) {
      const PlanTicks& before = task_.stages[rank - 1];
      start = forward_[rank - 1][k] + before.forward + before.hop;
    }
    const int backwards = room.BackwardsBefore(k);
    const int weights = room.WeightsBefore(k);
    ForEarlier(rank, k, [&](int j) {
      const int64_t back = std::max(0, backwards - j) * own.backward_input +
                           std::max(0, weights - j) * own.backward_weight;
      start = std::max(start, forward_[rank][j] + (k - j) * own.forward + back);
      if (backwards <= j) return;  // B of j may come later
      const int forwards = std::max(0, k - j - room.whole());
      start =
          std::max(start, backward_[rank][j] + forwards * own.forward + back);
    });
    forward_[rank][k] = start;
  }

  void BoundBackward(int rank, int k) {
    const PlanTicks& own = task_.stages[rank];
    const Room& room = rooms_[rank];
    int64_t start = forward_[rank][k] + own.forward;
    if (rank == last_) {
      start += beyond_;
    } else {
      const PlanTicks& next = task_.stages[rank + 1];
      start = std::max(start,
                       backward_[rank + 1][k] + next.backward_input + next.hop);
    }
    const int weights = room.WeightsBefore(k);
    ForEarlier(rank, k, [&](int j) {
      const int forwards = std::max(0, k + 1 - j - room.whole());
      const int64_t back = (k - j) * own.backward_input +
                           std::max(0, weights - j) * own.backward_weight;
      start =
          std::max({start, forward_[rank][j] + (k + 1 - j) * own.forward + back,
                    backward_[rank][j] + forwards * own.forward + back});
    });
    backward_[rank][k] = start;
  }

  const OrderTask& task_;
  const int first_;
  const int last_;
  const int microbatches_;
  std::vector<Room> rooms_;
  // From the end of F on `last` to its B, if it is not pp-1.
  int64_t beyond_ = 0;
  std::vector<std::vector<int64_t>> forward_;  // [rank][microbatch] starts
  std::vector<std::vector<int64_t>> backward_;
  const bool all_pairs_;
};

int64_t LeastOfStages(const OrderTask& task) {
  int64_t least = 0;
  for (int rank = 0; rank < task.pp(); ++rank) {
    // Apart, so that a long pipeline's last ranks still see what follows them.
    const StartBounds own(task, rank, rank == 0 ? task.pp() - 1 : rank);
    least = std::max(least, own.End(rank));
    if (rank > 0 || !task.steps_together) continue;
    for (int other = 0; other < task.pp(); ++other) {
      least = std::max(least, own.End(other));
    }
    break;
  }
  return least;
}

// What a rank has to do and to hold, for all microbatches together, in any unit
// of room: the least it can take.
class RoomOverTime {
 public:
  // `work`: ticks without R. `around`: ticks in which a stream cannot copy.
  // `lost`: room over time that nobody can use.
  RoomOverTime(double work, double around, double room, double lost)
      : work_(work), around_(around), room_(room), lost_(lost) {}

  // So many, each of which holds `amount` for `life` ticks, or if it runs
  // again, which takes `again`, `saved` less of that room over time.
  void Add(double count, double held, double again, double saved) {
    held_ += count * held;
    if (saved > 0) options_.push_back({count * again, count * saved});
  }
  // So many copies of a stream may save as much each.
  void AddCopies(double count, double ticks, double saved) {
    if (saved > 0) copies_.push_back({count * ticks, count * saved});
  }

  int64_t Least() {
    for (std::vector<Option>* const each : {&options_, &copies_}) {
      std::sort(each->begin(), each->end(),
                [](const Option& one, const Option& other) {
                  return one.saved * other.ticks > other.saved * one.ticks;
                });
    }
    double low = work_;
    if (Fits(low)) return static_cast<int64_t>(low);
    double high = std::max(low, (held_ + lost_) / room_);
    while (high - low > 0.25) {
      const double middle = low + (high - low) / 2;
      if (middle <= low || middle >= high) break;
      (Fits(middle) ? high : low) = middle;
    }
    return static_cast<int64_t>(low);
  }

 private:
  struct Option {
    double ticks;  // of R or of copies
    double saved;
  };

  static double MostSaved(const std::vector<Option>& options, double left) {
    double saved = 0;
    for (const Option& option : options) {
      const double part =
          option.ticks > left ? std::max(0.0, left / option.ticks) : 1;
      saved += part * option.saved;
      left -= option.ticks;
    }
    return saved;
  }

  bool Fits(double ticks) const {
    const double held = held_ - MostSaved(options_, ticks - work_) -
                        MostSaved(copies_, ticks - around_);
    return held <= room_ * ticks - lost_;
  }

  const double work_;
  const double around_;
  const double room_;
  const double lost_;
  double held_ = 0;
  std::vector<Option> options_;
  std::vector<Option> copies_;
};

// Whole chunks that a rank has room for, and how long they and what B leaves
// of them are there; for ranks whose passes may run again or go to the host.
// `lives`: [stage] from the start of an F to the end of its B at least.
int64_t LeastWithLess(const OrderTask& task, int rank,
                      const std::vector<int64_t>& lives) {
  const double room = WithRounding(task.most_room[rank]);
  const double m = task.microbatches;
  double smallest = room;
  double work = 0;
  int64_t forward = OrderTimes::kEndless;
  int64_t freed = OrderTimes::kEndless;  // ticks between two that go
  int64_t back = OrderTimes::kEndless;
  int64_t outs = 0, ins = 0;
  int64_t out = OrderTimes::kEndless, in = OrderTimes::kEndless;
  for (int chunk = 0; chunk < task.placement.vpp(); ++chunk) {
    const int stage = task.placement.StageOf(rank, chunk);
    smallest = std::min(smallest, task.kept[stage]);
    work += m * static_cast<double>(task.stages[stage].work());
  }
  // In bytes, and in whole chunks that are as small as the smallest.
  const double chunks = std::floor(room / smallest + kLimitRounding);
  const auto waits = [&](int stage) {
    return task.splits && task.left[stage] >= smallest;
  };
  for (int chunk = 0; chunk < task.placement.vpp(); ++chunk) {
    const int stage = task.placement.StageOf(rank, chunk);
    const PlanTicks& own = task.stages[stage];
    forward = std::min(forward, own.forward);
    freed = std::min(freed,
                     waits(stage) ? own.backward_weight : own.backward_input);
    back = std::min(back, own.backward_input);
    outs += own.out;
    ins += own.in;
    out = std::min(out, own.out);
    in = std::min(in, own.in);
  }
  // The busier stream copies behind an F and in front of a B, and of the other
  // stream's copy.
  const bool by_out = outs >= ins;
  const auto around = static_cast<double>(forward + back + (by_out ? in : out));
  // At first as many are there as F have started, and at last as many as have
  // yet to go: one after the other.
  const double ramp = (chunks - 1) * static_cast<double>(forward + freed);
  RoomOverTime bytes(work, around, room, 0);
  RoomOverTime whole(work, around, chunks,
                     ramp <= work ? ramp * chunks / 2 : 0);
  for (int chunk = 0; chunk < task.placement.vpp(); ++chunk) {
    const int stage = task.placement.StageOf(rank, chunk);
    const PlanTicks& own = task.stages[stage];
    const auto life = static_cast<double>(lives[stage]);
    const auto weight = static_cast<double>(own.backward_weight);
    const auto again = static_cast<double>(own.again);
    const double idle =
        life - static_cast<double>(own.forward + own.backward_input);
    const double dropped = task.recomputes ? task.dropped[stage] : 0;
    const double left =
        task.splits ? std::min(task.kept[stage], task.left[stage]) : 0;
    bytes.Add(m, task.kept[stage] * life + left * weight, again,
              dropped * (idle - again));
    whole.Add(m, life + (waits(stage) ? weight : 0), again,
              dropped > 0 ? idle - again : 0);
    if (!task.offloads) continue;
    const auto copy = static_cast<double>(by_out ? own.out : own.in);
    const double away = idle - static_cast<double>(own.out + own.in);
    bytes.AddCopies(m, copy, task.moved[stage] * away);
    whole.AddCopies(m, copy, task.moved[stage] > 0 ? away : 0);
  }
  return std::max(bytes.Least(), whole.Least());
}

// The bound of ranks with several stages each.
int64_t LeastOfChunks(const OrderTask& task) {
  const int stages = task.num_stages();
  std::vector<int64_t> forward(stages);   // earliest start of the first F
  std::vector<int64_t> backward(stages);  // and B
  std::vector<int64_t> after(stages);     // from the end of a B to the end of
                                          // that of stage 0
  int64_t now = 0;
  for (int stage = 0; stage < stages; ++stage) {
    if (stage > 0) {
      now += task.Hop(stage - 1, stage);
      after[stage] = after[stage - 1] + task.stages[stage - 1].backward_input +
                     task.Hop(stage, stage - 1);
    }
    forward[stage] = now;
    now += task.stages[stage].forward;
  }
  for (int stage = stages - 1; stage >= 0; --stage) {
    if (stage + 1 < stages) now += task.Hop(stage + 1, stage);
    backward[stage] = now;
    now += task.stages[stage].backward_input;
  }
  std::vector<int64_t> lives(stages);
  for (int stage = 0; stage < stages; ++stage) {
    lives[stage] =
        backward[stage] - forward[stage] + task.stages[stage].backward_input;
  }
  int64_t least = 0;
  for (int rank = 0; rank < task.pp(); ++rank) {
    constexpr int64_t kNever = OrderTimes::kEndless;
    int64_t work = 0, chain = 0, longest = 0;
    int64_t head = kNever, tail = kNever, first_backward = kNever;
    double lifetimes = 0;
    double per_again = 1;  // forwards in the time of an R
    double smallest = task.most_room[rank];
    double most_moved = 0;
    int64_t shortest_copy = kNever;
    for (int chunk = 0; chunk < task.placement.vpp(); ++chunk) {
      const int stage = task.placement.StageOf(rank, chunk);
      const PlanTicks& own = task.stages[stage];
      work += own.work();
      chain += own.forward + own.backward_input;
      longest = std::max(longest, own.forward);
      head = std::min(head, forward[stage]);
      tail = std::min(tail, after[stage]);
      first_backward = std::min(first_backward, backward[stage]);
      smallest = std::min(smallest, task.kept[stage]);
      if (task.offloads && task.moved[stage] > 0) {
        most_moved = std::max(most_moved, task.moved[stage]);
        shortest_copy = std::min(shortest_copy, own.out);
      }
      const double left =
          task.splits ? std::min(task.kept[stage], task.left[stage]) : 0;
      lifetimes += task.kept[stage] * static_cast<double>(lives[stage]) +
                   left * static_cast<double>(own.backward_weight);
      per_again = std::max(per_again, static_cast<double>(own.forward) /
                                          static_cast<double>(own.again));
    }
    const int64_t m = task.microbatches;
    const double held_at_once =
        std::min<double>(WithRounding(task.most_room[rank]) / smallest,
                         static_cast<double>(m) * task.placement.vpp());
    const int64_t until_first = first_backward - head;
    const int64_t forwards = static_cast<int64_t>(held_at_once) * longest;
    int64_t idle = std::max<int64_t>(0, until_first - forwards);
    if (most_moved > 0) {
      // Each O that has ended by the first B lets more forwards begin. Of a
      // stream that is as fast as they are, waiting longer makes up for all.
      const double per_tick =
          most_moved / smallest /
          static_cast<double>(std::max<int64_t>(1, shortest_copy));
      const double busy =
          (held_at_once + per_tick * static_cast<double>(until_first)) *
          static_cast<double>(longest);
      const double waits = static_cast<double>(until_first) - busy;
      idle = per_tick * static_cast<double>(longest) < 1 && waits > 0
                 ? static_cast<int64_t>(waits)
                 : 0;
    }
    if (task.recomputes) {
      // More forwards fit in front of the first B, but each costs an R behind
      // it.
      idle = static_cast<int64_t>(static_cast<double>(idle) / per_again);
    }
    const int64_t end_of_work = m * work + idle;
    int64_t end = std::max(
        end_of_work,
        task.recomputes || task.offloads
            ? LeastWithLess(task, rank, lives)
            : static_cast<int64_t>(static_cast<double>(m) * lifetimes /
                                   WithRounding(task.most_room[rank])));
    if (task.steps_together) {
      end = std::max(end + head, head + m * chain + tail);
    }
    least = std::max(least, end);
  }
  return least;
}

}  // namespace

int64_t LeastTicks(const OrderTask& task) {
  if (task.placement.vpp() > 1) return LeastOfChunks(task);
  const int64_t least = LeastOfStages(task);
  return task.recomputes || task.offloads ? std::max(least, LeastOfChunks(task))
                                          : least;
}

}  // namespace pipewright

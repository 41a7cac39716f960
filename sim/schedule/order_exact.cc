#include "sim/schedule/order_exact.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace pipewright {
namespace {

// More passes mostly have more ways than that.
constexpr int kMostPasses = 72;
constexpr size_t kMostWays = 15'000;
constexpr size_t kMostWaysWithR = 60'000;
constexpr int kKeyBits = 64;

// Passes that have run, and when each rank and result is there.
struct Way {
  // `counts`, packed, and above them which F wait for their R, by stage and
  // microbatch.
  uint64_t key = 0;
  std::vector<int> counts;     // [kind * stages + stage]
  std::vector<int64_t> clock;  // [rank]
  // [kind * stages + stage] Arrivals of the results that F or B there has yet
  // to use, by microbatch; none before the rank is free.
  std::vector<std::vector<int64_t>> arrivals;
  int step = -1;  // the last one that led to it
};

class ShortestOrder {
 public:
  ShortestOrder(const OrderTask& task, int64_t below)
      : task_(task),
        below_(below),
        bits_(std::bit_width(static_cast<unsigned>(task.microbatches))),
        rows_(task.kinds() * task.num_stages()),
        after_(2 * task.num_stages()),
        head_(task.pp()) {
    AddHeads();
    AddTails();
  }

  bool IsPossible() const {
    std::set<int> ranks;
    for (int stage = 0; stage < task_.pp(); ++stage) {
      ranks.insert(task_.placement.RankOf(stage));
    }
    return task_.num_passes() <= kMostPasses &&
           DroppedBit(task_.recomputes ? task_.num_stages() : 0, 0) <=
               kKeyBits &&
           std::ssize(ranks) == task_.pp();
  }

  std::optional<ExactOrder> Run() {
    Way first = {.counts = std::vector<int>(rows_),
                 .clock = std::vector<int64_t>(task_.pp()),
                 .arrivals = std::vector<std::vector<int64_t>>(rows_)};
    std::vector<Way> ways = {std::move(first)};
    std::vector<Way> complete;
    while (!ways.empty()) {
      next_.clear();
      by_key_.clear();
      for (Way& way : ways) {
        if (IsComplete(way)) {
          complete.push_back(std::move(way));
          continue;
        }
        for (int row = 0; row < rows_; ++row) Extend(way, row, false);
        for (int stage = 0; task_.recomputes && stage < task_.num_stages();
             ++stage) {
          Extend(way, stage, true);
          RunAgain(way, stage);
        }
        if (steps_.size() > (task_.recomputes ? kMostWaysWithR : kMostWays)) {
          return std::nullopt;
        }
      }
      ways.swap(next_);
    }
    return Best(complete);
  }

 private:
  struct Step {
    int before = -1;
    int pass = 0;
  };

  // First F of the first stage of each rank; spans of ranks count from there.
  void AddHeads() {
    if (task_.steps_together) return;
    int64_t now = 0;
    for (int stage = 0; stage < task_.pp(); ++stage) {
      head_[task_.placement.RankOf(stage)] = now;
      if (stage + 1 == task_.num_stages()) break;
      now += task_.TicksOf(0, stage) + task_.Hop(stage, stage + 1);
    }
  }

  // From the end of the last F or B of a stage to the end of what is longest.
  void AddTails() {
    const int stages = task_.num_stages();
    for (int stage = 0; stage < stages; ++stage) {
      int64_t& own = after_[stages + stage];
      own = (task_.splits ? task_.TicksOf(2, stage) : 0) -
            head_[task_.placement.RankOf(stage)];
      if (stage == 0) continue;
      own = std::max(own, task_.Hop(stage, stage - 1) +
                              task_.TicksOf(1, stage - 1) +
                              after_[stages + stage - 1]);
    }
    for (int stage = stages - 1; stage >= 0; --stage) {
      after_[stage] = stage + 1 == stages
                          ? task_.TicksOf(1, stage) + after_[stages + stage]
                          : task_.Hop(stage, stage + 1) +
                                task_.TicksOf(0, stage + 1) + after_[stage + 1];
    }
  }

  // The row whose results `row` uses, each microbatch in turn.
  int InputRow(int row) const {
    const int input = task_.InputOf(row * task_.microbatches);
    return input < 0 ? -1 : input / task_.microbatches;
  }
  bool IsOnOtherStage(int row, int input) const {
    return input >= 0 && (row - input) % task_.num_stages() != 0;
  }

  bool IsComplete(const Way& way) const {
    return std::all_of(way.counts.begin(), way.counts.end(),
                       [&](int count) { return count == task_.microbatches; });
  }

  int DroppedBit(int stage, int microbatch) const {
    return bits_ * rows_ + stage * task_.microbatches + microbatch;
  }
  // Microbatches that wait for the R of a stage, as bits.
  uint64_t Dropped(const Way& way, int stage) const {
    if (!task_.recomputes) return 0;
    return way.key >> DroppedBit(stage, 0) &
           ((uint64_t{1} << task_.microbatches) - 1);
  }

  bool HasRoom(const Way& way, int rank) const {
    double held = 0;
    for (int chunk = 0; chunk < task_.placement.vpp(); ++chunk) {
      const int stage = task_.placement.StageOf(rank, chunk);
      for (int kind = 0; kind < task_.kinds(); ++kind) {
        const int row = kind * task_.num_stages() + stage;
        held += way.counts[row] * task_.Taken(row * task_.microbatches);
      }
      if (const uint64_t dropped = Dropped(way, stage); dropped != 0) {
        held -= std::popcount(dropped) * task_.dropped[stage];
      }
    }
    return held <= WithRounding(task_.room[rank]);
  }

  // Adds what `way` becomes by one more pass of `row`; `drops`: by an F that
  // will run again.
  void Extend(const Way& way, int row, bool drops) {
    const int k = way.counts[row];
    const int input = InputRow(row);
    if (k == task_.microbatches) return;
    if (input >= 0 && way.counts[input] <= k) return;
    const int stages = task_.num_stages();
    const int stage = row % stages;
    const int rank = task_.placement.RankOf(stage);
    const bool is_backward = row / stages == 1;
    if (is_backward && (Dropped(way, stage) >> k & 1) != 0) return;
    Way longer = way;
    ++longer.counts[row];
    longer.key += uint64_t{1} << (row * bits_);
    if (!HasRoom(longer, rank)) return;
    if (drops) longer.key += uint64_t{1} << DroppedBit(stage, k);
    int64_t start = way.clock[rank];
    if (IsOnOtherStage(row, input)) {
      start = std::max(start, way.arrivals[row].front());
      longer.arrivals[row].erase(longer.arrivals[row].begin());
    }
    const int64_t end = start + task_.TicksOf(row / stages, stage);
    longer.clock[rank] = end;
    const int pass = row * task_.microbatches + k;
    if (const int output = task_.OutputOf(pass); output >= 0) {
      const int to = output / task_.microbatches;
      longer.arrivals[to].push_back(end + task_.Hop(stage, to % stages));
    }
    Add(std::move(longer), pass);
  }

  // Adds what `way` becomes by the next R of a stage.
  void RunAgain(const Way& way, int stage) {
    const uint64_t dropped = Dropped(way, stage);
    if (dropped == 0) return;
    const int k = std::countr_zero(dropped);
    const int rank = task_.placement.RankOf(stage);
    Way longer = way;
    longer.key -= uint64_t{1} << DroppedBit(stage, k);
    if (!HasRoom(longer, rank)) return;
    longer.clock[rank] += task_.TicksOf(OrderTask::kAgain, stage);
    Add(std::move(longer), task_.Number(OrderTask::kAgain, stage, k));
  }

  // Adds a way that ends with `pass` unless it is no use.
  void Add(Way longer, int pass) {
    const int stages = task_.num_stages();
    for (int other = 0; other < 2 * stages; ++other) {
      const int64_t free = longer.clock[task_.placement.RankOf(other % stages)];
      for (int64_t& arrival : longer.arrivals[other]) {
        arrival = std::max(arrival, free);
      }
    }
    if (LeastEnd(longer) >= below_ || IsLater(longer)) return;
    steps_.push_back({longer.step, pass});
    longer.step = static_cast<int>(steps_.size()) - 1;
    by_key_[longer.key].push_back(static_cast<int>(next_.size()));
    next_.push_back(std::move(longer));
  }

  // What no order that begins like this is below.
  int64_t LeastEnd(const Way& way) const {
    const int stages = task_.num_stages();
    int64_t least = 0;
    for (int rank = 0; rank < task_.pp(); ++rank) {
      int64_t end = way.clock[rank] - head_[rank];
      for (int chunk = 0; chunk < task_.placement.vpp(); ++chunk) {
        const int stage = task_.placement.StageOf(rank, chunk);
        for (int kind = 0; kind < task_.kinds(); ++kind) {
          end += (task_.microbatches - way.counts[kind * stages + stage]) *
                 task_.TicksOf(kind, stage);
        }
        end += std::popcount(Dropped(way, stage)) * task_.stages[stage].again;
      }
      least = std::max(least, end);
    }
    for (int row = 0; row < 2 * stages; ++row) {
      const int stage = row % stages;
      int left = task_.microbatches - way.counts[row];
      if (left == 0) continue;
      const int64_t ticks = task_.TicksOf(row / stages, stage);
      const auto see = [&](int64_t ready) {
        least = std::max(least, ready + left * ticks + after_[row]);
      };
      see(way.clock[task_.placement.RankOf(stage)]);
      for (const int64_t arrival : way.arrivals[row]) {
        see(arrival);
        --left;
      }
    }
    return least;
  }

  // Is another way to the same passes nowhere later?
  bool IsLater(const Way& way) const {
    const auto known = by_key_.find(way.key);
    if (known == by_key_.end()) return false;
    return std::any_of(
        known->second.begin(), known->second.end(), [&](int index) {
          const Way& other = next_[index];
          const auto no_later = [](const std::vector<int64_t>& one,
                                   const std::vector<int64_t>& two) {
            return std::equal(one.begin(), one.end(), two.begin(),
                              [](int64_t a, int64_t b) { return a <= b; });
          };
          if (!no_later(other.clock, way.clock)) return false;
          for (size_t row = 0; row < way.arrivals.size(); ++row) {
            if (!no_later(other.arrivals[row], way.arrivals[row])) return false;
          }
          return true;
        });
  }

  ExactOrder Best(const std::vector<Way>& ways) const {
    ExactOrder best;
    const Way* shortest = nullptr;
    for (const Way& way : ways) {
      const int64_t ticks = LeastEnd(way);
      if (shortest != nullptr && ticks >= best.ticks) continue;
      shortest = &way;
      best.ticks = ticks;
    }
    if (shortest == nullptr) return best;
    best.orders.resize(task_.pp());
    for (int step = shortest->step; step >= 0; step = steps_[step].before) {
      const int pass = steps_[step].pass;
      best.orders[task_.RankOf(pass)].push_back(pass);
    }
    for (std::vector<int>& order : best.orders) {
      std::reverse(order.begin(), order.end());
    }
    return best;
  }

  const OrderTask& task_;
  const int64_t below_;
  const int bits_;
  const int rows_;              // kinds * stages
  std::vector<int64_t> after_;  // [kind * stages + stage] of F and B
  std::vector<int64_t> head_;   // [rank]
  std::vector<Way> next_;       // with one pass more
  absl::flat_hash_map<uint64_t, std::vector<int>> by_key_;  // of next_
  std::vector<Step> steps_;
};

}  // namespace

std::optional<ExactOrder> FindShortestOrder(const OrderTask& task,
                                            int64_t below) {
  ShortestOrder search(task, below);
  if (!search.IsPossible()) return std::nullopt;
  return search.Run();
}

}  // namespace pipewright

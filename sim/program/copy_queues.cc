#include "sim/program/copy_queues.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/program/place_queue.h"

namespace pipewright {

CopyQueues::CopyQueues(const std::vector<RankPlan>& ranks,
                       const std::vector<CopyCandidate>& candidates)
    : ranks_(ranks),
      candidates_(candidates),
      first_ready_(OrderBy([](const auto& each) { return each.ready_s; })),
      last_ready_(OrderBy([](const auto& each) { return -each.ready_s; })),
      first_needed_(OrderBy([](const auto& each) { return each.needed_s; })),
      last_needed_(OrderBy([](const auto& each) { return -each.needed_s; })) {}

template <typename Key>
CopyQueues::Order CopyQueues::OrderBy(const Key& key) const {
  Order order;
  order.sorted.resize(candidates_.size());
  std::iota(order.sorted.begin(), order.sorted.end(), 0);
  std::stable_sort(order.sorted.begin(), order.sorted.end(),
                   [&](int32_t one, int32_t other) {
                     return key(Of(one)) < key(Of(other));
                   });
  order.place.resize(order.sorted.size());
  for (size_t place = 0; place < order.sorted.size(); ++place) {
    order.place[order.sorted[place]] = static_cast<int32_t>(place);
  }
  return order;
}

const CopyQueues::Order& CopyQueues::FirstOut(CopyTurn turn) const {
  switch (turn) {
    case CopyTurn::kFirstReady:
      return first_ready_;
    case CopyTurn::kFirstNeeded:
      return first_needed_;
    case CopyTurn::kLastNeeded:
      return last_needed_;
  }
  return first_ready_;
}

// The same with time turned round.
const CopyQueues::Order& CopyQueues::FirstIn(CopyTurn turn) const {
  switch (turn) {
    case CopyTurn::kFirstReady:
      return last_needed_;
    case CopyTurn::kFirstNeeded:
      return last_ready_;
    case CopyTurn::kLastNeeded:
      return first_ready_;
  }
  return last_needed_;
}

// Runs every candidate of `by_ready` once on a lane, from `ready(index)` on;
// `begin(index, time)` says what it takes.
template <typename Ready, typename Begin>
void CopyQueues::RunLane(const std::vector<int32_t>& by_ready,
                         const Order& first, const Ready& ready,
                         const Begin& begin) const {
  PlaceQueue waiting(candidates_.size());
  size_t next = 0;
  double now_s = 0;
  while (next < by_ready.size() || !waiting.empty()) {
    if (waiting.empty()) now_s = std::max(now_s, ready(by_ready[next]));
    for (; next < by_ready.size() && ready(by_ready[next]) <= now_s; ++next) {
      waiting.Push(first.place[by_ready[next]]);
    }
    const int32_t index = first.sorted[waiting.Pop()];
    now_s += begin(index, now_s);
  }
}

Bookings CopyQueues::Run(int64_t count, const OneWay& way, CopyTurn turn,
                         const Bookings& best) const {
  // What is left, in three orders.
  std::vector<int32_t> left(count);
  std::iota(left.begin(), left.end(), 0);
  AwaySet away(ranks_);
  for (const int32_t index : left) away.Add(candidates_[index]);
  if (away.CannotBeLowerThan(best)) return {};
  std::vector<int32_t> out = first_ready_.sorted;
  std::vector<int32_t> in = last_needed_.sorted;
  const auto more = [&](int32_t index) { return index >= count; };
  std::erase_if(out, more);
  std::erase_if(in, more);
  std::vector<PlannedMove> moves(candidates_.size());
  std::vector<std::pair<double, int32_t>> late;
  std::vector<bool> drop(candidates_.size());
  while (true) {
    RunLane(
        out, FirstOut(turn), [&](int32_t index) { return Of(index).ready_s; },
        [&](int32_t index, double now_s) {
          const double seconds = way.OutSeconds(Of(index), now_s);
          moves[index].out_s = now_s;
          moves[index].away_s = now_s + seconds;
          return seconds;
        });
    // From the last need backwards.
    const double last_s = in.empty() ? 0 : std::max(0.0, Of(in[0]).needed_s);
    RunLane(
        in, FirstIn(turn),
        [&](int32_t index) { return last_s - Of(index).needed_s; },
        [&](int32_t index, double back_s) {
          const double end_s = last_s - back_s;
          const double seconds = way.InSeconds(Of(index), end_s);
          moves[index].in_s = end_s - seconds;
          return seconds;
        });
    late.clear();
    for (const int32_t index : left) {
      PlannedMove& move = moves[index];
      const auto [rank, activation] = candidates_[index];
      move =
          ranks_[rank].MoveOf(activation, move.out_s, move.away_s, move.in_s);
      if (ranks_[rank].Helps(move) && way.Keeps(ranks_[rank], move)) continue;
      late.emplace_back(move.away_s - move.in_s, index);
    }
    if (late.empty()) break;
    // In one go, a quarter of them.
    std::sort(late.rbegin(), late.rend());
    late.resize((late.size() + 3) / 4);
    for (const auto& [by_s, index] : late) {
      drop[index] = true;
      away.Remove(candidates_[index]);
    }
    if (away.CannotBeLowerThan(best)) return {};
    const auto dropped = [&](int32_t index) { return drop[index]; };
    for (std::vector<int32_t>* const each : {&left, &out, &in}) {
      std::erase_if(*each, dropped);
    }
  }
  std::vector<CopyCandidate> chosen;
  std::vector<PlannedMove> chosen_moves;
  for (const int32_t index : left) {
    chosen.push_back(candidates_[index]);
    chosen_moves.push_back(moves[index]);
  }
  return BookingsOf(ranks_, chosen, chosen_moves, &best);
}

}  // namespace pipewright

#include "sim/schedule/order_search.h"

#include <algorithm>
#include <cmath>

#include "sim/schedule/order_copies.h"

namespace pipewright {
namespace {

// The threshold at first, as a part of the span.
constexpr double kThreshold = 1.0 / 4096;
// One move in so many is of any pass, not of the longest path; and one in so
// many goes further than to the neighbour, up to so far.
constexpr uint64_t kAnyPass = 4;
constexpr uint64_t kFar = 3;
constexpr uint64_t kFarthest = 12;
// One change in so many takes an R out, if the task recomputes, and copies if
// it offloads; an L is less than so many times its own ticks of work ahead.
constexpr uint64_t kTakesR = 6;
constexpr uint64_t kTakesCopies = 6;
constexpr uint64_t kMostLead = 4;
// With copies, which small tasks are not searched to the end with, it doubles
// so often from round to round.
constexpr int kDoublings = 3;
// Rounds that start from the best again.
constexpr int kRounds = 4;

void Move(size_t from, size_t to, std::vector<int>* order) {
  const auto at = order->begin();
  if (from < to) {
    std::rotate(at + from, at + from + 1, at + to + 1);
  } else {
    std::rotate(at + to, at + from, at + from + 1);
  }
}

bool HasCopies(const OrderTask& task, const PassOrders& orders) {
  const auto is_copy = [&](int pass) {
    return task.KindOf(pass) == OrderTask::kOut;
  };
  return std::any_of(orders.begin(), orders.end(), [&](const auto& order) {
    return std::any_of(order.begin(), order.end(), is_copy);
  });
}

}  // namespace

OrderSearch::OrderSearch(const OrderTask& task, int64_t least, uint64_t seed)
    : task_(task),
      least_(least),
      random_(seed),
      times_(task),
      position_(task.num_numbers()) {}

bool OrderSearch::Offer(const PassOrders& orders) {
  ++steps_;
  const int64_t ticks = times_.Run(orders);
  if (task_.offloads && ticks < copied_ticks_ && HasCopies(task_, orders)) {
    copied_ticks_ = ticks;
    copied_ = orders;
  }
  if (ticks >= best_ticks_) return false;
  best_ticks_ = ticks;
  best_ = orders;
  return true;
}

// Goes from the last end of the longest rank, as times_ has it, back to a pass
// that nothing holds up.
void OrderSearch::FindPath(const PassOrders& orders) {
  int last = -1;
  int64_t longest = -1;
  for (int rank = 0; rank < task_.pp(); ++rank) {
    const std::vector<int>& order = orders[rank];
    for (size_t at = 0; at < order.size(); ++at) {
      position_[order[at]] = static_cast<int>(at);
    }
    const int64_t first =
        task_.steps_together ? 0 : times_.start(order.front());
    const int64_t span = times_.end(order.back()) - first;
    if (span <= longest) continue;
    longest = span;
    last = order.back();
  }
  path_.clear();
  for (int pass = last; pass >= 0;) {
    path_.push_back(pass);
    const std::vector<int>& order = orders[task_.RankOf(pass)];
    if (task_.offloads) {
      pass = HolderOf(order, pass);
      continue;
    }
    const int at = position_[pass];
    const int before = at > 0 ? order[at - 1] : -1;
    pass = before >= 0 && times_.end(before) == times_.start(pass)
               ? before
               : task_.InputOf(pass);
  }
}

int OrderSearch::HolderOf(const std::vector<int>& order, int pass) const {
  const int64_t start = times_.start(pass);
  const int kind = task_.KindOf(pass);
  const bool copies = kind == OrderTask::kOut || kind == OrderTask::kIn;
  const auto is_copy = [&](int other) {
    const int own = task_.KindOf(other);
    return own == OrderTask::kOut || own == OrderTask::kIn;
  };
  // The nearest on its stream, and a pass that a copy was issued behind.
  bool seen_stream = false, seen_pass = false;
  for (int at = position_[pass] - 1; at >= 0 && !(seen_stream && seen_pass);
       --at) {
    const int other = order[at];
    const bool stream = copies ? task_.KindOf(other) == kind : !is_copy(other);
    const bool passes = copies && !is_copy(other);
    if ((stream && !seen_stream) || (passes && !seen_pass)) {
      if (times_.end(other) == start) return other;
    }
    seen_stream |= stream;
    seen_pass |= passes || !copies;
  }
  if (kind == 1) {
    const int load = task_.Number(OrderTask::kIn, task_.StageOf(pass),
                                  task_.MicrobatchOf(pass));
    if (times_.end(load) == start) return load;
  }
  return task_.InputOf(pass);
}

// Whether `second`, which stands behind `first`, may go in front of it.
bool OrderSearch::MayPass(int first, int second) const {
  const int stage = task_.StageOf(first);
  const bool same_stage = stage == task_.StageOf(second);
  const bool same_kind = task_.KindOf(first) == task_.KindOf(second);
  const bool same_microbatch =
      task_.MicrobatchOf(first) == task_.MicrobatchOf(second);
  return same_stage ? !same_kind && !same_microbatch
                    : !same_kind || !same_microbatch;
}

bool OrderSearch::StaysInOrder(const std::vector<int>& order, size_t from,
                               size_t to) const {
  const int moved = order[from];
  for (size_t at = std::min(from, to); at <= std::max(from, to); ++at) {
    if (at == from) continue;
    if (!(to < from ? MayPass(order[at], moved) : MayPass(moved, order[at]))) {
      return false;
    }
  }
  return true;
}

std::pair<size_t, size_t> OrderSearch::DrawMove(const PassOrders& orders,
                                                int* rank) {
  size_t from = 0;
  if (random_() % kAnyPass == 0) {
    *rank = static_cast<int>(random_() % task_.pp());
    from = random_() % orders[*rank].size();
  } else {
    const int pass = path_[random_() % path_.size()];
    *rank = task_.RankOf(pass);
    from = position_[pass];
  }
  const size_t size = orders[*rank].size();
  const int kind = task_.KindOf(orders[*rank][from]);
  // They go where FitByCopies wants them.
  if (kind == OrderTask::kOut || kind == OrderTask::kFree) return {from, from};
  const size_t far =
      random_() % kFar == 0
          ? 1 + random_() % std::min<uint64_t>(size - 1, kFarthest)
          : 1;
  const bool forward = random_() % 2 == 0;
  if (forward ? from + far >= size : from < far) return {from, from};
  const size_t to = forward ? from + far : from - far;
  return StaysInOrder(orders[*rank], from, to) ? std::pair(from, to)
                                               : std::pair(from, from);
}

bool OrderSearch::Drop(int kind, const PassOrders& orders, int* rank,
                       std::vector<int>* order) {
  *rank = random_() % kAnyPass == 0
              ? static_cast<int>(random_() % task_.pp())
              : task_.RankOf(path_[random_() % path_.size()]);
  *order = orders[*rank];
  std::vector<size_t> found;
  for (size_t at = 0; at < order->size(); ++at) {
    if (task_.KindOf((*order)[at]) == kind) found.push_back(at);
  }
  if (found.empty()) return false;
  const size_t at = found[random_() % found.size()];
  if (kind == OrderTask::kOut) {
    EraseCopies(task_, (*order)[at], order);
  } else {
    order->erase(order->begin() + static_cast<std::ptrdiff_t>(at));
  }
  return true;
}

bool OrderSearch::DrawChange(const PassOrders& orders, int* rank,
                             std::vector<int>* order) {
  if (task_.recomputes && random_() % kTakesR == 0) {
    return Drop(OrderTask::kAgain, orders, rank, order);
  }
  if (task_.offloads && random_() % kTakesCopies == 0) {
    return Drop(OrderTask::kOut, orders, rank, order);
  }
  const auto [from, to] = DrawMove(orders, rank);
  if (from == to) return false;
  *order = orders[*rank];
  Move(from, to, order);
  return true;
}

bool OrderSearch::Fit(int rank, std::vector<int>* order) {
  if (task_.offloads) {
    const uint64_t draw = random_();
    *order = FitByCopies(task_, *order, rank,
                         {.weights_first = draw % 2 == 0,
                          .lead = static_cast<int>(draw / 2 % kMostLead),
                          .waits_for_loads = draw / 16 % 2 == 0,
                          .spares_latest = draw / 32 % 4 == 0});
    return !order->empty();
  }
  if (task_.Fits(*order, rank)) return true;
  if (!task_.recomputes) return false;
  *order = FitByR(task_, *order, rank);
  return !order->empty();
}

void OrderSearch::Improve(const std::function<double(int64_t)>& done) {
  if (best_.empty()) return;
  PassOrders orders;
  int64_t ticks = 0;
  int round = -1;
  std::vector<int> changed;
  for (int64_t move = 0; !is_least(); ++move) {
    const double part = kRounds * done(move);
    if (part >= kRounds) return;
    if (static_cast<int>(part) != round) {
      round = static_cast<int>(part);
      orders = round % 2 == 1 && !copied_.empty() ? copied_ : best_;
      ticks = times_.Run(orders);
      FindPath(orders);
    }
    int rank = 0;
    if (!DrawChange(orders, &rank, &changed)) continue;
    const bool fits = Fit(rank, &changed);
    int64_t moved = OrderTimes::kEndless;
    changed.swap(orders[rank]);
    if (fits) {
      ++steps_;
      moved = times_.Run(orders);
    }
    const double most = task_.offloads
                            ? std::ldexp(kThreshold, kDoublings * round)
                            : kThreshold;
    const auto threshold = static_cast<int64_t>(
        static_cast<double>(best_ticks_) * most * (round + 1 - part));
    if (moved == OrderTimes::kEndless || moved > ticks + threshold) {
      changed.swap(orders[rank]);
      continue;
    }
    ticks = moved;
    FindPath(orders);
    if (ticks >= best_ticks_) continue;
    best_ticks_ = ticks;
    best_ = orders;
  }
}

}  // namespace pipewright

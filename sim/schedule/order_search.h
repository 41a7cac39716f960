// Makes an order faster by moving passes within their ranks, and by choosing
// which of them run again or have activations that wait on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "sim/schedule/order_task.h"

namespace pipewright {

// Threshold accepting: a move that makes the order longer is taken while it
// costs less than a threshold that falls to 0. Most moves are of passes on the
// longest path. The same seed and steps give the same order on any machine.
class OrderSearch {
 public:
  // `least`: where the search may end.
  OrderSearch(const OrderTask& task, int64_t least, uint64_t seed);

  // A start: the best so far if it is faster. False if it is not.
  bool Offer(const PassOrders& orders);

  // Moves from the best, in rounds that each begin with the best again; if the
  // task offloads, every other one with the best start that copies. `done`:
  // the part that is over, called once a move with how many there were; ends at
  // 1.
  void Improve(const std::function<double(int64_t)>& done);

  const PassOrders& best() const { return best_; }
  int64_t best_ticks() const { return best_ticks_; }
  int64_t least() const { return least_; }
  void set_least(int64_t least) { least_ = least; }
  bool is_least() const { return best_ticks_ <= least_; }
  int64_t steps() const { return steps_; }  // orders that were timed

 private:
  void FindPath(const PassOrders& orders);
  // A pass and the place that it goes to; the same twice: no legal one.
  std::pair<size_t, size_t> DrawMove(const PassOrders& orders, int* rank);
  // The order of a rank that has one, without one of its R, or the copies of
  // one of its O. False: it has none.
  bool Drop(int kind, const PassOrders& orders, int* rank,
            std::vector<int>* order);
  // The next change of a rank's order. False: it is no legal one.
  bool DrawChange(const PassOrders& orders, int* rank, std::vector<int>* order);
  // Makes it fit; false: it cannot.
  bool Fit(int rank, std::vector<int>* order);
  // What ended as `pass` began, if it stands in an order with copies; -1: none.
  int HolderOf(const std::vector<int>& order, int pass) const;
  bool MayPass(int first, int second) const;
  bool StaysInOrder(const std::vector<int>& order, size_t from,
                    size_t to) const;

  const OrderTask& task_;
  int64_t least_;
  std::mt19937_64 random_;
  OrderTimes times_;
  std::vector<int> position_;  // [pass] in its rank's order
  std::vector<int> path_;      // longest, as passes
  PassOrders best_;
  int64_t best_ticks_ = OrderTimes::kEndless;
  PassOrders copied_;  // best start with copies
  int64_t copied_ticks_ = OrderTimes::kEndless;
  int64_t steps_ = 0;
};

}  // namespace pipewright

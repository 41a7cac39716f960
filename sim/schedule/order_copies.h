// Which activations of an order wait on the host, and when: orders with O, FREE
// and L where there is no room.
#pragma once

#include <vector>

#include "sim/schedule/order_task.h"

namespace pipewright {

// How room is made.
struct CopyRule {
  // A W that waits runs before a rank waits for a copy or begins another, or
  // only if nothing can go.
  bool weights_first = true;
  // An L is issued so many times its own ticks of work ahead of its B.
  int lead = 1;
  // A rank waits for an O, or runs W, for the room of an L.
  bool waits_for_loads = false;
  // What waits longest stays, if something else can go.
  bool spares_latest = false;
};

// `order` of a rank, whose FREE do not count, with as many more O and L as it
// takes to fit, and with FREE: each where its room is needed. What waits
// longest for its B goes first, O right behind F; an L that finds no room is
// issued later, in front of its B at last. O and L that nobody needs are left
// out. Empty if nothing can go any more.
std::vector<int> FitByCopies(const OrderTask& task,
                             const std::vector<int>& order, int rank,
                             const CopyRule& rule);

// `order` without the copies of one microbatch on a stage, which begin with the
// O `out`.
void EraseCopies(const OrderTask& task, int out, std::vector<int>* order);

// `orders` of a task with room for all (WithRoomForAll), in several ways that
// fit. May be empty.
std::vector<PassOrders> OrdersWithCopies(const OrderTask& task,
                                         const PassOrders& orders);

}  // namespace pipewright

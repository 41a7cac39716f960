// The shortest of all orders of a small task.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/schedule/order_task.h"

namespace pipewright {

struct ExactOrder {
  PassOrders orders;  // empty: none takes less than was asked for
  int64_t ticks = 0;  // of `orders`
};

// The shortest order, with R where the task recomputes, that takes less than
// `below` ticks by OrderTimes::Run and fits `room`. Passes are added one at a
// time; of two ways to the same passes the one that is later everywhere is left
// out, and so is what cannot end below `below`. Nothing if there are too many
// passes or ways, or if the first stages share a rank.
std::optional<ExactOrder> FindShortestOrder(const OrderTask& task,
                                            int64_t below);

}  // namespace pipewright

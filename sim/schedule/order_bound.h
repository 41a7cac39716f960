// What no order of a task is faster than.
#pragma once

#include <cstdint>

#include "sim/schedule/order_task.h"

namespace pipewright {

// Lower bound in ticks on what OrderTimes::Run gives of any order that fits:
// of this placement, without recomputation or copies to the host. Made of the
// work of each rank, the way to it and from it, the microbatches that its room
// lets be under way, and what it must have done by each F and B.
//
// One stage a rank: longest paths over the starts s[r][k] of F and b[r][k] of B
// of microbatch k on rank r. By memory k + 1 - L backwards have ended before
// the F of microbatch k, with L microbatches of room; and at most j + L
// forwards have started before the B of microbatch j. So between two starts
// there is work that must lie there, which the rank does one after the other.
// Of several stages a rank: its work, its first B, and room over lifetimes.
int64_t LeastTicks(const OrderTask& task);

}  // namespace pipewright

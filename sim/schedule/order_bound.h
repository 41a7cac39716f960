// What no order of a task is faster than.
#pragma once

#include <cstdint>

#include "sim/schedule/order_task.h"

namespace pipewright {

// Lower bound in ticks on what OrderTimes::Run gives of any order that fits, of
// this placement; with copies to the host if the task offloads. Made of the
// work of each rank, the way to it and from it, the microbatches that its room
// lets be under way, and what it must have done by each F and B.
//
// One stage a rank: longest paths over the starts s[r][k] of F and b[r][k] of B
// of microbatch k on rank r. By memory k + 1 - L backwards have ended before
// the F of microbatch k, with L microbatches of room; and at most j + L
// forwards have started before the B of microbatch j. So between two starts
// there is work that must lie there, which the rank does one after the other.
// Of several stages a rank: its work, its first B, and room over lifetimes.
//
// If passes may run again, what waits for its B may be dropped, and takes no
// more room on the paths than what R begins from. But each R is work of its
// rank. So besides, with one stage a rank too: a rank that takes X has X less
// its other work for R at most, and room over X for what is whole; R are spent
// where they save most room, and of those a part may be run.
//
// If activations may wait on the host, they take no room meanwhile, and copies
// no time of the rank. But a stream copies one after the other, between an F
// and a B: what copies save of room over time is bounded by what a stream has
// time for, and each saves no more than the time between its O and its L.
int64_t LeastTicks(const OrderTask& task);

}  // namespace pipewright

// The copies of the ranks behind one PCIe switch, which take turns on its two
// directions, or of one rank that has both to itself. Internal to
// plans of copies.
#pragma once

#include <vector>

#include "sim/program/activation_plan.h"
#include "sim/program/rank_plan.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Searches the set and the order of copies whose highest peak, and then whose
// sum of peaks, is lowest. [rank of `ranks`]: orders with their copies, and
// what was planned. `turns` count their ranks as `ranks` does.
void PlanSwitch(const std::vector<RankPlan>& ranks, const OffloadChoice& choice,
                std::vector<RankOrder>* orders, std::vector<RankOffload>* out,
                SwitchTurns* turns);

}  // namespace pipewright

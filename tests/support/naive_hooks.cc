#include "tests/support/naive_hooks.h"

#include <set>
#include <utility>

namespace pipewright {
namespace {

// The passes of a hook's lanes that open, or close, what it fires once for;
// with their operations.
std::vector<std::pair<int64_t, int32_t>> Candidates(const RankProgram& rank,
                                                    const LaneHook& hook,
                                                    int64_t begin,
                                                    int64_t end) {
  std::vector<std::pair<int64_t, int32_t>> passes;
  std::vector<int64_t> of_lane(rank.lanes.size());
  std::set<int32_t> held;  // operations whose result is kept
  for (int64_t position = begin; position < end; ++position) {
    const uint32_t lane = (*rank.order)[position].lane();
    const int32_t op = hook.side_ops[lane];
    if (op < 0) continue;
    if (hook.fires == LaneHook::Fires::kUnlessKept) {
      if (!held.contains(op)) passes.emplace_back(position, op);
      held.erase(op);
      if (hook.keeps[lane] != 0) held.insert(op);
      continue;
    }
    const int64_t number = of_lane[lane]++;
    const bool opens = number % hook.every == 0;
    const bool closes = number % hook.every == hook.every - 1 ||
                        number == rank.lanes[lane].passes - 1;
    if (hook.every == 1 ||
        (hook.place == LaneHook::Place::kBefore ? opens : closes)) {
      passes.emplace_back(position, op);
    }
  }
  return passes;
}

}  // namespace

std::vector<std::vector<int64_t>> HookFirings(const RankProgram& rank,
                                              int64_t begin, int64_t end) {
  std::vector<std::vector<int64_t>> firings;
  for (const LaneHook& hook : rank.hooks) {
    const auto passes = Candidates(rank, hook, begin, end);
    std::vector<int64_t>& fired = firings.emplace_back();
    for (size_t pass = 0; pass < passes.size(); ++pass) {
      const bool before = hook.place == LaneHook::Place::kBefore;
      const bool edge =
          before ? pass == 0 || passes[pass - 1].second != passes[pass].second
                 : pass + 1 == passes.size() ||
                       passes[pass + 1].second != passes[pass].second;
      if (hook.fires != LaneHook::Fires::kEveryRun || edge) {
        fired.push_back(passes[pass].first);
      }
    }
  }
  return firings;
}

}  // namespace pipewright

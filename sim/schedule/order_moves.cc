#include "sim/schedule/order_moves.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace pipewright {
namespace {

// A pass without its rank's number of the chunk.
using PassName = std::tuple<PassKind, int, int, int, int>;

PassName NameOf(const Schedule& schedule, int rank, Pass pass) {
  const int direction = pass.direction();
  return {pass.kind(),
          schedule.placement.StageOf(rank, pass.chunk(), direction),
          pass.microbatch(), pass.slice(), direction};
}

// What it costs to call a pass moved, beside the move itself.
int64_t TieOf(PassKind kind) {
  return kind == PassKind::kBackwardWeight ? 0
         : kind == PassKind::kForward      ? 1
                                           : 2;
}

// Marks the heaviest sequence that rises; `places` are different.
std::vector<bool> HeaviestRise(const std::vector<int>& places,
                               const std::vector<int64_t>& weights) {
  const auto count = static_cast<int>(places.size());
  // A binary indexed tree over places: the heaviest sequence that ends there
  // or before, as its weight and its last element.
  using Best = std::pair<int64_t, int>;
  std::vector<Best> tree(count + 1, {0, -1});
  std::vector<int> before(count);
  for (int index = 0; index < count; ++index) {
    Best best = {0, -1};
    for (int at = places[index]; at > 0; at -= at & -at) {
      best = std::max(best, tree[at]);
    }
    before[index] = best.second;
    const Best own = {best.first + weights[index], index};
    for (int at = places[index] + 1; at <= count; at += at & -at) {
      tree[at] = std::max(tree[at], own);
    }
  }
  Best best = {0, -1};
  for (const Best& each : tree) best = std::max(best, each);
  std::vector<bool> marked(count);
  for (int index = best.second; index >= 0; index = before[index]) {
    marked[index] = true;
  }
  return marked;
}

void CompareRank(const std::vector<PassName>& from,
                 const std::vector<PassName>& to, OrderMoves* moves) {
  const auto moves_of = [&](PassKind kind) -> KindMoves& {
    return moves->kinds[static_cast<int>(kind)];
  };
  std::map<PassName, int> place_of;
  for (size_t place = 0; place < to.size(); ++place) {
    place_of.emplace(to[place], static_cast<int>(place));
  }
  std::vector<PassKind> kinds;
  std::vector<int> order;  // places in `to` of what stands in `from`
  for (const PassName& name : from) {
    const PassKind kind = std::get<0>(name);
    const auto found = place_of.find(name);
    if (found == place_of.end()) {
      ++moves_of(kind).fewer;
      continue;
    }
    order.push_back(found->second);
    kinds.push_back(kind);
    place_of.erase(found);
  }
  for (const auto& [name, place] : place_of) {
    ++moves_of(std::get<0>(name)).more;
  }
  // Numbers without the gaps that other passes leave.
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> weights;
  const auto count = static_cast<int64_t>(order.size());
  for (int64_t index = 0; index < count; ++index) {
    const auto at =
        std::lower_bound(sorted.begin(), sorted.end(), order[index]);
    order[index] = static_cast<int>(at - sorted.begin());
    // All ties together are less than one move.
    weights.push_back(2 * count + 1 + TieOf(kinds[index]));
  }
  const std::vector<bool> stays = HeaviestRise(order, weights);
  // [place in `to`] passes in front that have stayed.
  std::vector<int> ahead(count + 1);
  for (int64_t index = 0; index < count; ++index) {
    ahead[order[index] + 1] = stays[index] ? 1 : 0;
  }
  for (int64_t place = 0; place < count; ++place) {
    ahead[place + 1] += ahead[place];
  }
  int so_far = 0;
  for (int64_t index = 0; index < count; ++index) {
    if (stays[index]) {
      ++so_far;
      continue;
    }
    KindMoves& own = moves_of(kinds[index]);
    ++(ahead[order[index]] < so_far ? own.earlier : own.later);
  }
}

}  // namespace

OrderMoves CompareOrders(const Schedule& from, const Schedule& to) {
  OrderMoves moves;
  std::vector<bool> is_here(to.stages());
  for (int stage = 0; stage < to.stages(); ++stage) {
    is_here[stage] = from.placement.RankOf(stage) == to.placement.RankOf(stage);
    if (!is_here[stage]) ++moves.stages_elsewhere;
  }
  const auto named = [&](const Schedule& schedule, int rank) {
    std::vector<PassName> passes;
    for (const Pass pass : schedule.order(rank)) {
      const PassName name = NameOf(schedule, rank, pass);
      if (is_here[std::get<1>(name)]) passes.push_back(name);
    }
    return passes;
  };
  for (int rank = 0; rank < to.pp(); ++rank) {
    CompareRank(named(from, rank), named(to, rank), &moves);
  }
  moves.passes = to.num_passes();
  return moves;
}

}  // namespace pipewright

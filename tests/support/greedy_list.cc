#include "tests/support/greedy_list.h"

#include <algorithm>
#include <limits>

namespace pipewright::testing {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct OneRank {
  StageTimes times;
  double free_s = 0;
  double first_s = kNever;
  std::vector<double> forward_ends;
  std::vector<double> backward_ends;
  int weights = 0;
};

}  // namespace

GreedyList ListGreedily(const ScheduleParams& params, double limit) {
  const PlanCosts& costs = params.costs;
  GreedyList list;
  list.orders.resize(params.pp);
  std::vector<OneRank> ranks(params.pp);
  for (int rank = 0; rank < params.pp; ++rank) {
    ranks[rank].times = costs.stages.empty()
                            ? StageTimes{costs.forward, costs.backward_input,
                                         costs.backward_weight}
                            : costs.stages[rank];
  }
  // When a rank could begin its next F, B or W.
  const auto forward = [&](int rank) {
    const OneRank& own = ranks[rank];
    const size_t next = own.forward_ends.size();
    const double whole = static_cast<double>(next - own.backward_ends.size());
    const double split =
        static_cast<double>(own.backward_ends.size()) - own.weights;
    if (next == static_cast<size_t>(params.microbatches) ||
        whole + 1 + costs.held_until_weight * split > limit * (1 + 1e-9)) {
      return kNever;
    }
    if (rank == 0) return own.free_s;
    if (ranks[rank - 1].forward_ends.size() <= next) return kNever;
    return std::max(own.free_s, ranks[rank - 1].forward_ends[next] + costs.hop);
  };
  const auto backward = [&](int rank) {
    const OneRank& own = ranks[rank];
    const size_t next = own.backward_ends.size();
    if (rank == params.pp - 1) {
      return next < own.forward_ends.size() ? own.free_s : kNever;
    }
    if (ranks[rank + 1].backward_ends.size() <= next) return kNever;
    return std::max(own.free_s,
                    ranks[rank + 1].backward_ends[next] + costs.hop);
  };
  const auto weight = [&](int rank) {
    const OneRank& own = ranks[rank];
    return own.weights < static_cast<int>(own.backward_ends.size()) ? own.free_s
                                                                    : kNever;
  };
  while (true) {
    // The pass that begins first of all: nothing that is still to come can
    // arrive before.
    double start_s = kNever;
    int at = -1;
    PassKind kind = PassKind::kForward;
    for (int rank = 0; rank < params.pp; ++rank) {
      const auto consider = [&](double when_s, PassKind of) {
        if (when_s >= start_s) return;
        start_s = when_s;
        at = rank;
        kind = of;
      };
      consider(backward(rank), PassKind::kBackwardInput);
      consider(forward(rank), PassKind::kForward);
      consider(weight(rank), PassKind::kBackwardWeight);
    }
    if (at < 0) break;
    OneRank& own = ranks[at];
    own.first_s = std::min(own.first_s, start_s);
    int microbatch = own.weights;
    if (kind == PassKind::kForward) {
      microbatch = static_cast<int>(own.forward_ends.size());
      own.free_s = start_s + own.times.forward;
      own.forward_ends.push_back(own.free_s);
    } else if (kind == PassKind::kBackwardInput) {
      microbatch = static_cast<int>(own.backward_ends.size());
      own.free_s = start_s + own.times.backward_input;
      own.backward_ends.push_back(own.free_s);
    } else {
      ++own.weights;
      own.free_s = start_s + own.times.backward_weight;
    }
    list.orders[at].push_back(Pass(kind, microbatch));
  }
  for (const OneRank& own : ranks) {
    list.span_per_rank = std::max(list.span_per_rank, own.free_s - own.first_s);
    list.span_global = std::max(list.span_global, own.free_s);
  }
  return list;
}

}  // namespace pipewright::testing

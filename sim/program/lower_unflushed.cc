// Pipelines that are never flushed: the first forwards of an iteration run
// among the last backwards of the one before, and every rank steps by itself.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/lowering.h"
#include "sim/program/program.h"

namespace pipewright {

absl::Status LoweringCheck::CheckUpdates() const {
  if (!never_flushes()) return absl::OkStatus();
  const std::string with = absl::StrCat(" with schedule ", schedule_.name,
                                        ", which is never flushed");
  if (options_.wait_rule != WaitRule::kBuffered) {
    return BadValue("strategy.waiting",
                    std::string(WaitRuleName(options_.wait_rule)),
                    absl::StrCat("buffered", with));
  }
  if (options_.optimizer != OptimizerMode::kNone) {
    return BadValue("strategy.optimizer", "a step of all ranks together",
                    absl::StrCat("none", with,
                                 ": every rank steps by itself, in "
                                 "costs.optimizer_time"));
  }
  if (holders() == 1 && schedule_.directions == 1) {
    return absl::OkStatus();
  }
  const bool all = schedule_.update_every == schedule_.microbatches;
  if (traits().reduces && (!all || traits().shards_step)) {
    return BadValue("strategy.data_parallel", "a reduction",
                    absl::StrCat(all ? "none, ddp" : "none", with));
  }
  return absl::OkStatus();
}

// As many forwards lead the order of a rank as backwards end it. But for one,
// those forwards are a first iteration's own; every iteration ends with those
// of the next, one before each of its last backwards.
absl::Status PassLowering::OverlapIterations() {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    const RankOrder& passes = schedule_.order(rank);
    const auto size = static_cast<int64_t>(passes.size());
    int64_t ahead = 0;
    while (ahead < size && passes[ahead].kind() == PassKind::kForward) ++ahead;
    --ahead;
    bool fits = ahead >= 0 && 2 * (ahead + 1) <= size;
    for (int64_t index = 0; fits && index <= ahead; ++index) {
      const Pass pass = passes[size - 1 - index];
      fits = pass.kind() == PassKind::kBackwardFull &&
             !passes[index].joint_with_next() &&
             !passes[size - 2 - index].joint_with_next();
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", rank, " of schedule ", schedule_.name,
          ": update_every needs as many full backwards at the end as forwards "
          "at the begin"));
    }
    auto order = std::make_shared<RankOrder>();
    order->reserve(size + ahead);
    order->assign(passes.begin(), passes.end() - ahead);
    for (int64_t next = 0; next < ahead; ++next) {
      order->push_back(passes[next]);
      order->push_back(passes[size - ahead + next]);
    }
    program_.ranks[rank].order = std::move(order);
    program_.ranks[rank].later_start = ahead;
  }
  return absl::OkStatus();
}

void OptimizerStep::AddWithoutFlush() {
  const bool all = schedule_.update_every == schedule_.microbatches;
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    const SideOp step = {.kind = OpKind::kOptimizer,
                         .seconds = options_.costs.optimizer_s};
    if (all) {
      Attach(rank, OrderSize(rank), step);
      continue;
    }
    RankProgram& target = program_.ranks[rank];
    const auto hook = [&](LaneHook::Place place, SideOp op,
                          std::vector<PassKind> kinds) {
      LaneHook added = {.place = place};
      added.side_ops.assign(target.lanes.size(), -1);
      for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
        for (const PassKind kind : kinds) {
          added.side_ops[Pass::LaneOf(kind, chunk, 0)] =
              static_cast<int32_t>(target.side_ops.size());
        }
      }
      target.side_ops.push_back(std::move(op));
      target.hooks.push_back(std::move(added));
    };
    // Without a step between a forward and its backward there is nothing to
    // predict.
    if (target.later_start > 0) {
      hook(LaneHook::Place::kBefore,
           {.kind = OpKind::kPredict, .seconds = options_.costs.prediction_s},
           {PassKind::kForward});
    }
    hook(LaneHook::Place::kAfter, step, {PassKind::kBackwardFull});
  }
}

}  // namespace pipewright

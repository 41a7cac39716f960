// What holds for every registered schedule, whatever the shape and the costs
// (docs/architecture.md, Tests).
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <random>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "tests/support/json.h"
#include "tests/support/lowering.h"
#include "tests/support/oracle.h"
#include "tests/support/trace_check.h"

namespace pipewright::property_test {
namespace {

using testing::Json;

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

// Costs whose multiples and quarters add up without rounding.
std::vector<PlanCosts> CostSets() {
  std::vector<PlanCosts> sets;
  const auto add = [&](double forward, double input, double weight,
                       double hop) {
    sets.push_back({.forward = forward,
                    .backward_input = input,
                    .backward_weight = weight,
                    .hop = hop,
                    .given = true});
  };
  add(3, 5, 7, 2);
  add(1, 1, 1, 0);
  add(8, 8, 6, 0.5);   // hides its hops and has W < F
  add(1, 2, 0, 0);     // W free
  add(1, 1, 1, 1000);  // hops are everything
  std::mt19937 random(7);
  for (int set = 0; set < 2; ++set) {
    const auto next = [&](int most) {
      return static_cast<double>(1 + random() % (64 * most)) / 64;
    };
    add(next(10), next(10), next(10), next(4));
  }
  return sets;
}

using Visitor = std::function<void(const ScheduleInfo&, const ScheduleParams&,
                                   std::shared_ptr<const Schedule>)>;

// Calls `visit` with each schedule at each shape that it accepts, with all
// costs.
void ForEachCase(const Visitor& visit) {
  for (const ScheduleInfo* info : AllSchedules()) {
    for (const PlanCosts& costs : CostSets()) {
      for (int pp = 1; pp <= 8; ++pp) {
        for (const int vpp : {1, 2, 3, 4}) {
          for (const int microbatches : {1, 3, pp, 2 * pp, 3 * pp + 1, 16}) {
            ScheduleParams params;
            params.pp = pp;
            params.vpp = vpp;
            params.microbatches = microbatches;
            params.costs = costs;
            auto schedule = BuildSchedule(info->name, params);
            if (!schedule.ok()) continue;
            INFO(info->name << " pp " << pp << " vpp " << vpp
                            << " microbatches " << microbatches << " F "
                            << costs.forward << " B " << costs.backward_input
                            << " W " << costs.backward_weight << " hop "
                            << costs.hop);
            visit(*info, params,
                  std::make_shared<const Schedule>(*std::move(schedule)));
          }
        }
      }
    }
  }
}

// The order by itself, flushed.
Program OnePass(const std::shared_ptr<const Schedule>& schedule,
                const PlanCosts& costs) {
  Schedule alone = *schedule;
  alone.update_every = 0;
  LowerOptions options;
  options.costs = CostsOf(alone, costs);
  options.network.hop_s = costs.hop;
  options.iterations = 1;
  return Lowered(std::make_shared<const Schedule>(std::move(alone)), options);
}

TEST_CASE("engine: every schedule runs as its order and stages demand",
          "[engine]") {
  ForEachCase([](const ScheduleInfo&, const ScheduleParams& params,
                 const std::shared_ptr<const Schedule>& schedule) {
    FullTrace trace;
    const auto summary =
        RunFast(OnePass(schedule, params.costs), {.trace = &trace});
    REQUIRE(summary.ok());
    // One assertion a case: there are thousands of them.
    CHECK(TraceErrors(*schedule, params.costs, trace.ops()) == "");
  });
}

TEST_CASE("engine: no run beats the critical path or the work",
          "[engine][long]") {
  ForEachCase([](const ScheduleInfo&, const ScheduleParams& params,
                 const std::shared_ptr<const Schedule>& schedule) {
    const auto summary = RunFast(OnePass(schedule, params.costs), {});
    REQUIRE(summary.ok());
    const PlanCosts& costs = params.costs;
    const double work_s = params.microbatches * costs.work();
    const double span_s = SpanGlobal(*summary);
    const double slack = kSame * span_s;
    double bound_s = 0;
    // One microbatch there and back again; its last W may run elsewhere.
    double path_s = 0;
    for (int stage = 1; stage < schedule->stages(); ++stage) {
      const Placement& placement = schedule->placement;
      if (placement.RankOf(stage) != placement.RankOf(stage - 1)) {
        path_s += 2 * costs.hop;
      }
    }
    path_s +=
        params.pp * (costs.forward + costs.backward_input) / schedule->slices;
    // A rank has to wait for its first forward, then to do its work.
    for (int rank = 0; rank < params.pp; ++rank) {
      double head_s = span_s;
      for (int replica = 0; replica < schedule->directions; ++replica) {
        const int first = schedule->placement.StageOf(rank, 0, replica);
        head_s = std::min(
            head_s, first * costs.forward / params.vpp / schedule->slices);
      }
      bound_s = std::max(bound_s, head_s + work_s);
      CHECK(summary->times[0][rank].busy_s == Approx(work_s).epsilon(1e-12));
      CHECK(summary->times[0][rank].span_s() >= work_s - slack);
    }
    CHECK(span_s >= std::max(path_s, bound_s) - slack);
    CHECK(summary->iteration_end_s[0] == summary->iteration_s());
  });
}

TEST_CASE("engine: a replay has the spans of the run", "[engine]") {
  ForEachCase([](const ScheduleInfo&, const ScheduleParams& params,
                 const std::shared_ptr<const Schedule>& schedule) {
    const auto summary = RunFast(OnePass(schedule, params.costs), {});
    const auto replay = Replay(*schedule, params.costs);
    REQUIRE(summary.ok());
    REQUIRE(replay.ok());
    CHECK(replay->span_per_rank ==
          Approx(SpanPerRank(*summary)).epsilon(1e-12));
    CHECK(replay->span_global == Approx(SpanGlobal(*summary)).epsilon(1e-12));
    for (int rank = 0; rank < params.pp; ++rank) {
      const RankTimes& times = summary->times[0][rank];
      CHECK(replay->first_start[rank] ==
            Approx(times.first_start_s).epsilon(1e-12));
      CHECK(replay->last_end[rank] == Approx(times.last_end_s).epsilon(1e-12));
    }
  });
}

TEST_CASE("engine: published bubbles hold in their domain", "[engine][long]") {
  std::map<const Claim*, int> compared;
  ForEachCase([&](const ScheduleInfo& info, const ScheduleParams& params,
                  const std::shared_ptr<const Schedule>& schedule) {
    const double work = params.microbatches * params.costs.work();
    const auto summary = RunFast(OnePass(schedule, params.costs), {});
    const auto replay = Replay(*schedule, params.costs);
    REQUIRE(summary.ok());
    REQUIRE(replay.ok());
    for (const Claim& claim : info.claims) {
      const bool global = claim.metric == Claim::Metric::kBubbleGlobal;
      if (!global && claim.metric != Claim::Metric::kBubblePerRank) continue;
      if (!claim.domain(params)) continue;
      ++compared[&claim];
      INFO(claim.formula);
      const double value = claim.value(params, 0);
      for (const double span :
           {global ? SpanGlobal(*summary) : SpanPerRank(*summary),
            global ? replay->span_global : replay->span_per_rank}) {
        const double bubble = span - work;
        if (claim.sense == Claim::Sense::kExact) {
          CHECK(std::abs(bubble - value) <= kSame * span);
        } else {
          CHECK(bubble <= value + kSame * span);
        }
      }
    }
  });
  for (const ScheduleInfo* info : AllSchedules()) {
    for (const Claim& claim : info->claims) {
      if (claim.metric == Claim::Metric::kPeakActivations) continue;
      INFO(info->name << ": " << claim.formula);
      CHECK(compared[&claim] > 0);
    }
  }
}

TEST_CASE("engine: activations in time peak as the order says",
          "[engine][long]") {
  ForEachCase([](const ScheduleInfo&, const ScheduleParams& params,
                 const std::shared_ptr<const Schedule>& schedule) {
    FullTrace trace;
    REQUIRE(RunFast(OnePass(schedule, params.costs), {.trace = &trace}).ok());
    std::vector<int> live(params.pp, 0);
    std::vector<int> most(params.pp, 0);
    bool negative = false;
    // Passes of a rank come in the order of their start; a joint pair
    // allocates before it frees, whichever half stands first.
    for (size_t index = 0; index < trace.ops().size(); ++index) {
      const TraceOp& op = trace.ops()[index];
      if (op.kind != OpKind::kPass || op.joint) continue;
      const PassKind kind = op.pass.kind();
      live[op.rank] += kind == PassKind::kForward ? 1 : 0;
      most[op.rank] = std::max(most[op.rank], live[op.rank]);
      live[op.rank] -=
          kind == PassKind::kBackwardFull || kind == PassKind::kBackwardWeight
              ? 1
              : 0;
      negative |= live[op.rank] < 0;
    }
    const bool joint = std::any_of(trace.ops().begin(), trace.ops().end(),
                                   [](const TraceOp& op) { return op.joint; });
    if (joint) return;
    CHECK(!negative);
    CHECK(live == std::vector<int>(params.pp, 0));
    const std::vector<double> peaks = PeakActivations(*schedule, 1);
    for (int rank = 0; rank < params.pp; ++rank) {
      CHECK(peaks[rank] * params.vpp * schedule->slices ==
            Approx(most[rank]).epsilon(1e-12));
    }
  });
}

// The times of others' schedulers (tests/oracle/README.md) are integers, so the
// fast engine has to meet them exactly.
TEST_CASE("engine: spans are those of the reference schedulers", "[engine]") {
  const std::map<std::string, std::vector<double>> cost_sets = {
      {"eq0", {1000, 1000, 1000, 0}},
      {"gpt1_5b", {18522, 18086, 9337, 601}},
      {"gpt6_2b", {29718, 29444, 19927, 527}},
      {"gpt14_6b", {11347, 11248, 8132, 377}},
      {"gpt28_3b", {10419, 10207, 7715, 408}}};
  int compared = 0;
  for (const auto& [file, name] :
       std::map<std::string, std::string>{{"1f1b", "1f1b"},
                                          {"vpp_v2", "interleaved-1f1b"},
                                          {"vpp_v4", "interleaved-1f1b"},
                                          {"zb_h1", "zb-h1"},
                                          {"zb_h2", "zb-h2"}}) {
    const Json oracle = testing::LoadOracle(file);
    for (const Json& row : oracle["cases"]) {
      const auto schedule =
          Registered(name, row["p"], row["m"], oracle["chunks"]);
      for (const auto& [cost_set, values] : row["costs"].items()) {
        const std::vector<double>& cost = cost_sets.at(cost_set);
        INFO(file << " p " << row["p"] << " m " << row["m"] << " " << cost_set);
        const Program program = OnePass(schedule, {.forward = cost[0],
                                                   .backward_input = cost[1],
                                                   .backward_weight = cost[2],
                                                   .hop = cost[3]});
        const auto fast = RunFast(program, {});
        REQUIRE(fast.ok());
        CHECK(SpanPerRank(*fast) == values["span"].get<double>());
        CHECK(SpanGlobal(*fast) == values["makespan"].get<double>());
        if (++compared % 5 != 0) continue;
        const auto simgrid = RunSimgrid(program, {});
        REQUIRE(simgrid.ok());
        CHECK(SpanPerRank(*simgrid) ==
              Approx(values["span"].get<double>()).epsilon(kSame));
        CHECK(SpanGlobal(*simgrid) ==
              Approx(values["makespan"].get<double>()).epsilon(kSame));
      }
    }
  }
  CHECK(compared > 100);
}

}  // namespace
}  // namespace pipewright::property_test

// Tied embeddings in a prepared run: one table where the first and the last
// stage are on one rank, else two that are stepped alike and a sum of their
// gradients.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/prepare.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/lower.h"
#include "sim/program/network_time.h"
#include "sim/run/describe_run.h"
#include "tests/support/prepare.h"

namespace pipewright::prepare_tied_test {
namespace {

using testing::Prepared;

// gpt-tiny's: 512 tokens of 256 values, gradients of 4 bytes.
constexpr double kTable = 512 * 256;

PreparedRun Run(const std::string& schedule, int pp, bool tied,
                const std::string& strategy = "") {
  return Prepared(absl::StrCat(
      "schedule: {name: ", schedule, "}\nmodel: {preset: gpt-tiny, ",
      "tied_embeddings: ", tied ? "true" : "false", "}\nstrategy: {pp: ", pp,
      ", microbatches: 16",
      absl::StrContains(strategy, "dp: ") ? "" : ", dp: 1", strategy,
      "}\nsystem: {preset: dgx-h100}\ncosts: {analytic: {device: auto}}\n"));
}

int TableSums(const Program& program) {
  int sums = 0;
  for (const RankProgram& rank : program.ranks) {
    for (const SideOp& op : rank.side_ops) sums += op.tied ? 1 : 0;
  }
  return sums;
}

TEST_CASE("tied: the optimizer steps each table that is there", "[config]") {
  const struct {
    const char* schedule;
    int pp;
    bool one_table;
  } runs[] = {{"1f1b", 1, true},
              {"1f1b", 2, false},
              {"1f1b", 4, false},
              {"zb-v", 2, true},
              {"zb-v", 4, true}};
  for (const auto& [schedule, pp, one_table] : runs) {
    INFO(schedule << " pp " << pp);
    const PreparedRun apart = Run(schedule, pp, false);
    const PreparedRun tied = Run(schedule, pp, true);
    const double apart_s = apart.lower.costs.optimizer_s;
    const double tied_s = tied.lower.costs.optimizer_s;
    // A step moves 54 bytes a parameter of one replica; the busiest rank has
    // both ends of the model or one.
    const double table_s = kTable * 54 /
                           (apart.costs.device->hbm_bytes_per_s *
                            apart.costs.device->hbm_sustained);
    CHECK(apart_s - tied_s ==
          Approx(one_table ? table_s : 0).margin(1e-3 * table_s));
    // As memory has it: weights, gradients, master and moments.
    const auto fixed = [&](const PreparedRun& run, int rank) {
      return static_cast<double>(
          run.memory->memory->ranks[rank].fixed.total() -
          run.memory->memory->ranks[rank].fixed[MemoryKind::kWorkspace]);
    };
    const double saved = fixed(apart, 0) - fixed(tied, 0);
    CHECK(saved == (one_table ? kTable * (2 + 4 + 4 + 8) : 0));
    CHECK(fixed(apart, pp - 1) - fixed(tied, pp - 1) ==
          (one_table && pp == 1 ? saved : 0));
    CHECK(tied.lower.tied_bytes == 4 * kTable);
    CHECK(SumsTable(*tied.schedule.lowered, tied.lower) == !one_table);
    CHECK(TableSums(Lower(tied.schedule.lowered, tied.lower).value()) ==
          (one_table ? 0 : 2));
    CHECK(TableSums(Lower(apart.schedule.lowered, apart.lower).value()) == 0);
  }
}

TEST_CASE("tied: the sum of the gradients takes its time", "[config]") {
  const PreparedRun run = Run("1f1b", 4, true);
  const Program with = Lower(run.schedule.lowered, run.lower).value();
  LowerOptions without = run.lower;
  without.tied_bytes = 0;
  const double more_s =
      RunFast(with, {}).value().iteration_s() -
      RunFast(Lower(run.schedule.lowered, without).value(), {})
          .value()
          .iteration_s();
  const CollectivePlan plan = PlanCollective(
      with, OpKind::kAllReduce, 4 * kTable, {{.rank = 0}, {.rank = 3}});
  CHECK(plan.seconds > 0);
  CHECK(more_s == Approx(plan.seconds).epsilon(1e-6));
}

TEST_CASE("tied: where and how gradients are summed", "[config]") {
  const auto sums = [](const PreparedRun& run) {
    const Program program = Lower(run.schedule.lowered, run.lower).value();
    std::vector<double> bytes;
    for (const SideOp& op : program.ranks[0].side_ops) {
      if (op.tied) bytes.push_back(op.bytes);
    }
    return bytes;
  };
  const std::vector<double> whole = {4 * kTable};
  CHECK(sums(Run("1f1b", 2, true, ", dp: 2, data_parallel: ddp")) == whole);
  CHECK(sums(Run("1f1b", 2, true, ", dp: 2, data_parallel: zero1")) == whole);
  // Of sharded gradients every replica has its part.
  CHECK(sums(Run("1f1b", 2, true, ", dp: 2, data_parallel: fsdp")) ==
        std::vector<double>{2 * kTable});
  CHECK(sums(Run("1f1b", 2, true, ", tp: 2")) ==
        std::vector<double>{2 * kTable});
  CHECK(sums(Run("dualpipe", 4, true)) == whole);
  CHECK(sums(Run("1f1b", 2, true, ", optimizer: none")).empty());
  CHECK(sums(Run("pipedream-2bw", 2, true)) == whole);
  // It steps behind every backward, on each rank for itself.
  CHECK(sums(Run("pipeoptim", 2, true)).empty());
  // The reduction of a table over replicas waits for the head's gradients.
  const PreparedRun v = Run("zb-v", 2, true, ", dp: 2, data_parallel: ddp");
  CHECK(v.lower.gradient_bytes[0] ==
        Run("zb-v", 2, false, ", dp: 2, data_parallel: ddp")
            .lower.gradient_bytes[0]);
  CHECK(v.lower.gradient_bytes[3] + 4 * kTable ==
        Run("zb-v", 2, false, ", dp: 2, data_parallel: ddp")
            .lower.gradient_bytes[3]);
}

}  // namespace
}  // namespace pipewright::prepare_tied_test

// Orders, times and peaks of bidirectional and wave schedules against what
// others' schedulers gave (tests/oracle/README.md).
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/memory/activations.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/replay.h"
#include "tests/support/json.h"
#include "tests/support/oracle.h"

namespace pipewright::testing::oracle_bidirectional_test {
namespace {

using Tokens = std::vector<std::vector<std::string>>;

// "a3B7", "3SYNC": replica, stage, PyTorch's letter, microbatch.
std::string TorchToken(const Schedule& schedule, int rank, Pass pass) {
  const std::map<PassKind, std::string> letters = {
      {PassKind::kForward, "F"},
      {PassKind::kBackwardFull, "B"},
      {PassKind::kBackwardInput, "I"},
      {PassKind::kBackwardWeight, "W"},
      {PassKind::kSync, "SYNC"}};
  return absl::StrCat(
      schedule.directions == 1 ? "" : (pass.direction() == 0 ? "a" : "b"),
      schedule.placement.StageOf(rank, pass.chunk(), pass.direction()),
      letters.at(pass.kind()),
      pass.kind() == PassKind::kSync ? "" : absl::StrCat(pass.microbatch()));
}

// The cells of the oracle's orders, a pair being one.
Tokens TokensOf(const Schedule& schedule, bool sync) {
  Tokens tokens(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const RankOrder& order = schedule.order(rank);
    for (size_t index = 0; index < order.size(); ++index) {
      if (order[index].kind() == PassKind::kSync && !sync) continue;
      std::string token = TorchToken(schedule, rank, order[index]);
      if (order[index].joint_with_next()) {
        token = absl::StrCat("(", token, ";",
                             TorchToken(schedule, rank, order[++index]),
                             ")OVERLAP_F_B");
      }
      tokens[rank].push_back(std::move(token));
    }
  }
  return tokens;
}

// Adjacent B and W of one stage and microbatch become BW.
Schedule Merged(const Schedule& schedule) {
  ScheduleBuilder builder(schedule.name, schedule.placement,
                          schedule.microbatches, schedule.slices,
                          schedule.directions);
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const RankOrder& order = schedule.order(rank);
    for (size_t index = 0; index < order.size(); ++index) {
      const Pass pass = order[index];
      const auto with = [&](PassKind kind) {
        return Pass(kind, pass.microbatch(), pass.chunk(), pass.slice(),
                    pass.direction());
      };
      if (pass.kind() == PassKind::kBackwardInput && index + 1 < order.size() &&
          order[index + 1] == with(PassKind::kBackwardWeight)) {
        builder.Add(rank, with(PassKind::kBackwardFull));
        ++index;
      } else {
        builder.Add(rank, pass);
      }
    }
  }
  return std::move(builder).Finish();
}

// The schedule and the times per chunk that a cost set of the oracle stands
// for; all orders are those of `schedule` as built.
struct CostSet {
  Schedule schedule;
  PlanCosts costs;
};
CostSet CostSetOf(const Schedule& schedule, const std::string& name) {
  const double chunks = schedule.vpp();
  PlanCosts costs = {
      .forward = chunks, .backward_input = chunks, .backward_weight = chunks};
  if (name == "F1_B1_slots") costs.backward_weight = 0;
  if (name == "F1_I1_W1_B2_joint_overlap") return {schedule, costs};
  Schedule single = *WithPair(schedule, "dependencies");
  if (name == "F1_B2_adjacent_IW_merged") single = Merged(single);
  return {std::move(single), costs};
}

// The number of peaks.
int CheckReplays(const Schedule& schedule, const Json& expected) {
  for (const auto& [name, values] : expected.items()) {
    if (!values.is_object()) continue;
    INFO(name);
    const CostSet set = CostSetOf(schedule, name);
    const auto times = Replay(set.schedule, set.costs);
    REQUIRE(times.ok());
    CHECK(times->span_global == values["makespan"].get<double>());
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      CHECK(times->last_end[rank] - times->first_start[rank] ==
            values["device_span"][rank].get<double>());
    }
  }
  const std::vector<double> until_weight = PeakActivations(schedule, 1);
  const std::vector<double> until_input = PeakActivations(schedule, 0);
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    CHECK(until_weight[rank] * schedule.vpp() ==
          expected["peak_live_chunk_mbs_until_W"][rank].get<double>());
    CHECK(until_input[rank] * schedule.vpp() ==
          expected["peak_live_chunk_mbs_until_I"][rank].get<double>());
  }
  return 2 * schedule.pp();
}

Compared CheckRuns(const std::string& file, const std::string& name) {
  Compared compared;
  const Json oracle = LoadOracle(file);
  for (const Json& run : oracle["runs"]) {
    const bool two = run.value("pipelines", 2) == 2;
    if (!two || !run.value("complete", true)) continue;
    INFO(file << " p " << run["p"] << " m " << run["m"]);
    const auto schedule = BuildOf(
        name, run["p"], FindSchedule(name)->info->default_vpp, run["m"]);
    ++compared.cases;
    REQUIRE(schedule.ok() == !run.contains("error"));
    if (!schedule.ok()) continue;
    CHECK(TokensOf(*schedule, false) == run["ops"].get<Tokens>());
    if (run.contains("ops_with_grad_sync")) {
      CHECK(TokensOf(*schedule, true) ==
            run["ops_with_grad_sync"].get<Tokens>());
    }
    compared.peaks += CheckReplays(*schedule, run["replay"]);
  }
  CHECK(compared.cases > 0);
  return compared;
}

TEST_CASE("oracle: bidirectional schedules", "[schedule]") {
  for (const auto& [file, name] :
       std::vector<std::pair<std::string, std::string>>{
           {"bitpipe", "bitpipe"},
           {"chimera", "chimera"},
           {"deepseek_DualPipe", "dualpipe"},
           {"deepseek_DualPipeV", "dualpipe-v"},
           {"torch_DualPipeV", "ScheduleDualPipeV"}}) {
    SayCompared(name, CheckRuns(file, name));
  }
}

TEST_CASE("oracle: summary of bidirectional schedules", "[schedule]") {
  const std::string content = ReadOracle("summary.tsv.gz");
  const std::map<std::string, std::string> names = {
      {"BitPipe", "bitpipe"},
      {"Chimera", "chimera"},
      {"DualPipe", "dualpipe"},
      {"DualPipeV", "dualpipe-v"},
      {"torch.DualPipeV", "DualPipeV"}};
  Compared compared;
  for (const absl::string_view line :
       absl::StrSplit(content, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    const auto ours = names.find(cells[0]);
    if (ours == names.end()) continue;
    INFO(std::string(line));
    const auto schedule = BuildOf(ours->second, std::stoi(cells[1]),
                                  std::stoi(cells[3]), std::stoi(cells[2]));
    REQUIRE(schedule.ok());
    const CostSet set = CostSetOf(*schedule, cells[4]);
    const auto times = Replay(set.schedule, set.costs);
    REQUIRE(times.ok());
    CHECK(times->span_global == std::stod(cells[5]));
    CHECK(times->span_per_rank == std::stod(cells[6]));
    const std::vector<double> peaks = PeakActivations(*schedule, 1);
    CHECK(*std::max_element(peaks.begin(), peaks.end()) * schedule->vpp() ==
          std::stod(cells[9]));
    ++compared.cases;
    ++compared.peaks;
  }
  CHECK(compared.cases > 0);
  SayCompared("summary of bidirectional schedules", compared);
}

// Two ranks of the figure for 4 ranks and 4 microbatches in wuhouming/BitPipe
// 6fb0e22f, read off box by box.
TEST_CASE("bitpipe: one unit is as the authors draw it", "[schedule]") {
  const auto schedule =
      BuildOf("bitpipe", 4, 2, 4, {{"concatenation", "figure"}});
  REQUIRE(schedule.ok());
  const Tokens tokens = TokensOf(*schedule, false);
  CHECK(absl::StrJoin(tokens[0], " ") ==
        "a0F0 a0F1 b3F0 b4F0 b3F1 b4F1 a7F0 a7B0 a7F1 a7B1 b4B0 b3B0 b4B1 b3B1 "
        "a0B0 a0B1");
  CHECK(absl::StrJoin(tokens[1], " ") ==
        "a1F0 b2F0 a1F1 b2F1 b5F0 a6F0 b5F1 a6F1 a6B0 b5B0 a6B1 b5B1 b2B0 a1B0 "
        "b2B1 a1B1");
}

// The same figures as numbers: 28 units of time for one unit of microbatches,
// 53 for two as drawn, 54 as released.
TEST_CASE("bitpipe: makespans of the figures", "[schedule]") {
  const auto makespan = [](int microbatches, const char* concatenation) {
    const auto schedule = BuildOf("bitpipe", 4, 2, microbatches,
                                  {{"concatenation", concatenation}});
    REQUIRE(schedule.ok());
    return Replay(*schedule, CostSetOf(*schedule, "F1_I1_W1_B2").costs)
        ->span_global;
  };
  CHECK(makespan(4, "released") == 28);
  CHECK(makespan(4, "figure") == 28);
  CHECK(makespan(8, "figure") == 53);
  CHECK(makespan(8, "released") == 54);
}

}  // namespace
}  // namespace pipewright::testing::oracle_bidirectional_test

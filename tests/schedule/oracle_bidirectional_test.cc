// Orders, times and peaks of bidirectional and wave schedules against the
// reference outputs in shared/oracle/schedules, where that folder is there.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "sim/memory/activations.h"
#include "sim/replay/replay.h"
#include "sim/schedule/builder.h"
#include "tests/support/naive_order.h"
#include "tests/support/oracle.h"
#include "tests/support/paths.h"

namespace pipewright::testing {
namespace {

using Json = nlohmann::json;
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
  if (oracle.is_null()) return compared;
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
  const std::string path = SourcePath("../shared/oracle/schedules/summary.tsv");
  const auto content = ReadFile(path);
  if (!content.ok()) {
    WARN("skipped: " << path << " is absent");
    return;
  }
  const std::map<std::string, std::string> names = {
      {"BitPipe", "bitpipe"},
      {"Chimera", "chimera"},
      {"DualPipe", "dualpipe"},
      {"DualPipeV", "dualpipe-v"},
      {"torch.DualPipeV", "DualPipeV"}};
  Compared compared;
  for (const absl::string_view line :
       absl::StrSplit(*content, '\n', absl::SkipEmpty())) {
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

TEST_CASE("oracle: figures of BitPipe", "[schedule]") {
  const Json oracle = LoadOracle("bitpipe_figures");
  if (oracle.is_null()) return;
  Compared compared;
  for (const auto& [key, ranks] : oracle.items()) {
    if (key == "meta") continue;
    INFO(key);
    const std::vector<std::string> parts = absl::StrSplit(key, '_');
    const auto schedule =
        BuildOf("bitpipe", std::stoi(parts[1].substr(1)), 2,
                std::stoi(parts[2].substr(1)), {{"concatenation", "figure"}});
    REQUIRE(schedule.ok());
    const Tokens tokens = TokensOf(*schedule, false);
    const auto starts = NaiveReplay(*schedule);
    REQUIRE(starts.has_value());
    double drawn_end = 0;
    double end = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      REQUIRE(tokens[rank].size() == ranks[rank].size());
      for (size_t index = 0; index < ranks[rank].size(); ++index) {
        const Json& drawn = ranks[rank][index];
        CHECK(tokens[rank][index] == drawn[0].get<std::string>());
        drawn_end = std::max(drawn_end, drawn[2].get<double>());
      }
      // Ours start as early as they can; SYNC takes no slot.
      const RankOrder& order = schedule->order(static_cast<int>(rank));
      size_t drawn_index = 0;
      for (size_t index = 0; index < order.size(); ++index) {
        if (order[index].kind() == PassKind::kSync) continue;
        const Json& drawn = ranks[rank][drawn_index++];
        const int start = (*starts)[rank][index];
        CHECK(start <= drawn[1].get<double>());
        end = std::max(end,
                       start + drawn[2].get<double>() - drawn[1].get<double>());
      }
    }
    CHECK(end == drawn_end);
    ++compared.cases;
  }
  SayCompared("figures of BitPipe", compared);
}

// Section 1.2 of the authors' figures, read as numbers: 28 units for one
// unit of microbatches, 53 for two as drawn, 54 as released.
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
}  // namespace pipewright::testing

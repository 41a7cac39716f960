// Orders, peaks and spans of the schedules in loops, groups, slices and units
// against what others' schedulers gave (tests/oracle/README.md).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/replay.h"
#include "tests/support/json.h"
#include "tests/support/oracle.h"

namespace pipewright::testing::oracle_loops_test {
namespace {

using Strings = std::vector<std::string>;

Schedule Built(const std::string& name, const Json& row, int vpp, int slices,
               const OwnParams& own = {}) {
  ScheduleParams params;
  params.pp = row["p"];
  params.vpp = vpp;
  params.microbatches = row["m"];
  params.slices = slices;
  params.own = own;
  const auto schedule = BuildSchedule(name, params);
  REQUIRE(schedule.ok());
  return *schedule;
}

ReplayTimes Replayed(const Schedule& schedule, const PlanCosts& costs) {
  const auto times = Replay(schedule, costs);
  REQUIRE(times.ok());
  return *times;
}

// All cases of a file of family A: orders, peaks, spans.
Compared CheckCases(const std::string& file, const std::string& name) {
  Compared compared;
  const Json oracle = LoadOracle(file);
  CHECK(!oracle["cases"].empty());
  for (const Json& row : oracle["cases"]) {
    ++compared.cases;
    INFO(file << " " << name << " p " << row["p"] << " m " << row["m"]);
    const Schedule schedule =
        Built(name, row, oracle["chunks"], oracle["seq_splits"]);
    CHECK(OrdersOf(schedule) == row["order"].get<Strings>());
    for (const auto& [cost_set, values] : row["costs"].items()) {
      INFO(cost_set);
      const ReplayTimes times = Replayed(schedule, CostsOfSet(cost_set));
      CHECK(times.span_per_rank ==
            Approx(values["span"].get<double>()).epsilon(1e-12));
      CHECK(times.span_global ==
            Approx(values["makespan"].get<double>()).epsilon(1e-12));
      compared.peaks += CheckCostSetPeaks(schedule, values["peak"], cost_set);
    }
  }
  return compared;
}

// The oracle numbers slices on: microbatch * slices + slice.
std::vector<Strings> TorchUnits(const Schedule& schedule) {
  if (schedule.slices == 1) return TorchOrdersOf(schedule);
  std::vector<Strings> orders(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) {
      orders[rank].push_back(
          absl::StrCat(schedule.placement.StageOf(rank, pass.chunk()),
                       pass.kind() == PassKind::kForward ? "F" : "B",
                       pass.microbatch() * schedule.slices + pass.slice()));
    }
  }
  return orders;
}

// All runs of a file of family B: orders, peaks until `W` and until `I`, spans
// with F = B = W = 1.
Compared CheckRuns(const std::string& file, const std::string& name,
                   const std::function<OwnParams(const Json&)>& own_of) {
  Compared compared;
  const Json oracle = LoadOracle(file);
  CHECK(!oracle["runs"].empty());
  for (const Json& run : oracle["runs"]) {
    ++compared.cases;
    const int vpp = run.value("v", 1);
    const int slices = run.value("slices", 1);
    INFO(file << " p " << run["p"] << " m " << run["m"] << " v " << vpp);
    const Schedule schedule = Built(name, run, vpp, slices, own_of(run));
    CHECK(TorchUnits(schedule) == run["ops"].get<std::vector<Strings>>());

    const double parts = static_cast<double>(vpp) * slices;
    const ReplayTimes times = Replayed(
        schedule,
        {.forward = parts, .backward_input = parts, .backward_weight = parts});
    std::vector<double> spans;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      spans.push_back(times.last_end[rank] - times.first_start[rank]);
    }
    const auto live = [&](double held) {
      std::vector<double> peaks = PeakActivations(schedule, held);
      for (double& peak : peaks) peak = std::round(peak * parts);
      return peaks;
    };
    const bool full = run.contains("replay");  // else from our own scripts
    const Json& replay = full ? run["replay"]["F1_I1_W1_B2"] : run;
    CHECK(times.span_global == replay["makespan"].get<double>());
    if (replay.contains("device_span")) {
      CHECK(spans == replay["device_span"].get<std::vector<double>>());
    }
    const Json& peaks = full ? run["replay"] : run;
    for (const auto& [key, held] :
         {std::pair(full ? "peak_live_chunk_mbs_until_W" : "peak_until_W", 1),
          std::pair(full ? "peak_live_chunk_mbs_until_I" : "peak_until_I",
                    0)}) {
      if (!peaks.contains(key)) continue;
      const std::vector<double> got = live(held);
      if (peaks[key].is_array()) {
        CHECK(got == peaks[key].get<std::vector<double>>());
        compared.peaks += static_cast<int>(got.size());
      } else {
        CHECK(*std::max_element(got.begin(), got.end()) ==
              peaks[key].get<double>());
        ++compared.peaks;
      }
    }
  }
  return compared;
}

TEST_CASE("oracle: interleaved, grouped, sliced and unit schedules",
          "[schedule]") {
  const auto none = [](const Json&) { return OwnParams(); };
  Compared compared = CheckRuns("torch_InterleavedZeroBubble",
                                "ScheduleInterleavedZeroBubble", none);
  for (const char* chunks : {"v2", "v4"}) {
    compared += CheckCases(absl::StrCat("gis_", chunks), "gis");
    compared += CheckCases(absl::StrCat("gis_h_", chunks), "gis-h");
    compared += CheckCases(absl::StrCat("po_uniform_", chunks), "po-h");
    compared += CheckCases(absl::StrCat("po_uniform_", chunks), "po-f");
  }
  compared += CheckCases("seq1f1b_s2", "seq1f1b");
  compared += CheckCases("seq1f1b_s4", "seq1f1b");
  compared += CheckRuns("seq1f1b", "seq1f1b", none);
  compared += CheckRuns("reconstruction_2bp", "2bp", [](const Json& run) {
    return OwnParams{{"base", run["base"] == "GPipe" ? "gpipe" : "1f1b"}};
  });
  compared +=
      CheckRuns("reconstruction_zeropp_like", "zeropp", [](const Json& run) {
        return OwnParams{{"unit", absl::StrCat(run["U"].get<int>())}};
      });
  SayCompared("loops, groups, slices and units", compared);
}

TEST_CASE("oracle: grouped schedules with few microbatches", "[schedule]") {
  Compared compared = CheckSmallMicrobatches("gis_v2", "gis", 2);
  compared += CheckSmallMicrobatches("gis_h_v2", "gis-h", 2);
  compared += CheckSmallMicrobatches("po_uniform_v2", "po-h", 2);
  compared += CheckSmallMicrobatches("po_uniform_v2", "po-f", 2);
  SayCompared("groups with few microbatches", compared);
}

// Bubbles of the base order of PO-F in slots for F = B = W, and its peaks in
// microbatches, as the authors' code gives them (po_uniform of tests/oracle).
TEST_CASE("oracle: uniform repeating has the known bubbles and peaks",
          "[schedule]") {
  struct Known {
    int pp, vpp, bubble;
    double peak;
  };
  for (const Known& known : std::vector<Known>{{2, 2, 3, 1.5},
                                               {4, 2, 9, 3.5},
                                               {8, 2, 23, 6.5},
                                               {16, 2, 51, 12.5},
                                               {2, 4, 5, 1.25},
                                               {4, 4, 18, 2.75},
                                               {8, 4, 41, 5.75},
                                               {16, 4, 93, 10.75}}) {
    for (const int rounds : {2, 3}) {
      INFO("p " << known.pp << " v " << known.vpp << " rounds " << rounds);
      const int microbatches = rounds * known.pp;
      const auto schedule = BuildOf("po-f", known.pp, known.vpp, microbatches);
      REQUIRE(schedule.ok());
      const double vpp = known.vpp;
      const ReplayTimes times = Replayed(*schedule, {vpp, vpp, vpp});
      CHECK(times.span_per_rank - 3 * vpp * microbatches == known.bubble);
      const std::vector<double> peaks = PeakActivations(*schedule, 1);
      CHECK(*std::max_element(peaks.begin(), peaks.end()) == known.peak);
    }
  }
}

}  // namespace
}  // namespace pipewright::testing::oracle_loops_test

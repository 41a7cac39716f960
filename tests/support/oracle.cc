#include "tests/support/oracle.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/gzip.h"
#include "sim/memory/activations.h"
#include "sim/schedule/token.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"

namespace pipewright::testing {
namespace {

struct CostSet {
  PlanCosts costs;
  int hidden;  // 0: half of the activations are held until W
  int heads;
};

// tests/oracle/README.md, "Cost sets".
const CostSet& FindCostSet(const std::string& name) {
  static const auto* sets = new std::map<std::string, CostSet>{
      {"eq0", {{1000, 1000, 1000, 0}, 0, 0}},
      {"gpt1_5b", {{18522, 18086, 9337, 601}, 2304, 24}},
      {"gpt6_2b", {{29718, 29444, 19927, 527}, 4096, 32}},
      {"gpt14_6b", {{11347, 11248, 8132, 377}, 5120, 40}},
      {"gpt28_3b", {{10419, 10207, 7715, 408}, 6144, 48}}};
  const auto found = sets->find(name);
  PW_CHECK(found != sets->end());
  return found->second;
}

}  // namespace

Compared& Compared::operator+=(const Compared& other) {
  cases += other.cases;
  peaks += other.peaks;
  return *this;
}

void SayCompared(absl::string_view family, const Compared& compared,
                 absl::string_view more) {
  std::cout << absl::StrCat("oracle ", family, ": ", compared.cases,
                            " cases compared, ", compared.peaks, " peaks",
                            more.empty() ? "" : ", ", more, "\n");
}

std::string ReadOracle(absl::string_view file) {
  const auto input =
      InputFile::Open(SourcePath(absl::StrCat("tests/oracle/", file)));
  INFO(input.status());
  REQUIRE(input.ok());
  std::string text(std::istreambuf_iterator<char>((*input)->stream()), {});
  INFO((*input)->status());
  REQUIRE((*input)->status().ok());
  return text;
}

Json LoadOracle(absl::string_view name) {
  return Json::parse(ReadOracle(absl::StrCat(name, ".json.gz")));
}

absl::StatusOr<Schedule> BuildOf(const std::string& name, int pp, int vpp,
                                 int microbatches, const OwnParams& own) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = vpp;
  params.microbatches = microbatches;
  params.own = own;
  return BuildSchedule(name, params);
}

std::vector<std::string> OrdersOf(const Schedule& schedule) {
  std::vector<std::string> orders(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    AppendOrder(schedule, rank, ' ', &orders[rank]);
  }
  return orders;
}

std::vector<std::vector<std::string>> TorchOrdersOf(const Schedule& schedule) {
  std::vector<std::vector<std::string>> orders(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) {
      const char* letter = pass.kind() == PassKind::kForward         ? "F"
                           : pass.kind() == PassKind::kBackwardFull  ? "B"
                           : pass.kind() == PassKind::kBackwardInput ? "I"
                                                                     : "W";
      orders[rank].push_back(
          absl::StrCat(schedule.placement.StageOf(rank, pass.chunk()), letter,
                       pass.microbatch()));
    }
  }
  return orders;
}

int CheckPeaks(const Schedule& schedule, const Json& peaks, double held) {
  const std::vector<double> got = PeakActivations(schedule, held);
  REQUIRE(peaks.size() == got.size());
  for (size_t rank = 0; rank < got.size(); ++rank) {
    CHECK(got[rank] == Approx(peaks[rank].get<double>()).margin(6e-5));
  }
  return static_cast<int>(got.size());
}

int CheckCostSetPeaks(const Schedule& schedule, const Json& peak,
                      const std::string& cost_set) {
  int peaks = 0;
  if (peak.contains("FW")) peaks += CheckPeaks(schedule, peak["FW"], 1);
  if (peak.contains("FB")) peaks += CheckPeaks(schedule, peak["FB"], 0);
  return peaks + CheckPeaks(schedule, peak["cfg"], HeldUntilWeightOf(cost_set));
}

double HeldUntilWeightOf(const std::string& cost_set) {
  const CostSet& set = FindCostSet(cost_set);
  if (set.hidden == 0) return 0.5;
  return 32.0 * set.hidden / (34.0 * set.hidden + 5.0 * set.heads * 1024);
}

PlanCosts CostsOfSet(const std::string& cost_set) {
  PlanCosts costs = FindCostSet(cost_set).costs;
  costs.held_until_weight = HeldUntilWeightOf(cost_set);
  costs.given = true;
  return costs;
}

Compared CheckFamilyA(const std::string& file, const std::string& name,
                      const OwnParams& own) {
  Compared compared;
  const Json oracle = LoadOracle(file);
  CHECK(!oracle["cases"].empty());
  for (const Json& row : oracle["cases"]) {
    ++compared.cases;
    const auto schedule =
        BuildOf(name, row["p"], oracle["chunks"], row["m"], own);
    INFO(file << " p " << row["p"] << " m " << row["m"]);
    REQUIRE(schedule.ok());
    CHECK(OrdersOf(*schedule) == row["order"].get<std::vector<std::string>>());
    for (const auto& [cost_set, values] : row["costs"].items()) {
      INFO(cost_set);
      compared.peaks += CheckCostSetPeaks(*schedule, values["peak"], cost_set);
    }
  }
  return compared;
}

Compared CheckSmallMicrobatches(const std::string& row_name,
                                const std::string& name, int vpp,
                                const OwnParams& own) {
  Compared compared;
  const Json oracle = LoadOracle("edge_small_m");
  for (const Json& row : oracle["rows"]) {
    if (row["schedule"] != row_name) continue;
    const auto schedule = BuildOf(name, row["p"], vpp, row["m"], own);
    INFO(row_name << " p " << row["p"] << " m " << row["m"]);
    ++compared.cases;
    REQUIRE(schedule.ok() == row["ok"].get<bool>());
    if (!schedule.ok()) continue;
    CHECK(OrdersOf(*schedule) == row["order"].get<std::vector<std::string>>());
    const std::vector<double> peaks = PeakActivations(*schedule, 1);
    CHECK(*std::max_element(peaks.begin(), peaks.end()) ==
          Approx(row["peakFW"].get<double>()).epsilon(1e-12));
    ++compared.peaks;
  }
  CHECK(compared.cases > 0);
  return compared;
}

Compared CheckFamilyB(
    const std::string& file,
    const std::function<std::pair<std::string, OwnParams>(const Json&)>&
        name_of) {
  Compared compared;
  const Json oracle = LoadOracle(file);
  for (const Json& run : oracle["runs"]) {
    const std::pair<std::string, OwnParams> ours = name_of(run);
    if (ours.first.empty()) continue;
    const int vpp = run.value("v", 1);
    const auto schedule =
        BuildOf(ours.first, run["p"], vpp, run["m"], ours.second);
    INFO(file << " " << ours.first << " p " << run["p"] << " m " << run["m"]
              << " v " << vpp);
    REQUIRE(schedule.ok());
    ++compared.cases;
    CHECK(TorchOrdersOf(*schedule) ==
          run["ops"].get<std::vector<std::vector<std::string>>>());
    const std::vector<double> peaks = PeakActivations(*schedule, 1);
    const Json& expected = run["replay"]["peak_live_chunk_mbs_until_W"];
    for (size_t rank = 0; rank < peaks.size(); ++rank) {
      CHECK(peaks[rank] * vpp ==
            Approx(expected[rank].get<double>()).epsilon(1e-12));
      ++compared.peaks;
    }
  }
  CHECK(compared.cases > 0);
  return compared;
}

}  // namespace pipewright::testing

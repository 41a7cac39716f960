// Orders and peaks against the reference schedulers' outputs in
// shared/oracle/schedules, where that folder is there.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/token.h"

namespace pipewright {
namespace {

using Json = nlohmann::json;
using Own = std::map<std::string, std::string>;

// Null where the folder is absent, with a warning.
Json Load(const std::string& name) {
  const std::string path = absl::StrCat(
      PIPEWRIGHT_SOURCE_DIR "/../shared/oracle/schedules/", name, ".json");
  const auto content = ReadFile(path);
  if (!content.ok()) {
    WARN("skipped: " << path << " is absent");
    return nullptr;
  }
  return Json::parse(*content);
}

absl::StatusOr<Schedule> Build(const std::string& name, int pp, int vpp,
                               int microbatches, const Own& own = {}) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = vpp;
  params.microbatches = microbatches;
  params.own = own;
  return BuildSchedule(name, params);
}

std::vector<std::string> Orders(const Schedule& schedule) {
  std::vector<std::string> orders(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    AppendOrder(schedule, rank, ' ', &orders[rank]);
  }
  return orders;
}

// The same with PyTorch's letters and the stage in front: "3B7".
std::vector<std::vector<std::string>> TorchOrders(const Schedule& schedule) {
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

void CheckPeaks(const Schedule& schedule, const Json& peaks, double held) {
  const std::vector<double> got = PeakActivations(schedule, held);
  REQUIRE(peaks.size() == got.size());
  for (size_t rank = 0; rank < got.size(); ++rank) {
    // The oracle prints four decimals.
    CHECK(got[rank] == Approx(peaks[rank].get<double>()).margin(6e-5));
  }
}

// M_W / M of a cost set: 32h / (34h + 5as) with s = 1024 (README of the
// oracle); eq0 has 1/2.
double HeldUntilWeight(const std::string& cost_set) {
  const std::map<std::string, std::pair<int, int>> models = {
      {"gpt1_5b", {2304, 24}},
      {"gpt6_2b", {4096, 32}},
      {"gpt14_6b", {5120, 40}},
      {"gpt28_3b", {6144, 48}}};
  const auto found = models.find(cost_set);
  if (found == models.end()) return 0.5;
  const auto [hidden, heads] = found->second;
  return 32.0 * hidden / (34.0 * hidden + 5.0 * heads * 1024);
}

void CheckFamilyA(const std::string& file, const std::string& name,
                  const Own& own = {}) {
  const Json oracle = Load(file);
  if (oracle.is_null()) return;
  CHECK(oracle["cases"].size() > 0);
  for (const Json& row : oracle["cases"]) {
    const auto schedule =
        Build(name, row["p"], oracle["chunks"], row["m"], own);
    INFO(file << " p " << row["p"] << " m " << row["m"]);
    REQUIRE(schedule.ok());
    CHECK(Orders(*schedule) == row["order"].get<std::vector<std::string>>());
    for (const auto& [cost_set, values] : row["costs"].items()) {
      INFO(cost_set);
      const Json& peak = values["peak"];
      if (peak.contains("FW")) CheckPeaks(*schedule, peak["FW"], 1);
      if (peak.contains("FB")) CheckPeaks(*schedule, peak["FB"], 0);
      CheckPeaks(*schedule, peak["cfg"], HeldUntilWeight(cost_set));
    }
  }
}

// `name_of` gives our name for a run of the file, "" to leave it out.
template <typename NameOf>
void CheckFamilyB(const std::string& file, NameOf name_of) {
  const Json oracle = Load(file);
  if (oracle.is_null()) return;
  int compared = 0;
  for (const Json& run : oracle["runs"]) {
    const std::pair<std::string, Own> ours = name_of(run);
    if (ours.first.empty()) continue;
    const int vpp = run.value("v", 1);
    const auto schedule =
        Build(ours.first, run["p"], vpp, run["m"], ours.second);
    INFO(file << " " << ours.first << " p " << run["p"] << " m " << run["m"]
              << " v " << vpp);
    REQUIRE(schedule.ok());
    ++compared;
    CHECK(TorchOrders(*schedule) ==
          run["ops"].get<std::vector<std::vector<std::string>>>());
    const std::vector<double> peaks = PeakActivations(*schedule, 1);
    const Json& expected = run["replay"]["peak_live_chunk_mbs_until_W"];
    for (size_t rank = 0; rank < peaks.size(); ++rank) {
      CHECK(peaks[rank] * vpp ==
            Approx(expected[rank].get<double>()).epsilon(1e-12));
    }
  }
  CHECK(compared > 0);
}

TEST_CASE("oracle: schedules of the zero-bubble repository", "[schedule]") {
  CheckFamilyA("1f1b", "1f1b");
  CheckFamilyA("vpp_v2", "interleaved-1f1b");
  CheckFamilyA("vpp_v4", "interleaved-1f1b");
  CheckFamilyA("zb_h1", "zb-h1");
  CheckFamilyA("zb_h1_quickstart", "zb-h1", {{"variant", "quick-start"}});
  CheckFamilyA("zb_h2", "zb-h2");
}

TEST_CASE("oracle: schedules of Megatron-LM", "[schedule]") {
  CheckFamilyB("megatron_1F1B", [](const Json& run) {
    return std::pair<std::string, Own>(run["schedule"], {});
  });
  CheckFamilyB("megatron_interleaved", [](const Json& run) {
    return std::pair<std::string, Own>(
        "interleaved-1f1b",
        {{"rule", run["rule"] == "main_2026" ? "megatron" : "megatron-23.08"}});
  });
}

TEST_CASE("oracle: schedules of PyTorch", "[schedule]") {
  for (const char* name : {"GPipe", "Interleaved1F1B", "LoopedBFS"}) {
    CheckFamilyB(absl::StrCat("torch_", name), [&](const Json&) {
      return std::pair<std::string, Own>(name, {});
    });
  }
}

TEST_CASE("oracle: few or odd numbers of microbatches", "[schedule]") {
  const Json oracle = Load("edge_small_m");
  if (oracle.is_null()) return;
  int compared = 0;
  for (const Json& row : oracle["rows"]) {
    const bool plain = row["schedule"] == "1f1b";
    if (!plain && row["schedule"] != "vpp_v2") continue;
    const auto schedule = Build(plain ? "1f1b" : "interleaved-1f1b", row["p"],
                                plain ? 1 : 2, row["m"]);
    INFO(row["schedule"] << " p " << row["p"] << " m " << row["m"]);
    ++compared;
    REQUIRE(schedule.ok() == row["ok"].get<bool>());
    if (!schedule.ok()) continue;
    CHECK(Orders(*schedule) == row["order"].get<std::vector<std::string>>());
    const std::vector<double> peaks = PeakActivations(*schedule, 1);
    CHECK(*std::max_element(peaks.begin(), peaks.end()) ==
          Approx(row["peakFW"].get<double>()).epsilon(1e-12));
  }
  CHECK(compared > 0);
}

}  // namespace
}  // namespace pipewright

// The updates, backwards and speed-ups of Deep Optimizer States by machines
// that are fitted when it runs. The goals stand here a second time on purpose.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/analysis/reproduce/paper.h"

namespace pipewright::deep_optimizer_states_test {
namespace {

std::vector<Comparison> RowsOn(const std::string& engine) {
  for (const Paper* paper : AllPapers()) {
    if (paper->name != "deep-optimizer-states") continue;
    const auto rows = paper->run(engine);
    INFO(rows.status());
    REQUIRE(rows.ok());
    return *rows;
  }
  FAIL("deep-optimizer-states is not registered");
  return {};
}

double ErrorOf(const Comparison& row) {
  return std::abs(row.simulated / std::stod(row.published) - 1);
}

TEST_CASE("papers: Deep Optimizer States, predicted from two fits",
          "[papers][offload]") {
  const std::vector<Comparison> rows = RowsOn("simgrid");
  double sum = 0;
  int predicted = 0;
  int h100 = 0;
  int backwards = 0;
  int speedups = 0;
  for (const Comparison& row : rows) {
    INFO(row.setting << ", " << row.schedule << ": " << row.published << " "
                     << row.simulated);
    if (row.is_judged()) CHECK(row.matches());
    const bool fitted = absl::StrContains(row.setting, "fitted");
    if (absl::StartsWith(row.schedule, "update ms")) {
      const bool a100 = absl::StartsWith(row.setting, "a100");
      CHECK(row.is_judged());
      CHECK(ErrorOf(row) <= (a100 ? 0.07 : 0.05));
      h100 += a100 ? 0 : 1;
      if (!a100 || fitted) continue;
      sum += ErrorOf(row);
      ++predicted;
    } else if (absl::StartsWith(row.schedule, "backward ms")) {
      CHECK(ErrorOf(row) <= 0.10);
      ++backwards;
    } else if (absl::StartsWith(row.schedule, "speed-up, ")) {
      CHECK(std::abs(row.simulated - std::stod(row.published)) <= 0.10);
      CHECK(std::stod(row.published) <= 1.3);
      ++speedups;
    }
  }
  CHECK(predicted == 15);
  CHECK(sum / predicted <= 0.03);
  CHECK(h100 == 17);
  CHECK(backwards == 5);
  CHECK(speedups == 5);
}

// If nothing is shared, the strides come out too fast, so nothing is judged.
TEST_CASE("papers: Deep Optimizer States needs shared memory",
          "[papers][offload]") {
  double worst = 0;
  for (const Comparison& row : RowsOn("fast")) {
    CHECK_FALSE(row.is_judged());
    if (row.setting == "a100 13B, fitted") {
      worst = std::max(worst, ErrorOf(row));
    }
  }
  CHECK(worst > 0.15);
}

}  // namespace
}  // namespace pipewright::deep_optimizer_states_test

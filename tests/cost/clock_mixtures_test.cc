// The law of the clock against mixtures that ran on an H100.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "sim/cost/clock.h"
#include "tests/support/experiment_csv.h"

namespace pipewright::clock_mixtures_test {
namespace {

using Cells = testing::ExperimentRow;

std::vector<Cells> Rows(absl::string_view file) {
  return testing::ExperimentRows(absl::StrCat("h100_load/", file));
}

double Number(absl::string_view text) {
  double value = 0;
  REQUIRE(absl::SimpleAtod(text, &value));
  return value;
}

const Cells& Find(const std::vector<Cells>& rows, const Cells& wanted) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Cells& row) {
        return std::all_of(wanted.begin(), wanted.end(), [&](const auto& cell) {
          return row.at(cell.first) == cell.second;
        });
      });
  REQUIRE(found != rows.end());
  return *found;
}

double Burst(const Cells& row) { return 1e-6 * Number(row.at("burst_us")); }

// What a mixture consists of: kernels that compute, and the rest.
struct Mixture {
  std::vector<LoadedKernel> kernels;
  LoadedKernel rest;

  double Seconds(double clock) const {
    double seconds = rest.steady_s;
    for (const LoadedKernel& kernel : kernels) {
      seconds += kernel.clocked_s / clock;
    }
    return seconds;
  }
};

TEST_CASE("clock: mixtures on an H100 follow their mean power", "[cost]") {
  const DeviceSpec h100 = *FindDevice("h100");
  const std::vector<Cells> rows = Rows("mixtures.csv");
  // The product that has gaps behind it, alone.
  const std::vector<Cells> alone = Rows("products.csv");
  const Cells& copy = Find(rows, {{"kind", "copy"}});
  const double wait_s = Burst(Find(rows, {{"kind", "wait"}}));
  const auto joules = [&](const Cells& row) {
    return JoulesOfFlop(h100, row.at("type") == "fp8" ? "fp8" : "bfloat16");
  };
  const auto attention = [&](const char* way, double flops, double factor) {
    const Cells& row = Find(rows, {{"kind", "attention"}, {"layout", way}});
    return LoadedKernel{.clocked_s = Burst(row),
                        .clocked_joules = factor * joules(row) * flops};
  };
  int mixtures = 0;
  double worst_alone = 0;
  for (const Cells& row : rows) {
    const std::string& kind = row.at("kind");
    const bool has_gaps = absl::StartsWith(kind, "product, gaps");
    if (!has_gaps && !absl::StartsWith(kind, "products") &&
        !absl::StartsWith(kind, "layer")) {
      continue;
    }
    const Cells& products =
        has_gaps ? Find(alone, {{"type", "bf16"},
                                {"m", "8192"},
                                {"n", "8192"},
                                {"k", "8192"}})
                 : Find(rows, {{"kind", "products"}, {"type", row.at("type")}});
    Mixture mixture;
    mixture.kernels.push_back(
        {.clocked_s = Burst(products),
         .clocked_joules = joules(row) * Number(row.at("work"))});
    if (has_gaps) {
      mixture.rest.steady_s = wait_s * Number(row.at("layout")) / 2e6;
    } else {
      const std::vector<std::string> parts =
          absl::StrSplit(row.at("layout"), '/');
      if (Number(parts[0]) > 0) {
        mixture.kernels.push_back(
            attention("forward", Number(parts[0]), kAttentionForwardJoules));
        mixture.kernels.push_back(
            attention("backward", Number(parts[1]), kAttentionBackwardJoules));
      }
      const double copied = Number(parts[2]);
      const double waits = absl::StrContains(kind, "2 waits")   ? 2
                           : absl::StrContains(kind, "6 waits") ? 6
                                                                : 0;
      mixture.rest = {
          .steady_s =
              copied / Number(copy.at("work")) * Burst(copy) + waits * wait_s,
          .steady_joules = kJoulesOfByte * copied};
    }
    std::vector<LoadedKernel> all = mixture.kernels;
    all.push_back(mixture.rest);
    const double lasting_s = 1e-6 * Number(row.at("lasting_us"));
    INFO(kind << " " << row.at("type"));
    CHECK(mixture.Seconds(ClockUnder(h100, all, 0)) ==
          Approx(lasting_s).epsilon(0.03));
    // The control: with a clock for each kernel alone.
    double alone_s = mixture.rest.steady_s;
    for (const LoadedKernel& kernel : mixture.kernels) {
      alone_s += kernel.clocked_s / ClockUnder(h100, {kernel}, 0);
    }
    worst_alone = std::max(worst_alone, alone_s / lasting_s - 1);
    ++mixtures;
  }
  CHECK(mixtures == 14);
  CHECK(worst_alone > 0.08);
}

}  // namespace
}  // namespace pipewright::clock_mixtures_test

// The time of a minibatch by packing alone: the reference's example, and the
// trends of tests/oracle/odc_montecarlo.json.gz with draws of our own.
#include "sim/model/minibatch_time.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "sim/base/statistics.h"
#include "sim/model/lengths.h"
#include "tests/support/json.h"
#include "tests/support/oracle.h"

namespace pipewright::minibatch_time_test {
namespace {

using testing::Json;

TEST_CASE("minibatch time: sum of maxima against maximum of sums",
          "[sequences]") {
  const MinibatchTime time = TimeOf({{5, 1, 2}, {1, 6}});
  CHECK(time.lockstep_s == 5 + 6 + 2);
  CHECK(time.one_sided_s == 8);
  CHECK(time.work_s == 15);
  CHECK(time.BubbleLockstep() == Approx(1 - 15.0 / 26));
  CHECK(time.BubbleOneSided() == Approx(1 - 15.0 / 16));
}

// Sums over trials, of one packer.
struct Sums {
  double lockstep_s = 0;
  double one_sided_s = 0;
  double work_s = 0;
};

struct Setting {
  LengthSource source;
  int devices = 8;
  int each = 4;
  int64_t max_token_len = 65536;
  double scale = 1;  // factor of lengths
  int trials = 150;
};

std::map<Packer, Sums> SumsOf(const Setting& setting) {
  std::map<Packer, Sums> sums;
  for (int trial = 0; trial < setting.trials; ++trial) {
    PackRequest request;
    request.lengths = setting.source.Draw(static_cast<uint64_t>(trial),
                                          setting.devices * setting.each, true);
    for (int64_t& length : request.lengths) {
      length = std::max<int64_t>(
          1, static_cast<int64_t>(static_cast<double>(length) * setting.scale));
    }
    request.devices = setting.devices;
    request.max_token_len = setting.max_token_len;
    request.cost.kind = PackerCost::kFit;
    for (const Packer packer :
         {Packer::kLocalSort, Packer::kLbMicro, Packer::kLbMini}) {
      request.packer = packer;
      const MinibatchTime time =
          TimeOf(TimesOf(*Pack(request), request.lengths, kFit1B));
      CHECK(time.one_sided_s <= time.lockstep_s * (1 + 1e-12));
      CHECK(time.one_sided_s * time.devices >= time.work_s * (1 - 1e-12));
      sums[packer].lockstep_s += time.lockstep_s;
      sums[packer].one_sided_s += time.one_sided_s;
      sums[packer].work_s += time.work_s;
    }
  }
  return sums;
}

// Both sides are samples: a few per cent apart with some hundred trials.
void CheckSetting(const Json& expected, Setting setting, double within) {
  setting.devices = expected.at("D");
  setting.each = expected.at("mb");
  setting.max_token_len = expected.at("max_token_len");
  setting.trials = expected.at("trials");
  std::map<Packer, Sums> sums = SumsOf(setting);
  const double base_s = sums[Packer::kLbMicro].lockstep_s;
  const Json& speedups = expected.at("speedup_vs_collective_LBMicro");
  const auto near = [&](double value) { return Approx(value).epsilon(within); };
  CHECK(base_s / sums[Packer::kLbMicro].one_sided_s ==
        near(speedups.at("ODC LB-Micro")));
  CHECK(base_s / sums[Packer::kLbMini].one_sided_s ==
        near(speedups.at("ODC LB-Mini")));
  CHECK(sums[Packer::kLocalSort].lockstep_s /
            sums[Packer::kLocalSort].one_sided_s ==
        near(expected.at("speedup_LocalSort")));
  const auto bubble = [&](Packer packer, bool lockstep) {
    const Sums& own = sums[packer];
    return 1 - own.work_s / setting.devices /
                   (lockstep ? own.lockstep_s : own.one_sided_s);
  };
  const auto close = [&](double value) { return Approx(value).margin(within); };
  const Json& collective = expected.at("bubble_collective");
  const Json& odc = expected.at("bubble_odc");
  CHECK(bubble(Packer::kLocalSort, true) == close(collective.at("LocalSort")));
  CHECK(bubble(Packer::kLbMicro, true) == close(collective.at("LB-Micro")));
  CHECK(bubble(Packer::kLocalSort, false) == close(odc.at("LocalSort")));
  CHECK(bubble(Packer::kLbMicro, false) == close(odc.at("LB-Micro")));
  CHECK(bubble(Packer::kLbMini, false) == close(odc.at("LB-Mini")));
}

LengthSource SourceNamed(const std::string& law) {
  return LengthSource::OfLaw(*ParseLengthLaw(law));
}

TEST_CASE("minibatch time: trends of the Monte-Carlo oracle", "[sequences]") {
  const Json oracle = testing::LoadOracle("odc_montecarlo");
  // Three to four standard errors of the difference of two such samples; the
  // longest minibatches have few trials.
  constexpr double kWithin = 0.06;
  int settings = 0;
  for (const auto& [sweep, values] : oracle.items()) {
    // The golden entry has no values of its own.
    std::map<std::string, Json> all;
    if (values.contains("trials")) {
      all[""] = values;
    } else {
      for (const auto& [value, of] : values.items()) all[value] = of;
    }
    for (const auto& [value, expected] : all) {
      INFO(sweep << " " << value);
      Setting setting = {.source = SourceNamed("longalign")};
      if (sweep.find("max_len") == 0) {
        setting.scale = std::stod(value) / 65536;
      } else if (sweep.find("length spread") == 0) {
        setting.source =
            std::stod(value) == 0
                ? SourceNamed("constant:12000")
                : SourceNamed("lognormal:12000," + value + ",100,65536");
      } else if (value.find("swesmith") == 0) {
        setting.source = SourceNamed("swe-smith");
      } else if (value.find("aime") == 0) {
        setting.source = SourceNamed("aime");
      } else if (value.find("constant") == 0) {
        setting.source = SourceNamed("constant:8192");
      }
      CheckSetting(expected, setting, kWithin);
      ++settings;
    }
  }
  CHECK(settings == 28);
}

TEST_CASE("minibatch time: equal lengths gain nothing, one sample neither",
          "[sequences]") {
  for (const char* law : {"constant:8192", "longalign"}) {
    Setting setting = {.source = SourceNamed(law), .trials = 20};
    if (std::string(law) == "longalign") setting.each = 1;
    for (auto& [packer, sums] : SumsOf(setting)) {
      CHECK(sums.lockstep_s == Approx(sums.one_sided_s).epsilon(1e-12));
    }
  }
}

// The golden setting of the reference (150 trials of its own there).
TEST_CASE("minibatch time: the golden setting", "[sequences]") {
  std::map<Packer, Sums> sums =
      SumsOf({.source = SourceNamed("longalign"), .trials = 400});
  const double base_s = sums[Packer::kLbMicro].lockstep_s;
  const double micro = base_s / sums[Packer::kLbMicro].one_sided_s;
  const double mini = base_s / sums[Packer::kLbMini].one_sided_s;
  // 0.01 more on each side: errors of both samples.
  CHECK(micro >= 1.13);
  CHECK(micro <= 1.18);
  CHECK(mini >= 1.24);
  CHECK(mini <= 1.35);
}

TEST_CASE("minibatch time: LB-Mini gains at small minibatches, not at large",
          "[sequences]") {
  const auto over = [](int each, int trials) {
    std::map<Packer, Sums> sums = SumsOf(
        {.source = SourceNamed("longalign"), .each = each, .trials = trials});
    return sums[Packer::kLbMicro].one_sided_s /
           sums[Packer::kLbMini].one_sided_s;
  };
  CHECK(over(1, 60) == Approx(1).epsilon(1e-9));
  CHECK(over(2, 60) > 1.03);
  CHECK(over(4, 60) > 1.05);
  CHECK(over(16, 20) == Approx(1).margin(0.01));
}

// In the reference's cases too LB-Mini is worse at times: balanced by tokens by
// up to 3.6 %, by time by 0.2 %.
TEST_CASE("minibatch time: how much worse LB-Mini can be", "[sequences]") {
  const Json oracle = testing::LoadOracle("odc_packing_cases");
  int worse = 0;
  int compared = 0;
  double by_tokens = 0;
  double by_time = 0;
  for (const Json& each : oracle.at("cases")) {
    const Json& methods = each.at("methods");
    const auto time = [&](const char* method) {
      if (!methods.contains(method)) return 0.0;
      const Json& found = methods.at(method);
      if (found.contains("error")) return 0.0;
      Packing packing;
      for (const Json& device : found.at("assign")) {
        Parts& parts = packing.emplace_back();
        for (const Json& part : device) {
          parts.push_back(part.get<std::vector<int>>());
        }
      }
      return TimeOf(TimesOf(packing,
                            each.at("lengths").get<std::vector<int64_t>>(),
                            kFit7B))
          .one_sided_s;
    };
    const double micro_s = time("LB-Micro");
    const double mini_s = time("LB-Mini");
    if (micro_s == 0 || mini_s == 0) continue;
    ++compared;
    const double loss = mini_s / micro_s - 1;
    if (loss > 1e-9) ++worse;
    double& most = each.at("cost_model") == "linear" ? by_tokens : by_time;
    most = std::max(most, loss);
  }
  CHECK(compared > 50);
  CHECK(worse > 0);
  CHECK(worse < 0.12 * compared);
  CHECK(by_tokens < 0.037);
  CHECK(by_time < 0.003);
}

}  // namespace
}  // namespace pipewright::minibatch_time_test

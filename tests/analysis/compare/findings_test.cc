// Findings explain a difference once: what was planted, with its size and what
// it alone does to the step, and nothing else. Effects are held against runs
// of the engines with just that changed.
#include "sim/analysis/compare/findings.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/engine/fast_engine.h"
#include "tests/support/compared_runs.h"
#include "tests/support/json.h"
#include "tests/support/random_schedule.h"
#include "tests/support/reference_engine.h"

namespace pipewright::findings_test {
namespace {

using testing::ComparedShape;
using testing::SimulatedTrace;
using testing::WithSlower;

// Rounding of a trace's nanoseconds along the longest path.
constexpr double kRounding_s = 2e-7;

struct Fault {
  std::optional<PassKind> kind;  // none: all
  int rank = -1;                 // -1: all
  double factor = 1;

  bool Has(PassKind other_kind, int other_rank) const {
    return (!kind || *kind == other_kind) && (rank < 0 || rank == other_rank);
  }
};

using Place = std::pair<PassKind, int>;

// Kinds and ranks that compute.
std::set<Place> PlacesOf(const Program& program) {
  std::set<Place> places;
  for (int rank = 0; rank < program.pp(); ++rank) {
    const std::vector<Lane>& lanes = program.ranks[rank].lanes;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const auto kind = Pass::KindOf(lane);
      if (lanes[lane].passes > 0 && IsComputePass(kind)) {
        places.insert({kind, rank});
      }
    }
  }
  return places;
}

bool Names(const Finding& finding, PassKind kind, int rank) {
  const auto has = [](const auto& list, const auto& value) {
    return list.empty() ||
           std::find(list.begin(), list.end(), value) != list.end();
  };
  return finding.what == "kernel" && finding.iteration < 0 &&
         has(finding.kinds, std::string(PassKindName(kind))) &&
         has(finding.places, Column(rank, -1));
}

Program With(Program program, const Finding& finding) {
  for (const auto& [kind, rank] : PlacesOf(program)) {
    if (Names(finding, kind, rank)) {
      program = WithSlower(program, kind, rank, finding.factor);
    }
  }
  return program;
}

// Length of the last iteration; both engines agree on it.
double StepOf(const Program& program) {
  const RunSummary fast = RunFast(program, {}).value();
  const RunSummary naive = RunReference(program).value();
  const auto step = [](const RunSummary& run) {
    const std::vector<double>& ends = run.iteration_end_s;
    return ends[ends.size() - 1] - ends[ends.size() - 2];
  };
  CHECK(step(fast) == Approx(step(naive)).margin(1e-12));
  return step(fast);
}

// What every finding alone and all of them do to the step is what the engines
// say of the program with just that changed.
void CheckEffects(const Program& program, const TraceComparison& comparison) {
  const double before_s = StepOf(program);
  Program together = program;
  for (const Finding& finding : comparison.findings.list) {
    if (finding.what != "kernel" || finding.iteration >= 0) continue;
    CHECK(
        finding.effect_s ==
        Approx(StepOf(With(program, finding)) - before_s).margin(kRounding_s));
    together = With(together, finding);
  }
  CHECK(comparison.findings.effect_s ==
        Approx(StepOf(together) - before_s).margin(kRounding_s));
}

void CheckOnce(const Program& program, const std::vector<Fault>& faults,
               const std::vector<Finding>& findings, double tolerance) {
  const std::set<Place> places = PlacesOf(program);
  std::map<Place, double> planted;
  std::map<Place, int> touched;
  for (const Place& place : places) {
    planted[place] = 1;
    for (const Fault& fault : faults) {
      if (!fault.Has(place.first, place.second)) continue;
      planted[place] *= fault.factor;
      ++touched[place];
    }
  }
  // Whatever is said of a kind on a rank comes to what was planted there.
  for (const Place& place : places) {
    INFO(PassKindName(place.first) << " on rank " << place.second);
    double named = 1;
    int times = 0;
    for (const Finding& finding : findings) {
      if (!Names(finding, place.first, place.second)) continue;
      named *= finding.factor;
      ++times;
      CHECK(std::abs(finding.factor - 1) >= kSmallestFactor);
    }
    CHECK(named == Approx(planted[place]).epsilon(tolerance));
    CHECK(times <= touched[place]);
  }
  // A fault that meets no other is one finding, of just its places.
  for (const Fault& fault : faults) {
    std::set<Place> own;
    bool alone = true;
    for (const Place& place : places) {
      if (!fault.Has(place.first, place.second)) continue;
      own.insert(place);
      alone &= touched[place] == 1;
    }
    if (!alone) continue;
    int exact = 0;
    for (const Finding& finding : findings) {
      std::set<Place> said;
      for (const Place& place : places) {
        if (Names(finding, place.first, place.second)) said.insert(place);
      }
      if (said == own) ++exact;
    }
    CHECK(exact == 1);
  }
}

// Up to three factors that differ from 1, and products of them from each other,
// by 4 % and more: enough to be told apart under the noise.
std::vector<Fault> RandomFaults(Random& random, const Program& program) {
  const std::set<Place> places = PlacesOf(program);
  const std::vector<Place> list(places.begin(), places.end());
  const std::vector<double> factors = {0.65, 1.2, 1.4, 1.75};
  std::vector<Fault> faults;
  const int count = random.Int(1, 3);
  for (int fault = 0; fault < count; ++fault) {
    const Place& place = list[random.Int(0, static_cast<int>(list.size()) - 1)];
    Fault planted;
    planted.factor = factors[(random.Int(0, 3))];
    const int what = random.Int(0, 5);
    if (what != 0) planted.kind = place.first;                // 0: a rank
    if (what != 1 && what != 2) planted.rank = place.second;  // 1, 2: a kind
    const bool again = std::any_of(
        faults.begin(), faults.end(),
        [&](const Fault& other) { return other.factor == planted.factor; });
    if (!again) faults.push_back(planted);
  }
  return faults;
}

ComparedShape RandomShape(Random& random) {
  const std::vector<const char*> schedules = {
      "1f1b", "gpipe", "zb-h1", "zb-h2", "interleaved-1f1b", "zb-v", "seq1f1b"};
  ComparedShape shape;
  shape.schedule =
      schedules[random.Int(0, static_cast<int>(schedules.size()) - 1)];
  shape.pp = 2 * random.Int(1, 3);
  shape.microbatches = 2 * shape.pp;
  if (random.Chance(30)) shape.optimizer = OptimizerMode::kNone;
  return shape;
}

std::string FaultsText(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults) {
    absl::StrAppend(&text, fault.kind ? PassKindName(*fault.kind) : "all", "@",
                    fault.rank, ":", fault.factor, " ");
  }
  return text;
}

// 10 ms each, no hops; BW takes `backward_ms` on each rank.
Program Example(const std::vector<double>& backward_ms) {
  ComparedShape shape;
  shape.optimizer = OptimizerMode::kNone;
  Program program = testing::ComparedProgram(shape);
  program.network.hop_s = 0;
  for (int rank = 0; rank < program.pp(); ++rank) {
    for (size_t lane = 0; lane < program.ranks[rank].lanes.size(); ++lane) {
      Lane& each = program.ranks[rank].lanes[lane];
      const auto kind = Pass::KindOf(lane);
      if (kind == PassKind::kForward) each.seconds = 0.010;
      if (kind == PassKind::kBackwardFull) {
        each.seconds = backward_ms[rank] * 1e-3;
      }
    }
  }
  return program;
}

TEST_CASE("findings: a slow rank beside faster ones is said once",
          "[compare]") {
  const Program simulated = Example({20, 20, 20, 20});
  const Program measured = Example({19, 19, 30, 19});
  const TraceComparison comparison = testing::CompareTraces(
      SimulatedTrace(simulated), SimulatedTrace(measured));
  INFO(testing::ComparisonTexts(comparison));
  const std::vector<Finding>& list = comparison.findings.list;
  REQUIRE(list.size() == 2);
  CHECK(list[0].label == "BW");
  CHECK(list[0].rank == 2);
  CHECK(list[0].factor == Approx(1.5));
  CHECK(list[0].effect_s == Approx(0.070).margin(0.0005));
  CHECK(list[1].label == "BW");
  CHECK(list[1].places == std::vector<Column>{{0, -1}, {1, -1}, {3, -1}});
  CHECK(list[1].factor == Approx(0.95));
  CHECK(list[1].effect_s == Approx(-0.004).margin(0.0005));
  CHECK(comparison.findings.effect_s == Approx(0.067).margin(0.0005));
  CHECK(comparison.findings.effect_s ==
        Approx(comparison.step_s.difference()).margin(kRounding_s));
  CheckEffects(simulated, comparison);

  const std::string text = ComparisonToText(comparison);
  CHECK(absl::StrContains(text, "BW on rank 2: 1.50 times as long (+70"));
  CHECK(absl::StrContains(text, "BW on ranks 0, 1, 3: 0.95 times as long (-4"));
  CHECK(absl::StrContains(text, "together: +67"));
  const auto json = testing::Json::parse(ComparisonToJson(comparison));
  CHECK(json["findings"][1]["ranks"] == std::vector<int>{0, 1, 3});
  CHECK_FALSE(json["findings"][1].contains("rank"));
  CHECK(json["findings_effect_s"].get<double>() ==
        comparison.findings.effect_s);
}

TEST_CASE("findings: what is planted is named once, with its size",
          "[compare]") {
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    Random random(seed);
    const ComparedShape shape = RandomShape(random);
    const Program program = testing::ComparedProgram(shape);
    const std::vector<Fault> faults = RandomFaults(random, program);
    Program measured = program;
    for (const Fault& fault : faults) {
      measured = WithSlower(measured, fault.kind, fault.rank, fault.factor);
    }
    const bool noisy = seed % 2 == 0;
    if (noisy) {
      measured.jitter =
          std::make_shared<const Jitter>(Jitter{.seed = seed, .sigma = 0.01});
    }
    const TraceComparison comparison = testing::CompareTraces(
        SimulatedTrace(program), SimulatedTrace(measured));
    INFO("seed " << seed << " " << shape.schedule << " pp " << shape.pp << " "
                 << FaultsText(faults) << "\n"
                 << testing::ComparisonTexts(comparison));
    for (const Finding& finding : comparison.findings.list) {
      CHECK(finding.what == "kernel");
      CHECK(finding.iteration == -1);
    }
    CheckOnce(program, faults, comparison.findings.list, noisy ? 0.03 : 1e-4);
    CheckEffects(program, comparison);
    if (noisy) continue;
    CHECK(comparison.findings.effect_s ==
          Approx(comparison.step_s.difference()).margin(kRounding_s));
  }
}

TEST_CASE("findings: late messages beside slow passes", "[compare]") {
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    Random random(1000 + seed);
    ComparedShape shape = RandomShape(random);
    const Program program = testing::ComparedProgram(shape);
    std::vector<Fault> faults = RandomFaults(random, program);
    Faults late = {.late_messages = {{.rank = random.Int(0, shape.pp - 1),
                                      .iteration = 2,
                                      .number = random.Int(0, 3),
                                      .seconds = 0.04}}};
    Program measured = program;
    for (const Fault& fault : faults) {
      measured = WithSlower(measured, fault.kind, fault.rank, fault.factor);
    }
    const ReadTrace simulated = SimulatedTrace(program);
    const TraceComparison comparison = testing::CompareTraces(
        simulated, testing::MeasuredTrace(measured, late));
    INFO("seed " << seed << " " << shape.schedule << " pp " << shape.pp << " "
                 << FaultsText(faults) << "\n"
                 << testing::ComparisonTexts(comparison));
    CheckOnce(program, faults, comparison.findings.list, 1e-4);
    int messages = 0;
    for (const Finding& finding : comparison.findings.list) {
      if (finding.what == "kernel") continue;
      ++messages;
      CHECK(finding.what == "message");
      CHECK(finding.rank == late.late_messages[0].rank);
      CHECK(finding.iteration == 2);
      CHECK(finding.late_s == Approx(0.04));
      // Alone, as the executor has it.
      const TraceComparison alone = testing::CompareTraces(
          simulated, testing::MeasuredTrace(program, late));
      CHECK(finding.effect_s ==
            Approx(alone.step_s.difference()).margin(kRounding_s));
    }
    CHECK(messages == 1);
    CHECK(comparison.findings.effect_s ==
          Approx(comparison.step_s.difference()).margin(kRounding_s));
  }
}

TEST_CASE("findings: slower copies beside slow passes", "[compare]") {
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    Random random(2000 + seed);
    ComparedShape shape = RandomShape(random);
    shape.schedule = "1f1b";
    const Program plain = testing::ComparedProgram(shape);
    const Program program =
        testing::ComparedProgram(shape, WithCopies(*plain.schedule, random));
    bool copies = false;
    for (const RankProgram& rank : program.ranks) {
      for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
        copies |= rank.lanes[lane].passes > 0 &&
                  Pass::KindOf(lane) == PassKind::kLoad;
      }
    }
    if (!copies) continue;
    std::vector<Fault> faults = RandomFaults(random, program);
    Program measured = WithSlower(program, PassKind::kLoad, -1, 1.5);
    for (const Fault& fault : faults) {
      measured = WithSlower(measured, fault.kind, fault.rank, fault.factor);
    }
    const TraceComparison comparison = testing::CompareTraces(
        SimulatedTrace(program), SimulatedTrace(measured));
    INFO("seed " << seed << " pp " << shape.pp << " " << FaultsText(faults)
                 << "\n"
                 << testing::ComparisonTexts(comparison));
    CheckOnce(program, faults, comparison.findings.list, 1e-4);
    int named = 0;
    for (const Finding& finding : comparison.findings.list) {
      if (finding.what == "kernel") continue;
      ++named;
      CHECK(finding.what == "copy");
      CHECK(finding.label == "L");
      CHECK(finding.factor == Approx(1.5));
    }
    CHECK(named == 1);
  }
}

}  // namespace
}  // namespace pipewright::findings_test

// The order of measuring, on subjects whose times are written down.
#include "calibrate/measure.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace pipewright::measure_test {
namespace {

// A clock that only visits move, and a record of who was visited.
struct Script {
  double now = 0;
  std::string visits;
  int saves = 0;
  int stop_after = -1;  // visits
  double minimum_s = -1;
  MeasureHooks Hooks() {
    return {.now = [this] { return now; },
            .stop =
                [this] {
                  return stop_after >= 0 &&
                         static_cast<int>(visits.size()) >= stop_after;
                },
            .progress = nullptr,
            .estimated = [this](double seconds) { minimum_s = seconds; },
            .round_done =
                [this](const Profile&) {
                  ++saves;
                  return absl::OkStatus();
                }};
  }
  // `cost`: seconds of a visit; `time`: what it measures.
  Subject Make(char name, double cost, std::function<double()> time) {
    Subject subject;
    subject.name = std::string(1, name);
    subject.series = {{subject.name,
                       [name](const Distribution& measured, Profile* profile) {
                         profile->optimizers.resize(2);
                         profile->optimizers[name == 'A' ? 0 : 1].time =
                             measured;
                       },
                       [](const Profile&) { return false; }}};
    subject.visit = [this, name, cost, time](std::vector<double>* samples) {
      now += cost;
      visits += name;
      samples->assign(1, time());
      return absl::OkStatus();
    };
    return subject;
  }
};

TEST_CASE("measure: a time that is no number ends the run", "[calibrate]") {
  MeasureOptions options;
  options.rounds = 3;
  options.budget_s = 0;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // Breaks the first of seven visits, one in the middle and the last.
  for (const int broken : {0, 3, 6}) {
    Script script;
    int visit = 0;
    const std::vector<Subject> subjects = {
        script.Make('A', 1, [&] { return visit++ == broken ? nan : 5.0; })};
    const absl::Status status =
        MeasureAll(subjects, options, script.Hooks(), {}).status();
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK(status.message() == "A: A: measured as nan, which is no time");
    CHECK(static_cast<int>(script.visits.size()) == broken + 1);
  }
}

TEST_CASE("measure: rounds of each subject are equally far apart",
          "[calibrate]") {
  Script script;
  const std::vector<Subject> subjects = {
      script.Make('A', 1, [] { return 5.0; }),
      script.Make('B', 1, [] { return 7.0; })};
  MeasureOptions options;
  options.rounds = 3;
  options.budget_s = 0;
  const Measured measured =
      MeasureAll(subjects, options, script.Hooks(), {}).value();
  // The first visits are warm-ups; the least visits are made although there is
  // no time.
  CHECK(script.visits ==
        "AB"
        "AABB"
        "AABB"
        "AABB");
  CHECK(measured.rounds == 3);
  // Nobody could hold the budget, and it was known before the first round.
  CHECK(script.minimum_s == 14);
  CHECK(measured.minimum_s == 14);
  CHECK(script.now == 14);
  CHECK(script.saves == 3);
  CHECK(!measured.interrupted);
  CHECK(measured.profile.optimizers[0].time.median_s == 5);
  CHECK(measured.profile.optimizers[0].time.count == 6);
  CHECK(measured.profile.optimizers[1].time.median_s == 7);
}

TEST_CASE("measure: short visits warm up in every round", "[calibrate]") {
  Script script;
  const std::vector<Subject> subjects = {
      script.Make('A', 0.001, [] { return 5.0; })};
  MeasureOptions options;
  options.rounds = 3;
  options.budget_s = 0;
  const Measured measured =
      MeasureAll(subjects, options, script.Hooks(), {}).value();
  CHECK(script.visits == "AAAAAAAAAA");
  CHECK(script.minimum_s == Approx(0.01));
  CHECK(measured.profile.optimizers[0].time.count == 6);
}

TEST_CASE("measure: the budget is shared and bounds the visits",
          "[calibrate]") {
  Script script;
  std::vector<Subject> subjects = {script.Make('A', 1, [] { return 5.0; }),
                                   script.Make('B', 1, [] { return 7.0; })};
  subjects[0].share = 3;
  MeasureOptions options;
  options.rounds = 3;
  options.budget_s = 48;
  options.most_visits = 10;
  MeasureAll(subjects, options, script.Hooks(), {}).value();
  // 46 s are left, 11.5 s and 3.8 s of a round: ten visits at most, four.
  CHECK(script.visits.substr(0, 16) == "ABAAAAAAAAAABBBB");
}

// Visits that take long, or longer than the first did, cannot be stopped: the
// time they take is not there for later rounds.
TEST_CASE("measure: all ends within 1.3 times the budget", "[calibrate]") {
  for (const double slower : {1.0, 1.5, 3.0}) {
    for (const double budget : {20.0, 33.0, 100.0}) {
      Script script;
      std::vector<Subject> subjects = {
          script.Make('A', 1, [] { return 5.0; }),
          script.Make('B', 0.2, [&script] { return script.now; })};
      subjects[0].visit = [&script, slower,
                           visit = subjects[0].visit](auto* samples) {
        if (script.visits.size() > 1) script.now += slower - 1;
        return visit(samples);
      };
      MeasureOptions options;
      options.rounds = 9;
      options.budget_s = budget;
      const Measured measured =
          MeasureAll(subjects, options, script.Hooks(), {}).value();
      INFO("budget " << budget << " slower " << slower);
      CHECK(script.minimum_s == Approx(1.2 + 3 * 2 * 1.2));
      CHECK(measured.rounds >= 3);
      CHECK(script.now <= 1.3 * budget);
      // Nothing else would end it than that no round more fits.
      if (measured.rounds < 9) {
        CHECK(script.now + 2 * (slower + 0.2) > budget);
      }
    }
  }
}

// What a begin of a round takes counts too, and what was spent before.
TEST_CASE("measure: a budget that cannot work is refused behind two visits",
          "[calibrate]") {
  for (const double budget : {0.0, 5.0, 39.0, 41.0, 60.0, 400.0}) {
    Script script;
    std::vector<Subject> subjects = {script.Make('A', 1, [] { return 5.0; }),
                                     script.Make('B', 3, [] { return 7.0; })};
    subjects[1].begin_round = [&script](int) {
      script.now += 2;
      return absl::OkStatus();
    };
    MeasureOptions options;
    options.budget_s = budget;
    options.refuses = true;
    options.spent_s = 9;
    const auto measured = MeasureAll(subjects, options, script.Hooks(), {});
    INFO("budget " << budget << ": " << measured.status());
    // 9, and 6 of the first visits, and three times 2 + 2 * 4: 45.
    if (budget == 0 || budget > 41 - 1e-9) {
      REQUIRE(measured.ok());
      CHECK(measured->minimum_s == 45);
      CHECK(script.minimum_s == 45);
      if (budget > 0) CHECK(script.now + 9 <= 1.3 * budget);
      // Takes no more than the least with no budget.
      if (budget == 0) CHECK(script.now == 45 - 9);
      continue;
    }
    CHECK(measured.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(absl::StartsWith(measured.status().message(), "--budget: "));
    CHECK(
        absl::StrContains(measured.status().message(), "allowed: 45s or more"));
    CHECK(script.visits == "ABAB");
    CHECK(script.saves == 0);
  }
}

// The first visit takes 20 s more than others: 3 s each, 18 of three rounds.
TEST_CASE("measure: what a first visit sets up is no reason to refuse",
          "[calibrate]") {
  for (const double budget : {30.0, 42.0}) {
    for (const bool refuses : {true, false}) {
      Script script;
      bool first = true;
      Subject subject = script.Make('A', 3, [] { return 5.0; });
      subject.visit = [&, visit = subject.visit](auto* samples) {
        if (first) script.now += 20;
        first = false;
        return visit(samples);
      };
      MeasureOptions options;
      options.budget_s = budget;
      options.refuses = refuses;
      const auto measured = MeasureAll({subject}, options, script.Hooks(), {});
      INFO("budget " << budget << ": " << measured.status());
      CHECK(measured.ok() == (budget > 40 || !refuses));
    }
  }
}

// Here a whole visit takes three times as long as a brief one.
TEST_CASE("measure: visits are whole where the budget has room for them",
          "[calibrate]") {
  const auto run = [](double budget, std::string* visits) {
    Script script;
    bool whole = false;
    Subject subject = script.Make('A', 1, [] { return 5.0; });
    subject.visit = [&, visit = subject.visit](auto* samples) {
      if (whole) script.now += 2;
      return visit(samples);
    };
    MeasureHooks hooks = script.Hooks();
    hooks.go_whole = [&whole] { whole = true; };
    MeasureOptions options;
    options.budget_s = budget;
    options.rounds = 3;
    options.most_visits = 2;
    const Measured measured = MeasureAll({subject}, options, hooks, {}).value();
    CHECK(measured.profile.optimizers[0].time.count == 6);
    CHECK(script.now <= 1.3 * std::max(budget, 6.0));
    *visits = script.visits;
    return whole;
  };
  std::string visits;
  // Seven brief visits take 7 s, the first of which counts.
  CHECK_FALSE(run(0, &visits));
  CHECK(visits == "AAAAAA");
  CHECK_FALSE(run(6, &visits));
  CHECK(visits == "AAAAAA");
  CHECK_FALSE(run(18.9, &visits));
  CHECK(run(19.1, &visits));
  CHECK(visits == "AAAAAAA");
}

TEST_CASE("measure: what is precise after three rounds is visited the least",
          "[calibrate]") {
  Script script;
  int count = 0;
  const std::vector<Subject> subjects = {
      script.Make('A', 1, [] { return 5.0; }),
      script.Make('B', 1, [&count] { return ++count % 2 == 0 ? 7.0 : 9.0; })};
  MeasureOptions options;
  options.rounds = 5;
  options.budget_s = 1000;
  options.most_visits = 4;
  const Measured measured =
      MeasureAll(subjects, options, script.Hooks(), {}).value();
  CHECK(measured.rounds == 5);
  CHECK(script.visits ==
        "AB"
        "AAAABBBB"
        "AAAABBBB"
        "AAAABBBB"
        "AABBBB"
        "AABBBB");
  CHECK(measured.imprecise == std::vector<std::string>{"B"});
}

TEST_CASE("measure: an interrupt leaves what is there", "[calibrate]") {
  Script script;
  const std::vector<Subject> subjects = {
      script.Make('A', 1, [] { return 5.0; }),
      script.Make('B', 1, [] { return 7.0; })};
  script.stop_after = 5;
  MeasureOptions options;
  options.budget_s = 0;
  const Measured measured =
      MeasureAll(subjects, options, script.Hooks(), {}).value();
  CHECK(measured.interrupted);
  CHECK(measured.rounds == 0);
  CHECK(script.visits == "ABAAB");
  CHECK(script.saves == 1);
  CHECK(measured.profile.optimizers[0].time.count == 2);
}

TEST_CASE("measure: a failing visit is named", "[calibrate]") {
  Script script;
  std::vector<Subject> subjects = {script.Make('A', 1, [] { return 5.0; })};
  subjects[0].visit = [](std::vector<double>*) {
    return absl::InternalError("the device is gone");
  };
  const auto measured = MeasureAll(subjects, {}, script.Hooks(), {});
  CHECK(measured.status().message() == "A: the device is gone");
}

// A hold that ran out: that sample is wrong, the others are not.
TEST_CASE("measure: lost visits are made up for and named", "[calibrate]") {
  MeasureOptions options;
  options.rounds = 3;
  options.budget_s = 0;
  const auto losing = [&](Script* script, std::function<bool(int)> lost) {
    Subject subject = script->Make('A', 1, [] { return 5.0; });
    const auto visit = subject.visit;
    auto visits = std::make_shared<int>(0);
    subject.visit = [=](std::vector<double>* samples) {
      const absl::Status status = visit(samples);
      samples->assign(1, 1e9);
      if (lost((*visits)++)) return absl::DeadlineExceededError("too late");
      samples->assign(1, 5.0);
      return status;
    };
    return MeasureAll({subject, script->Make('B', 1, [] { return 7.0; })},
                      options, script->Hooks(), {});
  };
  // The first visit, one in a round, the last one.
  for (const int lost : {0, 3, 6}) {
    Script script;
    const Measured measured =
        losing(&script, [=](int visit) { return visit == lost; }).value();
    CHECK(measured.profile.optimizers[0].time.count == 6);
    CHECK(measured.profile.optimizers[0].time.max_s == 5);
    CHECK(measured.profile.optimizers[1].time.count == 6);
    REQUIRE(measured.lost.size() == 1);
    CHECK(absl::StartsWith(measured.lost[0], "A: 1 of "));
    CHECK(absl::StrContains(measured.lost[0], "lost: too late"));
  }
  // A round that loses all ends, and the others count.
  Script script;
  const Measured measured = losing(&script, [](int visit) {
                              return visit >= 3 && visit < 6;
                            }).value();
  CHECK(measured.rounds == 3);
  CHECK(measured.profile.optimizers[0].time.count == 4);
  CHECK(measured.lost ==
        std::vector<std::string>{"A: 3 of 8 timings were lost: too late"});
  // Nothing will come of it.
  Script never;
  const absl::Status status = losing(&never, [](int) { return true; }).status();
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(status.message() == "A: too late");
  CHECK(never.now < 6);
}

}  // namespace
}  // namespace pipewright::measure_test

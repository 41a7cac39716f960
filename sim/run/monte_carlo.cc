#include "sim/run/monte_carlo.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/quantity.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_draws.h"
#include "sim/cost/jitter.h"
#include "sim/engine/engine.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/known_times.h"
#include "sim/program/program.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

// Steps of one draw: one period, after the start of the pipeline.
constexpr int kNoisyIterations = 2;

// What the draws of a strategy have in common.
struct Shared {
  explicit Shared(const PreparedRun& prepared) : run(prepared) {}
  const PreparedRun& run;
  DrawPlan plan;
  KnownTimes times;
};

absl::StatusOr<double> IterationOf(Shared* shared, int64_t draw) {
  PreparedRun run = shared->run;
  PW_RETURN_IF_ERROR(TakeDraw(draw, &run, &shared->plan));
  PW_ASSIGN_OR_RETURN(const EngineInfo* engine, FindEngine(run.engine));
  PW_ASSIGN_OR_RETURN(const Program program, LowerRun(run, &shared->plan));
  const EngineOptions options;
  // Without lengths a draw is noise alone, and has one schedule of its own.
  // Slow devices and links change times that draws of lengths share.
  absl::StatusOr<RunSummary> summary =
      engine->run == &RunFast && run.sequences && !run.DrawsSlow()
          ? RunFastKnowing(program, options, &shared->times)
          : engine->run(program, options);
  PW_RETURN_IF_ERROR(summary.status());
  if (program.jitter == nullptr) return summary->iteration_s();
  return ReportJitter(*summary, program.jitter->seed).mean_s;
}

absl::StatusOr<PreparedRun> PrepareStrategy(RunConfig config,
                                            RunContext* context) {
  const bool noisy = config.costs.jitter.value_or("none") != "none";
  if (!config.engine) config.engine = "fast";
  if (noisy && !config.iterations) config.iterations = kNoisyIterations;
  return Prepare(config, context);
}

// Does the law give two seeds different factors?
bool Spreads(const std::optional<SlowLaw>& law) {
  if (!law) return false;
  if (law->share < 1) return true;
  return law->kind == SlowLaw::Kind::kLognormal ||
         (law->kind == SlowLaw::Kind::kUniform && law->low < law->high);
}

Json SampleToJson(const SeedSample& sample) {
  return {{"strategy", sample.name},
          {"mean_s", sample.mean_s},
          {"standard_error_s", sample.error_s},
          {"p5_s", sample.p5_s},
          {"p50_s", sample.p50_s},
          {"p95_s", sample.p95_s},
          {"iterations_s", sample.iterations_s}};
}

}  // namespace

SeedSample SummarizeDraws(std::string name, std::vector<double> iterations_s) {
  SeedSample sample;
  sample.name = std::move(name);
  const auto count = static_cast<double>(iterations_s.size());
  for (const double seconds : iterations_s) sample.mean_s += seconds / count;
  double square = 0;
  for (const double seconds : iterations_s) {
    square += (seconds - sample.mean_s) * (seconds - sample.mean_s);
  }
  if (count > 1) sample.error_s = std::sqrt(square / (count - 1) / count);
  std::vector<double> sorted = iterations_s;
  std::sort(sorted.begin(), sorted.end());
  sample.p5_s = QuantileAt(sorted, 0.05);
  sample.p50_s = QuantileAt(sorted, 0.5);
  sample.p95_s = QuantileAt(sorted, 0.95);
  sample.iterations_s = std::move(iterations_s);
  return sample;
}

bool DrawsAnything(const PreparedRun& run) {
  if ((run.slow && Spreads(run.slow->of.law)) ||
      (run.network.slow && Spreads(run.network.slow->of.law))) {
    return true;
  }
  if (run.sequences &&
      (run.sequences->drawn || !run.sequences->source.is_list())) {
    return true;
  }
  const Jitter* const jitter = run.lower.jitter.get();
  if (jitter == nullptr) return false;
  // Quantiles of a profile without deviation are empty.
  const auto draws = [](const std::vector<double>& quantiles) {
    return !quantiles.empty();
  };
  return jitter->sigma > 0 || draws(jitter->optimizer) ||
         std::any_of(jitter->passes.begin(), jitter->passes.end(),
                     [&](const auto& kinds) {
                       return std::any_of(kinds.begin(), kinds.end(), draws);
                     });
}

absl::StatusOr<MonteCarlo> RunMonteCarlo(std::vector<NamedConfig> strategies,
                                         int draws, int threads,
                                         RunContext* context,
                                         Progress* progress) {
  std::mutex telling;
  double done = 0;
  const double all =
      static_cast<double>(draws) * static_cast<double>(strategies.size());
  const auto tell = [&] {
    if (progress == nullptr) return;
    const std::lock_guard<std::mutex> lock(telling);
    progress->At(++done / all);
  };
  MonteCarlo result;
  result.draws = draws;
  std::vector<std::vector<double>> samples;
  for (NamedConfig& strategy : strategies) {
    const auto about = [&](const absl::Status& status) {
      return strategies.size() == 1 ? status : Prefix(strategy.name, status);
    };
    absl::StatusOr<PreparedRun> run = PrepareStrategy(strategy.config, context);
    PW_RETURN_IF_ERROR(about(run.status()));
    const bool is_first = &strategy == &strategies.front();
    if (!is_first && run->costs.in_units != result.in_units) {
      return about(FieldError(
          "costs",
          "times of passes are given to one strategy and not to the other; "
          "allowed: to both, or to neither"));
    }
    result.in_units = run->costs.in_units;
    for (const std::string& warning : run->warnings) {
      result.warnings.push_back(
          strategies.size() == 1 ? warning
                                 : absl::StrCat(strategy.name, ": ", warning));
    }
    if (run->failing) {
      result.warnings.push_back(absl::StrCat(
          strategy.name, strategy.name.empty() ? "" : ": ",
          "reliability.mtbf_per_device has no effect on draws of steps; a run "
          "without --seeds has the goodput"));
    }
    if (!DrawsAnything(*run)) {
      result.warnings.push_back(absl::StrCat(
          strategy.name, strategy.name.empty() ? "" : ": ", kNothingDrawn));
    }
    if (is_first) {
      result.seed = run->sequences ? run->sequences->seed
                                   : run->config.costs.seed.value_or(0);
    }
    std::vector<double> iterations_s(draws);
    Shared shared(*run);
    PW_RETURN_IF_ERROR(about(ParallelFor(
        draws, run->engine == "simgrid" ? 1 : threads, [&](int64_t draw) {
          const absl::StatusOr<double> seconds = IterationOf(&shared, draw);
          if (!seconds.ok()) {
            return Prefix(absl::StrCat("draw ", draw), seconds.status());
          }
          iterations_s[draw] = *seconds;
          tell();
          return absl::OkStatus();
        })));
    samples.push_back(iterations_s);
    result.strategies.push_back(
        SummarizeDraws(strategy.name, std::move(iterations_s)));
  }
  if (samples.size() > 1 && draws > 1) result.tests = TestPairs(samples);
  return result;
}

std::string MonteCarloToText(const MonteCarlo& result) {
  const TimesInUnits units(result.in_units);
  size_t width = 14;
  for (const SeedSample& sample : result.strategies) {
    width = std::max(width, sample.name.size());
  }
  const auto cell = [](double seconds) {
    return absl::StrFormat(" %11s", FormatSeconds(seconds));
  };
  std::string out = absl::StrFormat(
      "%d draws from seed %d: iteration time\n\n%-*s %11s %11s %11s %11s "
      "%11s\n",
      result.draws, result.seed, width, "", "mean", "+/- (95 %)", "P5", "P50",
      "P95");
  for (const SeedSample& sample : result.strategies) {
    constexpr double kNormal95 = 1.96;
    absl::StrAppendFormat(&out, "%-*s", width, sample.name);
    absl::StrAppend(&out, cell(sample.mean_s), cell(kNormal95 * sample.error_s),
                    cell(sample.p5_s), cell(sample.p50_s), cell(sample.p95_s),
                    "\n");
  }
  if (!result.tests.empty()) {
    out += "\norder, by the differences draw by draw (paired t, Holm):\n";
  }
  for (const PairedTest& test : result.tests) {
    const SeedSample& first = result.strategies[test.first];
    const SeedSample& second = result.strategies[test.second];
    const bool later = test.difference > 0;
    const double share = first.mean_s > 0 ? test.difference / first.mean_s : 0;
    absl::StrAppendFormat(
        &out, "  %s is %s than %s by %.2f %% +/- %.2f %%, p %s: %s\n",
        second.name, later ? "slower" : "faster", first.name,
        100 * std::abs(share),
        first.mean_s > 0 ? 100 * test.half / first.mean_s : 0,
        test.p < 1e-9 ? std::string("< 1e-9") : absl::StrFormat("%.2g", test.p),
        test.significant ? "significant" : "not significant");
  }
  return out;
}

Json MonteCarloToJson(const MonteCarlo& result) {
  Json out;
  out["draws"] = result.draws;
  out["seed"] = result.seed;
  out["time_unit"] = TimeUnitName(result.in_units);
  out["strategies"] = Json::array();
  for (const SeedSample& sample : result.strategies) {
    out["strategies"].push_back(SampleToJson(sample));
  }
  out["tests"] = Json::array();
  for (const PairedTest& test : result.tests) {
    out["tests"].push_back({{"first", result.strategies[test.first].name},
                            {"second", result.strategies[test.second].name},
                            {"difference_s", test.difference},
                            {"half_interval_s", test.half},
                            {"t", test.t},
                            {"p", test.p},
                            {"significant", test.significant}});
  }
  out["warnings"] = result.warnings;
  return out;
}

namespace {

// Differences that spread less than this of the times are one number that
// rounding has blurred.
constexpr double kRounding = 1e-12;

PairedTest Test(const std::vector<double>& first,
                const std::vector<double>& second) {
  const auto count = static_cast<double>(first.size());
  PairedTest test;
  double size = 0;
  for (size_t draw = 0; draw < first.size(); ++draw) {
    test.difference += (second[draw] - first[draw]) / count;
    size = std::max({size, std::abs(first[draw]), std::abs(second[draw])});
  }
  double square = 0;
  for (size_t draw = 0; draw < first.size(); ++draw) {
    const double off = second[draw] - first[draw] - test.difference;
    square += off * off;
  }
  const double error = std::sqrt(square / (count - 1) / count);
  const auto degrees = static_cast<int64_t>(first.size()) - 1;
  if (error <= kRounding * size) {
    test.p = std::abs(test.difference) <= kRounding * size ? 1 : 0;
    return test;
  }
  test.t = test.difference / error;
  test.half = StudentT(0.95, degrees) * error;
  test.p = 1 - StudentInside(std::abs(test.t), degrees);
  return test;
}

}  // namespace

std::vector<PairedTest> TestPairs(
    const std::vector<std::vector<double>>& samples) {
  std::vector<PairedTest> tests;
  for (size_t first = 0; first < samples.size(); ++first) {
    PW_CHECK(samples[first].size() == samples[0].size());
    PW_CHECK(samples[first].size() >= 2);
    for (size_t second = first + 1; second < samples.size(); ++second) {
      tests.push_back(Test(samples[first], samples[second]));
      tests.back().first = first;
      tests.back().second = second;
    }
  }
  std::vector<PairedTest*> by_p;
  for (PairedTest& test : tests) by_p.push_back(&test);
  std::stable_sort(by_p.begin(), by_p.end(),
                   [](const auto* a, const auto* b) { return a->p < b->p; });
  for (size_t place = 0; place < by_p.size(); ++place) {
    const auto left = static_cast<double>(by_p.size() - place);
    if (by_p[place]->p > kPairedLevel / left) break;
    by_p[place]->significant = true;
  }
  return tests;
}

}  // namespace pipewright

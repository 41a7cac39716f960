#include "sim/reproduce/zero_bubble.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

// Section 5 of the paper.
constexpr double kSequence = 1024;

// M_W / M = 32h / (34h + 5as): table 1 and appendix G of the paper.
double HeldUntilWeight(const TableRow& times) {
  const double hidden = times.Number("hidden");
  return 32 * hidden / (34 * hidden + 5 * times.Number("heads") * kSequence);
}

int DigitsAfterPoint(const std::string& number) {
  const size_t point = number.find('.');
  return point == std::string::npos
             ? 0
             : static_cast<int>(number.size() - point - 1);
}

}  // namespace

absl::StatusOr<ZeroBubbleResult> RunZeroBubble(const TableRow& times,
                                               const ZeroBubbleRun& zero_bubble,
                                               const std::string& engine_name) {
  RunConfig config;
  config.schedule.name.emplace(zero_bubble.schedule);
  config.engine = engine_name;
  config.iterations = 1;
  config.strategy.pp = times.Integer("pp");
  config.strategy.vpp = zero_bubble.vpp;
  config.strategy.microbatches = times.Integer("microbatches");
  if (zero_bubble.limit) {
    config.strategy.max_activations = *zero_bubble.limit * *config.strategy.pp;
  }
  config.costs.forward_s = 1e-3 * times.Number("forward_ms");
  config.costs.backward_input_s = 1e-3 * times.Number("backward_input_ms");
  config.costs.backward_weight_s = 1e-3 * times.Number("backward_weight_ms");
  config.costs.p2p_s = 1e-3 * times.Number("p2p_ms");
  config.costs.held_until_weight = HeldUntilWeight(times);
  RunContext context;
  SimulateOptions options;
  options.admit = [](const PreparedRun& prepared, const Program&) {
    return prepared.limit();
  };
  PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                      Simulate(config, &context, options));
  return ZeroBubbleResult{run.report.span_s.per_rank, run.report.busy_s};
}

std::string ZeroBubbleSetting(const TableRow& times) {
  return absl::StrCat(times.Text("model"), ", pp ", times.Text("pp"),
                      ", microbatches ", times.Text("microbatches"));
}

void CheckSameSetting(const TableRow& times, const TableRow& published) {
  for (const char* key : {"model", "pp", "microbatches"}) {
    PW_CHECK(times.Text(key) == published.Text(key));
  }
}

Comparison CompareRate(const TableRow& times, absl::string_view schedule,
                       const std::string& published, double rate) {
  return {ZeroBubbleSetting(times), std::string(schedule), published, rate,
          absl::StrFormat("%.*f", DigitsAfterPoint(published), rate)};
}

Comparison ComparePlannedRate(const TableRow& times, absl::string_view schedule,
                              const std::string& published, double rate) {
  Comparison comparison = CompareRate(times, schedule, published, rate);
  comparison.rule = Comparison::Rule::kAtMost;
  comparison.tolerance = 0.5 * std::pow(10, -DigitsAfterPoint(published));
  return comparison;
}

absl::Status CompareInterleaved(const TableRow& times,
                                const TableRow& published,
                                const std::string& engine,
                                std::vector<Comparison>* comparisons) {
  PW_ASSIGN_OR_RETURN(
      const ZeroBubbleResult interleaved,
      RunZeroBubble(times, {"interleaved-1f1b", times.Integer("vpp"), {}},
                    engine));
  const double hops_s = times.Integer("pp") * 1e-3 * times.Number("p2p_ms");
  comparisons->push_back(CompareRate(times, "interleaved-1f1b",
                                     published.Text("interleaved"),
                                     interleaved.Rate(hops_s)));
  comparisons->push_back(CompareRate(times, "interleaved-1f1b, plain span",
                                     published.Text("interleaved_plain"),
                                     interleaved.Rate()));
  comparisons->back().in_paper = false;
  return absl::OkStatus();
}

}  // namespace pipewright

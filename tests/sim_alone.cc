// pipewright_sim without command line, calibration and executor: that this
// links shows that it needs nothing above it. One run, held against hand
// arithmetic.
#include <cmath>
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "sim/base/status.h"
#include "sim/config/run_config.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr char kRun[] = R"(
strategy: {pp: 4, microbatches: 8}
schedule: {name: 1f1b}
costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: 1s}, p2p: 0s}
engine: fast
)";
// (m + p - 1) (F + B + W)
constexpr double kExpected_s = 11 * 3;

absl::StatusOr<double> SpanSeconds() {
  PW_ASSIGN_OR_RETURN(const RunConfig config, ReadConfig(kRun, "run.yaml"));
  RunContext context;
  PW_ASSIGN_OR_RETURN(const SimulatedRun run, Simulate(config, &context));
  return run.report.span_s.global;
}

}  // namespace
}  // namespace pipewright

int main() {
  const absl::StatusOr<double> span_s = pipewright::SpanSeconds();
  const std::string said = span_s.ok() ? "" : span_s.status().ToString();
  if (span_s.ok() && std::fabs(*span_s - pipewright::kExpected_s) < 1e-9) {
    return 0;
  }
  std::fprintf(stderr, "%s; %g s, expected %g s\n", said.c_str(),
               span_s.value_or(0), pipewright::kExpected_s);
  return 1;
}

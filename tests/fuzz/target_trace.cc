#include <cmath>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "calibrate/import_kineto.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/base/check.h"
#include "sim/trace/trace_read.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {
namespace {

constexpr char kTrace[] = "fuzz.json";

void CheckTraceError(const absl::Status& status) {
  PW_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  PW_CHECK(absl::StartsWith(status.message(), kTrace));
}

}  // namespace

bool FuzzKineto(absl::string_view input) {
  std::istringstream in{std::string(input)};
  KinetoOptions options;
  options.model = {.style = "gpt",
                   .hidden = 256,
                   .heads = 4,
                   .kv_heads = 4,
                   .head_dim = 64,
                   .ffn = 1024,
                   .vocabulary = 1024};
  options.sequence = 128;
  options.layers = 2;
  options.parameters = 1000;
  const absl::StatusOr<Profile> profile = ImportKineto(in, kTrace, options);
  if (!profile.ok()) {
    // What contradicts an option begins with it.
    if (!absl::StartsWith(profile.status().message(), "--")) {
      CheckTraceError(profile.status());
    }
    PW_CHECK(profile.status().code() == absl::StatusCode::kInvalidArgument);
    return false;
  }
  const std::string text = WriteProfile(*profile);
  const absl::StatusOr<Profile> again = ReadProfile(text, "again.txtpb");
  PW_CHECK(again.ok() && WriteProfile(*again) == text);
  return true;
}

bool FuzzChromeTrace(absl::string_view input) {
  std::istringstream in{std::string(input)};
  const absl::StatusOr<ReadTrace> trace = ReadChromeTrace(in, kTrace);
  if (!trace.ok()) {
    CheckTraceError(trace.status());
    return false;
  }
  for (const ReadOp& op : trace->ops) {
    PW_CHECK(std::isfinite(op.op.start_s) && std::isfinite(op.op.end_s));
    PW_CHECK(op.op.start_s <= op.op.end_s);
  }
  // Passes that nobody can pair, or no whole iteration, are the user's error.
  const absl::StatusOr<PairedRun> run = PairRuns(*trace, *trace);
  if (!run.ok()) {
    PW_CHECK(run.status().code() == absl::StatusCode::kInvalidArgument);
    return true;
  }
  const absl::StatusOr<TraceComparison> comparison =
      Compare(*run, *trace, *trace, -1);
  if (!comparison.ok()) {
    PW_CHECK(comparison.status().code() == absl::StatusCode::kInvalidArgument);
    return true;
  }
  PW_CHECK(comparison->step_s.difference() == 0);
  PW_CHECK(comparison->findings.list.empty());
  PW_CHECK(!ComparisonToText(*comparison).empty());
  return true;
}

}  // namespace pipewright::testing

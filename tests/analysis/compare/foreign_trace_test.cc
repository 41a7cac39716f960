// Traces of other programs: written here from a simulated run, with names and
// layouts as profilers have them.
#include "sim/analysis/compare/foreign_trace.h"

#include <catch2/catch.hpp>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/base/json.h"
#include "sim/trace/export.h"
#include "tests/trace/example.h"

namespace pipewright::foreign_trace_test {
namespace {

ReadTrace Example() {
  std::istringstream in(
      ChromeTraceJson(testing::ExampleProgram(), testing::ExampleOps()));
  return ReadChromeTrace(in, "sim.json").value();
}

struct Layout {
  bool kernels = false;  // regions on the host, work on the device
  int rank = -1;         // only this one's regions
  double longer = 1;     // backward passes of rank 1
};

// Regions of the example's passes, process 10 * (2 - rank).
std::string Foreign(const Layout& layout) {
  Json events = Json::array();
  events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", 1}});
  int correlation = 0;
  const auto add = [&](const char* category, const std::string& name,
                       const Json& process, double start_us, double length_us,
                       int number) {
    events.push_back({{"ph", "X"},
                      {"cat", category},
                      {"name", name},
                      {"pid", process},
                      {"tid", 7},
                      {"ts", start_us},
                      {"dur", length_us},
                      {"args", {{"correlation", number}}}});
  };
  double shift_us = 0;
  for (const TraceOp& op : testing::ExampleOps()) {
    if (op.kind != OpKind::kPass) continue;
    if (layout.rank >= 0 && op.rank != layout.rank) continue;
    const bool forward = op.pass.kind() == PassKind::kForward;
    const std::string name =
        absl::StrCat(forward ? "forward" : "backward", " step");
    const Json process = 10 * (op.rank + 1);
    const double start_us = 5e6 + op.start_s * 1e6 + shift_us;
    double length_us = (op.end_s - op.start_s) * 1e6;
    if (!forward && op.rank == 1) length_us *= layout.longer;
    if (!layout.kernels) {
      add("user_annotation", name, process, start_us, length_us, -1);
      continue;
    }
    // Launched long before they run, the kernels of one region in two parts.
    const double host_us = 1e6 + 100 * correlation;
    add("user_annotation", name, process, host_us, 50, -1);
    add("user_annotation", absl::StrCat(name, " inner"), process, host_us + 1,
        10, -1);
    for (const double part : {0.0, 0.5}) {
      ++correlation;
      add("cuda_runtime", "cudaLaunchKernel", process, host_us + 2 + part, 1,
          correlation);
      add("kernel", "gemm", 0, start_us + part * length_us, length_us / 2,
          correlation);
    }
  }
  Json trace;
  if (layout.rank >= 0) trace["distributedInfo"] = {{"rank", layout.rank}};
  trace["schemaVersion"] = 1;
  trace["traceEvents"] = std::move(events);
  return trace.dump();
}

absl::StatusOr<ReadTrace> Read(const std::vector<std::string>& texts,
                               const ForeignOptions& options = {}) {
  std::vector<std::istringstream> streams;
  for (const std::string& text : texts) streams.emplace_back(text);
  std::vector<ForeignFile> files;
  for (size_t index = 0; index < streams.size(); ++index) {
    files.push_back({&streams[index], absl::StrCat("rank", index, ".json")});
  }
  return ReadForeignTrace(files, options, Example());
}

void CheckPasses(const absl::StatusOr<ReadTrace>& read) {
  INFO(read.status());
  REQUIRE(read.ok());
  int passes = 0;
  for (const TraceOp& op : testing::ExampleOps()) {
    if (op.kind != OpKind::kPass) continue;
    for (const ReadOp& other : read->ops) {
      if (other.op.kind != OpKind::kPass || other.op.rank != op.rank ||
          !(other.op.pass == op.pass)) {
        continue;
      }
      ++passes;
      CHECK(other.op.start_s - 5 == Approx(op.start_s).margin(1e-9));
      CHECK(other.op.end_s - 5 == Approx(op.end_s).margin(1e-9));
    }
  }
  CHECK(passes == 8);
}

TEST_CASE("foreign trace: passes are found and named", "[compare]") {
  CheckPasses(Read({Foreign({})}));
  CheckPasses(Read({Foreign({.kernels = true})}));
  CheckPasses(Read({Foreign({.kernels = true, .rank = 1}),
                    Foreign({.kernels = true, .rank = 0})}));
  ForeignOptions patterns;
  patterns.patterns[static_cast<int>(Region::kForward)] = "^forward step$";
  CheckPasses(Read({Foreign({})}, patterns));
}

TEST_CASE("foreign trace: compares with the simulation", "[compare]") {
  std::vector<std::string> warnings;
  for (const double longer : {1.0, 0.8}) {
    const ReadTrace measured = *Read({Foreign({.longer = longer})});
    const ReadTrace simulated = WithoutUnknown(Example(), measured, &warnings);
    const PairedRun run = PairRuns(simulated, measured).value();
    const TraceComparison comparison =
        Compare(run, simulated, measured, -1).value();
    double sum = 0;
    for (const Difference& difference : comparison.differences) {
      sum += difference.seconds;
    }
    CHECK(sum == Approx(comparison.step_s.difference()).margin(1e-9));
    const auto named = std::count_if(
        comparison.findings.list.begin(), comparison.findings.list.end(),
        [&](const Finding& finding) {
          return finding.what == "kernel" && finding.label == "BW" &&
                 finding.rank == 1 && finding.factor == Approx(longer);
        });
    CHECK(named == (longer == 1.0 ? 0 : 1));
    if (longer == 1.0) {
      CHECK(comparison.findings.list.empty());
      CHECK(comparison.step_s.difference() == Approx(0).margin(1e-8));
    }
  }
  REQUIRE(!warnings.empty());
  CHECK(absl::StrContains(warnings[0], "all-reduce"));
}

TEST_CASE("foreign trace: says what is missing", "[compare]") {
  const auto error = [](const absl::StatusOr<ReadTrace>& read) {
    CHECK(read.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(read.status().message());
  };
  ForeignOptions options;
  options.patterns[static_cast<int>(Region::kForward)] = "nothing";
  CHECK(absl::StrContains(error(Read({Foreign({})}, options)),
                          "rank 0 has 0 regions that match --forward"));
  options.patterns[static_cast<int>(Region::kBackwardFull)] = "nothing";
  CHECK(absl::StrContains(error(Read({Foreign({})}, options)), "forward step"));
  options.patterns[0] = std::string(1, '(');
  CHECK(absl::StrContains(error(Read({Foreign({})}, options)), "--forward: ("));
  CHECK(absl::StrContains(error(Read({Foreign({})}, {.rank_of = "name"})),
                          "--rank-of"));
  CHECK(absl::StrContains(error(Read({Foreign({})}, {.skip = 1})),
                          "regions that match"));
  CHECK(absl::StrContains(error(Read({"{}"})), "traceEvents"));
}

}  // namespace
}  // namespace pipewright::foreign_trace_test

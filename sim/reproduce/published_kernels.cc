// The analytic model's kernel times against published measurements of single
// kernels: experiments/papers/published_kernels.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/cost/kernel_time.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"

namespace pipewright::published_kernels {
namespace {

constexpr double kTolerance = 0.10;
// Long enough for a rate, whatever it is.
constexpr double kStreamBytes = 1e9;

double Rate(const DeviceSpec& device, const TableRow& row) {
  const double m = row.Number("m");
  const double n = row.Number("n");
  const double k = row.Number("k");
  const std::string& kernel = row.Text("kernel");
  if (kernel == "stream") {
    return 1e-9 * kStreamBytes / StreamSeconds(device, kStreamBytes);
  }
  if (kernel == "attention") {
    constexpr double kFlops = 1e15;
    const std::string& pass = row.Text("pass");
    const OpPass direction = absl::StrContains(pass, "forward")
                                 ? OpPass::kForward
                                 : OpPass::kBackwardInput;
    return 1e-12 * kFlops /
           AttentionSeconds(device, direction, absl::StartsWith(pass, "causal"),
                            kFlops, m);
  }
  const bool fp8 = row.Text("precision") == "fp8";
  const double bytes = (fp8 ? 1 : 2) * (m * k + n * k) + 2 * m * n;
  return 1e-12 * 2 * m * n * k /
         GemmSeconds(device, fp8 ? Precision::kFp8 : Precision::kBf16, m, n, k,
                     1, bytes);
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string&) {
  std::vector<Comparison> comparisons;
  for (const TableRow& row : ReadTable("published_kernels/kernels")) {
    PW_ASSIGN_OR_RETURN(const DeviceSpec device,
                        FindDevice(row.Text("device")));
    Comparison comparison;
    comparison.setting =
        absl::StrCat(row.Text("device"), " ", row.Text("kernel"), " ",
                     row.Text("precision"));
    const bool attention = row.Text("kernel") == "attention";
    comparison.schedule =
        attention ? absl::StrCat(row.Text("pass"), " s=", row.Text("m"))
                  : absl::StrCat(row.Text("m"), "x", row.Text("n"), "x",
                                 row.Text("k"));
    comparison.published = row.Text("published");
    comparison.simulated = Rate(device, row);
    comparison.rounded = absl::StrFormat("%.1f", comparison.simulated);
    comparison.rule = Comparison::Rule::kWithin;
    comparison.tolerance = kTolerance;
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

const RegisterPaper kRow({
    .name = "published-kernels",
    .summary = "single kernels measured by others, sources in the table",
    .metric =
        "TFLOP/s (gemm, attention) or GB/s (stream) of the analytic model",
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright::published_kernels

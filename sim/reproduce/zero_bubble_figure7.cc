// Figure 7 with the times of table 5 (experiments/papers/zero_bubble_figure7),
// run through the same path as `simulate`.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/reproduce/zero_bubble.h"

namespace pipewright::zero_bubble_figure7 {
namespace {

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine) {
  const std::vector<TableRow> times = ReadTable("zero_bubble_table5/times");
  const std::vector<TableRow> reference =
      ReadTable("zero_bubble_figure7/reference");
  PW_CHECK(times.size() == reference.size());
  std::vector<Comparison> comparisons;
  for (size_t row = 0; row < times.size(); ++row) {
    CheckSameSetting(times[row], reference[row]);
    for (int eighths = 8; eighths <= 24; ++eighths) {
      const double limit = eighths / 8.0;
      PW_ASSIGN_OR_RETURN(
          const ZeroBubbleResult result,
          RunZeroBubble(times[row], {"zb-auto", 1, limit}, engine));
      comparisons.push_back(ComparePlannedRate(
          times[row], absl::StrFormat("zb-auto, limit %g*pp", limit),
          reference[row].Text(absl::StrCat(limit)), result.Rate()));
      comparisons.back().in_paper = false;
    }
  }
  return comparisons;
}

const RegisterPaper kRow({
    .name = "zero-bubble-figure7",
    .summary = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, figure 7",
    .metric = "bubble rate of the planner over the memory limit",
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright::zero_bubble_figure7

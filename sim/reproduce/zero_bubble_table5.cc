// The files of experiments/papers/zero_bubble_table5, run through the same
// path as `simulate`.
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/reproduce/zero_bubble.h"

namespace pipewright::zero_bubble_table5 {
namespace {

struct Planned {
  const char* column;
  const char* label;
  double limit;  // in pp microbatches
};
constexpr Planned kPlanned[] = {{"zb-1p", "zb-auto, limit pp", 1},
                                {"zb-2p", "zb-auto, limit 2*pp", 2}};

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine) {
  const std::vector<TableRow> times = ReadTable("zero_bubble_table5/times");
  const std::vector<TableRow> published =
      ReadTable("zero_bubble_table5/published");
  PW_CHECK(times.size() == published.size());
  std::vector<Comparison> comparisons;
  for (size_t row = 0; row < times.size(); ++row) {
    CheckSameSetting(times[row], published[row]);
    for (const char* schedule : {"1f1b", "zb-h1", "zb-h2"}) {
      PW_ASSIGN_OR_RETURN(const ZeroBubbleResult result,
                          RunZeroBubble(times[row], {schedule, 1, {}}, engine));
      comparisons.push_back(CompareRate(
          times[row], schedule, published[row].Text(schedule), result.Rate()));
    }
    for (const Planned& planned : kPlanned) {
      PW_ASSIGN_OR_RETURN(
          const ZeroBubbleResult result,
          RunZeroBubble(times[row], {"zb-auto", 1, planned.limit}, engine));
      comparisons.push_back(ComparePlannedRate(
          times[row], planned.label, published[row].Text(planned.column),
          result.Rate()));
    }
    PW_RETURN_IF_ERROR(
        CompareInterleaved(times[row], published[row], engine, &comparisons));
  }
  return comparisons;
}

const RegisterPaper kRow({
    .name = "zero-bubble-table5",
    .summary = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, table 5",
    .metric = kZeroBubbleRate,
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright::zero_bubble_table5

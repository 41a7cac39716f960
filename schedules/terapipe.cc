// TeraPipe: all forwards, then all backwards, of slices whose lengths dynamic
// programming chooses: short slices fill the pipeline sooner, later ones cost
// more (causal attention), and each costs something extra.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedules/slice_plan.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::terapipe {
namespace {

constexpr char kName[] = "terapipe";
// A slice is made of pieces: about as many in all as the 16 to 20 slices of the
// paper's largest model, or a few for each slice asked for.
constexpr int kPieces = 16;
constexpr int kPiecesPerSlice = 4;
// The time of planning grows with their fourth power.
constexpr int kMostPieces = 256;

// The time of each slice over that of an average one, plus the overhead.
absl::StatusOr<std::vector<double>> Factors(const ScheduleParams& params) {
  if (params.slices > kMostPieces) {
    return BadValue("strategy.slices", absl::StrCat(params.slices),
                    absl::StrCat("1..", kMostPieces, " (schedule ", kName,
                                 "; 1: as many as are best)"));
  }
  const bool free = params.slices == 1;
  const int fallback =
      free ? kPieces : std::min(kPiecesPerSlice * params.slices, kMostPieces);
  SequenceShape sequence;
  PW_ASSIGN_OR_RETURN(sequence.tokens, IntParam(params, "pieces", fallback,
                                                params.slices, kMostPieces));
  PW_ASSIGN_OR_RETURN(
      sequence.attention,
      RealParam(params, "attention", params.sequence.attention, 0, 1));
  PW_ASSIGN_OR_RETURN(const double overhead,
                      RealParam(params, "overhead", 0, 0, 1));
  const auto time = [&](int length, int context) {
    return overhead + SliceWork(sequence, context, context + length);
  };
  const std::vector<int> lengths =
      PlanSlices(static_cast<int>(sequence.tokens), free ? 0 : params.slices,
                 params.pp, params.microbatches, time);
  std::vector<double> factors;
  int context = 0;
  for (const int length : lengths) {
    factors.push_back(time(length, context) *
                      static_cast<double>(lengths.size()));
    context += length;
  }
  return factors;
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 1));
  PW_ASSIGN_OR_RETURN(const std::vector<double> factors, Factors(params));
  const auto slices = static_cast<int>(factors.size());
  ScheduleBuilder builder(kName, Placement::Plain(params.pp),
                          params.microbatches, slices);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * slices * params.microbatches);
    for (int microbatch = 0; microbatch < params.microbatches; ++microbatch) {
      for (int slice = 0; slice < slices; ++slice) {
        builder.Add(rank, PassKind::kForward, microbatch, 0, slice);
      }
    }
    for (int microbatch = 0; microbatch < params.microbatches; ++microbatch) {
      for (int slice = slices - 1; slice >= 0; --slice) {
        builder.Add(rank, PassKind::kBackwardFull, microbatch, 0, slice);
      }
    }
  }
  return std::move(builder).Finish();
}

// Every rank runs the same slices in the same order, so the dearest one sets
// the distance between two ranks.
double Bubble(const ScheduleParams& params, int) {
  const std::vector<double> planned = *Factors(params);
  const std::vector<double>& used = params.costs.slice_factor;
  const double dearest =
      used.empty() ? 1 : *std::max_element(used.begin(), used.end());
  return (params.pp - 1) *
         (params.costs.work() * dearest / static_cast<double>(planned.size()) +
          2 * params.costs.hop);
}

bool Always(const ScheduleParams&) { return true; }

constexpr char kBubble[] = "(p-1)(max t + 2c), t of the F and BW of a slice";
constexpr char kSource[] = "TeraPipe, arXiv 2102.07988, equation 5";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "all forwards, then all backwards, of slices chosen by dynamic "
               "programming",
    .source = "TeraPipe, arXiv 2102.07988, section 3.3; batches are not cut "
              "further, microbatches are given",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {{"pieces", "16, or 4*slices", "slices..256",
                "equal pieces of the sequence that a slice is made of"},
               {"overhead", "0", "0..1",
                "what a slice costs besides its work, in whole sequences"},
               {"attention", "from the model, else 0", "0..1",
                "part of the work that is causal attention"}},
    .build = Build,
    .claims = BubbleClaims({.metric = Claim::Metric::kBubblePerRank,
                            .formula = kBubble,
                            .source = kSource,
                            .domain = Always,
                            .value = Bubble},
                           {{.metric = Claim::Metric::kPeakActivations,
                             .formula = "m",
                             .source = "derived from the order",
                             .domain = Always,
                             .value = [](const ScheduleParams& params, int)
                                 -> double { return params.microbatches; }}}),
    .slice_factor = Factors,
});

}  // namespace
}  // namespace pipewright::terapipe

#include "schedules/group_interleaved.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "sim/base/status.h"
#include "sim/schedule/builder.h"

namespace pipewright {
namespace {

// The least group whose work on one rank covers the way of one forward, or of
// one backward, through all ranks.
int LeastGroup(const ScheduleParams& params) {
  const double way =
      params.pp * std::max(params.costs.forward, params.costs.backward_input);
  int group = (params.pp + 1) / 2;
  while (group < params.pp && params.costs.work() * group < way) ++group;
  return group;
}

// The passes of one rank in one period, by slot. No two share one.
struct Entry {
  int64_t slot;
  PassKind kind;
  int chunk;
  int member;
};

std::vector<Entry> OnePeriod(const GroupGrid& grid, int vpp, int group,
                             int rank) {
  std::vector<Entry> entries;
  for (int chunk = 0; chunk < vpp; ++chunk) {
    for (int member = 0; member < group; ++member) {
      const int64_t backward = grid.Backward(chunk, member, rank);
      entries.push_back({grid.Forward(chunk, member, rank), PassKind::kForward,
                         chunk, member});
      entries.push_back({backward, PassKind::kBackwardInput, chunk, member});
      entries.push_back(
          {backward + 1, PassKind::kBackwardWeight, chunk, member});
    }
  }
  return entries;
}

// Merges the repetitions of a period: within [step * period, next) each entry
// appears once, of the group that many periods back.
void AddRank(const GroupGrid& grid, const ScheduleParams& params, int group,
             int rank, ScheduleBuilder& builder) {
  std::vector<Entry> entries = OnePeriod(grid, params.vpp, group, rank);
  const int64_t period = grid.period();
  std::sort(entries.begin(), entries.end(),
            [period](const Entry& left, const Entry& right) {
              return left.slot % period < right.slot % period;
            });
  int64_t last_step = 0;
  for (const Entry& entry : entries) {
    last_step = std::max(last_step, entry.slot / period);
  }
  const int64_t groups = (params.microbatches + group - 1) / group;
  for (int64_t step = 0; step < groups + last_step; ++step) {
    for (const Entry& entry : entries) {
      const int64_t index = step - entry.slot / period;
      if (index < 0 || index >= groups) continue;
      const int64_t microbatch = index * group + entry.member;
      if (microbatch >= params.microbatches) continue;
      builder.Add(rank, entry.kind, static_cast<int>(microbatch), entry.chunk);
    }
  }
}

}  // namespace

GroupGrid::GroupGrid(const ScheduleParams& params, int group)
    : pp_(params.pp), vpp_(params.vpp), group_(group) {
  spacing_ = (LeastGroup(params) + group - 1) / group;
  wrap_ = vpp_ / std::gcd(vpp_, spacing_);
}

// Without the shift after every `wrap_` chunks two chunks would meet.
int64_t GroupGrid::Offset(int chunk) const {
  return 3 * spacing_ * group_ * chunk + 3 * group_ * (chunk / wrap_);
}

int64_t GroupGrid::Forward(int chunk, int member, int rank) const {
  return Offset(chunk) + 3 * int64_t{member} + rank;
}

int64_t GroupGrid::Backward(int chunk, int member, int rank) const {
  const int last = static_cast<int>(vpp_) - 1;
  return Forward(last, 0, rank) + 1 + 3 * (pp_ - 1 - rank) +
         Offset(last - chunk) + 3 * int64_t{member};
}

int64_t GroupGrid::MostAlive(int rank) const {
  int64_t alive = 0;
  for (int chunk = 0; chunk < vpp_; ++chunk) {
    const int64_t lifespan =
        Backward(chunk, 0, rank) + 2 - Forward(chunk, 0, rank);
    alive += group_ * ((lifespan + period() - 1) / period());
  }
  return alive;
}

absl::StatusOr<Schedule> BuildGroupInterleaved(absl::string_view name,
                                               const ScheduleParams& params,
                                               int group) {
  PW_RETURN_IF_ERROR(RequireOnly(name, "strategy.slices", params.slices, 1));
  const GroupGrid grid(params, group);
  ScheduleBuilder builder(name, Placement::Loop(params.pp, params.vpp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{3} * params.vpp * params.microbatches);
    AddRank(grid, params, group, rank, builder);
  }
  return std::move(builder).Finish();
}

Claim UniformPeak() {
  return {.metric = Claim::Metric::kPeakActivations,
          .sense = Claim::Sense::kUpperBound,
          .formula = "sum over chunks of ceil(lifespan / 3v) / v",
          .source = "arXiv 2405.15362, equation 1",
          .domain = [](const ScheduleParams&) { return true; },
          .value =
              [](const ScheduleParams& params, int rank) {
                const int64_t chunks = GroupGrid(params, 1).MostAlive(rank);
                return static_cast<double>(chunks) / params.vpp;
              }};
}

}  // namespace pipewright

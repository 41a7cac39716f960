// Interleaving in groups of microbatches with an even spacing between the
// chunks, backward split, W right after its B: the order that GIS, GIS-H and
// the PipeOffload schedules share. They differ in the size of a group. Source:
// PipeOffload, arXiv 2503.01328, section 3, and its implementation.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/schedule.h"

namespace pipewright::pipeoffload {
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

// Where each pass stands on a grid of slots, one slot a pass of one chunk.
class GroupGrid {
 public:
  // `group`: 1..pp microbatches.
  GroupGrid(const ScheduleParams& params, int group);

  // Slots after which a rank repeats itself with the next group.
  int64_t period() const { return 3 * group_ * vpp_; }
  int64_t Forward(int chunk, int member, int rank) const;
  // W stands one slot later.
  int64_t Backward(int chunk, int member, int rank) const;

  // Chunk activations alive at once on `rank`, no more than this (until W):
  // for each chunk, as many repetitions as its lifespan meets.
  int64_t MostAlive(int rank) const;

 private:
  int64_t Offset(int chunk) const;

  int64_t pp_, vpp_, group_;
  int64_t spacing_;  // between the chunks, in groups
  int64_t wrap_;     // chunks after which one group's room is left free
};

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

// Error: kInvalidArgument if there are slices.
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

// The peak of groups of one microbatch, by the lifespans of the chunks.
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

}  // namespace

// GIS: chunks interleaved in groups of pp microbatches, B and W side by side;
// the activations of 1F1B at a smaller bubble.
namespace gis {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildGroupInterleaved("gis", params, params.pp);
}

// In steady state a hop hides behind the passes of a rank.
bool WholeGroups(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return params.pp >= 2 && params.microbatches % params.pp == 0 &&
         2 * params.vpp * costs.hop <=
             std::min(
                 {costs.forward, costs.backward_input, costs.backward_weight});
}

double Bubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  return (params.pp - 1) * (costs.forward + costs.backward_input) / params.vpp +
         ((params.vpp + 1.0) * params.pp - 2) * costs.hop;
}

constexpr char kBubble[] = "(p-1)(F+B)/v + ((v+1)p-2)c";
constexpr char kSource[] =
    "PipeOffload, arXiv 2503.01328, table 1; hops c fitted to replays; p | m, "
    "2vc <= min(F, B, W)";

const RegisterSchedule kRow({
    .name = "gis",
    .summary = "chunks in groups of pp microbatches, memory of 1F1B",
    .source = "PipeOffload, arXiv 2503.01328, section 3; order of the authors' "
              "implementation",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = WholeGroups,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .sense = Claim::Sense::kUpperBound,
          .formula = "min(p, m)",
          .source = "PipeOffload, arXiv 2503.01328, table 1",
          .domain = [](const ScheduleParams&) { return true; },
          .value = [](const ScheduleParams& params, int) -> double {
            return std::min(params.pp, params.microbatches);
          }}}),
});

}  // namespace
}  // namespace gis

// GIS-H: as GIS in groups of half as many microbatches; about half of its
// activations, at a larger bubble.
namespace gis_h {
namespace {

int Group(const ScheduleParams& params) { return (params.pp + 1) / 2; }

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildGroupInterleaved("gis-h", params, Group(params));
}

// Groups fill the ranks, and in steady state neither the way of a forward nor
// that of a backward, with its hops, is longer than the work of a group.
bool WholeGroups(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  const double hops = 2 * params.vpp * costs.hop;
  return params.pp % 2 == 0 && params.microbatches % params.pp == 0 &&
         costs.backward_weight <= costs.backward_input &&
         costs.forward + hops <= costs.backward_input + costs.backward_weight &&
         costs.backward_input + hops <= costs.forward + costs.backward_weight &&
         hops <= std::min(costs.forward, costs.backward_weight);
}

double Bubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  const double pair = costs.forward + costs.backward_input;
  return ((params.pp - 1) * pair + (params.vpp - 1) *
                                       (params.pp - Group(params)) *
                                       (pair - costs.backward_weight)) /
             params.vpp +
         2.0 * (params.pp * params.vpp - 1) * costs.hop;
}

double Peak(const ScheduleParams& params, int) {
  return std::min((Group(params) * (params.vpp - 1.0) + params.pp) / params.vpp,
                  1.0 * params.microbatches);
}

constexpr char kBubble[] =
    "((p-1)(F+B) + (v-1)(p-ceil(p/2))(F+B-W))/v + 2(pv-1)c";
constexpr char kSource[] =
    "PipeOffload, arXiv 2503.01328, table 1; hops c fitted to replays; p even, "
    "p | m, W <= B, 2vc <= min(F, W, B+W-F, F+W-B)";

const RegisterSchedule kRow({
    .name = "gis-h",
    .summary = "chunks in groups of pp/2 microbatches, half the memory",
    .source = "PipeOffload, arXiv 2503.01328, section 3; order of the authors' "
              "implementation",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = WholeGroups,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .sense = Claim::Sense::kUpperBound,
          .formula = "min((g(v-1)+p)/v, m), g = ceil(p/2)",
          .source = "PipeOffload, arXiv 2503.01328, table 1; p even, F = B "
                    "= W",
          .domain =
              [](const ScheduleParams& params) {
                return params.pp % 2 == 0 && !params.costs.given;
              },
          .value = Peak}}),
});

}  // namespace
}  // namespace gis_h

// PO-H and PO-F: chunks interleaved microbatch by microbatch, so that those of
// the first chunk live longest; the half of the chunks that lives longest, or
// all, waits on the host (sim/program/activation_plan.h).
namespace uniform {
namespace {

ScheduleInfo Row(const std::string& name, const std::string& summary,
                 OffloadMode offload) {
  return {
      .name = name,
      .summary = summary,
      .source =
          "PipeOffload, arXiv 2503.01328, section 3; order of the "
          "authors' implementation, offload by a plan of our own",
      .torch_name = "",
      .torch_params = {},
      .default_vpp = 2,
      .params = {},
      .build =
          [name](const ScheduleParams& params) {
            return BuildGroupInterleaved(name, params, 1);
          },
      .claims = {UniformPeak()},
      .offload = offload,
  };
}

const RegisterSchedule kHalf(
    Row("po-h",
        "PipeOffload's PO-H: uniform repeating, half of the chunks offloaded",
        OffloadMode::kSelective));
const RegisterSchedule kFull(
    Row("po-f", "PipeOffload's PO-F: uniform repeating, all chunks offloaded",
        OffloadMode::kFull));

}  // namespace
}  // namespace uniform

}  // namespace pipewright::pipeoffload

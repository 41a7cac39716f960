// The schedules that the program knows: one row a schedule, each registered
// by its own file in schedules/. A row carries the algorithm, its source and
// what was published about it; property tests pick all of it up. They do not
// know the order: another legal one passes too, and so does a parameter without
// effect unless a claim sees it. tests/schedule/golden_test.cc has a line for
// each order and each own parameter.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/offload_mode.h"
#include "sim/schedule/params.h"
#include "sim/schedule/placement.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// A closed form that somebody published, or that its file derives (`source` is
// then "derived"). `value` is exact (or an upper bound) wherever `domain`
// holds; times are params.costs, in the unit of PlanCosts. Letters of `formula`
// are those of docs/schedules.md, which has a row for each. A claim is left out
// rather than guessed: a test prints the sizes and both values of one that
// fails.
struct Claim {
  enum class Metric {
    kBubblePerRank,    // longest rank span minus m(F+B+W)
    kBubbleGlobal,     // global span minus m(F+B+W)
    kPeakActivations,  // on one rank, unit of peak_activations
  };
  enum class Sense { kExact, kUpperBound };

  Metric metric;
  Sense sense = Sense::kExact;
  std::string formula;  // as published, for people
  std::string source;   // paper, section
  std::function<bool(const ScheduleParams&)> domain;
  // `rank` matters for kPeakActivations only.
  std::function<double(const ScheduleParams&, int rank)> value;
};

// One formula as two claims: `per_rank`, about the longest span of a rank; the
// same for kBubbleGlobal, about the whole span. `others` follow.
std::vector<Claim> BubbleClaims(Claim per_rank, std::vector<Claim> others = {});

// A parameter of one schedule, which users give as `--param KEY=VALUE` and
// `build` reads with IntParam, RealParam or ChoiceParam (params.h).
struct ParamInfo {
  std::string key;
  // Printed only: what `build` takes if nobody gives a value; the name of a
  // size if it is that size.
  std::string fallback;
  // A choice, "megatron|torch", "TIME", or a range, "1..microbatches". Each end
  // is a number, pp, vpp, microbatches or slices; without a limit nothing stands
  // behind the dots. Tests build with values inside, expect a refusal of values
  // outside, and abort if it is anything else.
  std::string legal;
  std::string help;
};

// Stage s on rank s mod pp.
Placement LoopPlacement(const ScheduleParams& params);
// The stages walk to and fro: a V where there are two chunks, else a wave.
Placement WavePlacement(const ScheduleParams& params);

// A row. Designated initialisers name the fields in this order.
struct ScheduleInfo {
  std::string name;     // lower case with hyphens
  std::string summary;  // one line
  std::string source;   // citation with section
  // Name that PyTorch's get_schedule_class takes, without "Schedule", and the
  // own parameters it stands for; "" when PyTorch has no such schedule.
  std::string torch_name;
  std::map<std::string, std::string> torch_params;
  int default_vpp = 1;
  std::vector<ParamInfo> params;
  // Error: kInvalidArgument with the field, its value and what is allowed, as
  // BadValue("strategy.microbatches", "6", "a multiple of pp 4; the nearest are
  // 4 and 8").
  std::function<absl::StatusOr<Schedule>(const ScheduleParams&)> build;
  // Which rank holds which stage, without the order; WavePlacement if the
  // stages do not go round the ranks. For all sizes that `build` takes the
  // stages stand as in what it builds, whatever the costs are. For others any
  // placement of pp * vpp stages will do.
  Placement (*placement)(const ScheduleParams&) = LoopPlacement;
  std::vector<Claim> claims;
  // Costs of slices relative to each other, if the schedule itself cuts the
  // sequence: one factor a slice, empty for all alike. May choose their number
  // if `slices` is 1. Error: as of `build`.
  std::function<absl::StatusOr<std::vector<double>>(const ScheduleParams&)>
      slice_factor = {};
  // What goes to the host unless the strategy says otherwise.
  OffloadMode offload = OffloadMode::kNone;
  // It plans with PlanCosts::room.
  bool asks_for_room = false;
};

// Static object in each file of schedules/. A second row of the same name
// aborts at start-up.
class RegisterSchedule {
 public:
  explicit RegisterSchedule(ScheduleInfo info);
};

// All rows, sorted by name.
const std::vector<const ScheduleInfo*>& AllSchedules();

// A row and the own parameters that the given name implies. `name` is one of
// ours, or PyTorch's class name in any case, with or without "Schedule" in
// front; our own names win. Error: kInvalidArgument naming the nearest, or
// saying that a later version has it.
struct ScheduleMatch {
  const ScheduleInfo* info;
  std::map<std::string, std::string> implied;
};
absl::StatusOr<ScheduleMatch> FindSchedule(absl::string_view name);

// The parameter that every schedule takes, files included: whether the two
// passes of an (X&Y) block run as one or are only neighbours in the order.
const ParamInfo& PairParam();

// `schedule` with `value` of it. Orders without blocks are shared, not copied.
// Error: kInvalidArgument.
absl::StatusOr<Schedule> WithPair(Schedule schedule, absl::string_view value);

// Checks the sizes and own parameters that all schedules share (pp, vpp,
// microbatches, slices at least 1; own keys known), then builds. The result
// is not verified: see verify.h. kInternal: it stands elsewhere than its row
// says.
absl::StatusOr<Schedule> BuildSchedule(absl::string_view name,
                                       const ScheduleParams& params);

// Where its stages stand, without building it. Errors: those that BuildSchedule
// finds before it builds. What only `build` refuses is not found.
absl::StatusOr<Placement> PlacementOf(absl::string_view name,
                                      const ScheduleParams& params);

// How many schedules this process has built. Tests ask before and after,
// because a planner may take seconds.
int64_t NumBuiltSchedules();

}  // namespace pipewright

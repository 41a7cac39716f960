#include "sim/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "sim/base/names.h"
#include "sim/base/statistics.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Relative. The engines agree to this much (docs/architecture.md, Tests), so a
// smaller difference between two periods means nothing.
constexpr double kSamePeriod = 1e-9;

}  // namespace

double RunSummary::iteration_s() const {
  const size_t count = iteration_end_s.size();
  if (count == 0) return 0;
  if (count == 1) return iteration_end_s[0];
  if (measured) {
    std::vector<double> periods(count);
    std::adjacent_difference(iteration_end_s.begin(), iteration_end_s.end(),
                             periods.begin());
    // The first of these is no period.
    return Median({periods.begin() + 1, periods.end()});
  }
  return iteration_end_s[count - 1] - iteration_end_s[count - 2];
}

bool IsSteady(const Program& program,
              const std::vector<double>& iteration_end_s) {
  const size_t count = iteration_end_s.size();
  if (count < 3 + static_cast<size_t>(program.settled())) return false;
  const double last = iteration_end_s[count - 1] - iteration_end_s[count - 2];
  const double before = iteration_end_s[count - 2] - iteration_end_s[count - 3];
  return std::abs(last - before) <= kSamePeriod * std::abs(last);
}

namespace {

bool EndsDecideOf(const DpClass& own) {
  std::vector<int> produced_from(own.channels.size(), 0);
  for (const RankProgram& rank : own.ranks) {
    for (const SideOp& op : rank.side_ops) {
      for (const int32_t channel : op.outputs) {
        produced_from[channel] = op.first_iteration;
      }
    }
  }
  for (const RankProgram& rank : own.ranks) {
    if (rank.later_start > 0) return false;
    for (const SideOp& op : rank.side_ops) {
      if (op.stream != Stream::kCompute) return false;
      for (const int32_t channel : op.inputs) {
        // A token on its way from one iteration to the next is state too.
        if (op.first_iteration != produced_from[channel]) return false;
      }
    }
    for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
      const auto kind = Pass::KindOf(lane);
      const bool copy = kind == PassKind::kOffload || kind == PassKind::kLoad;
      if (copy && rank.lanes[lane].passes > 0) return false;
    }
  }
  return true;
}

}  // namespace

bool EndsDecide(const Program& program) {
  for (int index = 0; index < program.num_classes(); ++index) {
    if (!EndsDecideOf(program.dp_class(index))) return false;
  }
  return true;
}

bool EndAlike(const std::vector<double>& before_s,
              const std::vector<double>& after_s) {
  if (before_s.empty() || before_s.size() != after_s.size()) return false;
  const double period_s = after_s[0] - before_s[0];
  for (size_t rank = 0; rank < after_s.size(); ++rank) {
    const double later_s = after_s[rank] - before_s[rank];
    if (std::abs(later_s - period_s) > kSamePeriod * period_s) return false;
  }
  return true;
}

const std::vector<EngineInfo>& AllEngines() {
  static const std::vector<EngineInfo> engines = {
      {.name = "fast",
       .summary = "one longest-path sweep; links are never shared",
       .run = &RunFast},
      {.name = "fluid",
       .summary = "events; transfers share links, by a solver of our own",
       .run = &RunOnFluidClock},
      {.name = "simgrid",
       .summary = "SimGrid: each pass is an Exec, each transfer a Comm",
       .run = &RunSimgrid},
  };
  return engines;
}

absl::string_view DefaultEngine() {
  return SimgridIsBuilt() ? "simgrid" : "fluid";
}

absl::StatusOr<const EngineInfo*> FindEngine(absl::string_view name) {
  std::vector<std::string> known;
  for (const EngineInfo& engine : AllEngines()) {
    if (engine.name == name) return &engine;
    known.push_back(engine.name);
  }
  return UnknownName("engine", name, known);
}

}  // namespace pipewright

// What a training run holds, gathers and reduces as a whole: a stage of the
// schedule, or, where passes are cut into layers, one layer with what goes with
// it. Numbered in the order of the forward, over all ranks. The same for all
// classes of replicas, as their ranks hold the same stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "execute/train/executed_model.h"
#include "sim/schedule/pass.h"
#include "sim/schedule/placement.h"

namespace pipewright {

struct DpClass;
struct Program;
struct RankProgram;

class Units {
 public:
  explicit Units(const Program& program);

  int count() const { return count_; }
  // Stage of the schedule.
  int StageOf(int unit) const { return stage_of_[unit]; }
  int RankOf(int unit, int direction) const {
    return placement_.RankOf(stage_of_[unit], direction);
  }
  // Unit of a pass in a rank's own order; `stage` is its lane's.
  int Of(const RankProgram& rank, Pass pass, int stage) const;
  // Units of a rank, ascending.
  std::vector<int> OfRank(int rank, int direction) const;
  // [side op] of a rank, -1: of none or of several.
  std::vector<int> OfSideOps(const RankProgram& rank) const;

 private:
  const Placement placement_;
  int count_ = 0;
  std::vector<int> first_of_;  // [stage]
  std::vector<int> stage_of_;  // [unit]
};

// Stages cut into their layers, as the Program's: the embedding goes with the
// layer behind it, the head with the one before.
std::vector<std::vector<StagePart>> SplitIntoLayers(
    const std::vector<std::vector<StagePart>>& stages);

// Microbatches of an iteration: those of the first replica, then those of the
// second and so on.
struct StepMicrobatches {
  explicit StepMicrobatches(const Program& program);

  std::vector<int64_t> first_of;  // [replica]
  int64_t all = 0;
};

// Blocks of `boundary` bytes that are made before the run for what a rank
// passes on. What it sends is alive until the other rank has used it, which may
// be far behind: what a forward gives at most until the stage's own backward,
// and the gradient until that of the stage before.
int ReservedOutputs(const Units& units, const DpClass& replicas, int rank,
                    size_t boundary);

// The part of `size` elements that is member `member`'s of `members`.
inline std::pair<int64_t, int64_t> ShardRange(int64_t size, int member,
                                              int members) {
  return {size * member / members, size * (member + 1) / members};
}

// Tokens of all microbatches of an iteration.
double TokensOfStep(const ExecutedModel& model, const Program& program);

}  // namespace pipewright

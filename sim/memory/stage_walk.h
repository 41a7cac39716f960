// The operations of a stage in order, with what each keeps under the stage's
// recomputation, and the walks over them that find the highest point of each
// pass. For sim/memory/stage_*.cc only.
#pragma once

#include <string>
#include <vector>

#include "sim/memory/stage_memory.h"
#include "sim/model/ops.h"

namespace pipewright {

struct WalkOp {
  const ModelOp* op = nullptr;
  double part = 1;  // part of the block that this stage has
  int block = 0;
  int64_t layer = -1;  // index within its stage, from 0; -1: outside layers

  double saved = 0;       // with nothing recomputed
  double kept = 0;        // from F to B
  double again = 0;       // saved - kept: made again for B
  double linear = 0;      // part of `saved` that W needs
  double stream = 0;      // gradient of the residual stream during its backward
  bool offloaded = true;  // an O takes what is kept
  bool whole_block = false;  // full recomputation: made again block by block
};

class StageWalk {
 public:
  explicit StageWalk(std::vector<WalkOp> ops) : ops_(std::move(ops)) {}

  PassMemory Forward() const;
  PassMemory Recompute() const;
  // `splits`: B alone, else BW. `after`: an R has run before.
  PassMemory Backward(bool splits, bool after) const;
  PassMemory Weight() const;

  double Kept() const;
  double Offloaded() const;  // part of Kept()
  double WeightPart() const;
  double Recomputed() const;

 private:
  std::vector<WalkOp> ops_;
};

}  // namespace pipewright

// Small schedules by hand and a naive replay of them, so that reports can be
// tested without a generator, a lowering or an engine. Not a reference for
// any of those: passes and plain hops only.
#pragma once

#include <memory>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/program/program.h"
#include "sim/trace/trace.h"

namespace pipewright::testing {

struct ToyCosts {
  double forward_s = 1;
  double backward_input_s = 1;
  double backward_weight_s = 1;
  double hop_s = 0;
  double hop_bytes = 0;
};

struct ToyRun {
  Program program;
  std::vector<TraceOp> ops;
  RunSummary run;
};

// One forward, one full backward in turn; a rank warms up with as many
// forwards as ranks follow it.
std::shared_ptr<const Schedule> ToyOneForwardOneBackward(int pp,
                                                         int microbatches);

// The same with split backwards; rank r runs each W r microbatches after its
// B, in the manner of ZB-H1.
std::shared_ptr<const Schedule> ToySplitBackward(int pp, int microbatches);

// One iteration. Stages of a rank each take 1/vpp of the costs.
ToyRun Replay(std::shared_ptr<const Schedule> schedule, const ToyCosts& costs);

}  // namespace pipewright::testing

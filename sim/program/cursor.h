// Spells a rank's operations out, one after the other, transfers included:
// the view of a Program for printing, for runtimes and for naive reference
// engines. Uses no memory that grows with the program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/side_sequence.h"

namespace pipewright {

struct Op {
  OpKind kind = OpKind::kPass;
  Stream stream = Stream::kCompute;
  int dp_class = 0;
  int rank = 0;
  int iteration = 0;
  bool false_start = false;
  int64_t position = 0;  // index in the rank's order
  Pass pass{};           // for passes, transfers and copies
  int32_t stage = -1;
  int32_t channel = -1;  // for transfers
  int32_t side_op = -1;  // for everything attached or hooked
  int32_t hook = -1;     // for what a hook runs
  int32_t output = -1;   // channel that it feeds besides its side op's
  double seconds = 0;    // without the network's part
  double bytes = 0;
};

class OpCursor {
 public:
  // Walks a replica of class `dp_class`.
  OpCursor(const Program& program, int rank, int iterations, int dp_class = 0);

  // The next operation in program order: what is attached or hooked in front
  // of a pass, then its receive, the pass (or copy), its send; at the end of
  // a false start what it drops. False at the end. SYNC marks only a place
  // and is passed over; FREE is a wait.
  bool Next(Op* op);

 private:
  bool BeginNext();
  Op Blank() const;
  void FillItem(Op* op);
  bool FillStep(Op* op);
  void FillDrop(Op* op);

  const Program& program_;
  const DpClass& own_;
  int dp_class_;
  int rank_;
  int iterations_;
  SideSequence sequence_;
  int iteration_ = -1;
  std::vector<Start> starts_;  // left of this iteration, the next one last
  bool ended_ = false;
  int64_t position_ = 0;
  int step_ = 0;  // 0 receive, 1 pass, 2 send
};

// "F3.1", "send F3", "all-reduce", ...
std::string OpToString(const Program& program, const Op& op);

}  // namespace pipewright

// Spells a rank's operations out, one after the other, transfers included:
// the view of a Program for printing, for runtimes and for naive reference
// engines. Uses no memory that grows with the program.
#pragma once

#include <cstdint>
#include <string>

#include "sim/program/program.h"

namespace pipewright {

struct Op {
  OpKind kind = OpKind::kPass;
  Stream stream = Stream::kCompute;
  int rank = 0;
  int iteration = 0;
  int64_t position = 0;  // index in the rank's order
  Pass pass{};           // of passes, transfers and copies
  int32_t stage = -1;
  int32_t channel = -1;  // of transfers
  int32_t side_op = -1;  // of everything attached
  double seconds = 0;    // without the network's part
  double bytes = 0;
};

class OpCursor {
 public:
  OpCursor(const Program& program, int rank, int iterations)
      : program_(program), rank_(rank), iterations_(iterations) {}

  // The next operation in program order: what is attached to a position, then
  // the receive, the pass (or copy), the send. False at the end. SYNC marks
  // only a place and is passed over.
  bool Next(Op* op);

 private:
  bool FillAttached(Op* op);
  bool FillStep(Op* op);

  const Program& program_;
  int rank_;
  int iterations_;
  int iteration_ = 0;
  int64_t position_ = 0;
  size_t attachment_ = 0;
  int step_ = 0;  // 0 receive, 1 pass, 2 send
};

// "F3.1", "send F3", "all-reduce", ...
std::string OpToString(const Program& program, const Op& op);

}  // namespace pipewright

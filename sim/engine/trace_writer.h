// Turns what an engine does into TraceOps. Does nothing without a sink.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"
#include "sim/trace/trace.h"

namespace pipewright {

// How the transfer of `channel` that `either` of its two passes names is told:
// the same microbatch and slice, the producing stage's chunk.
Pass TransferName(const DpClass& own, int channel, Pass either);

class TraceWriter {
 public:
  static constexpr bool kActive = true;

  TraceWriter(const Program& program, TraceSink* sink)
      : program_(program), sink_(sink) {}

  bool active() const { return sink_ != nullptr; }

  // Data-parallel replica and iteration of what follows.
  int replica = 0;
  int iteration = 0;

  // A pass, told whole when its last layer has run.
  void OnPass(int rank, int64_t position, Pass pass, double start_s,
              double end_s, bool joint);
  // Both sides of a transfer between passes.
  void OnTransfer(int channel, Pass pass, double start_s, double end_s);
  void OnSideOp(int rank, int32_t side_op, double start_s, double end_s);
  // An O or L.
  void OnCopy(int rank, Pass pass, double start_s, double end_s);
  // The compute stream waits for nothing but a copy: FREE, or a pass whose
  // activations come late. Nothing where it does not wait.
  void OnCopyWait(int rank, Pass pass, double start_s, double end_s);

 private:
  const RankProgram& RankOf(int rank) const {
    return program_.OfReplica(replica).ranks[rank];
  }

  const Program& program_;
  TraceSink* sink_;
  // [replica * pp + rank] when the pass whose layers run has begun.
  std::vector<double> begun_s_;
};

}  // namespace pipewright

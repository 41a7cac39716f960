// A run of 1F1B written down by hand: two ranks, two microbatches, F 1 ms, BW
// 2 ms, a hop 0.5 ms, an all-reduce of each rank's gradients at the end.
#pragma once

#include <memory>
#include <vector>

#include "sim/program/program.h"
#include "sim/trace/trace.h"

namespace pipewright::testing {

inline Program ExampleProgram() {
  Program program;
  program.name = "1f1b \"by hand\"";
  auto schedule = std::make_shared<Schedule>();
  schedule->placement = Placement::Plain(2);
  schedule->microbatches = 2;
  program.schedule = schedule;
  program.channels = {{.kind = ChannelKind::kActivation,
                       .from_rank = 0,
                       .to_rank = 1,
                       .stage = 0},
                      {.kind = ChannelKind::kGradient,
                       .from_rank = 1,
                       .to_rank = 0,
                       .stage = 1}};
  program.ranks.resize(2);
  for (RankProgram& rank : program.ranks) {
    SideOp reduce;
    reduce.kind = OpKind::kAllReduce;
    reduce.stream = Stream::kCollective;
    reduce.chunk = 0;
    rank.side_ops.push_back(reduce);
  }
  return program;
}

inline TraceOp PassOp(int rank, Pass pass, double start_ms, double end_ms) {
  TraceOp op;
  op.start_s = start_ms * 1e-3;
  op.end_s = end_ms * 1e-3;
  op.rank = rank;
  op.stage = rank;
  op.pass = pass;
  return op;
}

// Both sides of a transfer.
inline void AddTransfer(int channel, Pass pass, double start_ms, double end_ms,
                        std::vector<TraceOp>* ops) {
  const int from = channel;  // channel 0 leaves rank 0, channel 1 rank 1
  TraceOp op = PassOp(from, pass, start_ms, end_ms);
  op.kind = OpKind::kSend;
  op.stream = Stream::kSend;
  op.channel = channel;
  op.bytes = 1e6;
  ops->push_back(op);
  op.kind = OpKind::kReceive;
  op.stream = Stream::kReceive;
  op.rank = 1 - from;
  ops->push_back(op);
}

inline std::vector<TraceOp> ExampleOps() {
  const PassKind forward = PassKind::kForward;
  const PassKind backward = PassKind::kBackwardFull;
  std::vector<TraceOp> ops = {
      PassOp(0, Pass(forward, 0), 0, 1),
      PassOp(0, Pass(forward, 1), 1, 2),
      PassOp(0, Pass(backward, 0), 5, 7),
      PassOp(0, Pass(backward, 1), 8, 10),
      PassOp(1, Pass(forward, 0), 1.5, 2.5),
      PassOp(1, Pass(backward, 0), 2.5, 4.5),
      PassOp(1, Pass(forward, 1), 4.5, 5.5),
      PassOp(1, Pass(backward, 1), 5.5, 7.5),
  };
  AddTransfer(0, Pass(forward, 0), 1, 1.5, &ops);
  AddTransfer(0, Pass(forward, 1), 2, 2.5, &ops);
  AddTransfer(1, Pass(backward, 0), 4.5, 5, &ops);
  AddTransfer(1, Pass(backward, 1), 7.5, 8, &ops);
  for (int rank = 0; rank < 2; ++rank) {
    TraceOp reduce;
    reduce.start_s = 10e-3;
    reduce.end_s = 11e-3;
    reduce.kind = OpKind::kAllReduce;
    reduce.stream = Stream::kCollective;
    reduce.rank = rank;
    reduce.side_op = 0;
    ops.push_back(reduce);
    reduce.start_s = 11e-3;
    reduce.kind = OpKind::kWait;
    reduce.stream = Stream::kCompute;
    reduce.side_op = -1;
    ops.push_back(reduce);
  }
  return ops;
}

}  // namespace pipewright::testing

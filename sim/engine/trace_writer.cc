#include "sim/engine/trace_writer.h"

namespace pipewright {

Pass TransferName(const Program& program, int index, Pass either) {
  const Channel& channel = program.channels[index];
  const PassKind kind = channel.kind == ChannelKind::kActivation
                            ? PassKind::kForward
                            : either.kind();
  return Pass(kind, either.microbatch(),
              program.schedule->placement.ChunkOf(channel.stage),
              either.slice(), channel.direction);
}

void TraceWriter::OnPass(int rank, int64_t, Pass pass, double start_s,
                         double end_s, bool joint) {
  if (sink_ == nullptr) return;
  sink_->OnOp({.start_s = start_s,
               .end_s = end_s,
               .joint = joint,
               .replica = replica,
               .rank = rank,
               .iteration = iteration,
               .stage = program_.ranks[rank].lanes[pass.lane()].stage,
               .pass = pass});
}

void TraceWriter::OnTransfer(int index, Pass pass, double start_s,
                             double end_s) {
  if (sink_ == nullptr) return;
  const Channel& channel = program_.channels[index];
  TraceOp op = {.start_s = start_s,
                .end_s = end_s,
                .bytes = channel.bytes,
                .kind = OpKind::kSend,
                .stream = Stream::kSend,
                .replica = replica,
                .rank = channel.from_rank,
                .iteration = iteration,
                .stage = channel.stage,
                .channel = index,
                .pass = pass};
  sink_->OnOp(op);
  op.kind = OpKind::kReceive;
  op.stream = Stream::kReceive;
  op.rank = channel.to_rank;
  sink_->OnOp(op);
}

void TraceWriter::OnSideOp(int rank, int32_t index, double start_s,
                           double end_s) {
  if (sink_ == nullptr) return;
  const SideOp& side_op = program_.ranks[rank].side_ops[index];
  sink_->OnOp({.start_s = start_s,
               .end_s = end_s,
               .bytes = side_op.bytes,
               .kind = side_op.kind,
               .stream = side_op.stream,
               .replica = replica,
               .rank = rank,
               .iteration = iteration,
               .side_op = index});
}

void TraceWriter::OnCopy(int rank, Pass pass, double start_s, double end_s) {
  if (sink_ == nullptr) return;
  const bool out = pass.kind() == PassKind::kOffload;
  const Lane& lane = program_.ranks[rank].lanes[pass.lane()];
  sink_->OnOp({.start_s = start_s,
               .end_s = end_s,
               .bytes = lane.bytes,
               .kind = out ? OpKind::kOffload : OpKind::kLoad,
               .stream = out ? Stream::kD2H : Stream::kH2D,
               .replica = replica,
               .rank = rank,
               .iteration = iteration,
               .stage = lane.stage,
               .pass = pass});
}

void TraceWriter::OnCopyWait(int rank, Pass pass, double start_s,
                             double end_s) {
  if (sink_ == nullptr || end_s <= start_s) return;
  sink_->OnOp({.start_s = start_s,
               .end_s = end_s,
               .kind = OpKind::kWait,
               .replica = replica,
               .rank = rank,
               .iteration = iteration,
               .stage = program_.ranks[rank].lanes[pass.lane()].stage,
               .pass = pass});
}

}  // namespace pipewright

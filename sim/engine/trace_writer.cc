#include "sim/engine/trace_writer.h"

namespace pipewright {

Pass TransferName(const DpClass& own, int index, Pass either) {
  const Channel& channel = own.channels[index];
  const PassKind kind = channel.kind == ChannelKind::kActivation
                            ? PassKind::kForward
                            : either.kind();
  return Pass(kind, either.microbatch(),
              own.schedule->placement.ChunkOf(channel.stage), either.slice(),
              channel.direction);
}

void TraceWriter::OnPass(int rank, int64_t, Pass pass, double start_s,
                         double end_s, bool joint) {
  if (sink_ == nullptr) return;
  const RankProgram& own = RankOf(rank);
  if (!own.layers.empty()) {
    begun_s_.resize(static_cast<size_t>(program_.replicas) * program_.pp());
    double& begun_s = begun_s_[replica * program_.pp() + rank];
    if (own.BeginsPass(pass)) begun_s = start_s;
    if (!own.EndsPass(pass)) return;
    start_s = begun_s;
  }
  sink_->OnOp({.start_s = start_s,
               .end_s = end_s,
               .joint = joint,
               .replica = replica,
               .rank = rank,
               .iteration = iteration,
               .stage = own.lanes[pass.lane()].stage,
               .pass = own.Whole(pass)});
}

void TraceWriter::OnTransfer(int index, Pass pass, double start_s,
                             double end_s) {
  if (sink_ == nullptr) return;
  const DpClass& own = program_.OfReplica(replica);
  const Channel& channel = own.channels[index];
  if (!own.ranks[channel.from_rank].layers.empty()) {
    pass = TransferName(own, index, pass);
  }
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
  const SideOp& side_op = RankOf(rank).side_ops[index];
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
  const Lane& lane = RankOf(rank).lanes[pass.lane()];
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
               .stage = RankOf(rank).lanes[pass.lane()].stage,
               .pass = pass});
}

}  // namespace pipewright

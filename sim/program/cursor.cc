#include "sim/program/cursor.h"

#include "absl/strings/str_cat.h"

namespace pipewright {

bool OpCursor::FillAttached(Op* op) {
  const RankProgram& rank = program_.ranks[rank_];
  while (attachment_ < rank.attachments.size() &&
         rank.attachments[attachment_].position <= position_) {
    const int32_t index = rank.attachments[attachment_++].side_op;
    const SideOp& side_op = rank.side_ops[index];
    if (iteration_ < side_op.first_iteration) continue;
    *op = {.kind = side_op.kind,
           .stream = side_op.stream,
           .rank = rank_,
           .iteration = iteration_,
           .position = position_,
           .side_op = index,
           .seconds = side_op.seconds,
           .bytes = side_op.bytes};
    return true;
  }
  return false;
}

bool OpCursor::FillStep(Op* op) {
  const RankProgram& rank = program_.ranks[rank_];
  const Pass pass = (*rank.order)[position_];
  const Lane& lane = rank.lanes[pass.lane()];
  *op = {.rank = rank_,
         .iteration = iteration_,
         .position = position_,
         .pass = pass,
         .stage = lane.stage};
  switch (step_) {
    case 0:
      if (lane.input < 0) return false;
      op->kind = OpKind::kReceive;
      op->stream = Stream::kReceive;
      op->channel = lane.input;
      op->bytes = program_.channels[lane.input].bytes;
      return true;
    case 1:
      if (pass.kind() == PassKind::kSync) return false;
      op->seconds = lane.seconds;
      op->bytes = lane.bytes;
      if (IsComputePass(pass.kind())) {
        op->seconds *= program_.factor(pass);
        const bool in_block =
            pass.joint_with_next() ||
            (position_ > 0 && (*rank.order)[position_ - 1].joint_with_next());
        if (in_block) op->seconds *= program_.pair_factor;
      } else if (pass.kind() == PassKind::kOffload) {
        op->kind = OpKind::kOffload;
        op->stream = Stream::kD2H;
      } else {
        op->kind = OpKind::kLoad;
        op->stream = Stream::kH2D;
      }
      return true;
    default:
      if (lane.output < 0) return false;
      op->kind = OpKind::kSend;
      op->stream = Stream::kSend;
      op->channel = lane.output;
      op->bytes = program_.channels[lane.output].bytes;
      return true;
  }
}

bool OpCursor::Next(Op* op) {
  const auto size = static_cast<int64_t>(program_.ranks[rank_].order->size());
  while (iteration_ < iterations_) {
    if (step_ == 0 && FillAttached(op)) return true;
    if (position_ == size) {
      ++iteration_;
      position_ = 0;
      attachment_ = 0;
      continue;
    }
    const bool filled = FillStep(op);
    if (step_ == 2) {
      step_ = 0;
      ++position_;
    } else {
      ++step_;
    }
    if (filled) return true;
  }
  return false;
}

std::string OpToString(const Program& program, const Op& op) {
  const std::string pass = PassToString(*program.schedule, op.pass);
  switch (op.kind) {
    case OpKind::kPass:
    case OpKind::kOffload:
    case OpKind::kLoad:
      return op.pass.joint_with_next() ? absl::StrCat(pass, "&") : pass;
    case OpKind::kSend:
    case OpKind::kReceive:
      return absl::StrCat(OpKindName(op.kind), "(", pass, ")");
    default: {
      const SideOp& side_op = program.ranks[op.rank].side_ops[op.side_op];
      std::string out(OpKindName(op.kind));
      if (side_op.chunk >= 0) absl::StrAppend(&out, ".", side_op.chunk);
      if (side_op.group >= 0) absl::StrAppend(&out, "@g", side_op.group);
      if (side_op.peer >= 0) absl::StrAppend(&out, "@r", side_op.peer);
      return out;
    }
  }
}

}  // namespace pipewright

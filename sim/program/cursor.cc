#include "sim/program/cursor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/program/compute_stream.h"

namespace pipewright {

OpCursor::OpCursor(const Program& program, int rank, int iterations,
                   int dp_class)
    : program_(program),
      own_(program.dp_class(dp_class)),
      dp_class_(dp_class),
      rank_(rank),
      iterations_(iterations),
      sequence_(own_.ranks[rank]) {
  ended_ = !BeginNext();
}

// The next start of an iteration. False behind the last.
bool OpCursor::BeginNext() {
  if (starts_.empty()) {
    if (++iteration_ == iterations_) return false;
    starts_ = program_.StartsOf(iteration_);
    std::reverse(starts_.begin(), starts_.end());
  }
  sequence_.Begin(starts_.back());
  starts_.pop_back();
  position_ = sequence_.begin();
  return true;
}

Op OpCursor::Blank() const {
  return {.dp_class = dp_class_,
          .rank = rank_,
          .iteration = iteration_,
          .false_start = sequence_.start().is_false,
          .position = position_};
}

void OpCursor::FillItem(Op* op) {
  const SideSequence::Item item = *sequence_.item();
  const SideOp& side_op = own_.ranks[rank_].side_ops[item.side_op];
  *op = Blank();
  op->kind = side_op.kind;
  op->stream = side_op.stream;
  op->side_op = item.side_op;
  op->hook = item.hook;
  op->output = item.output;
  op->seconds = side_op.seconds;
  op->bytes = side_op.bytes;
  sequence_.Taken();
}

void OpCursor::FillDrop(Op* op) {
  const auto [channel, pass] = *sequence_.drop();
  sequence_.DropTaken();
  *op = Blank();
  op->kind = OpKind::kDrop;
  op->stream = Stream::kReceive;
  op->pass = pass;
  op->stage = own_.ranks[rank_].lanes[pass.lane()].stage;
  op->channel = channel;
  op->bytes = own_.channels[channel].bytes;
}

bool OpCursor::FillStep(Op* op) {
  const RankProgram& rank = own_.ranks[rank_];
  const Pass pass = (*rank.order)[position_];
  const Lane& lane = rank.lanes[pass.lane()];
  *op = Blank();
  op->pass = pass;
  op->stage = lane.stage;
  switch (step_) {
    case 0:
      if (lane.input < 0) return false;
      op->kind = OpKind::kReceive;
      op->stream = Stream::kReceive;
      op->channel = lane.input;
      op->bytes = own_.channels[lane.input].bytes;
      return true;
    case 1:
      if (EntryOf(pass.kind()) == Entry::kMark) return false;
      if (EntryOf(pass.kind()) == Entry::kFree) {
        op->kind = OpKind::kWait;
        return true;
      }
      op->seconds = lane.seconds;
      op->bytes = lane.bytes;
      if (EntryOf(pass.kind()) == Entry::kBlock) {
        op->seconds *= own_.Factor(rank_, pass);
        const bool in_block =
            pass.joint_with_next() ||
            (position_ > 0 && (*rank.order)[position_ - 1].joint_with_next());
        if (in_block) op->seconds *= program_.pair_factor;
      } else {
        op->kind = pass.kind() == PassKind::kOffload ? OpKind::kOffload
                                                     : OpKind::kLoad;
        op->stream = CopyStream(pass.kind());
      }
      return true;
    default:
      if (lane.output < 0) return false;
      op->kind = OpKind::kSend;
      op->stream = Stream::kSend;
      op->channel = lane.output;
      op->bytes = own_.channels[lane.output].bytes;
      return true;
  }
}

bool OpCursor::Next(Op* op) {
  while (!ended_) {
    if (step_ == 0) {
      switch (sequence_.NextAt(position_)) {
        case SideSequence::Next::kItem:
          FillItem(op);
          return true;
        case SideSequence::Next::kBlock:
          sequence_.Passed();
          break;
        case SideSequence::Next::kDrop:
          FillDrop(op);
          return true;
        case SideSequence::Next::kEnd:
          ended_ = !BeginNext();
          continue;
        case SideSequence::Next::kEntry:
          break;
      }
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
  const DpClass& own = program.dp_class(op.dp_class);
  const RankProgram& rank = own.ranks[op.rank];
  std::string pass = PassToString(*own.schedule, rank.Whole(op.pass));
  if (!rank.layers.empty() && op.kind == OpKind::kPass) {
    absl::StrAppend(&pass, "/", rank.layers[op.pass.chunk()].layer);
  }
  switch (op.kind) {
    case OpKind::kPass:
    case OpKind::kOffload:
    case OpKind::kLoad:
      return op.pass.joint_with_next() ? absl::StrCat(pass, "&") : pass;
    case OpKind::kSend:
    case OpKind::kReceive:
    case OpKind::kDrop:
      return absl::StrCat(OpKindName(op.kind), "(", pass, ")");
    default: {
      if (op.side_op < 0) return pass;  // FREE
      const SideOp& side_op = own.ranks[op.rank].side_ops[op.side_op];
      std::string out(OpKindName(op.kind));
      if (side_op.chunk >= 0) absl::StrAppend(&out, ".", side_op.chunk);
      if (side_op.group >= 0) absl::StrAppend(&out, "@g", side_op.group);
      if (side_op.peer >= 0) absl::StrAppend(&out, "@r", side_op.peer);
      return out;
    }
  }
}

}  // namespace pipewright

// The compute stream of a rank: passes in their order.
#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/run/rank_run.h"
#include "sim/base/status.h"

namespace pipewright {

absl::Status RankRun::IssueCopy(Pass pass) {
  PW_RETURN_IF_ERROR(worker_.IssueCopy(pass, LaneOf(pass).stage));
  activations_.Issue(pass);
  queues_[static_cast<int>(CopyStream(pass.kind()))].push_back(
      {.start = start_,
       .start_number = sequence_.number(),
       .pass = pass,
       .ready_s = compute_s_});
  ++pending_;
  return absl::OkStatus();
}

// The compute stream waits for a copy, and for nothing else.
void RankRun::NoteCopyWait(Pass pass, double start_s, double end_s) {
  if (end_s <= start_s) return;
  if (start_.iteration == 0) {
    (pass.kind() == PassKind::kFree ? times_of_first_.late_free_s
                                    : times_of_first_.late_load_s) +=
        end_s - start_s;
  }
  Trace(start_, {.start_s = start_s,
                 .end_s = end_s,
                 .kind = OpKind::kWait,
                 .rank = self_.rank,
                 .stage = LaneOf(pass).stage,
                 .pass = pass});
}

// False when the copy has not ended yet.
absl::StatusOr<bool> RankRun::RunFree(Pass pass) {
  double free_s = compute_s_;
  if (!activations_.AwaitOffload(pass, &free_s) || !Due(free_s)) return false;
  PW_RETURN_IF_ERROR(worker_.FreeOffloaded(pass, LaneOf(pass).stage));
  NoteCopyWait(pass, compute_s_, free_s);
  compute_s_ = free_s;
  return true;
}

// The entry, or the block (X&Y), at the position. False when it has to wait.
absl::StatusOr<bool> RankRun::RunBlock() {
  const Pass* const block = rank().order->data() + position_;
  const Entry entry = EntryOf(block->kind());
  if (entry != Entry::kBlock) {
    if (entry == Entry::kFree) {
      PW_ASSIGN_OR_RETURN(const bool ran, RunFree(*block));
      if (!ran) return false;
    }
    if (entry == Entry::kCopy) PW_RETURN_IF_ERROR(IssueCopy(*block));
    ++position_;
    return true;
  }
  const int parts = PartsOf(*block);
  double start_s = compute_s_;
  double loaded_s = 0;
  for (int part = 0; part < parts; ++part) {
    if (!activations_.Await(block[part], &loaded_s)) return false;
    const int32_t input = LaneOf(block[part]).input;
    if (holds_ || input < 0) continue;
    const uint64_t key = block[part].key();
    if (!tokens_.Has(input, key)) return false;
    start_s = std::max(start_s, tokens_.TimeOf(input, key));
  }
  const bool hooked = sequence_.NextAt(position_) == SideSequence::Next::kBlock;
  if (hooked && !hook_ends_.Await(sequence_, &start_s)) return false;
  const double ready_s = start_s;
  start_s = std::max(ready_s, loaded_s);
  if (!Due(start_s)) return false;
  NoteCopyWait(*block, ready_s, start_s);
  for (int part = 0; part < parts && !holds_; ++part) {
    const Lane& lane = LaneOf(block[part]);
    if (lane.input < 0) continue;
    Arrivals::Arrival arrived = tokens_.Pop(lane.input, block[part].key());
    if (!clock_->network_given()) {
      TraceTransfer(lane.input, block[part], arrived.start_s, arrived.time_s);
    }
    worker_.TakeInput(block[part], lane.stage, std::move(arrived.payload));
  }
  PW_RETURN_IF_ERROR(RunParts(block, parts, start_s));
  position_ += parts;
  if (hooked) sequence_.Passed();
  if (holds_) return true;
  for (int part = 0; part < parts; ++part) {
    const int32_t output = LaneOf(block[part]).output;
    if (output >= 0) Send(output, block[part], compute_s_);
  }
  return true;
}

// Seconds of a pass that has begun.
absl::StatusOr<double> RankRun::RunPass(Pass pass) {
  const Lane& lane = LaneOf(pass);
  const double before_s = clock_->Now();
  PW_ASSIGN_OR_RETURN(double seconds, worker_.RunPass(pass, lane.stage));
  if (clock_->takes_given()) {
    seconds = GivenSeconds(pass);
  }
  for (const Faults::SlowPass& fault : options_.faults.slow_passes) {
    if ((fault.kind && *fault.kind != pass.kind()) ||
        (fault.rank >= 0 && fault.rank != self_.rank)) {
      continue;
    }
    seconds *= fault.factor;
    if (clock_->computed()) continue;
    const double until_s = before_s + (clock_->Now() - before_s) * fault.factor;
    while (clock_->Now() < until_s) {
    }
  }
  return seconds;
}

// Layers of a pass are told as the pass.
void RankRun::TracePass(Pass pass, bool joint, double start_s, double end_s) {
  if (rank().BeginsPass(pass)) whole_begun_s_ = start_s;
  if (!rank().EndsPass(pass)) return;
  Trace(start_, {.start_s = rank().layers.empty() ? start_s : whole_begun_s_,
                 .end_s = end_s,
                 .joint = joint,
                 .rank = self_.rank,
                 .stage = LaneOf(pass).stage,
                 .pass = rank().Whole(pass)});
}

absl::Status RankRun::RunParts(const Pass* block, int parts, double start_s) {
  const std::optional<Faults::Death>& death = options_.faults.death;
  if (death && death->rank == self_.rank &&
      death->iteration == start_.iteration && death->position <= position_) {
    return absl::AbortedError(
        absl::StrCat("rank ", self_.rank, " ends on purpose"));
  }
  const RankRecord::Block* const taken = TakenBlock();
  const double ready_s = start_s;
  start_s = clock_->Begin(taken == nullptr ? ready_s : ready_s + taken->late_s);
  worker_.BeginBlock(block, parts);
  // What the two parts of a block gain by running together is given, not
  // measured: the worker runs one after the other.
  const double share =
      parts == 2 && clock_->takes_given() ? program_.pair_factor : 1;
  PW_ASSIGN_OR_RETURN(double first_s, RunPass(block[0]));
  first_s = taken == nullptr ? first_s * share : taken->first_s;
  double middle_s = clock_->computed() || clock_->takes_given()
                        ? start_s + first_s
                        : clock_->Now();
  double seconds = first_s;
  double second_s = 0;
  if (parts == 2) {
    PW_ASSIGN_OR_RETURN(second_s, RunPass(block[1]));
    second_s = taken == nullptr ? second_s * share : taken->second_s;
    // Not middle + second: a block is one operation of one duration.
    seconds = first_s + second_s;
  }
  const double end_s = clock_->End(start_s, seconds);
  if (parts == 1) middle_s = end_s;
  if (options_.record != nullptr) {
    if (!clock_->computed()) {
      first_s = middle_s - start_s;
      second_s = end_s - middle_s;
    }
    options_.record->compute.push_back({start_s - ready_s, first_s, second_s});
  }
  worker_.EndBlock(block, parts);
  for (int part = 0; part < parts; ++part) {
    TracePass(block[part], parts == 2, part == 0 ? start_s : middle_s,
              part + 1 == parts ? end_s : middle_s);
    activations_.Use(block[part]);
  }
  if (!passed_any_) {
    passed_any_ = true;
    times_of_first_.first_start_s = start_s;
  }
  // Forwards that a pipeline without flush runs ahead count once.
  if (start_.iteration == 0 && position_ >= rank().later_start) {
    times_of_first_.busy_s += end_s - start_s;
  }
  compute_s_ = pass_end_s_ = end_s;
  return absl::OkStatus();
}

// A step of the block at the position, under a rule that holds ranks: its
// inputs are planned, or it runs and its outputs are planned.
absl::StatusOr<bool> RankRun::RunHeldBlock() {
  const Pass* const block = rank().order->data() + position_;
  if (!received_) {
    received_ = true;
    HoldingSteps steps;
    PostBefore(rank(), program_.wait_rule, block, &steps);
    Plan(steps);
    return true;
  }
  PW_ASSIGN_OR_RETURN(const bool ran, RunBlock());
  if (!ran) return false;
  HoldingSteps steps;
  PostBehind(rank(), program_.wait_rule, block, position_, sequence_,
             &received_, &steps);
  Plan(steps);
  return true;
}

// Takes the next token that a false start has left. False when it is not
// there.
absl::StatusOr<bool> RankRun::DropNext() {
  const auto [channel, pass] = *sequence_.drop();
  if (holds_) {
    steps_.push_back(
        {{.side = {.channel = channel, .pass = pass}, .drop = true}});
  } else {
    if (!tokens_.Has(channel, pass.key())) return false;
    const Arrivals::Arrival arrived = tokens_.Pop(channel, pass.key());
    compute_s_ = std::max(compute_s_, arrived.time_s);
  }
  sequence_.DropTaken();
  return true;
}

}  // namespace pipewright

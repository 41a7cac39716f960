// The compute stream of a rank: passes in their order.
#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/run/rank_run.h"
#include "sim/base/status.h"
#include "sim/engine/activation_key.h"

namespace pipewright {

// True when the activations of `pass` are on the device, or will be at a time
// that is known; raises *earliest_s to it.
bool RankRun::Loaded(Pass pass, double* earliest_s) const {
  const uint64_t key = ActivationKey(pass);
  if (!ReadsActivations(pass.kind()) || !loading_.contains(key)) return true;
  const auto loaded = loaded_s_.find(key);
  if (loaded == loaded_s_.end()) return false;
  *earliest_s = std::max(*earliest_s, loaded->second);
  return true;
}

bool RankRun::HooksEnded(double* earliest_s) {
  for (int32_t hook = 0; hook < sequence_.num_hooks(); ++hook) {
    if (!hook_ends_[hook].Await(sequence_.Awaited(hook), earliest_s)) {
      return false;
    }
  }
  return true;
}

void RankRun::IssueCopy(Pass pass) {
  const bool out = pass.kind() == PassKind::kOffload;
  if (!out) loading_.insert(ActivationKey(pass));
  queues_[static_cast<int>(out ? Stream::kD2H : Stream::kH2D)].push_back(
      {.start = start_,
       .start_number = start_number_,
       .pass = pass,
       .ready_s = compute_s_});
  ++pending_;
}

// The entry, or the block (X&Y), at the position. False when it has to wait.
absl::StatusOr<bool> RankRun::RunBlock() {
  const Pass* const block = rank().order->data() + position_;
  if (block->kind() == PassKind::kSync) {
    ++position_;
    return true;
  }
  if (!IsComputePass(block->kind())) {
    IssueCopy(*block);
    ++position_;
    return true;
  }
  const int parts = block->joint_with_next() ? 2 : 1;
  double start_s = compute_s_;
  for (int part = 0; part < parts; ++part) {
    if (!Loaded(block[part], &start_s)) return false;
    const int32_t input = LaneOf(block[part]).input;
    if (holds_ || input < 0) continue;
    const uint64_t key = block[part].key();
    if (!Has(tokens_, input, key)) return false;
    start_s = std::max(start_s, ArrivalOf(tokens_, input, key));
  }
  const bool at_stop = position_ == sequence_.stop();
  if (at_stop && !HooksEnded(&start_s)) return false;
  if (!Due(start_s)) return false;
  for (int part = 0; part < parts && !holds_; ++part) {
    const Lane& lane = LaneOf(block[part]);
    if (lane.input < 0) continue;
    Arrived arrived = Pop(tokens_, lane.input, block[part].key());
    if (!clock_->network_given()) {
      TraceTransfer(lane.input, block[part], arrived.start_s, arrived.time_s);
    }
    worker_.TakeInput(block[part], lane.stage, std::move(arrived.payload));
  }
  PW_RETURN_IF_ERROR(RunParts(block, parts, start_s));
  position_ += parts;
  if (at_stop) sequence_.Passed();
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
    Trace(start_, {.start_s = part == 0 ? start_s : middle_s,
                   .end_s = part + 1 == parts ? end_s : middle_s,
                   .joint = parts == 2,
                   .rank = self_.rank,
                   .stage = LaneOf(block[part]).stage,
                   .pass = block[part]});
    if (!ReadsActivations(block[part].kind())) continue;
    loading_.erase(ActivationKey(block[part]));
    loaded_s_.erase(ActivationKey(block[part]));
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
  const int parts = block->joint_with_next() ? 2 : 1;
  if (!received_) {
    std::vector<Handshake> inputs;
    for (int part = 0; part < parts; ++part) {
      const int32_t input = LaneOf(block[part]).input;
      if (input >= 0) inputs.push_back({.channel = input, .pass = block[part]});
    }
    received_ = true;
    Plan(std::move(inputs));
    return true;
  }
  PW_ASSIGN_OR_RETURN(const bool ran, RunBlock());
  if (!ran) return false;
  received_ = false;
  std::vector<Handshake> transfers;
  for (int part = 0; part < parts; ++part) {
    const int32_t output = LaneOf(block[part]).output;
    if (output < 0) continue;
    transfers.push_back({.channel = output, .send = true, .pass = block[part]});
  }
  // A batch also holds what the next block receives, unless something that is
  // not a pass stands between.
  const Pass* const next = rank().order->data() + position_;
  if (program_.wait_rule == WaitRule::kBatched && !transfers.empty() &&
      position_ < sequence_.stop() && IsComputePass(next->kind())) {
    const int next_parts = next->joint_with_next() ? 2 : 1;
    for (int part = 0; part < next_parts; ++part) {
      const int32_t input = LaneOf(next[part]).input;
      if (input < 0) continue;
      transfers.push_back({.channel = input, .pass = next[part]});
    }
    received_ = true;
  }
  Plan(std::move(transfers));
  return true;
}

// Takes the next token that a false start has left. False when it is not
// there, or when there is none.
absl::StatusOr<bool> RankRun::DropNext() {
  if (dropped_ == rank().dropped.size()) return false;
  const auto [channel, pass] = rank().dropped[dropped_];
  if (holds_) {
    Plan({{.channel = channel, .pass = pass, .drop = true}});
  } else {
    if (!Has(tokens_, channel, pass.key())) return false;
    const Arrived arrived = Pop(tokens_, channel, pass.key());
    compute_s_ = std::max(compute_s_, arrived.time_s);
  }
  ++dropped_;
  return true;
}

}  // namespace pipewright

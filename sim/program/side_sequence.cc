#include "sim/program/side_sequence.h"

#include <algorithm>

namespace pipewright {
namespace {

bool Before(const LaneHook& hook) {
  return hook.place == LaneHook::Place::kBefore;
}

}  // namespace

SideSequence::SideSequence(const RankProgram& rank)
    : rank_(&rank), hooks_(rank.hooks.size()) {}

bool SideSequence::Waits(int32_t hook) const {
  return Before(rank_->hooks[hook]) || rank_->hooks[hook].window > 0;
}

void SideSequence::Begin(const Start& start) {
  start_ = start;
  ++number_;
  dropped_ = 0;
  end_ = rank_->EndOf(start);
  attachment_ = 0;
  attachment_end_ =
      start.is_false ? rank_->false_start_end : rank_->attachments.size();
  const int64_t first = begin();
  for (size_t index = 0; index < hooks_.size(); ++index) {
    HookState& hook = hooks_[index];
    hook = HookState();
    hook.to_reach.next = first;
    FindNext(rank_->hooks[index], hook.to_reach);
    hook.to_issue = hook.to_reach;
  }
  while (attachment_ < attachment_end_ &&
         rank_->attachments[attachment_].position < first) {
    ++attachment_;
  }
  SkipAttachments();
  FindStop();
  Find();
}

void SideSequence::SkipAttachments() {
  while (attachment_ < attachment_end_ &&
         !start_.Includes(
             rank_->side_ops[rank_->attachments[attachment_].side_op])) {
    ++attachment_;
  }
}

void SideSequence::Emit(Firings& firings, int64_t position,
                        int32_t side_op) const {
  const RankOrder& order = *rank_->order;
  const bool second = position > 0 && order[position - 1].joint_with_next();
  const bool joint = second || order[position].joint_with_next();
  firings.first = second ? position - 1 : position;
  firings.behind = firings.first + (joint ? 2 : 1);
  firings.side_op = side_op;
  firings.lane = order[position].lane();
}

// Counts a pass of the hook; true when it fires there.
bool SideSequence::Counts(const LaneHook& hook, uint32_t lane,
                          Firings& firings) const {
  if (hook.every == 1) return true;
  firings.passes.resize(rank_->lanes.size(), 0);
  const int64_t before = firings.passes[lane]++;
  if (Before(hook)) return before % hook.every == 0;
  return (before + 1) % hook.every == 0 ||
         before + 1 == rank_->lanes[lane].passes;
}

// True when no pass before has kept what the operation of this one makes.
bool SideSequence::Misses(const LaneHook& hook, uint32_t lane,
                          Firings& firings) const {
  firings.kept.resize(rank_->side_ops.size(), 0);
  char& kept = firings.kept[hook.side_ops[lane]];
  const bool misses = kept == 0;
  kept = hook.keeps[lane];
  return misses;
}

// The firing behind the one that `firings` is at.
void SideSequence::FindNext(const LaneHook& hook, Firings& firings) const {
  const RankOrder& order = *rank_->order;
  const bool runs = hook.fires == LaneHook::Fires::kEveryRun;
  while (firings.next < end_) {
    const int64_t position = firings.next++;
    const int32_t op = hook.side_ops[order[position].lane()];
    if (op < 0) continue;
    if (!runs) {
      const uint32_t lane = order[position].lane();
      const bool keeps = hook.fires == LaneHook::Fires::kUnlessKept;
      if (keeps ? Misses(hook, lane, firings) : Counts(hook, lane, firings)) {
        return Emit(firings, position, op);
      }
      continue;
    }
    const int64_t seen = firings.seen;
    const int32_t seen_op = firings.seen_op;
    firings.seen = position;
    firings.seen_op = op;
    if (op == seen_op) continue;
    if (Before(hook)) return Emit(firings, position, op);
    if (seen >= 0) return Emit(firings, seen, seen_op);
  }
  // The last run ends with the order.
  if (runs && !Before(hook) && firings.seen >= 0) {
    Emit(firings, firings.seen, firings.seen_op);
    firings.seen = -1;
    return;
  }
  firings.first = firings.behind = kNone;
}

bool SideSequence::ItemBehind() {
  for (size_t index = 0; index < hooks_.size(); ++index) {
    const HookState& hook = hooks_[index];
    if (Before(rank_->hooks[index]) || hook.to_issue.behind != stop_) continue;
    item_ = {.side_op = hook.to_issue.side_op,
             .hook = static_cast<int32_t>(index)};
    return true;
  }
  return false;
}

bool SideSequence::ItemAttached() {
  if (!AttachedAt(stop_)) return false;
  item_ = {.side_op = rank_->attachments[attachment_].side_op};
  return true;
}

bool SideSequence::ItemBefore() {
  for (size_t index = 0; index < hooks_.size(); ++index) {
    const LaneHook& rule = rank_->hooks[index];
    const HookState& hook = hooks_[index];
    if (!Before(rule) || hook.to_issue.first == kNone) continue;
    if (hook.awaited == 0 || hook.issued >= hook.reached + rule.window) {
      continue;
    }
    const bool ahead = hook.issued >= hook.reached;
    if (ahead && !rule.in_time.empty() && rule.in_time[hook.to_issue.lane]) {
      continue;
    }
    item_ = {.side_op = hook.to_issue.side_op,
             .hook = static_cast<int32_t>(index)};
    return true;
  }
  return false;
}

void SideSequence::Taken() {
  if (item_.hook < 0) {
    ++attachment_;
    SkipAttachments();
  } else {
    HookState& hook = hooks_[item_.hook];
    ++hook.issued;
    FindNext(rank_->hooks[item_.hook], hook.to_issue);
  }
  Find();
}

void SideSequence::Find() {
  item_ = Item();
  if (ItemBehind() || ItemAttached() || ItemBefore()) {
    if (item_.hook < 0 || start_.is_false) return;
    const LaneHook& hook = rank_->hooks[item_.hook];
    if (hook.output < 0) return;
    Firings after = hooks_[item_.hook].to_issue;
    FindNext(hook, after);
    if (after.first == kNone) item_.output = hook.output;
    return;
  }
  if (holds_ || stop_ == end_) return;
  // At every stop but the last there is an item or somebody to wait for.
  FindStop();
  Find();
}

void SideSequence::Passed() {
  holds_ = false;
  for (HookState& hook : hooks_) hook.awaited = 0;
  FindStop();
  Find();
}

// The next position where anything happens.
void SideSequence::FindStop() {
  stop_ = end_;
  if (attachment_ < attachment_end_) {
    stop_ = std::min(stop_, rank_->attachments[attachment_].position);
  }
  for (size_t index = 0; index < hooks_.size(); ++index) {
    const HookState& hook = hooks_[index];
    if (!Before(rank_->hooks[index])) {
      stop_ = std::min(stop_, hook.to_issue.behind);
    }
    if (Waits(static_cast<int32_t>(index))) {
      stop_ = std::min(stop_, hook.to_reach.first);
    }
  }
  Reach();
}

// What the block at the stop waits for.
void SideSequence::Reach() {
  if (stop_ == end_) return;
  for (size_t index = 0; index < hooks_.size(); ++index) {
    HookState& hook = hooks_[index];
    if (!Waits(static_cast<int32_t>(index))) continue;
    const LaneHook& rule = rank_->hooks[index];
    const int64_t before = hook.reached;
    while (hook.to_reach.first == stop_) {
      ++hook.reached;
      FindNext(rule, hook.to_reach);
    }
    if (hook.reached == before) continue;
    holds_ = true;
    // Behind a block that fires twice neither waits for the other.
    hook.awaited = Before(rule) ? hook.reached
                                : std::clamp<int64_t>(
                                      hook.reached - rule.window, 0, before);
  }
}

}  // namespace pipewright

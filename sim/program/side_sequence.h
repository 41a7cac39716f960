// The side operations between the passes of a rank in one start of an
// iteration, attached ones and those of hooks, in the order of their issue, and
// the operations that a block of passes waits for. Engines and OpCursor walk
// it, so that rules of time 2, 7 and 8 are written once. Knows no times:
// the rules of what its operations wait for are compute_stream.h's.
//
// Time O(passes) a start where there are hooks, else O(attachments).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/program/program.h"

namespace pipewright {

class SideSequence {
 public:
  struct Item {
    int32_t side_op = -1;
    int32_t hook = -1;    // -1: attached
    int32_t output = -1;  // channel that it feeds besides its own outputs
  };

  explicit SideSequence(const RankProgram& rank);

  // Begins a start; what is left of the one before is forgotten.
  void Begin(const Start& start);

  int64_t begin() const { return rank_->BeginOf(start_); }
  int64_t end() const { return end_; }
  const Start& start() const { return start_; }
  // Starts begun so far.
  int64_t number() const { return number_; }

  // The compute stream runs passes up to here. Then: every item, and after
  // them, where holds(), the one block that stands here, and Passed().
  int64_t stop() const { return stop_; }

  // What the compute stream does at `position`, which is no further than
  // stop().
  enum class Next {
    kEntry,  // the entry of the order
    kItem,   // item(), then Taken()
    kBlock,  // the block, which waits for hooks; then Passed()
    kDrop,   // drop(), then DropTaken()
    kEnd,    // nothing more in this start
  };
  Next NextAt(int64_t position) const {
    if (position != stop_) return Next::kEntry;
    if (item_.side_op >= 0) return Next::kItem;
    if (holds_) return Next::kBlock;
    return drop() != nullptr ? Next::kDrop : Next::kEnd;
  }

  // An attached operation has yet to be issued at `position`, which is no
  // further than stop().
  bool AttachedAt(int64_t position) const {
    return attachment_ < attachment_end_ &&
           rank_->attachments[attachment_].position == position;
  }

  // The next operation to issue at stop(); null when there is none.
  const Item* item() const { return item_.side_op < 0 ? nullptr : &item_; }
  void Taken();

  // The block at stop() waits for hooks.
  bool holds() const { return holds_; }
  // How many operations of `hook` must have ended before it runs, from the
  // begin of this start on.
  int64_t Awaited(int32_t hook) const { return hooks_[hook].awaited; }
  void Passed();

  // The next token that a false start has left, to be taken behind all else;
  // null when there is none.
  const Dropped* drop() const {
    return start_.is_false && dropped_ < rank_->dropped.size()
               ? &rank_->dropped[dropped_]
               : nullptr;
  }
  void DropTaken() { ++dropped_; }

  // True for a hook whose operations somebody waits for.
  bool Waits(int32_t hook) const;

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  // Walks the firings of a hook.
  struct Firings {
    int64_t first = 0;   // begin of the block; kNone: there is no more
    int64_t behind = 0;  // the block
    int32_t side_op = -1;
    uint32_t lane = 0;  // lane of the pass that fires
    int64_t next = 0;   // position to look at
    // Pass of a run that was seen last, and its operation.
    int64_t seen = -1;
    int32_t seen_op = -1;
    std::vector<int64_t> passes;  // [lane] so far, where they are counted
    std::vector<char> kept;       // [side operation], where passes keep
  };
  struct HookState {
    Firings to_reach;
    Firings to_issue;
    int64_t reached = 0;
    int64_t issued = 0;
    int64_t awaited = 0;
  };

  void FindNext(const LaneHook& hook, Firings& firings) const;
  bool Counts(const LaneHook& hook, uint32_t lane, Firings& firings) const;
  bool Misses(const LaneHook& hook, uint32_t lane, Firings& firings) const;
  void Emit(Firings& firings, int64_t position, int32_t side_op) const;
  void SkipAttachments();
  bool ItemBehind();
  bool ItemAttached();
  bool ItemBefore();
  // Sets item_, or moves on to the next stop.
  void Find();
  void FindStop();
  void Reach();

  const RankProgram* rank_;
  Start start_;
  int64_t number_ = 0;
  int64_t end_ = 0;
  int64_t stop_ = 0;
  size_t dropped_ = 0;
  size_t attachment_ = 0;
  size_t attachment_end_ = 0;
  Item item_;
  bool holds_ = false;
  std::vector<HookState> hooks_;
};

}  // namespace pipewright

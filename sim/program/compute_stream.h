// Rules of the compute stream that all engines share, beside the order of its
// operations (SideSequence): what an entry of the order is to it, when the
// activations of a pass are on the device, what a block waits for of hooks, and
// what the transfers of a block post where they hold their rank. Each engine
// keeps its own clock and its own tokens. tests/support has the rules once more
// to check them against.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sim/base/fifo.h"
#include "sim/program/program.h"
#include "sim/program/side_sequence.h"
#include "sim/schedule/pass.h"

namespace pipewright {

// What an entry of the order is to the compute stream.
enum class Entry {
  kBlock,  // a pass, or the first of a block (X&Y)
  kCopy,   // O and L: issued to CopyStream
  kMark,   // SYNC: passed over
  kFree,   // FREE: waits for the end of its O
};
constexpr Entry EntryOf(PassKind kind) {
  if (IsComputePass(kind)) return Entry::kBlock;
  if (kind == PassKind::kFree) return Entry::kFree;
  return kind == PassKind::kSync ? Entry::kMark : Entry::kCopy;
}
constexpr Stream CopyStream(PassKind kind) {
  return kind == PassKind::kOffload ? Stream::kD2H : Stream::kH2D;
}

// Passes of the block that begins with `first`.
constexpr int PartsOf(Pass first) { return first.joint_with_next() ? 2 : 1; }

// Key of a side operation's tokens: it comes once an iteration, so they are in
// order.
inline constexpr uint64_t kSideKey = 0;

// The activations of a rank that copies move: a load begins when its offload
// has ended; a pass begins when the load that stands in front of it has.
class HostActivations {
 public:
  // The compute stream has come to an O or L.
  void Issue(Pass copy) {
    if (copy.kind() == PassKind::kLoad) loading_.insert(copy.activation());
  }

  // Raises *start_s to when the data of an O or L is there. False when that is
  // not known yet.
  bool AwaitData(Pass copy, double* start_s) const {
    if (copy.kind() != PassKind::kLoad) return true;
    const auto offloaded = offloaded_s_.find(copy.activation());
    if (offloaded == offloaded_s_.end()) return false;
    *start_s = std::max(*start_s, offloaded->second);
    return true;
  }
  void Begin(Pass copy) {
    if (copy.kind() == PassKind::kLoad) offloaded_s_.erase(copy.activation());
  }
  void End(Pass copy, double end_s) {
    (copy.kind() == PassKind::kLoad ? loaded_s_
                                    : offloaded_s_)[copy.activation()] = end_s;
  }

  // Raises *earliest_s to the end of the O that `free` belongs to. False when
  // that is not known yet.
  bool AwaitOffload(Pass free, double* earliest_s) const {
    const auto offloaded = offloaded_s_.find(free.activation());
    if (offloaded == offloaded_s_.end()) return false;
    *earliest_s = std::max(*earliest_s, offloaded->second);
    return true;
  }

  // True when the activations of `pass` are on the device, or will be at a time
  // that is known; raises *earliest_s to it.
  bool Await(Pass pass, double* earliest_s) const {
    if (loading_.empty() || !ReadsActivations(pass.kind())) return true;
    const uint64_t key = pass.activation();
    if (!loading_.contains(key)) return true;
    const auto loaded = loaded_s_.find(key);
    if (loaded == loaded_s_.end()) return false;
    *earliest_s = std::max(*earliest_s, loaded->second);
    return true;
  }
  // The pass runs: what was loaded for it counts no longer.
  void Use(Pass pass) {
    if (loading_.empty() || !ReadsActivations(pass.kind())) return;
    loading_.erase(pass.activation());
    loaded_s_.erase(pass.activation());
  }

 private:
  absl::flat_hash_map<uint64_t, double> offloaded_s_;  // ends, until the load
  absl::flat_hash_map<uint64_t, double> loaded_s_;     // ends, until the use
  absl::flat_hash_set<uint64_t> loading_;              // issued, until the use
};

// When the operations of a rank's hooks have ended, in the order of their
// issue: what the blocks that wait for them ask.
class HookEnds {
 public:
  explicit HookEnds(size_t hooks) : hooks_(hooks) {}

  // A start begins; ends before it count for nobody.
  void Begin() { hooks_.assign(hooks_.size(), Ends()); }

  // An operation has ended that was issued in start number `start`
  // (SideSequence::number). The operations of one stream end in order, so the
  // times of a hook never fall.
  void Push(const SideSequence& sequence, const SideSequence::Item& item,
            int64_t start, double end_s) {
    if (item.hook >= 0 && start == sequence.number() &&
        sequence.Waits(item.hook)) {
      hooks_[item.hook].ends_s.push_back(end_s);
    }
  }

  // Raises *earliest_s to the ends of all operations that the block at the stop
  // waits for. False when one of them has not ended.
  bool Await(const SideSequence& sequence, double* earliest_s) {
    for (size_t hook = 0; hook < hooks_.size(); ++hook) {
      if (!hooks_[hook].Await(sequence.Awaited(static_cast<int32_t>(hook)),
                              earliest_s)) {
        return false;
      }
    }
    return true;
  }

 private:
  struct Ends {
    Fifo<double> ends_s;
    int64_t taken = 0;
    double last_s = 0;

    // Raises *earliest_s to the ends of the first `count` since the begin.
    // Counts never fall.
    bool Await(int64_t count, double* earliest_s) {
      while (taken < count && !ends_s.empty()) {
        last_s = ends_s.front();
        ends_s.pop_front();
        ++taken;
      }
      if (taken < count) return false;
      *earliest_s = std::max(*earliest_s, last_s);
      return true;
    }
  };
  std::vector<Ends> hooks_;
};

// What a rank awaits one after the other; each of them is posted as a whole.
using HoldingSteps = std::vector<std::vector<Handshake>>;

// Appends what a rank posts in front of the block: its inputs; where ranks walk
// through time steps, what it receives in the empty ones.
void PostBefore(const RankProgram& rank, WaitRule rule, const Pass* block,
                HoldingSteps* steps);

// Appends what it posts behind the block that ends at `position`: its outputs,
// and in a batch also what the next block receives, unless an attached
// operation or an entry that is no pass stands between; in a time step also
// what the rank receives in it. Operations of hooks are issued behind it.
// *received: the next block's inputs are among a batch.
void PostBehind(const RankProgram& rank, WaitRule rule, const Pass* block,
                int64_t position, const SideSequence& sequence, bool* received,
                HoldingSteps* steps);

}  // namespace pipewright

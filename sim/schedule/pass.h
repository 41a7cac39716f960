// One scheduled pass in eight bytes: what runs, on which microbatch. The order
// of a rank is an array of them, the only storage that grows with the number
// of microbatches (docs/architecture.md, The flow).
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace pipewright {

// Letters of the zero-bubble papers: F, B (input gradient), W (weight
// gradient), BW (both), R (recomputed forward), O and L (offload, load of the
// activations of one pass), SYNC (gradient synchronisation of one chunk), FREE
// (the device's memory of an offloaded pass is given back: the compute stream
// waits for the end of its O).
enum class PassKind : uint8_t {
  kForward = 0,
  kBackwardInput = 1,
  kBackwardWeight = 2,
  kBackwardFull = 3,
  kRecompute = 4,
  kOffload = 5,
  kLoad = 6,
  kSync = 7,
  kFree = 8,
};
inline constexpr int kNumPassKinds = 9;

// "F", "B", "W", "BW", "R", "O", "L", "SYNC", "FREE".
inline absl::string_view PassKindName(PassKind kind) {
  constexpr absl::string_view kNames[kNumPassKinds] = {
      "F", "B", "W", "BW", "R", "O", "L", "SYNC", "FREE"};
  return kNames[static_cast<int>(kind)];
}

// True for the kinds that count as passes: F B W BW R.
constexpr bool IsComputePass(PassKind kind) {
  return kind <= PassKind::kRecompute;
}
constexpr bool IsBackward(PassKind kind) {
  return kind == PassKind::kBackwardInput || kind == PassKind::kBackwardFull;
}
// True for a pass that waits for the load of its activations: a backward, or
// the R in front of it.
constexpr bool ReadsActivations(PassKind kind) {
  return IsBackward(kind) || kind == PassKind::kRecompute;
}

// Bits, from the low end: kind 4, direction 1, chunk 11 (together the *lane*,
// which indexes per-rank tables), joint 1, slice 14, microbatch 32 (together
// with the slice the *key*, unique in a lane and iteration). Of the sixteen
// values of a kind only kNumPassKinds have lanes, so that tables have no gaps.
class Pass {
 public:
  static constexpr int kDirectionShift = 4;
  static constexpr int kChunkShift = 5;
  static constexpr int kJointShift = 16;
  static constexpr int kSliceShift = 17;
  static constexpr int kMicrobatchShift = 32;
  static constexpr uint64_t kJointBit = uint64_t{1} << kJointShift;
  static constexpr int kMaxChunks = 1 << 11;
  static constexpr int kMaxSlices = 1 << 14;
  static constexpr int64_t kMaxMicrobatches = int64_t{1} << 31;

  constexpr Pass() = default;
  constexpr Pass(PassKind kind, int microbatch, int chunk = 0, int slice = 0,
                 int direction = 0)
      : bits_(static_cast<uint64_t>(kind) |
              static_cast<uint64_t>(direction) << kDirectionShift |
              static_cast<uint64_t>(chunk) << kChunkShift |
              static_cast<uint64_t>(slice) << kSliceShift |
              static_cast<uint64_t>(static_cast<uint32_t>(microbatch))
                  << kMicrobatchShift) {}

  constexpr PassKind kind() const {
    return static_cast<PassKind>(bits_ & ((1 << kDirectionShift) - 1));
  }
  constexpr int direction() const {
    return static_cast<int>(bits_ >> kDirectionShift & 1);
  }
  constexpr int chunk() const { return static_cast<int>(part() >> 1); }
  constexpr int slice() const {
    return static_cast<int>(bits_ >> kSliceShift & (kMaxSlices - 1));
  }
  constexpr int microbatch() const {
    return static_cast<int>(bits_ >> kMicrobatchShift);
  }

  // (direction, chunk) of a rank as one number, 0..2*vpp-1.
  constexpr uint32_t part() const {
    return static_cast<uint32_t>(bits_ >> kDirectionShift &
                                 (2 * kMaxChunks - 1));
  }
  // Index of (kind, direction, chunk) in a table of LaneCount(vpp) entries.
  constexpr uint32_t lane() const {
    return part() * kNumPassKinds + static_cast<uint32_t>(kind());
  }
  static constexpr uint32_t LaneOf(PassKind kind, int chunk, int direction) {
    return Pass(kind, 0, chunk, 0, direction).lane();
  }
  static constexpr int LaneCount(int vpp) { return 2 * vpp * kNumPassKinds; }
  // Kind by a lane's index.
  static constexpr PassKind KindOf(uint64_t lane) {
    return static_cast<PassKind>(lane % kNumPassKinds);
  }
  // The lane of another kind beside it.
  static constexpr uint64_t LaneBeside(uint64_t lane, PassKind kind) {
    return lane - lane % kNumPassKinds + static_cast<uint64_t>(kind);
  }

  // Same for all kinds of one (direction, chunk, slice, microbatch): names the
  // activations that F leaves, unique on a rank.
  constexpr uint64_t activation() const {
    return bits_ >> kDirectionShift << kDirectionShift & ~kJointBit;
  }

  // Same for all passes of one (microbatch, slice).
  constexpr uint64_t key() const { return bits_ >> kSliceShift; }

  // The pass and the next one in the order are one block (X&Y): it starts when
  // both inputs are there and releases both results at its end.
  constexpr bool joint_with_next() const { return (bits_ & kJointBit) != 0; }
  constexpr Pass WithJoint(bool joint) const {
    Pass out = *this;
    out.bits_ = joint ? bits_ | kJointBit : bits_ & ~kJointBit;
    return out;
  }

  constexpr uint64_t bits() const { return bits_; }
  friend constexpr bool operator==(Pass a, Pass b) {
    return a.bits_ == b.bits_;
  }

 private:
  uint64_t bits_ = 0;
};
static_assert(sizeof(Pass) == 8);

}  // namespace pipewright

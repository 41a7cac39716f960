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
// activations of one pass), SYNC (gradient synchronisation of one chunk).
enum class PassKind : uint8_t {
  kForward = 0,
  kBackwardInput = 1,
  kBackwardWeight = 2,
  kBackwardFull = 3,
  kRecompute = 4,
  kOffload = 5,
  kLoad = 6,
  kSync = 7,
};
inline constexpr int kNumPassKinds = 8;

// "F", "B", "W", "BW", "R", "O", "L", "SYNC".
absl::string_view PassKindName(PassKind kind);

// True for the kinds that count as passes: F B W BW R.
constexpr bool IsComputePass(PassKind kind) {
  return kind <= PassKind::kRecompute;
}
constexpr bool IsBackward(PassKind kind) {
  return kind == PassKind::kBackwardInput || kind == PassKind::kBackwardFull;
}

// Bits, from the low end: kind 3, replica 1, chunk 11 (together the *lane*,
// which indexes per-rank tables), joint 1, slice 14, microbatch 32 (together
// with the slice the *key*, unique in a lane and iteration).
class Pass {
 public:
  static constexpr uint64_t kJointBit = uint64_t{1} << 15;
  static constexpr int kMaxChunks = 1 << 11;
  static constexpr int kMaxSlices = 1 << 14;
  static constexpr int64_t kMaxMicrobatches = int64_t{1} << 31;

  constexpr Pass() = default;
  constexpr Pass(PassKind kind, int microbatch, int chunk = 0, int slice = 0,
                 int replica = 0)
      : bits_(static_cast<uint64_t>(kind) |
              static_cast<uint64_t>(replica) << 3 |
              static_cast<uint64_t>(chunk) << 4 |
              static_cast<uint64_t>(slice) << 16 |
              static_cast<uint64_t>(static_cast<uint32_t>(microbatch)) << 32) {}

  constexpr PassKind kind() const { return static_cast<PassKind>(bits_ & 7); }
  constexpr int replica() const { return static_cast<int>(bits_ >> 3 & 1); }
  constexpr int chunk() const { return static_cast<int>(bits_ >> 4 & 0x7ff); }
  constexpr int slice() const { return static_cast<int>(bits_ >> 16 & 0x3fff); }
  constexpr int microbatch() const { return static_cast<int>(bits_ >> 32); }

  // Index of (kind, replica, chunk) in a table of LaneCount(vpp) entries.
  constexpr uint32_t lane() const {
    return static_cast<uint32_t>(bits_ & 0x7fff);
  }
  static constexpr uint32_t LaneOf(PassKind kind, int chunk, int replica) {
    return Pass(kind, 0, chunk, 0, replica).lane();
  }
  static constexpr int LaneCount(int vpp) { return 16 * vpp; }

  // Same for all passes of one (microbatch, slice).
  constexpr uint64_t key() const { return bits_ >> 16; }

  // The pass and the one behind it in the order are one block (X&Y): it
  // starts when both inputs are there and releases both results at its end.
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

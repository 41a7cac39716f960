// What the operations of a Program are, and the streams of a device that they
// run on.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace pipewright {

enum class Stream : uint8_t {
  kCompute,
  kSend,
  kReceive,
  kCollective,
  kD2H,
  kH2D,
  kCpu,  // the host's cores
  // Copies of an optimizer's states, one stream for each array, both ways.
  kMomentumCopy,
  kVarianceCopy,
  kMasterCopy,
  // Weights that the host has made, to the device: several at once.
  kWeightCopy,
  kCast,  // a thread of the host that casts them
  kGradientCopy,
  kReduction,  // for gradients, where it has a stream beside kCollective's
};
inline constexpr int kNumStreams = 14;
absl::string_view StreamName(Stream stream);
// What is issued to it starts in that order, one at a time; else as soon as it
// has its inputs.
constexpr bool RunsInOrder(Stream stream) {
  return stream != Stream::kWeightCopy;
}

enum class OpKind : uint8_t {
  kPass,     // F B W BW R on the compute stream
  kSend,     // the sender's side of a transfer
  kReceive,  // the receiver's side
  kOffload,  // O: activations of one pass to the host
  kLoad,     // L: and back
  kWait,     // joins other streams; takes no time
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBarrier,    // a collective without bytes
  kPull,       // one-sided read from `peer`'s memory; the peer does nothing
  kPush,       // one-sided write into it
  kCpu,        // work on the host
  kOptimizer,  // update of the rank's parameters
  kValidate,   // check of a step taken early
  kRollback,   // undo of such a step
  kPredict,    // weights that the optimizer is expected to make
  kDrop,       // receives what a false start has made needless
  kCopyOut,    // from the device to its host
  kCopyIn,     // and back
  kHostAdam,   // update of a subgroup of parameters by the host's cores
  kHostCast,   // its weights from fp32 to bf16, there
  kHostUndo,   // takes such an update back
  kFlush,      // gradients to the host, while the device waits
  kCast,       // gradients or weights of a subgroup, by the device
};
inline constexpr int kNumOpKinds = 25;
absl::string_view OpKindName(OpKind kind);
constexpr bool IsCollective(OpKind kind) {
  return kind >= OpKind::kAllReduce && kind <= OpKind::kBarrier;
}
constexpr bool IsOneSided(OpKind kind) {
  return kind == OpKind::kPull || kind == OpKind::kPush;
}
constexpr bool IsHostCopy(OpKind kind) {
  return kind == OpKind::kCopyOut || kind == OpKind::kCopyIn;
}
// What shares the memory of a host, and its links: its time depends on what
// runs beside it.
constexpr bool UsesHost(OpKind kind) {
  return kind >= OpKind::kCopyOut && kind <= OpKind::kHostUndo;
}

}  // namespace pipewright

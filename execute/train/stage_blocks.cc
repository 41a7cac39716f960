// Which blocks of memory passes take and give back, without running them, and
// how much of it the passes that have run have left.
#include <algorithm>

#include "execute/train/stage.h"

namespace pipewright {

size_t Stage::CacheBytes() const {
  if (model_.slices == 1) return 0;
  size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.size.cache;
  return bytes;
}

size_t Stage::Activations::DeviceBytes() const {
  size_t bytes = input.bytes;
  for (const PartBlocks& blocks : parts) {
    bytes += blocks.saved.bytes + blocks.inputs.bytes + blocks.grads.bytes;
  }
  for (const Offloaded& each : offloaded) bytes += each.loaded.bytes;
  return bytes;
}

size_t Stage::HeldBytes() const {
  size_t held = 0;
  for (const auto& [part, cache] : caches_) held += cache.bytes;
  for (const auto& [key, activations] : activations_) {
    held += activations.DeviceBytes();
  }
  return held;
}

// Bytes of one slice's input that are kept.
size_t Stage::InputBytes(bool again) const {
  if (first()) return IdsBytes();
  return again ? model_.BoundaryBytes() : 0;
}

size_t Stage::WholeBytes() const {
  size_t bytes = first() ? IdsBytes() : 0;
  for (const Part& part : parts_) {
    bytes += part.size.saved + part.size.inputs;
    if (part.spec.part == PW_HEAD) bytes += part.size.grads;
  }
  return bytes;
}

size_t Stage::ForwardBytes(bool again) const {
  return again ? InputBytes(true) : WholeBytes();
}

std::array<size_t, 2> Stage::SliceBytes(const std::set<PassKind>& kinds) const {
  std::array<size_t, 2> bytes = {0, 0};
  if (kinds.contains(PassKind::kRecompute)) bytes[0] = WholeBytes();
  if (kinds.contains(PassKind::kBackwardInput)) {
    bytes[1] = first() ? IdsBytes() : 0;
    for (const Part& part : parts_) {
      bytes[1] += part.size.inputs + part.size.grads;
    }
  }
  return bytes;
}

std::vector<std::pair<size_t, int>> Stage::BlocksOf(PassKind kind, int slice,
                                                    bool again) const {
  std::vector<std::pair<size_t, int>> blocks;
  const auto change = [&blocks](size_t bytes, int by) {
    if (bytes > 0) blocks.emplace_back(bytes, by);
  };
  // From a microbatch's first forward to its last backward; neither the input
  // that is kept to recompute from, which is the sender's.
  const auto caches = [&](int by) {
    if (model_.slices == 1 || slice > 0) return;
    for (const Part& part : parts_) change(part.size.cache, by);
  };
  const auto tokens = [&](int by) {
    if (first()) change(IdsBytes(), by);
  };
  const auto forward = [&](int by) {
    for (const Part& part : parts_) {
      change(part.size.saved, by);
      change(part.size.inputs, by);
      if (part.spec.part == PW_HEAD) change(part.size.grads, by);
    }
  };
  switch (kind) {
    case PassKind::kForward:
      caches(1);
      tokens(1);
      if (again) {
        for (const Part& part : parts_) {
          for (const int by : {1, -1}) {
            change(part.size.saved, by);
            change(part.size.inputs, by);
            if (part.spec.part == PW_HEAD) change(part.size.grads, by);
          }
        }
      } else {
        forward(1);
      }
      break;
    case PassKind::kRecompute:
      forward(1);
      break;
    case PassKind::kBackwardInput:
    case PassKind::kBackwardFull:
      for (size_t index = parts_.size(); index-- > 0;) {
        const PwPartSize& size = parts_[index].size;
        if (parts_[index].spec.part != PW_HEAD) change(size.grads, 1);
        change(size.saved, -1);
        if (kind == PassKind::kBackwardInput) continue;
        change(size.inputs, -1);
        change(size.grads, -1);
      }
      caches(-1);
      if (kind == PassKind::kBackwardFull) tokens(-1);
      break;
    case PassKind::kBackwardWeight:
      for (const Part& part : parts_) {
        change(part.size.inputs, -1);
        change(part.size.grads, -1);
      }
      tokens(-1);
      break;
    default:
      break;
  }
  return blocks;
}

}  // namespace pipewright

// Which blocks of memory passes take and give back, without running them.
#include "execute/stage.h"

namespace pipewright {

std::vector<std::pair<size_t, int>> Stage::BlocksOf(PassKind kind,
                                                    int slice) const {
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
      if (model_.recompute) {
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
      break;
    case PassKind::kBackwardWeight:
      for (const Part& part : parts_) {
        change(part.size.inputs, -1);
        change(part.size.grads, -1);
      }
      break;
    default:
      break;
  }
  return blocks;
}

}  // namespace pipewright

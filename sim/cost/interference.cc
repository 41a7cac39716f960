#include "sim/cost/interference.h"

#include <algorithm>

namespace pipewright {

std::optional<InterferenceMatrix> InterferenceMatrix::Of(
    const Profile& profile) {
  if (profile.interference.empty()) return {};
  InterferenceMatrix matrix;
  for (const InterferenceEntry& entry : profile.interference) {
    const int row = static_cast<int>(entry.pass);
    if (row > static_cast<int>(ProfilePass::kBackwardWeight)) continue;
    // Below 1 is noise of the measurement.
    matrix.entries[row][static_cast<int>(entry.beside)] = {
        .pass = std::max(1.0, entry.pass_slowdown),
        .beside = std::max(1.0, entry.beside_slowdown)};
  }
  return matrix;
}

Slowdown InterferenceMatrix::At(const PassMix& mix, Beside beside) const {
  const double parts[3] = {mix.forward, mix.backward_input,
                           mix.backward_weight};
  Slowdown sum = {0, 0};
  for (int row = 0; row < 3; ++row) {
    const Slowdown& entry = entries[row][static_cast<int>(beside)];
    sum.pass += parts[row] * entry.pass;
    sum.beside += parts[row] * entry.beside;
  }
  return sum;
}

PassMix MixOf(PassKind kind, double input_s, double weight_s) {
  switch (kind) {
    case PassKind::kBackwardInput:
      return {.backward_input = 1};
    case PassKind::kBackwardWeight:
      return {.backward_weight = 1};
    case PassKind::kBackwardFull: {
      const double sum_s = input_s + weight_s;
      const double input = sum_s > 0 ? input_s / sum_s : 0.5;
      return {.backward_input = input, .backward_weight = 1 - input};
    }
    default:
      return {.forward = 1};
  }
}

}  // namespace pipewright

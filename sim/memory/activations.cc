#include "sim/memory/activations.h"

#include <algorithm>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"

namespace pipewright {
namespace {

// What a pass does to the number of activations held whole, and to the number
// of which only the part that W needs is left.
struct Change {
  int8_t whole;
  int8_t weight_part;
};

constexpr Change kChanges[kNumPassKinds] = {
    {+1, 0},   // F
    {-1, +1},  // B
    {0, -1},   // W
    {-1, 0},   // BW
    {0, 0},    // R
    {0, 0},    // O
    {+1, 0},   // L, of what was given back
    {0, 0},    // SYNC
    {-1, 0},   // FREE
};

// Counts are integers, so that no error adds up over a long order.
double PeakOfOrder(const RankOrder& order, double held_until_weight) {
  int64_t whole = 0;
  int64_t weight_part = 0;
  double peak = 0;
  absl::flat_hash_set<uint64_t> away;
  const size_t size = order.size();
  for (size_t index = 0; index < size; ++index) {
    const Pass pass = order[index];
    Change change = kChanges[static_cast<int>(pass.kind())];
    if (pass.joint_with_next() && index + 1 < size) [[unlikely]] {
      // A joint pair allocates at its common start and frees at its end.
      const Change second = kChanges[static_cast<int>(order[++index].kind())];
      whole += std::max<int>(change.whole, 0) + std::max<int>(second.whole, 0);
      peak = std::max(peak, whole + held_until_weight * weight_part);
      whole += std::min<int>(change.whole, 0) + std::min<int>(second.whole, 0);
      weight_part += change.weight_part + second.weight_part;
      continue;
    }
    if (pass.kind() == PassKind::kFree) [[unlikely]] {
      away.insert(pass.activation());
    }
    // What was never given back is still there.
    const bool loads = pass.kind() == PassKind::kLoad;
    if (loads && away.erase(pass.activation()) == 0) [[unlikely]] {
      continue;
    }
    whole += change.whole;
    weight_part += change.weight_part;
    peak = std::max(peak, whole + held_until_weight * weight_part);
  }
  return peak;
}

}  // namespace

std::vector<double> PeakActivations(const Schedule& schedule,
                                    double held_until_weight) {
  const double share = static_cast<double>(schedule.vpp()) * schedule.slices;
  std::vector<double> peaks;
  peaks.reserve(schedule.orders.size());
  if (schedule.backward == BackwardRule::kNone) {
    return std::vector<double>(schedule.pp(), 1 / share);
  }
  for (const auto& rank_order : schedule.orders) {
    peaks.push_back(PeakOfOrder(*rank_order, held_until_weight) / share);
  }
  return peaks;
}

std::string PeakActivationsNote(double held_until_weight) {
  return absl::StrFormat(
      "in microbatches through all the rank's stages of one direction; a split "
      "B leaves %s of what its F kept to W (held_until_weight %.4g)",
      held_until_weight == 1   ? "all"
      : held_until_weight == 0 ? "none"
                               : "part",
      held_until_weight);
}

}  // namespace pipewright

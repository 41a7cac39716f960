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
    {0, 0},    // R: see RunAgain
    {0, 0},    // O
    {0, 0},    // L: see AwayParts
    {0, 0},    // SYNC
    {0, 0},    // FREE: the same
};

// What FREE has taken away and L has not brought back.
class AwayParts {
 public:
  AwayParts(const Schedule& schedule, int rank,
            const std::vector<double>& moved)
      : schedule_(schedule), rank_(rank), moved_(moved) {}

  void Free(Pass pass) {
    away_.insert(pass.activation());
    sum_ += PartOf(pass);
  }
  // False of what was never given back: it is still there.
  bool Load(Pass pass) {
    if (away_.erase(pass.activation()) == 0) return false;
    sum_ = away_.empty() ? 0 : sum_ - PartOf(pass);
    return true;
  }
  double sum() const { return sum_; }

 private:
  double PartOf(Pass pass) const {
    if (moved_.empty()) return 1;
    return moved_[schedule_.placement.StageOf(rank_, pass.chunk(),
                                              pass.direction())];
  }

  const Schedule& schedule_;
  const int rank_;
  const std::vector<double>& moved_;
  absl::flat_hash_set<uint64_t> away_;
  double sum_ = 0;
};

}  // namespace

absl::flat_hash_set<uint64_t> RunAgain(const RankOrder& order) {
  absl::flat_hash_set<uint64_t> again;
  for (const Pass pass : order) {
    if (pass.kind() == PassKind::kRecompute) again.insert(pass.activation());
  }
  return again;
}

namespace {

// Counts are integers, so that no error adds up over a long order.
double PeakOfOrder(const RankOrder& order, double held_until_weight,
                   AwayParts away) {
  const absl::flat_hash_set<uint64_t> again = RunAgain(order);
  int64_t whole = 0;
  int64_t weight_part = 0;
  double peak = 0;
  // With the end of the pass.
  const auto drop = [&](Pass pass) {
    if (again.empty() || pass.kind() != PassKind::kForward) return;
    if (again.contains(pass.activation())) --whole;
  };
  const auto see = [&] {
    peak = std::max(peak, whole + held_until_weight * weight_part - away.sum());
  };
  const size_t size = order.size();
  for (size_t index = 0; index < size; ++index) {
    const Pass pass = order[index];
    Change change = kChanges[static_cast<int>(pass.kind())];
    if (pass.joint_with_next() && index + 1 < size) [[unlikely]] {
      // A joint pair allocates at its common start and frees at its end.
      const Change second = kChanges[static_cast<int>(order[++index].kind())];
      whole += std::max<int>(change.whole, 0) + std::max<int>(second.whole, 0);
      see();
      whole += std::min<int>(change.whole, 0) + std::min<int>(second.whole, 0);
      weight_part += change.weight_part + second.weight_part;
      drop(pass);
      drop(order[index]);
      continue;
    }
    if (pass.kind() == PassKind::kFree) [[unlikely]] {
      away.Free(pass);
    }
    if (pass.kind() == PassKind::kLoad && !away.Load(pass)) [[unlikely]] {
      continue;
    }
    whole += change.whole;
    if (pass.kind() == PassKind::kRecompute) ++whole;
    weight_part += change.weight_part;
    see();
    drop(pass);
  }
  return peak;
}

}  // namespace

std::vector<double> PeakActivations(const Schedule& schedule,
                                    double held_until_weight,
                                    const std::vector<double>& moved) {
  const double share = static_cast<double>(schedule.vpp()) * schedule.slices;
  std::vector<double> peaks;
  peaks.reserve(schedule.orders.size());
  if (schedule.backward == BackwardRule::kNone) {
    return std::vector<double>(schedule.pp(), 1 / share);
  }
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    peaks.push_back(PeakOfOrder(schedule.order(rank), held_until_weight,
                                AwayParts(schedule, rank, moved)) /
                    share);
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

WeightVersions WeightVersionsOf(const Schedule& schedule) {
  WeightVersions out;
  out.staleness.assign(schedule.pp(), 0);
  out.versions.assign(schedule.pp(), 1);
  if (schedule.update_every == 0) return out;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    // A forward runs this many backwards before its own.
    int ahead = 0;
    for (const Pass pass : schedule.order(rank)) {
      if (pass.kind() != PassKind::kForward) break;
      ++ahead;
    }
    ahead = std::max(0, ahead - 1);
    const int every = schedule.update_every;
    out.staleness[rank] = (ahead + every - 1) / every;
  }
  if (schedule.update_every == 1) {
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      out.versions[rank] = out.staleness[rank] > 0 ? 2 : 1;
    }
    return out;
  }
  // A microbatch uses one version on all ranks, the newest that the first of
  // them has when it comes in.
  const int most =
      *std::max_element(out.staleness.begin(), out.staleness.end());
  out.staleness.assign(schedule.pp(), most);
  out.versions.assign(schedule.pp(), most + 1);
  return out;
}

}  // namespace pipewright

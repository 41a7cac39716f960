// What the step behind an iteration takes by a profile: optimizer, prediction
// of weights, their copies in fp8.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "sim/cost/profile_costs.h"
#include "sim/cost/profile_interpolation.h"
#include "sim/cost/profile_shape.h"

namespace pipewright {
namespace {

std::optional<double> SecondsOnLine(const Profile& profile, bool prediction,
                                    double parameters) {
  std::vector<GridPoint> points;
  for (const OptimizerEntry& entry : profile.optimizers) {
    if (entry.where != "device" || entry.prediction != prediction ||
        entry.time.median_s <= 0) {
      continue;
    }
    const auto size = static_cast<double>(entry.parameters);
    points.push_back({{size}, {size}, entry.time.median_s});
  }
  if (points.empty()) return {};
  return Interpolation(std::move(points))
      .At({parameters}, {parameters})
      .seconds;
}

}  // namespace

std::optional<double> ProfileOptimizerSeconds(const Profile& profile,
                                              double parameters) {
  return SecondsOnLine(profile, /*prediction=*/false, parameters);
}

std::optional<double> ProfilePredictionSeconds(const Profile& profile,
                                               double parameters) {
  return SecondsOnLine(profile, /*prediction=*/true, parameters);
}

double ProfileQuantizeSeconds(const Profile& profile, const ModelSpec& model,
                              const TrainingSpec& training,
                              const StageLayout& layout,
                              const std::vector<int>& rank_of_stage,
                              int directions) {
  const absl::StatusOr<ProfileModel> shape = ProfileModelOf(model);
  std::vector<GridPoint> points;
  for (const KernelEntry& entry : profile.kernels) {
    if (entry.name != "quantize.weights" || entry.shape.size() != 1) continue;
    const auto size = static_cast<double>(entry.shape[0]);
    points.push_back({{size}, {size}, entry.time.median_s});
  }
  if (training.precision != Precision::kFp8 || points.empty() || !shape.ok()) {
    return 0;
  }
  const int last_rank =
      *std::max_element(rank_of_stage.begin(), rank_of_stage.end());
  std::vector<double> layers(last_rank + 1);
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    for (const StageBlock& block : layout.stages[stage]) {
      if (block.kind != BlockKind::kDenseLayer) continue;
      const double count = static_cast<double>(block.count) * block.part;
      layers[rank_of_stage[stage]] += count;
      if (directions == 2) layers[last_rank - rank_of_stage[stage]] += count;
    }
  }
  // All devices' weights of a layer.
  const double weights = PointOf(ProfilePart::kLayer, ProfilePass::kForward,
                                 *shape, 1, 1, training.tp)
                             .where.back();
  const double own = weights / training.tp;
  return *std::max_element(layers.begin(), layers.end()) *
         Interpolation(std::move(points)).At({own}, {own}).seconds;
}

}  // namespace pipewright

// Which shapes of a model are calibrated, and a model as the kernels want it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/layer.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"

namespace pipewright {

struct ShapeOptions {
  // Empty: the default of DefaultGrid.
  std::vector<int64_t> microbatch_sizes;
  std::vector<int64_t> sequences;
  std::vector<int64_t> tps;
  std::vector<int64_t> eps;  // only for models with experts
  // Microbatch sizes that are cut, and into how many slices; none by default.
  std::vector<std::pair<int64_t, int64_t>> sliced;
  bool quick = false;  // one shape
  bool fp8 = false;    // a layer's linear layers in fp8
};

struct Shape {
  PwModel model;  // with tp
  PwWork work;
  int64_t tp() const { return model.tp; }
  int64_t ep() const { return model.ep; }  // 0: no experts
  // 1: whole sequences.
  int64_t slices() const { return work.sequence / work.slice_tokens; }
  int64_t tokens() const { return work.batch * work.slice_tokens; }
};

inline bool IsLayer(PwPart part) {
  return part == PW_LAYER || part == PW_EXPERT_LAYER;
}

struct Grid {
  ProfileModel model;
  PwType type = PW_FP32;
  std::vector<Shape> shapes;  // by ep, tp, sequence, then microbatch size
  // For layers alone: a slice in the middle of the sequence, which sees as many
  // tokens as slices see on average.
  std::vector<Shape> sliced;
  // The parts that the model has: the embedding, dense layers, layers of
  // experts, the head.
  std::vector<PwPart> parts;
  std::vector<std::string> warnings;  // where the kernels' block differs

  // Whole sequences come first.
  std::vector<Shape> AllShapes() const {
    std::vector<Shape> all = shapes;
    all.insert(all.end(), sliced.begin(), sliced.end());
    return all;
  }
};

// Microbatch sizes 1, 2 and 4; half of the model's sequence and all of it; no
// tensor parallelism and two devices where the model can be halved; all experts
// on one device. Quick: one sequence on one device. Experts are given equally
// many rows (PwModel.balanced). Error: kInvalidArgument for a model that our
// kernels do not compute (latent attention, frozen or adapted weights), and for
// a size that the model does not allow, naming the flag.
absl::StatusOr<Grid> MakeGrid(const ModelSpec& model, PwType type,
                              const ShapeOptions& options);

}  // namespace pipewright

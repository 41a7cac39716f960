// Which shapes of a model are calibrated, and a model as the kernels want it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/layer.h"
#include "sim/cost/profile.h"
#include "sim/model/model.h"

namespace pipewright {

struct ShapeOptions {
  // Empty: the default of DefaultGrid.
  std::vector<int64_t> microbatch_sizes;
  std::vector<int64_t> sequences;
  std::vector<int64_t> tps;
  bool quick = false;  // one shape
  bool fp8 = false;    // a layer's linear layers in fp8
};

struct Shape {
  PwModel model;  // with tp
  PwWork work;
  int64_t tp() const { return model.tp; }
};

struct Grid {
  ProfileModel model;
  PwType type = PW_FP32;
  std::vector<Shape> shapes;  // by tp, then sequence, then microbatch size
  std::vector<std::string> warnings;  // what the kernels' block has otherwise
};

// Microbatch sizes 1, 2 and 4; half of the model's sequence and all of it; no
// tensor parallelism and two devices where the model can be halved. Quick: one
// sequence on one device. Error: kInvalidArgument for a model that our kernels
// are not (experts, latent attention, frozen or adapted weights), and for a
// size that the model does not allow, naming the flag.
absl::StatusOr<Grid> MakeGrid(const ModelSpec& model, PwType type,
                              const ShapeOptions& options);

}  // namespace pipewright

// The smallest calibration that has every part: one shape of a model of next to
// no size, three rounds.
#pragma once

#include "calibrate/session.h"

namespace pipewright::testing {

inline CalibrateOptions TinyCalibration() {
  CalibrateOptions options;
  options.model.name = "tiny";
  options.model.layers = 2;
  options.model.hidden = 32;
  options.model.heads = options.model.kv_heads = 2;
  options.model.ffn_hidden = 64;
  options.model.vocabulary = 32;
  options.model.sequence = 16;
  options.grid.quick = true;
  options.budget_s = 0;
  options.rounds = 3;
  return options;
}

}  // namespace pipewright::testing

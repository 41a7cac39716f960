// Holds what the ranks have told of the first step against the float64
// reference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "execute/train/reference.h"
#include "execute/train/worker_options.h"
#include "sim/program/lower.h"

namespace pipewright {

struct ReferenceCheck {
  double loss = 0;  // in the first step, mean over its tokens, nats
  double reference_loss = 0;
  int missing = 0;  // stages that no rank has reported
  // The largest error of a gradient relative to the largest of its tensor, and
  // which tensor that is: "layer 3 qkv of stage 1".
  double gradient_error = 0;
  std::string worst_gradient;
  // The same of what the optimizer has moved a weight by, against AdamW's
  // first step on the executed gradients: relative to the largest move of its
  // tensor. Empty where nothing has stepped, or more than once.
  std::optional<double> weight_error;
  std::string worst_weight;
  double tolerance = 0;  // for gradients, and for the loss up to that of bf16

  double loss_error() const;
  bool ok() const;
};

// Microbatches of the first step, all replicas together.
int64_t FirstStepMicrobatches(const Program& program);

// Why the first step of a run of `program` is not known completely; "" where it
// is.
std::string WhyNoReference(const Program& program, DataParallel mode);

// What the workers have to keep for it.
void KeepFirstStep(const Program& program, WorkerOptions* options);

// `clips`: the gradients' norm limits the step.
ReferenceCheck CheckReference(const Program& program,
                              const ExecutedModel& model,
                              const std::vector<WorkerRecord>& records,
                              bool clips, const ReferenceRun& reference);

// What is allowed in the model's arithmetic.
double ReferenceTolerance(const ExecutedModel& model);

}  // namespace pipewright

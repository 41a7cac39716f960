// Weights of the sequential run: their versions, gradients of a table that is
// there twice, norms and steps.
#include <algorithm>
#include <cmath>

#include "execute/train/sequential_train.h"

namespace pipewright {

absl::Status Sequential::AllocateWeights(const SequentialOptions& options,
                                         size_t quantized, Part* part) {
  const size_t floats = static_cast<size_t>(part->parameters) * 4;
  PW_RETURN_IF_ERROR(New(floats, &part->master));
  PW_RETURN_IF_ERROR(New(floats, &part->gradients));
  PW_RETURN_IF_ERROR(New(floats, &part->moment1));
  PW_RETURN_IF_ERROR(New(floats, &part->moment2));
  const int versions =
      1 + (options.behind.empty() ? 0 : options.behind[part->stage]);
  const size_t bytes = model_.WeightBytes(part->parameters) + quantized;
  char* weights = nullptr;
  for (int version = 0; version < versions; ++version) {
    PW_RETURN_IF_ERROR(New(bytes, &weights));
    part->versions.push_back(weights);
  }
  if (options.predicts) PW_RETURN_IF_ERROR(New(bytes, &weights));
  part->newest = weights;
  return absl::OkStatus();
}

absl::Status Sequential::CopyTable(const float* from, float* to) {
  return Check(kernels_.copy(device_, nullptr, PW_DEVICE_TO_DEVICE, to, from,
                             static_cast<size_t>(model_.TableElements()) * 4));
}

// Table and copy each take the sum of both.
absl::Status Sequential::SumTables() {
  if (!model_.copies_table) return absl::OkStatus();
  Part& table = parts_.front();
  Part& copy = parts_.back();
  PW_RETURN_IF_ERROR(
      Check(kernels_.accumulate(device_, nullptr, model_.TableElements(),
                                copy.gradients, table.gradients)));
  return CopyTable(table.gradients, copy.gradients);
}

// The weights of the microbatches between `taken` steps and the next one.
absl::Status Sequential::ChooseWeights(int64_t taken,
                                       const SequentialOptions& options) {
  for (Part& part : parts_) {
    const auto versions = static_cast<int64_t>(part.versions.size());
    const int64_t behind = versions - 1;
    const auto quantize = [&](void* weights) {
      return Check(pw_quantize_weights(
          &kernels_, device_, nullptr, &model_.shape, part.part, weights,
          static_cast<char*>(weights) + model_.WeightBytes(part.parameters)));
    };
    const auto convert = [&](void* to) {
      PW_RETURN_IF_ERROR(
          Check(kernels_.convert(device_, nullptr, model_.shape.type, to,
                                 PW_FP32, part.master, part.parameters)));
      return quantize(to);
    };
    void* const made = part.versions[taken % versions];
    part.forward =
        part.versions[std::max<int64_t>(0, taken - behind) % versions];
    if (!options.predicts) {
      PW_RETURN_IF_ERROR(convert(made));
      part.backward = part.forward;
      continue;
    }
    PW_RETURN_IF_ERROR(convert(part.newest));
    part.backward = part.newest;
    PwAdam adam = model_.adam;
    adam.step = taken;
    PW_RETURN_IF_ERROR(Check(kernels_.predict(
        device_, nullptr, &adam, behind, model_.shape.type, part.parameters,
        part.master, part.moment1, part.moment2, made)));
    PW_RETURN_IF_ERROR(quantize(made));
  }
  return absl::OkStatus();
}

absl::Status Sequential::Keep(float* Part::*values,
                              std::vector<std::vector<float>>* stages) {
  stages->assign(model_.num_stages(), {});
  for (const Part& part : parts_) {
    std::vector<float>& stage = (*stages)[part.stage];
    const size_t before = stage.size();
    stage.resize(before + static_cast<size_t>(part.parameters));
    PW_RETURN_IF_ERROR(Check(kernels_.copy(
        device_, nullptr, PW_DEVICE_TO_HOST, stage.data() + before,
        part.*values, static_cast<size_t>(part.parameters) * 4)));
  }
  return Check(kernels_.synchronize(device_, nullptr));
}

// Adds over the parts side by side, as they lie in a stage: the sum depends on
// it in the last bit.
absl::StatusOr<double> Sequential::SquareSum(int stage) {
  double sums[2] = {0, 0};
  int64_t count = 0;
  for (const Part& part : parts_) {
    if (Counts(part, stage)) count += part.parameters;
  }
  if (count > stage_count_) {
    stage_count_ = count;
    PW_RETURN_IF_ERROR(New(static_cast<size_t>(count) * 4, &stage_values_));
  }
  int64_t offset = 0;
  for (const Part& part : parts_) {
    if (!Counts(part, stage)) continue;
    PW_RETURN_IF_ERROR(Check(kernels_.copy(
        device_, nullptr, PW_DEVICE_TO_DEVICE, stage_values_ + offset,
        part.gradients, static_cast<size_t>(part.parameters) * 4)));
    offset += part.parameters;
  }
  PW_RETURN_IF_ERROR(Check(kernels_.zero(device_, nullptr, sums_, 16)));
  PW_RETURN_IF_ERROR(Check(
      kernels_.square_sum(device_, nullptr, count, stage_values_, sums_)));
  PW_RETURN_IF_ERROR(Check(
      kernels_.copy(device_, nullptr, PW_DEVICE_TO_HOST, sums, sums_, 16)));
  PW_RETURN_IF_ERROR(Check(kernels_.synchronize(device_, nullptr)));
  return sums[0];
}

absl::Status Sequential::Optimize(int64_t taken,
                                  const SequentialOptions& options,
                                  double* norm) {
  double squares = 0;
  for (const std::vector<int>& group : options.norm_groups) {
    double sum = 0;
    for (const int stage : group) {
      PW_ASSIGN_OR_RETURN(const double each, SquareSum(stage));
      sum += each;
    }
    squares += sum;
  }
  *norm = std::sqrt(squares);
  const double limit =
      model_.NormLimit(taken, *norm, options.clips ? model_.clip_norm : 0);
  PwAdam adam = model_.adam;
  adam.step = taken + 1;
  adam.gradient_scale =
      limit <= 0 || *norm <= limit ? 1.0f : static_cast<float>(limit / *norm);
  for (const Part& part : parts_) {
    PW_RETURN_IF_ERROR(Check(kernels_.adam(
        device_, nullptr, &adam, PW_FP32, part.parameters, part.gradients,
        part.master, part.moment1, part.moment2, nullptr)));
  }
  return absl::OkStatus();
}

}  // namespace pipewright

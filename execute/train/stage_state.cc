// Weights, gradients and optimizer state of a stage.
#include "execute/train/stage.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {

absl::Status Stage::Step(int64_t step, float scale, int64_t begin,
                         int64_t end) {
  PwAdam adam = model_.adam;
  adam.step = step;
  adam.gradient_scale = scale;
  PW_RETURN_IF_ERROR(Check(
      handle_.kernels->adam(handle_.device, handle_.stream, &adam, PW_FP32,
                            end - begin, gradients_ + begin, master_ + begin,
                            moment1_ + begin, moment2_ + begin, nullptr),
      "adam"));
  return Publish(begin, end);
}

absl::Status Stage::Publish(int64_t begin, int64_t end) {
  if (master_ == nullptr) return absl::OkStatus();
  predicted_ = {};
  if (model_.shape.type == PW_FP32 && !model_.keeps_versions &&
      quantized_bytes_ == 0 && !elsewhere_) {
    // The master itself; nobody owns it twice.
    weights_ = {.data = std::shared_ptr<void>(std::shared_ptr<void>(), master_),
                .bytes = static_cast<size_t>(parameters_) * 4};
    return absl::OkStatus();
  }
  const size_t bytes = WeightBytes();
  if (model_.weight_delay > 0 && weights_.bytes > 0) {
    older_.push_back(weights_);
    if (older_.size() > static_cast<size_t>(model_.weight_delay)) {
      older_.pop_front();
    }
  }
  // A forward under way goes on with the weights that it has used.
  if (weights_.bytes == 0 || weights_.data.use_count() > 1) {
    PW_ASSIGN_OR_RETURN(Payload fresh, arena_.Take(bytes));
    if (weights_.bytes > 0 && (begin > 0 || end < parameters_)) {
      PW_RETURN_IF_ERROR(
          Check(handle_.kernels->copy(handle_.device, handle_.stream,
                                      PW_DEVICE_TO_DEVICE, fresh.data.get(),
                                      weights_.data.get(), bytes),
                "weights"));
    }
    weights_ = std::move(fresh);
  }
  PW_RETURN_IF_ERROR(Convert(master_ + begin, weights_, begin, end));
  return Quantize(weights_);
}

absl::Status Stage::Quantize(const Payload& weights) {
  for (const Part& part : parts_) {
    char* const values = static_cast<char*>(weights.data.get());
    PW_RETURN_IF_ERROR(Check(
        pw_quantize_weights(
            handle_.kernels, handle_.device, handle_.stream, &model_.shape,
            part.spec.part,
            values + static_cast<size_t>(part.offset) * model_.type_bytes(),
            values + model_.WeightBytes(parameters_) + part.quantized),
        "quantise weights"));
  }
  return absl::OkStatus();
}

absl::Status Stage::Convert(const float* from, const Payload& weights,
                            int64_t begin, int64_t end) {
  return Check(handle_.kernels->convert(
                   handle_.device, handle_.stream, model_.shape.type,
                   static_cast<char*>(weights.data.get()) +
                       static_cast<size_t>(begin) * model_.type_bytes(),
                   PW_FP32, from, end - begin),
               "weights");
}

absl::Status Stage::Predict(int64_t step, int steps) {
  PwAdam adam = model_.adam;
  adam.step = step;
  predicted_ = {};
  PW_ASSIGN_OR_RETURN(predicted_, arena_.Take(WeightBytes()));
  PW_RETURN_IF_ERROR(Check(
      handle_.kernels->predict(handle_.device, handle_.stream, &adam, steps,
                               model_.shape.type, parameters_, master_,
                               moment1_, moment2_, predicted_.data.get()),
      "prediction"));
  return Quantize(predicted_);
}

absl::Status Stage::ZeroGradients() {
  return Check(handle_.kernels->zero(handle_.device, handle_.stream, gradients_,
                                     static_cast<size_t>(parameters_) * 4),
               "zero");
}

absl::Status Stage::SquareSum(int64_t begin, int64_t end, double result[2]) {
  const PwKernels& kernels = *handle_.kernels;
  auto* const sums = static_cast<double*>(sums_.data.get());
  PW_RETURN_IF_ERROR(Check(
      kernels.zero(handle_.device, handle_.stream, sums, 2 * sizeof(double)),
      "zero"));
  PW_RETURN_IF_ERROR(
      Check(kernels.square_sum(handle_.device, handle_.stream, end - begin,
                               gradients_ + begin, sums),
            "norm"));
  PW_RETURN_IF_ERROR(
      Check(kernels.copy(handle_.device, handle_.stream, PW_DEVICE_TO_HOST,
                         result, sums, 2 * sizeof(double)),
            "norm"));
  return Check(kernels.synchronize(handle_.device, handle_.stream), "norm");
}

absl::Status Stage::ForgetOthers(int64_t begin, int64_t end) {
  const std::pair<int64_t, int64_t> ranges[] = {{0, begin}, {end, parameters_}};
  for (const auto& [from, to] : ranges) {
    if (from == to) continue;
    const Shared others = SharedOf(from, to);
    PW_RETURN_IF_ERROR(
        Check(handle_.kernels->zero(handle_.device, handle_.stream, others.data,
                                    others.bytes),
              "zero"));
    PW_RETURN_IF_ERROR(Publish(from, to));
  }
  return absl::OkStatus();
}

void Stage::ReleaseMaster() {
  master_ = nullptr;
  initial_ = {};
}

Stage::Shared Stage::SharedOf(int64_t begin, int64_t end) {
  const auto count = static_cast<size_t>(end - begin);
  if (!elsewhere_) return {master_ + begin, count * 4};
  const size_t each = model_.type_bytes();
  return {static_cast<char*>(weights_.data.get()) +
              static_cast<size_t>(begin) * each,
          count * each};
}

absl::Status Stage::TakeShared(int64_t begin, int64_t end, const void* from) {
  const Shared own = SharedOf(begin, end);
  return Check(
      handle_.kernels->copy(handle_.device, handle_.stream, PW_DEVICE_TO_DEVICE,
                            own.data, from, own.bytes),
      "gather");
}

absl::Status Stage::CopyFloats(const float* from, float* to) {
  return Check(
      handle_.kernels->copy(handle_.device, handle_.stream, PW_DEVICE_TO_DEVICE,
                            to, from, static_cast<size_t>(parameters_) * 4),
      "copy");
}

absl::Status Stage::Save() {
  if (saved_master_ == nullptr) {
    PW_ASSIGN_OR_RETURN(saved_master_, NewFloats());
    PW_ASSIGN_OR_RETURN(saved_moment1_, NewFloats());
    PW_ASSIGN_OR_RETURN(saved_moment2_, NewFloats());
  }
  PW_RETURN_IF_ERROR(CopyFloats(master_, saved_master_));
  PW_RETURN_IF_ERROR(CopyFloats(moment1_, saved_moment1_));
  return CopyFloats(moment2_, saved_moment2_);
}

absl::Status Stage::Restore() {
  PW_CHECK(saved_master_ != nullptr);
  PW_RETURN_IF_ERROR(CopyFloats(saved_master_, master_));
  PW_RETURN_IF_ERROR(CopyFloats(saved_moment1_, moment1_));
  PW_RETURN_IF_ERROR(CopyFloats(saved_moment2_, moment2_));
  return Publish(0, parameters_);
}

}  // namespace pipewright

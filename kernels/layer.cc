#include "kernels/layer.h"

#include <stdarg.h>
#include <stdio.h>
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/layer_fp8.h"
#include "kernels/layer_pass.h"
#include "kernels/layer_plan.h"
#include "kernels/random.h"

namespace pipewright {
namespace {

PwStatus Refuse(char* reason, size_t size, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

PwStatus Refuse(char* reason, size_t size, const char* format, ...) {
  if (reason != nullptr && size > 0) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, size, format, arguments);
    va_end(arguments);
  }
  return PW_INVALID;
}

PwStatus CheckSizes(const PwModel& model, const PwWork& work, char* reason,
                    size_t size) {
  const struct {
    const char* name;
    int64_t value;
  } sizes[] = {
      {"hidden", model.hidden},
      {"heads", model.heads},
      {"kv_heads", model.kv_heads},
      {"head_dim", model.head_dim},
      // A model of expert layers alone has no dense one.
      {"ffn", model.experts > 0 ? std::max<int64_t>(model.ffn, 1) : model.ffn},
      {"vocabulary", model.vocabulary},
      {"tp", model.tp},
      {"batch", work.batch},
      {"sequence", work.sequence},
      {"slice_tokens", work.slice_tokens}};
  for (const auto& one : sizes) {
    if (one.value < 1) {
      return Refuse(reason, size, "%s is %lld, must be at least 1", one.name,
                    static_cast<long long>(one.value));
    }
  }
  return PW_OK;
}

PwStatus CheckShards(const PwModel& model, char* reason, size_t size) {
  const struct {
    const char* name;
    int64_t value;
  } divided[] = {{"heads", model.heads},
                 {"ffn", model.ffn},
                 {"vocabulary", model.vocabulary}};
  for (const auto& one : divided) {
    if (one.value % model.tp != 0) {
      return Refuse(reason, size, "tp %d does not divide %s %lld", model.tp,
                    one.name, static_cast<long long>(one.value));
    }
  }
  const bool shared = model.kv_heads < model.tp;
  if (shared ? model.tp % model.kv_heads != 0
             : model.kv_heads % model.tp != 0) {
    return Refuse(reason, size,
                  "kv_heads %lld and tp %d: neither divides the other",
                  static_cast<long long>(model.kv_heads), model.tp);
  }
  if (model.heads % model.kv_heads != 0) {
    return Refuse(reason, size, "kv_heads %lld does not divide heads %lld",
                  static_cast<long long>(model.kv_heads),
                  static_cast<long long>(model.heads));
  }
  return PW_OK;
}

// Nothing asks for the layout of a part that the model does not have: a model
// without experts leaves their sizes 0.
PwStatus CheckExperts(const PwModel& model, char* reason, size_t size) {
  const auto number = [](int64_t value) {
    return static_cast<long long>(value);
  };
  if (model.experts < 0 || model.experts > 65535) {
    return Refuse(reason, size, "experts is %d, must be 0 to 65535",
                  model.experts);
  }
  if (model.experts == 0) {
    if (model.experts_per_token == 0 && model.expert_ffn == 0 &&
        model.shared_ffn == 0 && model.ep == 0 && model.balanced == 0) {
      return PW_OK;
    }
    return Refuse(reason, size,
                  "experts is 0, but not all else of expert layers");
  }
  const int32_t most = std::min(model.experts, 32);
  if (model.experts_per_token < 1 || model.experts_per_token > most) {
    return Refuse(reason, size, "experts_per_token is %d, must be 1 to %d",
                  model.experts_per_token, most);
  }
  if (model.ep < 1 || model.experts % model.ep != 0) {
    return Refuse(reason, size, "ep %d does not divide experts %d", model.ep,
                  model.experts);
  }
  if (model.expert_ffn < 1 || model.expert_ffn % model.tp != 0) {
    return Refuse(reason, size,
                  "expert_ffn is %lld, must be a multiple of tp %d, at least 1",
                  number(model.expert_ffn), model.tp);
  }
  if (model.shared_ffn < 0 || model.shared_ffn % model.tp != 0) {
    return Refuse(reason, size,
                  "shared_ffn is %lld, must be 0 or a multiple of tp %d",
                  number(model.shared_ffn), model.tp);
  }
  if (model.sequence_parallel) {
    return Refuse(reason, size,
                  "sequence_parallel with experts: a router would choose for "
                  "rows that only other devices have");
  }
  return PW_OK;
}

PwStatus CheckWork(const PwModel& model, const PwWork& work, char* reason,
                   size_t size) {
  if (work.slice_first < 0 ||
      work.slice_first + work.slice_tokens > work.sequence) {
    return Refuse(reason, size,
                  "slice [%lld, %lld) is not inside a sequence of %lld tokens",
                  static_cast<long long>(work.slice_first),
                  static_cast<long long>(work.slice_first + work.slice_tokens),
                  static_cast<long long>(work.sequence));
  }
  if (work.slice_tokens != work.sequence && !model.causal) {
    return Refuse(reason, size, "slices need causal attention");
  }
  if (model.style == PW_GPT && work.sequence > model.sequence) {
    return Refuse(reason, size,
                  "sequence %lld is longer than the model's %lld positions",
                  static_cast<long long>(work.sequence),
                  static_cast<long long>(model.sequence));
  }
  if (model.sequence_parallel &&
      work.batch * work.slice_tokens % model.tp != 0) {
    return Refuse(
        reason, size, "sequence_parallel: tp %d does not divide %lld tokens",
        model.tp, static_cast<long long>(work.batch * work.slice_tokens));
  }
  return PW_OK;
}

// cuBLAS manual, "cublasLtMatmul": fp8 takes sizes that 16 divides. Here on
// every device, so that what runs on one runs on all.
PwStatus CheckFp8(const PwModel& model, const PwWork& work, char* reason,
                  size_t size) {
  if (!model.fp8_linear) return PW_OK;
  if (model.experts > 0) {
    return Refuse(reason, size, "fp8: no experts (grouped products in fp8)");
  }
  if (model.sequence_parallel) {
    return Refuse(reason, size,
                  "fp8: no sequence_parallel (rows of other devices would be "
                  "quantised there)");
  }
  const PartShape shape = ShapeOf(model, work);
  const struct {
    const char* name;
    int64_t value;
  } sizes[] = {{"tokens", shape.tokens},
               {"hidden", shape.hidden},
               {"heads x head_dim", shape.attention},
               {"outputs of qkv", shape.qkv},
               {"ffn", shape.ffn}};
  for (const auto& one : sizes) {
    if (one.value % 16 == 0) continue;
    return Refuse(reason, size,
                  "fp8: %s of one device, %lld, must be a "
                  "multiple of 16",
                  one.name, static_cast<long long>(one.value));
  }
  return PW_OK;
}

}  // namespace
}  // namespace pipewright

namespace pipewright {
namespace {

// Checks the model and the work, and that the model has the part.
PwStatus CheckPart(const PwModel& model, const PwWork& work, PwPart part) {
  PW_RETURN_IF_ERROR(pw_check_model(&model, &work, nullptr, 0));
  const bool missing = part == PW_EXPERT_LAYER
                           ? model.experts == 0
                           : part == PW_LAYER && model.ffn == 0;
  return missing ? PW_INVALID : PW_OK;
}

}  // namespace
}  // namespace pipewright

using pipewright::CheckPart;
using pipewright::Fp8WeightsOf;
using pipewright::LayoutOf;
using pipewright::PartLayout;
using pipewright::PartShape;
using pipewright::Pass;
using pipewright::ShapeOf;
using pipewright::TypeSize;
using pipewright::WeightsOf;

PwStatus pw_check_model(const PwModel* model, const PwWork* work, char* reason,
                        size_t size) {
  using namespace pipewright;
  // A caller from C may pass what no enumerator is, which must not be read as
  // one.
  static_assert(sizeof(model->style) == sizeof(int));
  int style = 0;
  std::memcpy(&style, &model->style, sizeof(style));
  if (style != PW_GPT && style != PW_LLAMA) {
    return Refuse(reason, size, "style %d is neither GPT nor Llama", style);
  }
  if (model->type != PW_FP32 && model->type != PW_BF16) {
    return Refuse(reason, size, "type must be fp32 or bf16");
  }
  PW_RETURN_IF_ERROR(CheckSizes(*model, *work, reason, size));
  PW_RETURN_IF_ERROR(CheckShards(*model, reason, size));
  PW_RETURN_IF_ERROR(CheckExperts(*model, reason, size));
  if (model->style == PW_LLAMA && model->head_dim % 2 != 0) {
    return Refuse(reason, size, "head_dim %lld is odd: no rotary positions",
                  static_cast<long long>(model->head_dim));
  }
  if (model->style == PW_LLAMA && !(model->rotary_base > 0)) {
    return Refuse(reason, size, "rotary_base %g must be above 0",
                  model->rotary_base);
  }
  if (!(model->epsilon >= 0)) {
    return Refuse(reason, size, "epsilon %g must not be below 0",
                  model->epsilon);
  }
  PW_RETURN_IF_ERROR(CheckWork(*model, *work, reason, size));
  return CheckFp8(*model, *work, reason, size);
}

PwStatus pw_check_device(const PwKernels* kernels, PwDevice* device,
                         const PwModel* model, char* reason, size_t size) {
  if (!model->fp8_linear) return PW_OK;
  PwDeviceInfo info;
  PW_RETURN_IF_ERROR(kernels->info(device, &info));
  if (info.fp8_gemm) return PW_OK;
  return pipewright::Refuse(reason, size, "%s has no fp8", info.name);
}

PwStatus pw_part_size(const PwKernels* kernels, PwDevice* device,
                      const PwModel* model, const PwWork* work, PwPart part,
                      PwPartSize* size) {
  PW_RETURN_IF_ERROR(CheckPart(*model, *work, part));
  PW_RETURN_IF_ERROR(pw_check_device(kernels, device, model, nullptr, 0));
  const PartLayout layout = LayoutOf(*kernels, device, *model, *work, part);
  const PartShape shape = ShapeOf(*model, *work);
  size->parameters = WeightsOf(*model, part, nullptr, nullptr).elements;
  size->saved = layout.saved_bytes;
  size->inputs = layout.inputs_bytes;
  size->grads = layout.grads_bytes;
  size->cache = layout.cache_bytes;
  size->workspace = layout.workspace_bytes;
  size->boundary = shape.rows * shape.hidden * TypeSize(model->type);
  size->quantized =
      model->fp8_linear && part == PW_LAYER ? Fp8WeightsOf(*model).bytes : 0;
  return PW_OK;
}

int32_t pw_part_tensors(const PwModel* model, PwPart part, PwTensor* tensors) {
  int32_t count = 0;
  WeightsOf(*model, part, tensors, &count);
  return count;
}

PwStatus pw_initialize(const PwKernels* kernels, PwDevice* device,
                       PwStream* stream, const PwModel* model, PwPart part,
                       uint64_t seed, float* master, void* weights) {
  PwTensor tensors[PW_MAX_TENSORS];
  const int32_t count = pw_part_tensors(model, part, tensors);
  const int64_t elements = WeightsOf(*model, part, nullptr, nullptr).elements;
  PW_RETURN_IF_ERROR(
      kernels->zero(device, stream, master, elements * sizeof(float)));
  for (int32_t index = 0; index < count; ++index) {
    const PwTensor& tensor = tensors[index];
    float* to = master + tensor.offset;
    const int64_t size = tensor.rows * tensor.columns;
    const uint64_t own = pw_random_bits(seed, index);
    if (tensor.mean != 0) {
      std::vector<float> values(size);
      for (int64_t element = 0; element < size; ++element) {
        values[element] =
            tensor.mean + pw_random_value(own, element, tensor.init);
      }
      PW_RETURN_IF_ERROR(kernels->copy(device, stream, PW_HOST_TO_DEVICE, to,
                                       values.data(), size * sizeof(float)));
      // Before the values go away.
      PW_RETURN_IF_ERROR(kernels->synchronize(device, stream));
    } else if (tensor.init != 0) {
      PW_RETURN_IF_ERROR(
          kernels->random(device, stream, PW_FP32, to, size, own, tensor.init));
    }
  }
  if (weights == nullptr || weights == master) return PW_OK;
  return kernels->convert(device, stream, model->type, weights, PW_FP32, master,
                          elements);
}

PwStatus pw_forward(const PwKernels* kernels, PwDevice* device,
                    PwStream* stream, const PwModel* model, const PwWork* work,
                    PwPart part, const PwPartMemory* memory) {
  PW_RETURN_IF_ERROR(CheckPart(*model, *work, part));
  return Pass(kernels, device, stream, model, work, part, memory).Forward();
}

PwStatus pw_backward_input(const PwKernels* kernels, PwDevice* device,
                           PwStream* stream, const PwModel* model,
                           const PwWork* work, PwPart part,
                           const PwPartMemory* memory) {
  PW_RETURN_IF_ERROR(CheckPart(*model, *work, part));
  return Pass(kernels, device, stream, model, work, part, memory)
      .BackwardInput();
}

PwStatus pw_backward_weight(const PwKernels* kernels, PwDevice* device,
                            PwStream* stream, const PwModel* model,
                            const PwWork* work, PwPart part,
                            const PwPartMemory* memory) {
  PW_RETURN_IF_ERROR(CheckPart(*model, *work, part));
  return Pass(kernels, device, stream, model, work, part, memory)
      .BackwardWeight();
}

PwStatus pw_backward_full(const PwKernels* kernels, PwDevice* device,
                          PwStream* stream, const PwModel* model,
                          const PwWork* work, PwPart part,
                          const PwPartMemory* memory) {
  PW_RETURN_IF_ERROR(CheckPart(*model, *work, part));
  return Pass(kernels, device, stream, model, work, part, memory)
      .BackwardFull();
}

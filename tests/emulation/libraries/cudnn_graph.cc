#include "tests/emulation/libraries/cudnn_graph.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/emulation/runtime/queue.h"

namespace emulated {
namespace {

float Load(const void* at, cudnnDataType_t type, int64_t index) {
  switch (type) {
    case CUDNN_DATA_BFLOAT16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(at)[index]);
    case CUDNN_DATA_INT32:
      return static_cast<float>(static_cast<const int32_t*>(at)[index]);
    default:
      return static_cast<const float*>(at)[index];
  }
}

void ForEach(const Sizes& sizes, const std::function<void(const Sizes&)>& do_) {
  Sizes index(sizes.size(), 0);
  size_t side = 0;
  do {
    do_(index);
    side = sizes.size();
    while (side > 0 && ++index[side - 1] == sizes[side - 1]) index[--side] = 0;
  } while (side > 0);
}

class Machine {
 public:
  explicit Machine(const std::map<int64_t, void*>& pointers)
      : pointers_(pointers) {}

  void Compute(const Descriptor& graph) {
    for (Descriptor* operation :
         graph.All<Descriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
      switch (operation->type) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
          Matmul(*operation);
          break;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
          Pointwise(*operation);
          break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
          Reduce(*operation);
          break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
          Reshape(*operation);
          break;
        default:
          Violation("cudnn: operation %d is not emulated",
                    static_cast<int>(operation->type));
      }
    }
  }

 private:
  // What is not given yet is NaN.
  Tensor* Of(Descriptor* descriptor) {
    if (descriptor == nullptr) return nullptr;
    const auto found = tensors_.find(descriptor);
    if (found != tensors_.end()) return &found->second;
    Tensor tensor(*descriptor);
    const auto extent = static_cast<size_t>(tensor.Extent());
    tensor.values.assign(extent, NAN);
    if (!tensor.is_virtual) {
      const auto at = pointers_.find(tensor.id);
      if (at == pointers_.end()) {
        Violation("cudnn: tensor %lld has no pointer",
                  static_cast<long long>(tensor.id));
        tensor.is_virtual = true;
      } else {
        tensor.at = at->second;
        for (size_t index = 0; index < extent; ++index) {
          tensor.values[index] =
              Load(tensor.at, tensor.type, static_cast<int64_t>(index));
        }
      }
    }
    return &tensors_.emplace(descriptor, std::move(tensor)).first->second;
  }

  static void Store(Tensor* to, const Sizes& index, float value) {
    const int64_t at = to->Offset(index);
    if (to->type == CUDNN_DATA_BFLOAT16) {
      const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
      value = __bfloat162float(rounded);
      if (!to->is_virtual) static_cast<__nv_bfloat16*>(to->at)[at] = rounded;
    } else if (!to->is_virtual) {
      static_cast<float*>(to->at)[at] = value;
    }
    to->values[static_cast<size_t>(at)] = value;
  }

  void Matmul(const Descriptor& operation) {
    Tensor* a = Of(operation.Child(CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    Tensor* b = Of(operation.Child(CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    Tensor* c = Of(operation.Child(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    const int64_t inner = a->sizes[3];
    if (b->sizes[2] != inner || a->sizes[2] != c->sizes[2] ||
        b->sizes[3] != c->sizes[3]) {
      Violation("cudnn: sizes of a product do not fit");
      return;
    }
    // Engines add the gradient of the queries to what is there: its caller
    // sets it to zero.
    const bool adds = !c->is_virtual && c->type == CUDNN_DATA_FLOAT;
    ForEach({c->sizes[0], c->sizes[1]}, [&](const Sizes& head) {
      const Sizes first = {head[0], head[1], 0, 0};
      const float* from_a = a->values.data() + a->Shared(first, c->sizes);
      const float* from_b = b->values.data() + b->Shared(first, c->sizes);
      ForEach({c->sizes[2], c->sizes[3]}, [&](const Sizes& place) {
        float sum = 0;
        for (int64_t index = 0; index < inner; ++index) {
          sum += from_a[place[0] * a->strides[2] + index * a->strides[3]] *
                 from_b[index * b->strides[2] + place[1] * b->strides[3]];
        }
        const Sizes to = {head[0], head[1], place[0], place[1]};
        if (adds) sum += c->values[static_cast<size_t>(c->Offset(to))];
        Store(c, to, sum);
      });
    });
  }

  static float Apply(cudnnPointwiseMode_t mode, float x, float b, float third,
                     int64_t place) {
    switch (mode) {
      case CUDNN_POINTWISE_MUL:
        return x * b;
      case CUDNN_POINTWISE_ADD:
        return x + b;
      case CUDNN_POINTWISE_SUB:
        return x - b;
      case CUDNN_POINTWISE_DIV:
        return x / b;
      case CUDNN_POINTWISE_EXP:
        return std::exp(x);
      case CUDNN_POINTWISE_LOG:
        return std::log(x);
      case CUDNN_POINTWISE_IDENTITY:
        return x;
      case CUDNN_POINTWISE_GEN_INDEX:
        return static_cast<float>(place);
      case CUDNN_POINTWISE_CMP_GE:
        return x >= b ? 1.0f : 0.0f;
      case CUDNN_POINTWISE_BINARY_SELECT:
        return third != 0 ? x : b;
      default:
        Violation("cudnn: pointwise mode %d is not emulated",
                  static_cast<int>(mode));
        return NAN;
    }
  }

  void Pointwise(const Descriptor& operation) {
    const Descriptor* how =
        operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = how->One<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const auto axis =
        static_cast<size_t>(how->One<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, 0));
    Tensor* x = Of(operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    Tensor* b = Of(operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
    Tensor* t = Of(operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
    Tensor* y = Of(operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    const auto value = [y](const Tensor* tensor, const Sizes& index) {
      if (tensor == nullptr) return 0.0f;
      return tensor
          ->values[static_cast<size_t>(tensor->Shared(index, y->sizes))];
    };
    ForEach(y->sizes, [&](const Sizes& index) {
      Store(y, index,
            Apply(mode, value(x, index), value(b, index), value(t, index),
                  index[axis]));
    });
  }

  void Reduce(const Descriptor& operation) {
    const bool is_max =
        operation.Child(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
            ->One<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) ==
        CUDNN_REDUCE_TENSOR_MAX;
    const Tensor* x = Of(operation.Child(CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    Tensor* y = Of(operation.Child(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    std::vector<float> results(y->values.size(), is_max ? -INFINITY : 0.0f);
    ForEach(x->sizes, [&](const Sizes& index) {
      float& result = results[static_cast<size_t>(y->Shared(index, x->sizes))];
      const float value = x->values[static_cast<size_t>(x->Offset(index))];
      result = is_max ? std::fmax(result, value) : result + value;
    });
    ForEach(y->sizes, [&](const Sizes& index) {
      Store(y, index, results[static_cast<size_t>(y->Offset(index))]);
    });
  }

  // The same memory in another view.
  void Reshape(const Descriptor& operation) {
    const Tensor* x = Of(operation.Child(CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    Tensor* y = Of(operation.Child(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    if (x->values.size() != y->values.size()) {
      Violation("cudnn: sizes of a reshape do not fit");
      return;
    }
    ForEach(y->sizes, [&](const Sizes& index) {
      Store(y, index, x->values[static_cast<size_t>(y->Offset(index))]);
    });
  }

  const std::map<int64_t, void*>& pointers_;
  std::map<Descriptor*, Tensor> tensors_;
};

}  // namespace

Tensor::Tensor(const Descriptor& descriptor)
    : sizes(descriptor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
      strides(descriptor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES)),
      type(descriptor.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
      is_virtual(descriptor.Flag(CUDNN_ATTR_TENSOR_IS_VIRTUAL)),
      by_value(descriptor.Flag(CUDNN_ATTR_TENSOR_IS_BY_VALUE)),
      id(descriptor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)) {}

int64_t Tensor::Extent() const {
  int64_t extent = 1;
  for (size_t side = 0; side < sizes.size(); ++side) {
    extent += (sizes[side] - 1) * strides[side];
  }
  return extent;
}

int64_t Tensor::Offset(const Sizes& index) const {
  int64_t offset = 0;
  for (size_t side = 0; side < index.size(); ++side) {
    offset += index[side] * strides[side];
  }
  return offset;
}

int64_t Tensor::Shared(const Sizes& index, const Sizes& of) const {
  int64_t offset = 0;
  for (size_t side = 0; side < 4; ++side) {
    // Sides that a product sums over differ without being shared: their index
    // is 0.
    const int64_t own = sizes[side] == of[side]
                            ? index[side]
                            : index[side] * sizes[side] / of[side];
    offset += own * strides[side];
  }
  return offset;
}

void ComputeGraph(const Descriptor& graph,
                  const std::map<int64_t, void*>& pointers) {
  Machine(pointers).Compute(graph);
}

}  // namespace emulated

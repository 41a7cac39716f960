#include "kernels/cuda/functions.h"
#include "kernels/cuda/grouped_call.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 128;

struct Operand {
  const char* base;
  OperandStep step;
};

// Parameter of a kernel, passed by value.
struct Groups {
  Operand operands[3];  // cuBLAS' A, B and C
  int32_t count;
  int32_t tokens_before[kGroupsOfCall];
  uint16_t expert[kGroupsOfCall];
};
static_assert(sizeof(Groups) + sizeof(void**) <= 4096);

__global__ void PointersKernel(const Groups groups, const void** pointers) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index >= 3 * groups.count) return;
  const Operand operand = groups.operands[index / groups.count];
  const int group = index % groups.count;
  pointers[index] = operand.base +
                    groups.tokens_before[group] * operand.step.per_token +
                    groups.expert[group] * operand.step.per_expert;
}

}  // namespace

PwStatus FillGroupPointers(cudaStream_t queue, const PwGemm& gemm,
                           const GroupedLayout& layout, const void* a,
                           const void* b, void* c, void** pointers) {
  const GroupSteps steps = StepsOf(gemm);
  const Operand first = {static_cast<const char*>(a), steps.a};
  const Operand second = {static_cast<const char*>(b), steps.b};
  Groups groups;
  groups.operands[0] = layout.swapped ? second : first;
  groups.operands[1] = layout.swapped ? first : second;
  groups.operands[2] = {static_cast<const char*>(c), steps.c};
  groups.count = layout.groups();
  for (int32_t group = 0; group < groups.count; ++group) {
    groups.tokens_before[group] =
        static_cast<int32_t>(layout.tokens_before[group]);
    groups.expert[group] = static_cast<uint16_t>(layout.expert[group]);
  }
  Launch(PointersKernel, BlocksFor(3 * groups.count, kThreads), kThreads, 0,
         queue, groups, const_cast<const void**>(pointers));
  return Launched("grouped_gemm");
}

}  // namespace pipewright::cuda

// Layers whose linear layers are in fp8.
#include <math.h>

#include <algorithm>

#include "kernels/layer_fp8.h"
#include "tests/support/kernel_checks.h"
#include "tests/support/kernel_fp8_format.h"
#include "tests/support/kernel_pass_run.h"

namespace pipewright {
namespace {

struct LayerCase {
  PwStyle style;
  int64_t kv_heads;
  int64_t slices;
  int32_t tp;
};

PwModel ModelOf(const LayerCase& one, PwType type) {
  PwModel model{};
  model.style = one.style;
  model.type = type;
  model.hidden = 64;
  model.heads = 4;
  model.kv_heads = one.kv_heads;
  model.head_dim = 16;
  model.ffn = 96;
  model.vocabulary = 256;
  model.sequence = 96;
  model.causal = 1;
  model.tp = one.tp;
  model.epsilon = 1e-5f;
  model.rotary_base = 10000;
  model.fp8_linear = 1;
  return model;
}

// What the device has stored of a layer's operands, each compared with what it
// should be: as near as the format allows.
class StoredOperands {
 public:
  StoredOperands(KernelRig* rig, KernelCompare* compare, const PwModel& model,
                 const PwWork& work, const PassOutcome& outcome)
      : rig_(*rig),
        compare_(*compare),
        model_(model),
        work_(work),
        outcome_(outcome),
        weights_(Fp8WeightsOf(model)) {}

  Values Of(const std::string& name, RefOperand operand, const Values& exact) {
    const int index = name == "qkv"   ? 0
                      : name == "out" ? 1
                      : name == "up"  ? 2
                                      : 3;
    const Fp8Matrix& matrix = weights_.matrices[index];
    Values got(exact.size());
    if (operand == RefOperand::kWeight) {
      const uint8_t* block = outcome_.quantized.data();
      Decode(
          block + matrix.rows, block + matrix.scale, kE4m3, name, exact,
          [](size_t element) { return element; }, &got);
      const Values along = got;
      Decode(
          block + matrix.columns, block + matrix.scale, kE4m3, name, exact,
          [&](size_t element) {
            return element % matrix.outputs * matrix.inputs +
                   element / matrix.outputs;
          },
          &got);
      compare_.Tensor("copies of " + name, got, along);
      return got;
    }
    const bool input = operand == RefOperand::kInput;
    const Fp8Format& format = input ? kE4m3 : kE5m2;
    const auto slices = static_cast<int64_t>(outcome_.inputs.size());
    const int64_t length = work_.sequence / slices;
    const int64_t columns = input ? matrix.inputs : matrix.outputs;
    for (int64_t slice = 0; slice < slices; ++slice) {
      const PwWork own = {work_.batch, work_.sequence, slice * length, length};
      const Fp8Kept kept = Fp8KeptOf(
          LayoutOf(*rig_.kernels(), rig_.device(), model_, own, PW_LAYER),
          weights_, index);
      const uint8_t* block =
          input ? outcome_.inputs[slice].data() : outcome_.grads[slice].data();
      const int64_t tokens = work_.batch * length;
      Decode(
          block + (input ? kept.x : kept.dy),
          block + (input ? kept.x_scale : kept.dy_scale), format, name, exact,
          [&](size_t element) {
            const int64_t token = element % tokens;
            const int64_t whole = token / length * work_.sequence +
                                  slice * length + token % length;
            return whole * columns + element / tokens;
          },
          &got, tokens * columns);
    }
    return got;
  }

 private:
  // `place` of an element among the whole's.
  template <typename Place>
  void Decode(const uint8_t* codes, const uint8_t* scale_at,
              const Fp8Format& format, const std::string& name,
              const Values& exact, Place place, Values* to,
              int64_t count = -1) {
    float scale;
    std::copy_n(scale_at, sizeof(scale), reinterpret_cast<uint8_t*>(&scale));
    if (count < 0) count = exact.size();
    Values wanted(count);
    Values near(count);
    double largest = 0;
    for (int64_t element = 0; element < count; ++element) {
      const double want = exact[place(element)];
      const double got = scale * ValueOf(format, codes[element]);
      const double half = scale * Spacing(format, want / scale) / 2;
      (*to)[place(element)] = got;
      wanted[element] = want;
      // What is left beyond rounding.
      near[element] =
          want + copysign(std::max(0.0, fabs(got - want) - half), got - want);
      if (isnan(got)) near[element] = NAN;
      largest = std::max(largest, fabs(want));
    }
    compare_.Tensor("stored operand of " + name, near, wanted);
    compare_.Tensor("scale of " + name, {scale}, {largest / format.largest});
  }

  KernelRig& rig_;
  KernelCompare& compare_;
  const PwModel& model_;
  const PwWork& work_;
  const PassOutcome& outcome_;
  Fp8Weights weights_;
};

void CompareLayer(const PwModel& model, const PassOutcome& got,
                  const RefPartOutput& want, KernelCompare* compare) {
  compare->Tensor("output", got.output, want.output);
  compare->Tensor("input gradient", got.input_gradient, want.input_gradient);
  PwTensor tensors[PW_MAX_TENSORS];
  const int32_t count = pw_part_tensors(&model, PW_LAYER, tensors);
  for (int32_t index = 0; index < count; ++index) {
    const PwTensor& tensor = tensors[index];
    const auto cut = [&](const Values& all) {
      const auto start = all.begin() + tensor.offset;
      return Values(start, start + tensor.rows * tensor.columns);
    };
    compare->Tensor(std::string("gradient of ") + tensor.name,
                    cut(got.gradients), cut(want.gradients));
  }
}

// Against the reference of what was stored, as tight as without fp8: its
// rounding is no part of the difference.
KernelResult CheckLayer(const PwKernels* kernels, PwDevice* device, PwType type,
                        const LayerCase& one) {
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, type == PW_FP32 ? 5e-6 : 4e-2);
  if (type == PW_FP32) compare.WithFp8Cores(kFp8PartialSums);
  const PwModel model = ModelOf(one, type);
  const PwWork work = {2, 48, 0, 48};
  PassRun run(&rig, model, work, one.slices, PW_LAYER, 21);
  const PassOutcome split = run.Run(PassOrder::kSplit);
  if (rig.refused()) return compare.Result();
  StoredOperands operands(&rig, &compare, model, work, split);
  RefPartInput in = run.reference();
  in.stored = [&](const std::string& name, RefOperand operand,
                  const Values& exact) {
    return operands.Of(name, operand, exact);
  };
  CompareLayer(model, split, RefPart(model, work, PW_LAYER, in, true),
               &compare);
  PwDeviceInfo info;
  rig.Ok(kernels->info(device, &info), "info");
  if (info.deterministic) {
    for (const PassOrder order :
         {PassOrder::kSplit, PassOrder::kFull, PassOrder::kRecompute}) {
      compare.Bits(std::string("B and W against ") + PassOrderName(order),
                   split.bits, run.Run(order).bits);
    }
  }
  compare.Tensor("deferred W", run.Run(PassOrder::kDeferred).gradients,
                 split.gradients);
  return compare.Result();
}

// Against the reference without fp8. A product of two operands is off by at
// most 2^-4 + 2^-4 forward and 2^-3 + 2^-4 backward of the sum of its terms'
// magnitudes, half a spacing each; the signs of a layer's errors are mixed.
KernelResult CheckLoss(const PwKernels* kernels, PwDevice* device, PwType type,
                       const LayerCase& one) {
  KernelRig rig(kernels, device);
  constexpr double kRounding = 0.1875;
  KernelCompare compare(&rig, kRounding);
  // Partial sums that are cut off round some operands the other way: 0.189 on
  // an H100.
  compare.WithFp8Cores(kRounding + 0x1p-6);
  const PwModel model = ModelOf(one, type);
  const PwWork work = {2, 48, 0, 48};
  PassRun run(&rig, model, work, one.slices, PW_LAYER, 22);
  const PassOutcome got = run.Run(PassOrder::kSplit);
  if (rig.refused()) return compare.Result();
  CompareLayer(model, got,
               RefPart(model, work, PW_LAYER, run.reference(), true), &compare);
  return compare.Result();
}

std::string NameOf(const LayerCase& one) {
  return std::string(one.style == PW_GPT ? "gpt" : "llama") + " kv heads " +
         std::to_string(one.kv_heads) + " of 4 slices " +
         std::to_string(one.slices) + " tp " + std::to_string(one.tp);
}

}  // namespace

std::vector<KernelCheck> Fp8LayerChecks() {
  std::vector<KernelCheck> checks;
  for (const PwStyle style : {PW_GPT, PW_LLAMA}) {
    for (const int64_t kv_heads : {4, 2}) {
      for (const int64_t slices : {1, 3}) {
        for (const int32_t tp : {1, 2}) {
          const LayerCase one = {style, kv_heads, slices, tp};
          checks.push_back(
              {"fp8 layer " + NameOf(one), false, true,
               [one](const PwKernels* kernels, PwDevice* device, PwType type) {
                 return CheckLayer(kernels, device, type, one);
               }});
          if (kv_heads != 4 || tp != 1) continue;
          checks.push_back(
              {"fp8 layer beside one without " + NameOf(one), false, true,
               [one](const PwKernels* kernels, PwDevice* device, PwType type) {
                 return CheckLoss(kernels, device, type, one);
               }});
        }
      }
    }
  }
  return checks;
}

}  // namespace pipewright

#include <string.h>

#include <algorithm>

#include "kernels/random.h"
#include "tests/support/kernel_checks.h"
#include "tests/support/kernel_pass_run.h"

namespace pipewright {
namespace {

// Rounding of fp32 sums of some dozens of terms through a layer; bf16 keeps 8
// bits, and a layer rounds some ten times.
double Tolerance(PwType type) { return type == PW_FP32 ? 5e-6 : 4e-2; }

// 0 experts: a dense layer.
struct ExpertCase {
  int32_t experts = 0;
  int32_t chosen = 0;
  bool shared = false;
  int32_t ep = 0;
  bool balanced = false;
};

struct PassCase {
  PwStyle style;
  int64_t kv_heads;
  int64_t slices;
  int32_t tp;
  bool sequence_parallel;
  bool causal;
  bool odd;
  ExpertCase experts = {};
};

PwModel ModelOf(const PassCase& one, PwType type) {
  PwModel model{};
  model.style = one.style;
  model.type = type;
  model.hidden = one.odd ? 37 : 64;
  model.heads = 4;
  model.kv_heads = one.kv_heads;
  model.head_dim = one.odd ? 10 : 16;
  model.ffn = one.odd ? 54 : 128;
  model.vocabulary = one.odd ? 106 : 256;
  model.sequence = one.odd ? 21 : 96;
  model.causal = one.causal;
  model.tp = one.tp;
  model.sequence_parallel = one.sequence_parallel;
  model.epsilon = 1e-5f;
  model.rotary_base = 10000;
  if (one.experts.experts == 0) return model;
  model.experts = one.experts.experts;
  model.experts_per_token = one.experts.chosen;
  model.expert_ffn = one.odd ? 34 : 64;
  model.shared_ffn = one.experts.shared ? (one.odd ? 18 : 32) : 0;
  model.ep = one.experts.ep;
  // Rounded to bf16, logits that are near change places.
  model.balanced = one.experts.balanced || type != PW_FP32;
  return model;
}

PwWork WorkOf(const PassCase& one) {
  const int64_t sequence = one.odd ? 9 : 48;
  return {2, sequence, 0, sequence};
}

KernelResult CheckPart(const PwKernels* kernels, PwDevice* device, PwType type,
                       const PassCase& one, PwPart part) {
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, Tolerance(type));
  const PwModel model = ModelOf(one, type);
  const PwWork work = WorkOf(one);
  PassRun run(&rig, model, work, one.slices, part, 11 + part);
  const PassOutcome split = run.Run(PassOrder::kSplit);
  if (rig.refused()) return compare.Result();
  const RefPartOutput want = RefPart(model, work, part, run.reference(), true);
  if (part != PW_HEAD) compare.Tensor("output", split.output, want.output);
  if (part == PW_HEAD) compare.Tensor("losses", split.losses, want.losses);
  if (part != PW_EMBEDDING) {
    compare.Tensor("input gradient", split.input_gradient, want.input_gradient);
  }
  PwTensor tensors[PW_MAX_TENSORS];
  const int32_t count = pw_part_tensors(&model, part, tensors);
  for (int32_t index = 0; index < count; ++index) {
    const PwTensor& tensor = tensors[index];
    const int64_t end = tensor.offset + tensor.rows * tensor.columns;
    const auto cut = [&](const Values& all) {
      return Values(all.begin() + tensor.offset, all.begin() + end);
    };
    compare.Tensor(std::string("gradient of ") + tensor.name,
                   cut(split.gradients), cut(want.gradients));
  }
  PwDeviceInfo info;
  rig.Ok(kernels->info(device, &info), "info");
  if (info.deterministic) {
    for (const PassOrder order :
         {PassOrder::kSplit, PassOrder::kFull, PassOrder::kRecompute}) {
      compare.Bits(std::string("B and W against ") + PassOrderName(order),
                   split.bits, run.Run(order).bits);
    }
  }
  const PassOutcome late = run.Run(PassOrder::kDeferred);
  compare.Tensor("deferred W", late.gradients, split.gradients);
  return compare.Result();
}

std::string NameOf(const PassCase& one, PwPart part) {
  std::string name = part == PW_EMBEDDING      ? "embedding"
                     : part == PW_LAYER        ? "layer"
                     : part == PW_EXPERT_LAYER ? "expert layer"
                                               : "head";
  name += one.style == PW_GPT ? " gpt" : " llama";
  if (part == PW_LAYER)
    name += " kv heads " + std::to_string(one.kv_heads) + " of 4";
  name += " slices " + std::to_string(one.slices);
  name += " tp " + std::to_string(one.tp);
  if (one.sequence_parallel) name += " sequence parallel";
  if (!one.causal) name += " not causal";
  if (one.odd) name += " odd";
  const ExpertCase& experts = one.experts;
  if (experts.experts == 0) return name;
  name += " experts " + std::to_string(experts.chosen) + " of " +
          std::to_string(experts.experts);
  if (experts.shared) name += " shared";
  if (experts.ep > 1) name += " ep " + std::to_string(experts.ep);
  if (experts.balanced) name += " balanced";
  return name;
}

std::vector<PassCase> Cases() {
  std::vector<PassCase> cases;
  for (const bool odd : {true, false}) {
    for (const PwStyle style : {PW_GPT, PW_LLAMA}) {
      for (const int64_t kv_heads : {4, 2}) {
        for (const int64_t slices : {1, 3}) {
          for (const int32_t tp : {1, 2}) {
            cases.push_back({style, kv_heads, slices, tp, false, true, odd});
          }
        }
      }
      cases.push_back({style, 2, 1, 2, true, true, odd});
      cases.push_back({style, 4, 1, 1, false, false, odd});
      // Fewer key-value heads than devices.
      cases.push_back({style, 1, 3, 2, false, true, odd});
    }
  }
  return cases;
}

std::vector<PassCase> ExpertCases() {
  std::vector<PassCase> cases;
  for (const bool odd : {true, false}) {
    for (const PwStyle style : {PW_GPT, PW_LLAMA}) {
      const auto add = [&](int64_t slices, int32_t tp, ExpertCase experts) {
        cases.push_back({style, 2, slices, tp, false, true, odd, experts});
      };
      add(1, 1, {8, 2, false, 1, true});
      add(1, 1, {8, 2, false, 1, false});
      // Counts that differ by one, and experts that nobody chooses.
      add(1, 1, {7, 3, true, 1, true});
      add(1, 1, {16, 1, true, 1, false});
      add(1, 2, {6, 3, true, 1, false});
      add(1, 1, {8, 4, true, 4, true});
      add(1, 1, {8, 3, false, 2, false});
      add(1, 1, {4, 4, false, 1, false});
      add(3, 1, {8, 2, true, 1, false});
    }
  }
  return cases;
}

// A small model: embedding, two layers, head.
class SmallModel {
 public:
  SmallModel(const PwModel& model, const PwWork& work)
      : model_(model), work_(work) {}

  double Loss(const std::vector<Values>& weights,
              const std::vector<int32_t>& ids,
              const std::vector<int32_t>& targets) const {
    RefPartInput in;
    in.ids = ids;
    Values hidden;
    for (size_t index = 0; index < weights.size(); ++index) {
      in.weights = weights[index];
      in.input = hidden;
      if (index + 1 == weights.size()) in.ids = targets;
      const RefPartOutput out = RefPart(
          model_, work_, PartAt(model_, index, weights.size()), in, false);
      hidden = out.output;
      if (index + 1 < weights.size()) continue;
      double sum = 0;
      for (const double loss : out.losses) sum += loss;
      return sum / out.losses.size();
    }
    return 0;
  }

  // A dense layer and, where there are experts, a layer of them behind it.
  static PwPart PartAt(const PwModel& model, size_t index, size_t count) {
    if (index == 0) return PW_EMBEDDING;
    if (index + 1 == count) return PW_HEAD;
    return index == 2 && model.experts > 0 ? PW_EXPERT_LAYER : PW_LAYER;
  }

 private:
  const PwModel& model_;
  const PwWork& work_;
};

// Central differences in some weights of every tensor. A step of 1e-5 leaves
// about 1e-10 of the third derivative and 1e-11 of rounding.
KernelResult CheckGradient(const PwKernels* kernels, PwDevice* device,
                           PwType type, PwStyle style, int64_t slices,
                           const ExpertCase& experts) {
  constexpr size_t kParts = 4;
  constexpr double kStep = 1e-5;
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, type == PW_FP32 ? 1e-5 : 6e-2);
  const PassCase one = {style, 2, slices, 1, false, true, false, experts};
  PwModel model = ModelOf(one, type);
  model.vocabulary = 96;
  PwWork work = {2, 12, 0, 12};
  std::vector<PassRun> parts;
  parts.reserve(kParts);
  for (size_t index = 0; index < kParts; ++index) {
    parts.emplace_back(&rig, model, work, slices,
                       SmallModel::PartAt(model, index, kParts), 100 + index);
  }
  const int64_t tokens = work.batch * work.sequence;
  std::vector<PassOutcome> outcomes(kParts);
  for (size_t index = 0; index < kParts; ++index) {
    if (index > 0) parts[index].SetInput(outcomes[index - 1].output);
    parts[index].SetLossScale(1.0f / tokens);
    outcomes[index] = parts[index].Run(PassOrder::kSplit);
  }
  // From the end, each part again with the gradient that comes to it.
  for (size_t index = kParts - 1; index-- > 0;) {
    parts[index].SetOutputGradient(outcomes[index + 1].input_gradient);
    outcomes[index] = parts[index].Run(PassOrder::kSplit);
  }
  std::vector<Values> weights;
  for (const PassRun& part : parts) weights.push_back(part.reference().weights);
  const std::vector<int32_t>& ids = parts.front().reference().ids;
  const std::vector<int32_t>& targets = parts.back().reference().ids;
  const SmallModel small(model, work);
  for (size_t index = 0; index < kParts; ++index) {
    PwTensor tensors[PW_MAX_TENSORS];
    const int32_t count = pw_part_tensors(
        &model, SmallModel::PartAt(model, index, kParts), tensors);
    Values all_got;
    Values all_want;
    for (int32_t which = 0; which < count; ++which) {
      const int64_t size = tensors[which].rows * tensors[which].columns;
      Values got;
      Values want;
      for (int32_t draw = 0; draw < 6; ++draw) {
        int64_t element = pw_random_id(7 + draw, which, size);
        // Takes a row of the table that is used.
        if (std::string(tensors[which].name) == "table") {
          element = ids[draw] * model.hidden + draw;
        }
        double& weight = weights[index][tensors[which].offset + element];
        const double kept = weight;
        weight = kept + kStep;
        const double above = small.Loss(weights, ids, targets);
        weight = kept - kStep;
        const double below = small.Loss(weights, ids, targets);
        weight = kept;
        want.push_back((above - below) / (2 * kStep));
        got.push_back(
            outcomes[index].gradients[tensors[which].offset + element]);
      }
      all_got.insert(all_got.end(), got.begin(), got.end());
      all_want.insert(all_want.end(), want.begin(), want.end());
      const std::string name = tensors[which].name;
      // The keys' bias has none: the softmax does not see it.
      if (name != "qkv.bias") compare.Tensor(name, got, want);
    }
    compare.Tensor("part " + std::to_string(index), all_got, all_want);
  }
  return compare.Result();
}

}  // namespace

std::vector<KernelCheck> PassChecks() {
  std::vector<KernelCheck> checks;
  for (const PassCase& one : Cases()) {
    for (const PwPart part : {PW_EMBEDDING, PW_LAYER, PW_HEAD}) {
      // The ends know nothing of heads.
      if (part != PW_LAYER && one.kv_heads != 4 && !one.sequence_parallel) {
        continue;
      }
      checks.push_back({NameOf(one, part), true, one.odd,
                        [one, part](const PwKernels* kernels, PwDevice* device,
                                    PwType type) {
                          return CheckPart(kernels, device, type, one, part);
                        }});
    }
  }
  for (const PassCase& one : ExpertCases()) {
    checks.push_back(
        {NameOf(one, PW_EXPERT_LAYER), true, one.odd,
         [one](const PwKernels* kernels, PwDevice* device, PwType type) {
           PassCase own = one;
           // Which experts are forced depends on the place in a
           // slice.
           if (type != PW_FP32) own.slices = 1;
           return CheckPart(kernels, device, type, own, PW_EXPERT_LAYER);
         }});
  }
  return checks;
}

std::vector<KernelCheck> GradientChecks() {
  std::vector<KernelCheck> checks;
  const auto add = [&](PwStyle style, int64_t slices,
                       const ExpertCase& experts) {
    std::string name = std::string("numeric gradient of a ") +
                       (style == PW_GPT ? "gpt" : "llama") + " model, slices " +
                       std::to_string(slices);
    if (experts.experts > 0) {
      name += experts.balanced ? ", balanced experts" : ", experts";
    }
    checks.push_back(
        {name, true, false,
         [=](const PwKernels* kernels, PwDevice* device, PwType type) {
           return CheckGradient(kernels, device, type, style, slices, experts);
         }});
  };
  for (const PwStyle style : {PW_GPT, PW_LLAMA}) {
    for (const int64_t slices : {1, 3}) add(style, slices, {});
    add(style, 1, {8, 2, true, 1, true});
    add(style, 1, {8, 3, true, 2, false});
  }
  return checks;
}

}  // namespace pipewright

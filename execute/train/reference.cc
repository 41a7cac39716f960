#include "execute/train/reference.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/train/memory_pool.h"
#include "execute/train/reference_part.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using reference::Named;
using reference::ReferencePart;
using reference::Sample;
using reference::Tensors;
using reference::Values;

// Each thread has gradients of its own.
constexpr int64_t kMostThreads = 8;
constexpr int64_t kMostGradients = int64_t{1} << 26;

std::string PartName(const StagePart& part) {
  switch (part.part) {
    case PW_EMBEDDING:
      return "embedding";
    case PW_HEAD:
      return "head";
    default:
      return absl::StrCat("layer ", part.layer);
  }
}

// Work of a part without slices, on one sample.
PwWork WorkOf(const ExecutedModel& model) {
  return {.batch = model.batch,
          .sequence = model.sequence,
          .slice_first = 0,
          .slice_tokens = model.sequence};
}

// The whole model side by side, stage after stage.
struct Layout {
  struct Placed {
    StagePart spec;
    Tensors tensors;     // from the first parameter of the model
    int64_t offset = 0;  // from there to the part
    int64_t size = 0;
  };
  std::vector<Placed> parts;
  std::vector<int64_t> stages;  // where each begins, and the end
  std::vector<ReferenceTensor> tensors;
};

// Whose memory is that of this process.
using Cpu = std::unique_ptr<PwDevice, void (*)(PwDevice*)>;

absl::Status Check(PwStatus status) {
  return KernelStatus(*pw_cpu_kernels(), status, "reference");
}

absl::StatusOr<Cpu> OpenCpu() {
  PwDevice* device = nullptr;
  PW_RETURN_IF_ERROR(Check(pw_cpu_kernels()->open(0, &device)));
  return Cpu(device, pw_cpu_kernels()->close);
}

absl::StatusOr<Layout> LayOut(const ExecutedModel& model) {
  PW_ASSIGN_OR_RETURN(const Cpu cpu, OpenCpu());
  const PwWork work = WorkOf(model);
  Layout layout;
  int64_t table = 0;
  int64_t at = 0;
  for (int stage = 0; stage < model.num_stages(); ++stage) {
    const int64_t begin = at;
    layout.stages.push_back(begin);
    const auto name = [&](std::string tensor, int64_t from, int64_t size) {
      layout.tensors.push_back({.stage = stage,
                                .name = std::move(tensor),
                                .begin = from - begin,
                                .end = from - begin + size});
    };
    for (const StagePart& spec : model.stages[stage]) {
      Layout::Placed part = {.spec = spec, .offset = at};
      PwPartSize size{};
      PW_RETURN_IF_ERROR(Check(pw_part_size(
          pw_cpu_kernels(), cpu.get(), &model.shape, &work, spec.part, &size)));
      part.size = size.parameters;
      PwTensor tensors[PW_MAX_TENSORS];
      const int32_t count = pw_part_tensors(&model.shape, spec.part, tensors);
      for (int32_t index = 0; index < count; ++index) {
        const PwTensor& tensor = tensors[index];
        part.tensors.offsets[tensor.name] = at + tensor.offset;
        name(absl::StrCat(PartName(spec), " ", tensor.name), at + tensor.offset,
             tensor.rows * tensor.columns);
      }
      if (spec.part == PW_EMBEDDING) table = part.tensors.Find("table");
      if (spec.part == PW_HEAD && model.shape.tied != 0) {
        part.tensors.offsets["output"] = table;
      }
      at += part.size;
      layout.parts.push_back(std::move(part));
    }
    if (model.HoldsCopyOfTable(stage)) {
      name("head output (copy of the embedding's table)", at,
           model.shape.vocabulary * model.shape.hidden);
      at += model.TableElements();
    }
  }
  layout.stages.push_back(at);
  return layout;
}

// The weights that the run begins with: the only thing that is the kernels'.
absl::StatusOr<Values> InitialWeights(const ExecutedModel& model,
                                      const Layout& layout) {
  PW_ASSIGN_OR_RETURN(const Cpu cpu, OpenCpu());
  Values weights(layout.stages.back());
  for (const Layout::Placed& part : layout.parts) {
    std::vector<float> values(part.size);
    PW_RETURN_IF_ERROR(Check(pw_initialize(
        pw_cpu_kernels(), cpu.get(), nullptr, &model.shape, part.spec.part,
        model.SeedOf(part.spec), values.data(), nullptr)));
    std::copy(values.begin(), values.end(), weights.begin() + part.offset);
  }
  return weights;
}

// As passes read them: rounded to the model's type.
absl::StatusOr<Values> Rounded(const ExecutedModel& model,
                               const Values& weights) {
  if (model.shape.type == PW_FP32) return weights;
  PW_ASSIGN_OR_RETURN(const Cpu cpu, OpenCpu());
  std::vector<float> values(weights.begin(), weights.end());
  std::vector<uint16_t> stored(values.size());
  const auto count = static_cast<int64_t>(values.size());
  PW_RETURN_IF_ERROR(Check(
      pw_cpu_kernels()->convert(cpu.get(), nullptr, model.shape.type,
                                stored.data(), PW_FP32, values.data(), count)));
  PW_RETURN_IF_ERROR(Check(
      pw_cpu_kernels()->convert(cpu.get(), nullptr, PW_FP32, values.data(),
                                model.shape.type, stored.data(), count)));
  return Values(values.begin(), values.end());
}

Sample SampleOf(const ExecutedModel& model, int64_t number, double loss_scale) {
  Sample sample = {.sequences = model.batch,
                   .tokens = model.sequence,
                   .loss_scale = loss_scale};
  sample.ids.resize(sample.rows());
  sample.targets.resize(sample.rows());
  ExecutedModel whole = model;
  whole.slices = 1;
  whole.FillTokens(number, 0, /*targets=*/false, sample.ids.data());
  whole.FillTokens(number, 0, /*targets=*/true, sample.targets.data());
  return sample;
}

struct Sums {
  double loss = 0;  // over tokens
  Values gradients;
};

void Train(const ExecutedModel& model, const Layout& layout,
           const Values& weights, const Sample& sample, Sums* sums) {
  std::vector<std::unique_ptr<ReferencePart>> parts;
  Values values;
  for (const Layout::Placed& placed : layout.parts) {
    parts.push_back(reference::MakePart(model.shape, sample, placed.spec.part,
                                        {placed.tensors, weights.data()}));
    values = parts.back()->Forward(values);
  }
  sums->loss += values[0];
  for (size_t index = parts.size(); index-- > 0;) {
    values = parts[index]->Backward(
        values, {layout.parts[index].tensors, sums->gradients.data()});
    parts[index].reset();
  }
}

int64_t ThreadsFor(int64_t microbatches, int64_t parameters) {
  return std::clamp<int64_t>(
      std::min<int64_t>({microbatches, kMostThreads,
                         kMostGradients / std::max<int64_t>(parameters, 1)}),
      1, std::max(1U, std::thread::hardware_concurrency()));
}

// Values that a part keeps from its forward to its backward, and those that
// are there besides while it runs: rows of what goes in and out of it, and the
// largest matrix that Linear turns.
struct PartValues {
  int64_t kept = 0;
  int64_t passing = 0;
};

PartValues ValuesOf(const PwModel& model, const Sample& sample, PwPart part) {
  const int64_t rows = sample.rows();
  const int64_t hidden = model.hidden;
  const auto wide = [&model](int64_t ffn) {
    return model.style == PW_LLAMA ? 2 * ffn : ffn;
  };
  if (part == PW_EMBEDDING) return {.passing = 2 * rows * hidden};
  if (part == PW_HEAD) {
    return {.kept = rows * (2 * hidden + model.vocabulary),
            .passing = (2 * rows + model.vocabulary) * hidden};
  }
  const int64_t queries = model.heads * model.head_dim;
  const int64_t width = queries + 2 * model.kv_heads * model.head_dim;
  PartValues values = {.kept = rows * (4 * hidden + width + queries)};
  int64_t inner = wide(model.ffn);
  if (part == PW_EXPERT_LAYER) {
    inner = wide(model.expert_ffn) * model.experts_per_token;
    values.kept +=
        rows * (hidden + inner + wide(model.shared_ffn) + model.shared_ffn +
                model.experts_per_token * (2 * hidden + model.expert_ffn));
  } else {
    values.kept += rows * (inner + model.ffn);
  }
  // Attention has the weights of one head, their slopes, and a head's rows.
  values.passing =
      std::max({rows * (3 * hidden + 2 * inner),
                2 * sample.tokens * sample.tokens + rows * (2 * width),
                rows * hidden + hidden * std::max(inner, width)});
  return values;
}

std::vector<Values> ByStage(const Layout& layout, const Values& values) {
  std::vector<Values> stages;
  for (size_t stage = 0; stage + 1 < layout.stages.size(); ++stage) {
    stages.emplace_back(values.begin() + layout.stages[stage],
                        values.begin() + layout.stages[stage + 1]);
  }
  return stages;
}

}  // namespace

double ReferenceProducts(const ExecutedModel& model, int64_t microbatches) {
  const PwWork work = WorkOf(model);
  double flops = 0;
  for (const std::vector<StagePart>& stage : model.stages) {
    for (const StagePart& part : stage) {
      for (const PwPassKind pass : {PW_PASS_F, PW_PASS_B, PW_PASS_W}) {
        double linear = 0;
        double attention = 0;
        pw_pass_flops(&model.shape, &work, part.part, pass, &linear,
                      &attention);
        flops += linear + attention;
      }
    }
  }
  return flops / 2 * static_cast<double>(microbatches);
}

int64_t ReferenceParameters(const ExecutedModel& model) {
  const absl::StatusOr<Layout> layout = LayOut(model);
  return layout.ok() ? layout->stages.back() : 0;
}

int64_t ReferenceMemory(const ExecutedModel& model, int64_t microbatches) {
  const int64_t parameters = ReferenceParameters(model);
  const int64_t threads = ThreadsFor(microbatches, parameters);
  const Sample sample = {.sequences = model.batch, .tokens = model.sequence};
  int64_t kept = 0;
  int64_t passing = 0;
  for (const std::vector<StagePart>& stage : model.stages) {
    for (const StagePart& part : stage) {
      const PartValues values = ValuesOf(model.shape, sample, part.part);
      kept += values.kept;
      passing = std::max(passing, values.passing);
    }
  }
  // Weights as they are and as they are used, and gradients of each thread;
  // behind them copies of weights and gradients by stage.
  return static_cast<int64_t>(sizeof(double)) *
         ((2 + threads) * parameters +
          std::max(threads * (kept + passing), 2 * parameters));
}

absl::StatusOr<ReferenceRun> RunReference(const ExecutedModel& model,
                                          int64_t microbatches) {
  PW_ASSIGN_OR_RETURN(const Layout layout, LayOut(model));
  PW_ASSIGN_OR_RETURN(Values weights, InitialWeights(model, layout));
  PW_ASSIGN_OR_RETURN(const Values used, Rounded(model, weights));
  const auto tokens =
      static_cast<double>(model.batch * model.sequence * microbatches);
  const int64_t parameters = layout.stages.back();
  const int64_t count = ThreadsFor(microbatches, parameters);
  // Thread t has samples t, t + count, ...
  std::vector<Sums> sums(count);
  std::vector<absl::Status> statuses(count);
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < count; ++thread) {
    threads.emplace_back([&, thread] {
      statuses[thread] = WithoutExceptions([&] {
        sums[thread].gradients.resize(parameters);
        for (int64_t number = thread; number < microbatches; number += count) {
          Train(model, layout, used, SampleOf(model, number, 1 / tokens),
                &sums[thread]);
        }
        return absl::OkStatus();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) PW_RETURN_IF_ERROR(status);
  for (int64_t thread = 1; thread < count; ++thread) {
    sums[0].loss += sums[thread].loss;
    reference::AddTo(sums[thread].gradients, &sums[0].gradients);
  }
  if (model.copies_table) {
    const int64_t copy = parameters - model.TableElements();
    for (Values* const values : {&weights, &sums[0].gradients}) {
      std::copy_n(values->begin() + layout.parts[0].tensors.Find("table"),
                  model.TableElements(), values->begin() + copy);
    }
  }
  return ReferenceRun{.loss = sums[0].loss / tokens,
                      .tensors = layout.tensors,
                      .weights = ByStage(layout, weights),
                      .gradients = ByStage(layout, sums[0].gradients)};
}

}  // namespace pipewright

#include "execute/train/sequential.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/memory_pool.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// The sequential run while it trains: its memory, its passes, its weights and
// steps.
class Sequential {
 public:
  Sequential(const ExecutedModel& model, const PwKernels* kernels)
      : model_(model), kernels_(*kernels) {}
  ~Sequential() {
    for (void* const block : owned_) kernels_.release(device_, block);
    if (device_ != nullptr) kernels_.close(device_);
  }

  absl::StatusOr<SequentialRun> Run(int device_index,
                                    const SequentialOptions& options);
  // See SequentialMemory; takes nothing.
  absl::StatusOr<SequentialBytes> Count(int device_index,
                                        const SequentialOptions& options);

 private:
  struct Part {
    // True for the copy of a tied model's table that the head reads, behind all
    // other parts. It runs no passes.
    bool is_copy;
    PwPart part;
    int stage;
    int64_t parameters;
    float* master;
    // Weights of the last steps, in turn, which forwards use.
    std::vector<void*> versions;
    void* newest;    // where backwards use them
    void* forward;   // one of those
    void* backward;  // one of those
    float* gradients;
    float* moment1;
    float* moment2;
    char* cache;
    size_t cache_bytes;
    struct Blocks {
      char* saved;
      char* inputs;
      char* grads;
      char* output;
    };
    std::vector<Blocks> slices;
  };

  absl::Status Check(PwStatus status) const {
    return KernelStatus(kernels_, status, "sequential run");
  }
  template <class T>
  absl::Status New(size_t bytes, T** memory) {
    *memory = nullptr;
    bytes_ += static_cast<int64_t>(bytes);
    if (bytes == 0 || counts_) return absl::OkStatus();
    void* block = nullptr;
    PW_RETURN_IF_ERROR(Check(kernels_.allocate(device_, bytes, &block)));
    owned_.push_back(block);
    *memory = static_cast<T*>(block);
    return Check(kernels_.zero(device_, nullptr, block, bytes));
  }

  absl::Status Allocate(const SequentialOptions& options);
  absl::Status LargestOf(PwPart part, int slice, PwPartSize* size);
  absl::Status AllocateWeights(const SequentialOptions& options,
                               size_t quantized, Part* part);
  absl::Status CopyTable(const float* from, float* to);
  absl::Status SumTables();
  PwPartMemory MemoryOf(const Part& part, int slice, const void* weights) const;
  absl::Status FillIds(const Part& part, int64_t sample, int slice);
  absl::Status ForwardPart(size_t index, int64_t sample, int slice,
                           const void* weights);
  // Adds to *sum.
  absl::Status Forward(int64_t sample, int slice, double* sum);
  absl::Status Recompute(size_t last, int64_t sample, int slice);
  absl::Status Backward(int64_t sample, int slice, bool recomputes);
  absl::Status ChooseWeights(int64_t taken, const SequentialOptions& options);
  absl::Status OneMicrobatch(int64_t sample, bool recomputes, double* loss);
  absl::StatusOr<SequentialRun::Step> OneIteration(
      int iteration, const SequentialOptions& options);
  absl::Status Keep(float* Part::*values,
                    std::vector<std::vector<float>>* stages);
  // In the norm of a stage: a copy counts as the table that it is of.
  static bool Counts(const Part& part, int stage) {
    return part.stage == stage && !part.is_copy;
  }

  absl::StatusOr<double> SquareSum(int stage);
  absl::Status Optimize(int64_t taken, const SequentialOptions& options,
                        double* norm);
  const ExecutedModel& model_;
  const PwKernels& kernels_;
  bool counts_ = false;  // what it would allocate
  int64_t bytes_ = 0;    // that it has asked for
  PwDevice* device_ = nullptr;
  std::vector<Part> parts_;
  size_t passes_ = 0;  // parts that run
  std::vector<void*> owned_;
  float loss_scale_ = 1;
  char* workspace_ = nullptr;
  int32_t* ids_ = nullptr;
  float* losses_ = nullptr;
  double* sums_ = nullptr;
  float* stage_values_ = nullptr;
  int64_t stage_count_ = 0;
  char* gradients_[2] = {};
  size_t piece_ = 0;  // in the microbatch that runs: a sample of its own length
  std::vector<int32_t> host_ids_;
  std::vector<float> host_losses_;
};

}  // namespace

absl::StatusOr<SequentialRun> Sequential::Run(
    int device_index, const SequentialOptions& options) {
  PW_RETURN_IF_ERROR(Check(kernels_.open(device_index, &device_)));
  PW_RETURN_IF_ERROR(Allocate(options));
  SequentialRun run;
  PW_RETURN_IF_ERROR(Keep(&Part::master, &run.initial_weights));
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    if (options.progress != nullptr) {
      options.progress->At(1.0 * iteration / options.iterations);
    }
    PW_ASSIGN_OR_RETURN(SequentialRun::Step step,
                        OneIteration(iteration, options));
    run.steps.push_back(std::move(step));
  }
  return run;
}

absl::StatusOr<SequentialBytes> Sequential::Count(
    int device_index, const SequentialOptions& options) {
  counts_ = true;
  PW_RETURN_IF_ERROR(Check(kernels_.open(device_index, &device_)));
  PW_RETURN_IF_ERROR(Allocate(options));
  SequentialBytes bytes;
  int64_t parameters = 0;
  std::vector<int64_t> of_stage(model_.num_stages());
  for (const Part& part : parts_) {
    parameters += part.parameters;
    if (!part.is_copy) of_stage[part.stage] += part.parameters;
  }
  // stage_values_, of the largest stage; smaller ones before it stay.
  int64_t largest = 0;
  for (const int64_t each : of_stage) {
    if (options.optimizer && each > largest) bytes_ += 4 * each;
    largest = std::max(largest, each);
  }
  bytes.device = bytes_;
  // What Keep copies.
  bytes.host =
      4 * parameters * (1 + 2 * static_cast<int64_t>(options.kept.size()));
  return bytes;
}

absl::Status Sequential::Allocate(const SequentialOptions& options) {
  size_t workspace = 0;
  for (int stage = 0; stage < model_.num_stages(); ++stage) {
    for (const StagePart& spec : model_.stages[stage]) {
      Part part = {.part = spec.part, .stage = stage};
      PwPartSize size{};
      for (int slice = 0; slice < model_.slices; ++slice) {
        PW_RETURN_IF_ERROR(LargestOf(spec.part, slice, &size));
        workspace = std::max(workspace, size.workspace);
        Part::Blocks blocks{};
        PW_RETURN_IF_ERROR(New(size.saved, &blocks.saved));
        PW_RETURN_IF_ERROR(New(size.inputs, &blocks.inputs));
        PW_RETURN_IF_ERROR(New(size.grads, &blocks.grads));
        PW_RETURN_IF_ERROR(New(model_.BoundaryBytes(), &blocks.output));
        part.slices.push_back(blocks);
      }
      part.parameters = size.parameters;
      part.cache_bytes = model_.slices > 1 ? size.cache : 0;
      PW_RETURN_IF_ERROR(New(part.cache_bytes, &part.cache));
      PW_RETURN_IF_ERROR(AllocateWeights(options, size.quantized, &part));
      if (!counts_) {
        PW_RETURN_IF_ERROR(Check(
            pw_initialize(&kernels_, device_, nullptr, &model_.shape, spec.part,
                          model_.SeedOf(spec), part.master, nullptr)));
      }
      parts_.push_back(part);
    }
  }
  passes_ = parts_.size();
  if (model_.copies_table) {
    Part copy = {.is_copy = true,
                 .part = PW_EMBEDDING,
                 .stage = model_.num_stages() - 1,
                 .parameters = model_.TableElements()};
    PW_RETURN_IF_ERROR(AllocateWeights(options, 0, &copy));
    if (!counts_) {
      PW_RETURN_IF_ERROR(CopyTable(parts_[0].master, copy.master));
    }
    parts_.push_back(copy);
  }
  PW_RETURN_IF_ERROR(New(workspace, &workspace_));
  const auto tokens = static_cast<size_t>(model_.batch * model_.slice_tokens());
  PW_RETURN_IF_ERROR(New(tokens * 4, &ids_));
  PW_RETURN_IF_ERROR(New(tokens * 4, &losses_));
  PW_RETURN_IF_ERROR(New(16, &sums_));
  for (char*& gradient : gradients_) {
    PW_RETURN_IF_ERROR(New(model_.BoundaryBytes(), &gradient));
  }
  host_ids_.resize(tokens);
  host_losses_.resize(tokens);
  return absl::OkStatus();
}

// What one piece at a time needs.
absl::Status Sequential::LargestOf(PwPart part, int slice, PwPartSize* size) {
  *size = {};
  const size_t microbatches = std::max<size_t>(1, model_.lengths.size());
  for (size_t sample = 0; sample < microbatches; ++sample) {
    for (const PwWork& work :
         model_.WorksOf(static_cast<int64_t>(sample), slice)) {
      PwPartSize each{};
      PW_RETURN_IF_ERROR(Check(
          pw_part_size(&kernels_, device_, &model_.shape, &work, part, &each)));
      size->parameters = each.parameters;
      size->quantized = each.quantized;
      size->saved = std::max(size->saved, each.saved);
      size->inputs = std::max(size->inputs, each.inputs);
      size->grads = std::max(size->grads, each.grads);
      size->cache = std::max(size->cache, each.cache);
      size->workspace = std::max(size->workspace, each.workspace);
    }
  }
  return absl::OkStatus();
}

PwPartMemory Sequential::MemoryOf(const Part& part, int slice,
                                  const void* weights) const {
  const Part::Blocks& blocks = part.slices[slice];
  const char* const values = static_cast<const char*>(weights);
  // Part with the table of a tied model, which is the first of the embedding's
  // tensors.
  const Part& table = model_.copies_table ? parts_.back() : parts_.front();
  return {.weights = weights,
          .gradients = part.gradients,
          .ids = ids_,
          .losses = losses_,
          .loss_scale = loss_scale_,
          .saved = blocks.saved,
          .inputs = blocks.inputs,
          .grads = blocks.grads,
          .cache = part.cache,
          .workspace = workspace_,
          .quantized = values + model_.WeightBytes(part.parameters),
          .table = weights == part.forward ? table.forward : table.backward,
          .table_gradients = table.gradients};
}

absl::Status Sequential::FillIds(const Part& part, int64_t sample, int slice) {
  if (!TakesTokens(part.part)) return absl::OkStatus();
  model_.FillTokens(sample, slice, part.part == PW_HEAD, host_ids_.data());
  // Skips the tokens of the samples before this one.
  const std::vector<PwWork> works = model_.WorksOf(sample, slice);
  int64_t begin = 0;
  for (size_t before = 0; before < piece_; ++before) {
    begin += works[before].slice_tokens;
  }
  const auto tokens =
      static_cast<size_t>(works[piece_].batch * works[piece_].slice_tokens);
  return Check(kernels_.copy(device_, nullptr, PW_HOST_TO_DEVICE, ids_,
                             host_ids_.data() + begin, tokens * 4));
}

absl::Status Sequential::ForwardPart(size_t index, int64_t sample, int slice,
                                     const void* weights) {
  const PwWork work = model_.WorksOf(sample, slice)[piece_];
  const Part& part = parts_[index];
  PW_RETURN_IF_ERROR(FillIds(part, sample, slice));
  PwPartMemory memory = MemoryOf(part, slice, weights);
  if (index > 0) memory.input = parts_[index - 1].slices[slice].output;
  memory.output = part.slices[slice].output;
  return Check(pw_forward(&kernels_, device_, nullptr, &model_.shape, &work,
                          part.part, &memory));
}

absl::Status Sequential::Forward(int64_t sample, int slice, double* sum) {
  for (size_t index = 0; index < passes_; ++index) {
    PW_RETURN_IF_ERROR(
        ForwardPart(index, sample, slice, parts_[index].forward));
  }
  const PwWork work = model_.WorksOf(sample, slice)[piece_];
  const auto tokens = static_cast<size_t>(work.batch * work.slice_tokens);
  PW_RETURN_IF_ERROR(
      Check(kernels_.copy(device_, nullptr, PW_DEVICE_TO_HOST,
                          host_losses_.data(), losses_, tokens * 4)));
  PW_RETURN_IF_ERROR(Check(kernels_.synchronize(device_, nullptr)));
  for (size_t token = 0; token < tokens; ++token) *sum += host_losses_[token];
  return absl::OkStatus();
}

// A stage recomputes from its input, with the weights of the backward.
absl::Status Sequential::Recompute(size_t last, int64_t sample, int slice) {
  size_t first = last;
  while (first > 0 && parts_[first - 1].stage == parts_[last].stage) --first;
  for (size_t index = first; index <= last; ++index) {
    PW_RETURN_IF_ERROR(
        ForwardPart(index, sample, slice, parts_[index].backward));
  }
  return absl::OkStatus();
}

absl::Status Sequential::Backward(int64_t sample, int slice, bool recomputes) {
  const PwWork work = model_.WorksOf(sample, slice)[piece_];
  int next = 0;
  for (size_t index = passes_; index-- > 0; next ^= 1) {
    const Part& part = parts_[index];
    const bool begins =
        index + 1 == passes_ || parts_[index + 1].stage != part.stage;
    if (recomputes && begins) {
      PW_RETURN_IF_ERROR(Recompute(index, sample, slice));
    }
    PW_RETURN_IF_ERROR(FillIds(part, sample, slice));
    PwPartMemory memory = MemoryOf(part, slice, part.backward);
    memory.output_gradient = gradients_[next];
    memory.input_gradient = gradients_[next ^ 1];
    PW_RETURN_IF_ERROR(
        Check(pw_backward_input(&kernels_, device_, nullptr, &model_.shape,
                                &work, part.part, &memory)));
    PW_RETURN_IF_ERROR(
        Check(pw_backward_weight(&kernels_, device_, nullptr, &model_.shape,
                                 &work, part.part, &memory)));
  }
  return absl::OkStatus();
}

absl::Status Sequential::OneMicrobatch(int64_t sample, bool recomputes,
                                       double* loss) {
  for (const Part& part : parts_) {
    if (part.cache == nullptr) continue;
    PW_RETURN_IF_ERROR(
        Check(kernels_.zero(device_, nullptr, part.cache, part.cache_bytes)));
  }
  const size_t pieces = model_.WorksOf(sample, 0).size();
  // Loss of a slice, or of all packed samples.
  double sum = 0;
  for (piece_ = 0; piece_ < pieces; ++piece_) {
    for (int slice = 0; slice < model_.slices; ++slice) {
      PW_RETURN_IF_ERROR(Forward(sample, slice, &sum));
      if (pieces > 1) continue;
      *loss += sum;
      sum = 0;
    }
    for (int slice = model_.slices; slice-- > 0;) {
      PW_RETURN_IF_ERROR(Backward(sample, slice, recomputes));
    }
  }
  *loss += sum;
  return absl::OkStatus();
}

absl::StatusOr<SequentialRun::Step> Sequential::OneIteration(
    int iteration, const SequentialOptions& options) {
  SequentialRun::Step result;
  const int every =
      options.update_every > 0 ? options.update_every : options.microbatches;
  double tokens = 0;
  for (int microbatch = 0; microbatch < every; ++microbatch) {
    tokens += static_cast<double>(model_.TokensOf(microbatch));
  }
  tokens *= model_.slices;
  loss_scale_ = static_cast<float>(1.0 / tokens);
  const int64_t before = int64_t{iteration} * options.microbatches;
  const bool kept = std::find(options.kept.begin(), options.kept.end(),
                              iteration) != options.kept.end();
  for (int first = 0; first < options.microbatches; first += every) {
    const int64_t taken = (before + first) / every;
    PW_RETURN_IF_ERROR(ChooseWeights(taken, options));
    for (Part& part : parts_) {
      PW_RETURN_IF_ERROR(
          Check(kernels_.zero(device_, nullptr, part.gradients,
                              static_cast<size_t>(part.parameters) * 4)));
    }
    for (int place = 0; place < every; ++place) {
      PW_RETURN_IF_ERROR(OneMicrobatch(before + first + place,
                                       options.predicts && model_.recompute,
                                       &result.loss));
    }
    PW_RETURN_IF_ERROR(SumTables());
    if (kept && first + every == options.microbatches) {
      PW_RETURN_IF_ERROR(Keep(&Part::gradients, &result.gradients));
    }
    if (options.optimizer) {
      PW_RETURN_IF_ERROR(Optimize(taken, options, &result.norm));
    }
  }
  result.loss /= tokens * options.microbatches / every;
  if (kept) PW_RETURN_IF_ERROR(Keep(&Part::master, &result.weights));
  return result;
}

absl::StatusOr<SequentialRun> RunSequential(const ExecutedModel& model,
                                            const PwKernels* kernels,
                                            int device_index,
                                            const SequentialOptions& options) {
  return Sequential(model, kernels).Run(device_index, options);
}

absl::StatusOr<SequentialBytes> SequentialMemory(
    const ExecutedModel& model, const PwKernels* kernels, int device_index,
    const SequentialOptions& options) {
  return Sequential(model, kernels).Count(device_index, options);
}

// Weights of the sequential run: their versions, gradients of a table that is
// there twice, norms and steps.
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

#include "execute/train/stage.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
absl::StatusOr<std::unique_ptr<Stage>> Stage::Create(
    const ExecutedModel& model, int stage, DeviceHandle handle,
    MemoryPool* arena, MemoryPool* host, States states) {
  std::unique_ptr<Stage> created(new Stage(model, handle, arena, host, states));
  PW_RETURN_IF_ERROR(created->Initialize(stage));
  return created;
}

absl::StatusOr<float*> Stage::NewFloats() {
  PW_ASSIGN_OR_RETURN(Payload block,
                      arena_.Take(static_cast<size_t>(parameters_) * 4));
  float* const values = static_cast<float*>(block.data.get());
  PW_RETURN_IF_ERROR(Check(handle_.kernels->zero(handle_.device, handle_.stream,
                                                 values, block.bytes),
                           "zero"));
  owned_.push_back(std::move(block));
  return values;
}

absl::StatusOr<std::shared_ptr<void>> Stage::NewPinned(size_t bytes) {
  void* memory = nullptr;
  PW_RETURN_IF_ERROR(
      Check(handle_.kernels->allocate_host(handle_.device, bytes, &memory),
            "memory of the host"));
  const DeviceHandle handle = handle_;
  return std::shared_ptr<void>(memory, [handle](void* pinned) {
    handle.kernels->release_host(handle.device, pinned);
  });
}

absl::Status Stage::Initialize(int stage) {
  const PwKernels& kernels = *handle_.kernels;
  char reason[256] = "";
  if (pw_check_device(&kernels, handle_.device, &model_.shape, reason,
                      sizeof(reason)) != PW_OK) {
    return absl::InvalidArgumentError(
        absl::StrCat("strategy.precision: ", reason, "; allowed: bf16"));
  }
  size_t workspace = 0;
  for (const StagePart& spec : model_.stages[stage]) {
    Part part = {.spec = spec, .offset = parameters_};
    PW_RETURN_IF_ERROR(LayOut(&part, &workspace));
    // The table is the first of its tensors.
    if (spec.part == PW_EMBEDDING) table_ = parameters_;
    parameters_ += part.size.parameters;
    part.quantized = quantized_bytes_;
    quantized_bytes_ += part.size.quantized;
    parts_.push_back(part);
  }
  counted_ = parameters_;
  if (model_.HoldsCopyOfTable(stage)) {
    table_ = parameters_;
    parameters_ += model_.TableElements();
  }
  PW_ASSIGN_OR_RETURN(gradients_, NewFloats());
  if (elsewhere_) {
    PW_ASSIGN_OR_RETURN(initial_,
                        arena_.Take(static_cast<size_t>(parameters_) * 4));
    master_ = static_cast<float*>(initial_.data.get());
  } else {
    PW_ASSIGN_OR_RETURN(master_, NewFloats());
    PW_ASSIGN_OR_RETURN(moment1_, NewFloats());
    PW_ASSIGN_OR_RETURN(moment2_, NewFloats());
  }
  PW_ASSIGN_OR_RETURN(workspace_, arena_.Take(workspace));
  PW_ASSIGN_OR_RETURN(targets_, arena_.Take(IdsBytes()));
  PW_ASSIGN_OR_RETURN(token_losses_,
                      arena_.Take(static_cast<size_t>(tokens()) * 4));
  PW_ASSIGN_OR_RETURN(sums_, arena_.Take(2 * sizeof(double)));
  PW_ASSIGN_OR_RETURN(host_ids_, NewPinned(IdsBytes()));
  PW_ASSIGN_OR_RETURN(host_targets_, NewPinned(IdsBytes()));
  PW_ASSIGN_OR_RETURN(host_losses_,
                      NewPinned(static_cast<size_t>(tokens()) * 4));
  for (const Part& part : parts_) {
    PW_RETURN_IF_ERROR(Check(
        pw_initialize(&kernels, handle_.device, handle_.stream, &model_.shape,
                      part.spec.part, model_.SeedOf(part.spec),
                      master_ + part.offset, nullptr),
        "initial weights"));
  }
  if (counted_ < parameters_) PW_RETURN_IF_ERROR(InitializeCopyOfTable());
  return Publish(0, parameters_);
}

// Sizes of a part, and where samples lie in its blocks.
absl::Status Stage::LayOut(Part* part, size_t* workspace) {
  const bool packed = !model_.lengths.empty();
  const auto count = packed ? static_cast<int64_t>(model_.lengths.size())
                            : int64_t{model_.slices};
  for (int64_t index = 0; index < count; ++index) {
    // Later slices see more keys.
    const std::vector<PwWork> works =
        packed ? model_.WorksOf(index, 0)
               : model_.WorksOf(0, static_cast<int>(index));
    std::vector<Place>& places = part->places.emplace_back();
    Place next;
    for (const PwWork& work : works) {
      PwPartSize size{};
      PW_RETURN_IF_ERROR(
          Check(pw_part_size(handle_.kernels, handle_.device, &model_.shape,
                             &work, part->spec.part, &size),
                "part size"));
      next.work = work;
      places.push_back(next);
      const auto add = [packed](size_t bytes, size_t* sum) {
        // What the widest loads like; one sample has the block to itself.
        constexpr size_t kAlignment = 256;
        *sum +=
            packed ? (bytes + kAlignment - 1) / kAlignment * kAlignment : bytes;
      };
      next.token += work.batch * work.slice_tokens;
      add(size.saved, &next.saved);
      add(size.inputs, &next.inputs);
      add(size.grads, &next.grads);
      *workspace = std::max(*workspace, size.workspace);
      part->size.parameters = size.parameters;
      part->size.quantized = size.quantized;
      part->size.cache = std::max(part->size.cache, size.cache);
    }
    part->size.saved = std::max(part->size.saved, next.saved);
    part->size.inputs = std::max(part->size.inputs, next.inputs);
    part->size.grads = std::max(part->size.grads, next.grads);
  }
  return absl::OkStatus();
}

absl::Status Stage::InitializeCopyOfTable() {
  const PwKernels& kernels = *handle_.kernels;
  const PwWork work = model_.WorkOf(0);
  PwPartSize size{};
  PW_RETURN_IF_ERROR(Check(pw_part_size(&kernels, handle_.device, &model_.shape,
                                        &work, PW_EMBEDDING, &size),
                           "part size"));
  PW_ASSIGN_OR_RETURN(const Payload embedding,
                      arena_.Take(static_cast<size_t>(size.parameters) * 4));
  PW_RETURN_IF_ERROR(Check(
      pw_initialize(&kernels, handle_.device, handle_.stream, &model_.shape,
                    PW_EMBEDDING, model_.SeedOf({.part = PW_EMBEDDING}),
                    static_cast<float*>(embedding.data.get()), nullptr),
      "initial weights"));
  PW_RETURN_IF_ERROR(
      Check(kernels.copy(handle_.device, handle_.stream, PW_DEVICE_TO_DEVICE,
                         master_ + table_, embedding.data.get(),
                         static_cast<size_t>(parameters_ - counted_) * 4),
            "initial weights"));
  return Check(kernels.synchronize(handle_.device, handle_.stream),
               "initial weights");
}

PwPartMemory Stage::MemoryOf(const Part& part, PartBlocks& blocks,
                             int microbatch, const Activations& activations,
                             const Payload& weights, const Place& place) {
  const size_t index = static_cast<size_t>(&part - parts_.data());
  const auto cache = caches_.find({microbatch, index});
  const char* const values = static_cast<const char*>(weights.data.get());
  const char* const copies = values + model_.WeightBytes(parameters_);
  const Payload& ids =
      part.spec.part == PW_EMBEDDING ? activations.input : targets_;
  // Only pipelines that are flushed have two stages on one rank.
  const Stage& owner = table_owner_ == nullptr ? *this : *table_owner_;
  const Payload& held = table_owner_ == nullptr ? weights : owner.weights_;
  const bool tied = model_.shape.tied != 0 && owner.table_ >= 0;
  const auto at = [](const Payload& block, size_t offset) -> void* {
    return block.data == nullptr
               ? nullptr
               : static_cast<char*>(block.data.get()) + offset;
  };
  return {.weights =
              values + static_cast<size_t>(part.offset) * model_.type_bytes(),
          .gradients = gradients_ + part.offset,
          .ids = static_cast<const int32_t*>(ids.data.get()) + place.token,
          .losses = static_cast<float*>(token_losses_.data.get()) + place.token,
          .loss_scale = 1,
          .saved = at(blocks.saved, place.saved),
          .inputs = at(blocks.inputs, place.inputs),
          .grads = at(blocks.grads, place.grads),
          .cache = cache == caches_.end() ? nullptr : cache->second.data.get(),
          .workspace = workspace_.data.get(),
          .quantized = quantized_bytes_ > 0 ? copies + part.quantized : nullptr,
          .table =
              tied ? static_cast<const char*>(held.data.get()) +
                         static_cast<size_t>(owner.table_) * model_.type_bytes()
                   : nullptr,
          .table_gradients = tied ? owner.gradients_ + owner.table_ : nullptr};
}

absl::Status Stage::FillIds(int64_t sample, int slice, bool targets,
                            const Payload& ids) {
  // A pass of an only stage has both on their way at once.
  void* const from = targets ? host_targets_.get() : host_ids_.get();
  model_.FillTokens(sample, slice, targets, static_cast<int32_t*>(from));
  return Check(
      handle_.kernels->copy(handle_.device, handle_.stream, PW_HOST_TO_DEVICE,
                            ids.data.get(), from, IdsBytes()),
      "tokens");
}

void Stage::TakeLosses() {
  if (!pending_losses_.has_value()) return;
  const float* const losses = static_cast<const float*>(host_losses_.get());
  losses_[*pending_losses_] =
      std::accumulate(losses, losses + pending_tokens_, 0.0);
  pending_losses_.reset();
}

absl::Status Stage::RunForward(Key key, Activations& activations, bool keep,
                               Payload* output) {
  const auto [microbatch, slice] = key;
  const Payload weights =
      activations.weights.bytes > 0 ? activations.weights : weights_;
  if (keep) activations.parts.resize(parts_.size());
  Payload current = activations.input;
  for (size_t index = 0; index < parts_.size(); ++index) {
    const Part& part = parts_[index];
    PartBlocks scratch;
    PartBlocks& blocks = keep ? activations.parts[index] : scratch;
    PW_ASSIGN_OR_RETURN(blocks.saved, arena_.Take(part.size.saved));
    PW_ASSIGN_OR_RETURN(blocks.inputs, arena_.Take(part.size.inputs));
    // Its logits become their own gradient.
    if (part.spec.part == PW_HEAD) {
      PW_ASSIGN_OR_RETURN(blocks.grads, arena_.Take(part.size.grads));
    }
    if (model_.slices > 1 && part.size.cache > 0 &&
        !caches_.contains({microbatch, index})) {
      // Nothing of it is read before a slice has set it.
      PW_ASSIGN_OR_RETURN(Payload cache, arena_.Take(part.size.cache));
      caches_[{microbatch, index}] = std::move(cache);
    }
    if (part.spec.part == PW_HEAD) {
      PW_RETURN_IF_ERROR(
          FillIds(activations.sample, slice, /*targets=*/true, targets_));
    }
    Payload next;
    if (part.spec.part != PW_HEAD) {
      PW_ASSIGN_OR_RETURN(next, arena_.Take(model_.BoundaryBytes()));
    }
    for (const Place& place : PlacesOf(part, activations.sample, slice)) {
      PwPartMemory memory =
          MemoryOf(part, blocks, microbatch, activations, weights, place);
      memory.input = RowsOf(current, place);
      memory.output = RowsOf(next, place);
      PW_RETURN_IF_ERROR(
          Check(pw_forward(handle_.kernels, handle_.device, handle_.stream,
                           &model_.shape, &place.work, part.spec.part, &memory),
                "forward"));
    }
    current = std::move(next);
  }
  if (last()) {
    PW_RETURN_IF_ERROR(Check(
        handle_.kernels->copy(handle_.device, handle_.stream, PW_DEVICE_TO_HOST,
                              host_losses_.get(), token_losses_.data.get(),
                              token_losses_.bytes),
        "losses"));
    pending_losses_ = key;
    pending_tokens_ = model_.TokensOf(activations.sample);
  } else if (output != nullptr) {
    *output = std::move(current);
  }
  return absl::OkStatus();
}

absl::Status Stage::Forward(Key key, int64_t sample, int behind, bool again,
                            Payload input, Payload* output) {
  PW_CHECK(behind >= 0 && static_cast<size_t>(behind) <= older_.size());
  Activations& activations = activations_[key];
  again |= model_.recompute;
  activations = {
      .sample = sample, .input = std::move(input), .runs_again = again};
  if (first()) {
    PW_ASSIGN_OR_RETURN(activations.input, arena_.Take(IdsBytes()));
    PW_RETURN_IF_ERROR(
        FillIds(sample, key.second, /*targets=*/false, activations.input));
  }
  if (predicted_.bytes > 0) {
    // The backward uses what the optimizer really makes.
    activations.weights = predicted_;
  } else {
    activations.weights =
        behind == 0 ? weights_ : older_[older_.size() - behind];
  }
  if (slices_left_.find(key.first) == slices_left_.end()) {
    slices_left_[key.first] = model_.slices;
  }
  PW_RETURN_IF_ERROR(RunForward(key, activations, !again, output));
  if (predicted_.bytes > 0) activations.weights = {};
  // What a layer or a head needs of its input it has kept.
  if (!again && !first()) activations.input = {};
  return absl::OkStatus();
}

absl::Status Stage::Recompute(Key key) {
  Activations& activations = Find(key);
  PW_RETURN_IF_ERROR(TakeLoaded(activations));
  PW_RETURN_IF_ERROR(RunForward(key, activations, true, nullptr));
  if (!first()) activations.input = {};
  activations.runs_again = false;
  return absl::OkStatus();
}

absl::Status Stage::RunBackward(Key key, Backward kind, Payload gradient,
                                float loss_scale, Payload* input_gradient) {
  Activations& activations = Find(key);
  PW_RETURN_IF_ERROR(TakeLoaded(activations));
  if (activations.runs_again) {
    PW_RETURN_IF_ERROR(Recompute(key));
  }
  const auto [microbatch, slice] = key;
  const Payload weights =
      activations.weights.bytes > 0 ? activations.weights : weights_;
  Payload current = std::move(gradient);
  for (size_t index = parts_.size(); index-- > 0;) {
    const Part& part = parts_[index];
    PartBlocks& blocks = activations.parts[index];
    if (part.spec.part != PW_HEAD) {
      PW_ASSIGN_OR_RETURN(blocks.grads, arena_.Take(part.size.grads));
    }
    if (part.spec.part == PW_HEAD) {
      PW_RETURN_IF_ERROR(
          FillIds(activations.sample, slice, /*targets=*/true, targets_));
    }
    Payload next;
    if (part.spec.part != PW_EMBEDDING) {
      PW_ASSIGN_OR_RETURN(next, arena_.Take(model_.BoundaryBytes()));
    }
    const auto run =
        kind == Backward::kFull ? pw_backward_full : pw_backward_input;
    for (const Place& place : PlacesOf(part, activations.sample, slice)) {
      PwPartMemory memory =
          MemoryOf(part, blocks, microbatch, activations, weights, place);
      memory.loss_scale = loss_scale;
      memory.output_gradient = RowsOf(current, place);
      memory.input_gradient = RowsOf(next, place);
      PW_RETURN_IF_ERROR(
          Check(run(handle_.kernels, handle_.device, handle_.stream,
                    &model_.shape, &place.work, part.spec.part, &memory),
                "backward"));
    }
    blocks.saved = {};
    if (kind == Backward::kFull) blocks = {};
    current = std::move(next);
  }
  if (--slices_left_[microbatch] == 0) {
    slices_left_.erase(microbatch);
    for (size_t index = 0; index < parts_.size(); ++index) {
      caches_.erase({microbatch, index});
    }
  }
  if (kind == Backward::kFull) activations_.erase(key);
  if (input_gradient != nullptr) *input_gradient = std::move(current);
  return absl::OkStatus();
}

absl::Status Stage::BackwardInput(Key key, Payload gradient, float loss_scale,
                                  Payload* input_gradient) {
  return RunBackward(key, Backward::kInput, std::move(gradient), loss_scale,
                     input_gradient);
}

absl::Status Stage::BackwardFull(Key key, Payload gradient, float loss_scale,
                                 Payload* input_gradient) {
  return RunBackward(key, Backward::kFull, std::move(gradient), loss_scale,
                     input_gradient);
}

absl::Status Stage::BackwardWeight(Key key) {
  Activations& activations = Find(key);
  for (size_t index = parts_.size(); index-- > 0;) {
    const Part& part = parts_[index];
    PartBlocks& blocks = activations.parts[index];
    for (const Place& place : PlacesOf(part, activations.sample, key.second)) {
      PwPartMemory memory =
          MemoryOf(part, blocks, key.first, activations, weights_, place);
      PW_RETURN_IF_ERROR(
          Check(pw_backward_weight(handle_.kernels, handle_.device,
                                   handle_.stream, &model_.shape, &place.work,
                                   part.spec.part, &memory),
                "backward weight"));
    }
    blocks = {};
  }
  activations_.erase(key);
  return absl::OkStatus();
}

Stage::Activations& Stage::Find(Key key) {
  const auto found = activations_.find(key);
  PW_CHECK(found != activations_.end());
  return found->second;
}

void Stage::DropActivations() {
  activations_.clear();
  caches_.clear();
  slices_left_.clear();
  losses_.clear();
  pending_losses_.reset();
}

}  // namespace pipewright

#include "tests/support/kernel_pass_run.h"

#include "kernels/random.h"
#include "tests/support/kernel_checks.h"

namespace pipewright {

const char* PassOrderName(PassOrder order) {
  switch (order) {
    case PassOrder::kSplit:
      return "B and W again";
    case PassOrder::kFull:
      return "BW";
    case PassOrder::kRecompute:
      return "R, B, W";
    default:
      return "deferred W";
  }
}

PassRun::PassRun(KernelRig* rig, const PwModel& model, const PwWork& work,
                 int64_t slices, PwPart part, uint64_t seed)
    : rig_(rig),
      model_(model),
      work_(work),
      slices_(slices),
      part_(part),
      seed_(seed) {
  PwPartSize size{};
  char reason[256] = "";
  rig->Ok(pw_check_model(&model, &work, reason, sizeof(reason)),
          std::string("pw_check_model: ") + reason);
  rig->Ok(
      pw_part_size(rig->kernels(), rig->device(), &model, &work, part, &size),
      "pw_part_size");
  // A refusal is noted above; without sizes there is nothing to draw.
  if (size.parameters == 0) return;
  reference_.weights.assign(size.parameters, 0);
  PwTensor tensors[PW_MAX_TENSORS];
  const int32_t count = pw_part_tensors(&model, part, tensors);
  for (int32_t index = 0; index < count; ++index) {
    const PwTensor& tensor = tensors[index];
    const Values drawn = RandomValues(tensor.rows * tensor.columns,
                                      pw_random_bits(seed, index), 0.25);
    for (size_t element = 0; element < drawn.size(); ++element) {
      reference_.weights[tensor.offset + element] =
          Rounded(tensor.mean + drawn[element], model.type);
    }
  }
  const int64_t tokens = work.batch * work.sequence;
  const int64_t rows = model.sequence_parallel ? tokens / model.tp : tokens;
  SetInput(RandomValues(rows * model.hidden, seed + 1000, 1));
  SetOutputGradient(RandomValues(rows * model.hidden, seed + 2000, 1));
  for (int64_t token = 0; token < tokens; ++token) {
    reference_.ids.push_back(
        pw_random_id(seed + 3000, token, model.vocabulary / model.tp));
  }
  start_ = RandomValues(size.parameters, seed + 4000, 0.125);
}

void PassRun::SetInput(const Values& input) {
  reference_.input = input;
  for (double& value : reference_.input) value = Rounded(value, model_.type);
}

void PassRun::SetOutputGradient(const Values& gradient) {
  reference_.output_gradient = gradient;
  for (double& value : reference_.output_gradient) {
    value = Rounded(value, model_.type);
  }
}

Values PassRun::Cut(const Values& whole, int64_t index, int64_t columns) const {
  if (slices_ == 1) return whole;
  const int64_t length = work_.sequence / slices_;
  Values part;
  for (int64_t sequence = 0; sequence < work_.batch; ++sequence) {
    const auto start =
        whole.begin() + (sequence * work_.sequence + index * length) * columns;
    part.insert(part.end(), start, start + length * columns);
  }
  return part;
}

void PassRun::Paste(const Values& part, int64_t index, int64_t columns,
                    Values* whole) const {
  if (slices_ == 1) {
    *whole = part;
    return;
  }
  const int64_t length = work_.sequence / slices_;
  whole->resize(work_.batch * work_.sequence * columns);
  for (int64_t sequence = 0; sequence < work_.batch; ++sequence) {
    std::copy_n(part.begin() + sequence * length * columns, length * columns,
                whole->begin() +
                    (sequence * work_.sequence + index * length) * columns);
  }
}

// With sequence_parallel the rows of other devices are taken to be 0; all else
// starts as NaNs.
void* PassRun::Blank(size_t bytes) {
  void* memory = rig_->Space(bytes);
  if (model_.sequence_parallel) rig_->Fill(memory, bytes, 0);
  return memory;
}

void PassRun::Spoil(void* memory, size_t bytes) {
  rig_->Fill(memory, bytes, 0xff);
}

PassRun::Slice PassRun::MakeSlice(int64_t index, void* gradients, void* cache) {
  Slice slice{};
  const int64_t length = work_.sequence / slices_;
  slice.work = {work_.batch, work_.sequence, index * length, length};
  rig_->Ok(pw_part_size(rig_->kernels(), rig_->device(), &model_, &slice.work,
                        part_, &slice.size),
           "pw_part_size");
  PwPartMemory& memory = slice.memory;
  Values weights = reference_.weights;
  memory.weights = rig_->Put(&weights, model_.type);
  if (slice.size.quantized > 0) {
    void* quantized = rig_->Space(slice.size.quantized);
    rig_->Ok(pw_quantize_weights(rig_->kernels(), rig_->device(), nullptr,
                                 &model_, part_, memory.weights, quantized),
             "pw_quantize_weights");
    memory.quantized = quantized;
  }
  memory.gradients = static_cast<float*>(gradients);
  Values input = Cut(reference_.input, index, model_.hidden);
  Values gradient = Cut(reference_.output_gradient, index, model_.hidden);
  slice.input = rig_->Put(&input, model_.type);
  memory.input = slice.input;
  memory.output = rig_->Space(slice.size.boundary);
  memory.output_gradient = rig_->Put(&gradient, model_.type);
  memory.input_gradient = rig_->Space(slice.size.boundary);
  const Values whole(reference_.ids.begin(), reference_.ids.end());
  const Values ids = Cut(whole, index, 1);
  memory.ids = static_cast<const int32_t*>(
      rig_->PutIds(std::vector<int32_t>(ids.begin(), ids.end())));
  memory.losses = static_cast<float*>(rig_->Space(ids.size(), PW_FP32));
  memory.loss_scale = static_cast<float>(reference_.loss_scale);
  memory.saved = Blank(slice.size.saved);
  memory.inputs = Blank(slice.size.inputs);
  memory.grads = Blank(slice.size.grads);
  memory.cache = cache;
  memory.workspace = rig_->Space(slice.size.workspace);
  return slice;
}

void PassRun::Forward(Slice* slice) {
  rig_->Ok(pw_forward(rig_->kernels(), rig_->device(), nullptr, &model_,
                      &slice->work, part_, &slice->memory),
           "pw_forward");
  Spoil(slice->memory.workspace, slice->size.workspace);
}

void PassRun::Backward(Slice* slice, PassOrder order) {
  const auto pass =
      order == PassOrder::kFull ? pw_backward_full : pw_backward_input;
  rig_->Ok(pass(rig_->kernels(), rig_->device(), nullptr, &model_, &slice->work,
                part_, &slice->memory),
           "B or BW");
  Spoil(slice->memory.workspace, slice->size.workspace);
  Spoil(slice->memory.saved, slice->size.saved);
}

void PassRun::Weight(Slice* slice) {
  rig_->Ok(pw_backward_weight(rig_->kernels(), rig_->device(), nullptr, &model_,
                              &slice->work, part_, &slice->memory),
           "pw_backward_weight");
}

PassOutcome PassRun::Run(PassOrder order) {
  if (reference_.weights.empty()) return {};  // refused
  Values start = start_;
  void* gradients = rig_->Put(&start, PW_FP32);
  std::vector<Slice> slices;
  void* cache = nullptr;
  for (int64_t index = 0; index < slices_; ++index) {
    slices.push_back(MakeSlice(index, gradients, cache));
    if (cache == nullptr) cache = rig_->Space(slices[0].size.cache);
    slices[index].memory.cache = cache;
  }
  PassOutcome outcome;
  outcome.grads.resize(slices_);
  if (slices[0].size.quantized > 0) {
    outcome.quantized =
        rig_->Bytes(slices[0].memory.quantized, slices[0].size.quantized);
  }
  const auto keep = [&](const void* memory, size_t bytes) {
    const std::vector<uint8_t> content = rig_->Bytes(memory, bytes);
    outcome.bits.insert(outcome.bits.end(), content.begin(), content.end());
  };
  for (int64_t index = 0; index < slices_; ++index) {
    Slice& slice = slices[index];
    Forward(&slice);
    outcome.inputs.push_back(
        rig_->Bytes(slice.memory.inputs, slice.size.inputs));
    const int64_t rows =
        slice.size.boundary / model_.hidden / (model_.type == PW_FP32 ? 4 : 2);
    if (part_ == PW_HEAD) {
      const int64_t tokens = work_.batch * slice.work.slice_tokens;
      Paste(rig_->Get(slice.memory.losses, tokens, PW_FP32), index, 1,
            &outcome.losses);
      keep(slice.memory.losses, tokens * sizeof(float));
    } else {
      Paste(rig_->Get(slice.memory.output, rows * model_.hidden, model_.type),
            index, model_.hidden, &outcome.output);
      keep(slice.memory.output, slice.size.boundary);
    }
    if (order == PassOrder::kRecompute) {
      Spoil(slice.memory.saved, slice.size.saved);
      // Rows of other devices survive in it.
      if (!model_.sequence_parallel) {
        Spoil(slice.memory.inputs, slice.size.inputs);
      }
    } else {
      Spoil(slice.input, slice.size.boundary);
      Spoil(slice.memory.output, slice.size.boundary);
    }
  }
  for (int64_t index = slices_ - 1; index >= 0; --index) {
    Slice& slice = slices[index];
    if (order == PassOrder::kRecompute) Forward(&slice);
    Backward(&slice, order);
    outcome.grads[index] = rig_->Bytes(slice.memory.grads, slice.size.grads);
    if (part_ != PW_EMBEDDING) {
      const int64_t count =
          slice.size.boundary / (model_.type == PW_FP32 ? 4 : 2);
      Paste(rig_->Get(slice.memory.input_gradient, count, model_.type), index,
            model_.hidden, &outcome.input_gradient);
      keep(slice.memory.input_gradient, slice.size.boundary);
    }
    if (order == PassOrder::kSplit || order == PassOrder::kRecompute) {
      Weight(&slice);
    }
  }
  if (order == PassOrder::kDeferred) {
    for (Slice& slice : slices) Weight(&slice);
  }
  outcome.gradients = rig_->Get(gradients, start.size(), PW_FP32);
  keep(gradients, start.size() * sizeof(float));
  for (size_t index = 0; index < start.size(); ++index) {
    outcome.gradients[index] -= start[index];
  }
  return outcome;
}

}  // namespace pipewright

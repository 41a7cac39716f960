#include "execute/train/executed_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/random.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Apart from the seeds of weights, which are small.
constexpr uint64_t kTokenSeed = uint64_t{1} << 40;

}  // namespace

size_t ExecutedModel::BoundaryBytes() const {
  return static_cast<size_t>(batch * slice_tokens() * shape.hidden) *
         type_bytes();
}

int64_t ExecutedModel::TableElements() const {
  PwTensor tensors[PW_MAX_TENSORS];
  const int32_t count = pw_part_tensors(&shape, PW_EMBEDDING, tensors);
  const int64_t size = tensors[0].rows * tensors[0].columns;
  return count > 1 ? tensors[1].offset : (size + 31) / 32 * 32;
}

uint64_t ExecutedModel::SeedOf(const StagePart& part) const {
  const uint64_t place = part.part == PW_EMBEDDING ? 0
                         : part.part == PW_HEAD
                             ? 1
                             : 2 + static_cast<uint64_t>(part.layer);
  return seed * 65536 + place;
}

std::vector<PwWork> ExecutedModel::WorksOf(int64_t sample, int slice) const {
  if (lengths.empty()) return {WorkOf(slice)};
  std::vector<PwWork> works;
  for (const int64_t length : lengths[sample % lengths.size()]) {
    works.push_back({.batch = 1, .sequence = length, .slice_tokens = length});
  }
  return works;
}

int64_t ExecutedModel::TokensOf(int64_t sample) const {
  int64_t tokens = 0;
  for (const PwWork& work : WorksOf(sample, 0)) {
    tokens += work.batch * work.slice_tokens;
  }
  return tokens;
}

void ExecutedModel::FillTokens(int64_t sample, int slice, bool targets,
                               int32_t* ids) const {
  const uint64_t stream =
      kTokenSeed + seed * 1048576 + static_cast<uint64_t>(sample);
  int64_t begin = targets ? 1 : 0;  // in a sequence, which has one token more
  for (const PwWork& work : WorksOf(sample, slice)) {
    for (int64_t row = 0; row < work.batch; ++row) {
      for (int64_t token = 0; token < work.slice_tokens; ++token) {
        const int64_t place = begin + work.slice_first + token;
        *ids++ = pw_random_id(stream, static_cast<uint64_t>(place),
                              static_cast<int32_t>(shape.vocabulary));
      }
      begin += work.sequence + 1;
    }
  }
}

absl::Status CheckExecutedModel(const ExecutedModel& model) {
  if (model.slices < 1 || model.sequence % model.slices != 0) {
    return BadValue(
        "strategy.slices", absl::StrCat(model.slices),
        absl::StrCat("divisors of the sequence's ", model.sequence, " tokens"));
  }
  const size_t microbatches = std::max<size_t>(1, model.lengths.size());
  for (size_t sample = 0; sample < microbatches; ++sample) {
    for (const PwWork& work : model.WorksOf(static_cast<int64_t>(sample), 0)) {
      char reason[256] = "";
      if (pw_check_model(&model.shape, &work, reason, sizeof(reason)) ==
          PW_OK) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat("model: ", reason));
    }
  }
  if (model.shape.tp != 1) {
    return BadValue("strategy.tp", absl::StrCat(model.shape.tp),
                    "1 (the executor runs no tensor parallelism)");
  }
  for (size_t stage = 0; stage < model.stages.size(); ++stage) {
    if (!model.stages[stage].empty()) continue;
    return BadValue("strategy.layers", absl::StrCat("nothing on stage ", stage),
                    "at least one layer, embedding or head a stage");
  }
  return absl::OkStatus();
}

std::vector<std::vector<StagePart>> EvenStages(int layers, int stages) {
  std::vector<std::vector<StagePart>> out(stages);
  out.front().push_back({.part = PW_EMBEDDING});
  int layer = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const int end = layers * (stage + 1) / stages;
    for (; layer < end; ++layer) {
      out[stage].push_back({.part = PW_LAYER, .layer = layer});
    }
  }
  out.back().push_back({.part = PW_HEAD});
  return out;
}

}  // namespace pipewright

// The step that a worker takes between passes: norms, validation, roll-back,
// and what an iteration leaves. model_worker_groups.cc has what it shares.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/train/model_worker.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {

// Sharded gradients come together where the step takes them.
absl::Status ModelWorker::Assemble() {
  for (const auto& [key, sums] : shard_sums_) {
    PW_RETURN_IF_ERROR(Assemble(key));
  }
  return absl::OkStatus();
}

// Once after each reduction: without one the stage may still be adding up, or
// a thread may be copying what is there.
absl::Status ModelWorker::Assemble(StageKey key) {
  if (stale_[key] || not_assembled_.erase(key) == 0) return absl::OkStatus();
  const std::vector<float>& sums = shard_sums_.at(key);
  Stage& stage = *stages_.at(key);
  const auto [begin, end] = OwnShard(stage);
  PW_RETURN_IF_ERROR(
      Failed(handle_.kernels->copy(handle_.device, handle_.stream,
                                   PW_HOST_TO_DEVICE, stage.gradients() + begin,
                                   sums.data(), sums.size() * 4),
             "shard"));
  return Failed(handle_.kernels->synchronize(handle_.device, handle_.stream),
                "shard");
}

// Each stage counts once: both directions hold the same after the reduction,
// and each data-parallel replica has its shard.
absl::Status ModelWorker::LocalNorm(NormState* state) {
  PW_RETURN_IF_ERROR(Assemble());
  for (auto& [key, stage] : stages_) {
    if (key.second != 0) continue;
    const auto [begin, end] = OwnShard(*stage);
    double sums[2] = {0, 0};
    PW_RETURN_IF_ERROR(stage->SquareSum(std::min(begin, stage->counted()),
                                        std::min(end, stage->counted()), sums));
    state->squares += sums[0];
    state->not_finite += sums[1];
  }
  return absl::OkStatus();
}

absl::Status ModelWorker::PartialNorm() {
  if (has_partial_) return absl::OkStatus();
  partial_ = above_;
  PW_RETURN_IF_ERROR(LocalNorm(&partial_));
  has_partial_ = true;
  if (self_.rank + 1 == program_.pp()) full_ = partial_;
  return absl::OkStatus();
}

// Messages come down the ranks with what is known so far and go up again with
// everything.
void ModelWorker::TakeSideInput(int32_t, int32_t channel, Payload payload) {
  const Channel& link = own().channels[channel];
  if (link.kind != ChannelKind::kMessage || payload.bytes == 0) return;
  NormState& state = link.from_rank < self_.rank ? above_ : full_;
  std::memcpy(&state, payload.data.get(), sizeof(state));
}

Payload ModelWorker::GiveSideOutput(int32_t side_op, int32_t channel) {
  // A turn on a PCIe switch says nothing but that it has come.
  const SideOp& op = OpOf(side_op);
  if (op.kind == OpKind::kWait &&
      (op.stream == Stream::kD2H || op.stream == Stream::kH2D)) {
    return {};
  }
  const Channel& link = own().channels[channel];
  if (link.to_rank < self_.rank) return PayloadOf(full_);
  failed_.Update(PartialNorm());
  return PayloadOf(partial_);
}

float ModelWorker::ClipScale(int iteration, const NormState& state) const {
  const double norm = std::sqrt(state.squares);
  const double limit = model_.NormLimit(iteration, norm, model_.clip_norm);
  return limit <= 0 || norm <= limit ? 1.0f : static_cast<float>(limit / norm);
}

absl::StatusOr<double> ModelWorker::RunSideOp(int32_t side_op,
                                              const Start& start) {
  PW_RETURN_IF_ERROR(failed_);
  start_ = start;
  if (host_step_ != nullptr && host_step_->Has(side_op)) {
    return RunHostStep(side_op);
  }
  const SideOp& op = OpOf(side_op);
  switch (op.kind) {
    case OpKind::kOptimizer:
      if (start.is_false) {
        // The step of the iteration before once more, as it should have been.
        const float scale = ClipScale(start.iteration - 1, full_);
        return Timed([&] { return StepAll(steps_ + 1, scale); });
      }
      if (!program_.false_starts.empty() || options_.post_validated) {
        PW_RETURN_IF_ERROR(PartialNorm());
        for (auto& [key, stage] : stages_) PW_RETURN_IF_ERROR(stage->Save());
        return Timed([&] { return StepAll(steps_ + 1, 1); });
      }
      PW_RETURN_IF_ERROR(Assemble());
      if (options_.keeps_first_step && steps_ == 0) {
        PW_RETURN_IF_ERROR(KeepFirstStep());
      }
      return Timed([&] {
        return StepAll(steps_ + 1, options_.synchronised
                                       ? ClipScale(start.iteration, full_)
                                       : 1);
      });
    case OpKind::kValidate: {
      if (options_.alone) return 0.0;
      const bool fails =
          full_.not_finite > 0 || ClipScale(start.iteration - 1, full_) < 1;
      if (fails == start.is_false) return 0.0;
      return absl::InternalError(absl::StrCat(
          "rank ", self_.rank, ": the step of iteration ", start.iteration - 1,
          fails ? " fails its validation (norm " : " holds (norm ",
          std::sqrt(full_.squares), ", values not finite ", full_.not_finite,
          "), which the program does not expect; see "
          "strategy.rollback_iterations"));
    }
    case OpKind::kRollback:
      --steps_;
      return Timed([&]() -> absl::Status {
        for (auto& [key, stage] : stages_) {
          PW_RETURN_IF_ERROR(stage->Restore());
        }
        return absl::OkStatus();
      });
    case OpKind::kPredict: {
      // As many steps as lie between this forward and its backward.
      const auto ahead = static_cast<int>(rank().later_start);
      return Timed([&]() -> absl::Status {
        for (auto& [key, stage] : stages_) {
          PW_RETURN_IF_ERROR(stage->Predict(steps_, ahead));
        }
        return absl::OkStatus();
      });
    }
    default:
      return 0.0;
  }
}

absl::Status ModelWorker::StepAll(int64_t step, float scale) {
  steps_ = step;
  has_partial_ = false;
  for (auto& [key, stage] : stages_) {
    const auto [begin, end] = OwnShard(*stage);
    PW_RETURN_IF_ERROR(stage->Step(step, scale, begin, end));
    stale_[key] = true;
  }
  for (auto& [key, sums] : shard_sums_) {
    std::fill(sums.begin(), sums.end(), 0.0f);
  }
  not_assembled_.clear();
  PW_RETURN_IF_ERROR(ForgetOthers());
  return ShowWeights();
}

// Parameters of others are as old as the last gather: a forward that does not
// wait for the next one shall fail its check.
absl::Status ModelWorker::ForgetOthers() {
  if (options_.alone) return absl::OkStatus();
  for (const auto& [key, sums] : shard_sums_) {
    Stage& stage = *stages_.at(key);
    const auto [begin, end] = OwnShard(stage);
    PW_RETURN_IF_ERROR(stage.ForgetOthers(begin, end));
  }
  return absl::OkStatus();
}

absl::Status ModelWorker::EndIteration(int iteration) {
  PW_RETURN_IF_ERROR(failed_);
  for (auto& [key, stage] : stages_) {
    for (const auto& [microbatch, loss] : stage->losses()) {
      record_.loss_sum[iteration] += loss;
    }
    stage->ForgetLosses();
  }
  PW_RETURN_IF_ERROR(EndHostStep());
  PW_RETURN_IF_ERROR(TakeSnapshots(iteration));
  for (auto& [key, stage] : stages_) stale_[key] = true;
  for (auto& [key, sums] : shard_sums_) {
    std::fill(sums.begin(), sums.end(), 0.0f);
  }
  not_assembled_.clear();
  return absl::OkStatus();
}

bool ModelWorker::WantsSnapshot(int iteration) const {
  const std::vector<int>& wanted = options_.snapshot_iterations;
  return std::find(wanted.begin(), wanted.end(), iteration) != wanted.end();
}

// Without a step nothing holds the next backward back from gradients that are
// still being reduced.
bool ModelWorker::WantsAllEnded(int iteration) const {
  return !steps_weights_ || WantsSnapshot(iteration);
}

absl::Status ModelWorker::TakeSnapshots(int iteration) {
  if (!WantsSnapshot(iteration)) return absl::OkStatus();
  PW_RETURN_IF_ERROR(Assemble());
  return TakeSnapshots(iteration, &record_.snapshots);
}

absl::Status ModelWorker::KeepFirstStep() {
  for (const auto& [key, stage] : stages_) {
    for (const auto& [microbatch, loss] : stage->losses()) {
      record_.first_loss_sum += loss;
    }
  }
  return TakeSnapshots(0, &record_.first_step);
}

absl::Status ModelWorker::TakeSnapshots(int iteration,
                                        std::vector<StageSnapshot>* snapshots) {
  for (auto& [key, stage] : stages_) {
    StageSnapshot snapshot = {.iteration = iteration,
                              .stage = key.first,
                              .bidirectional = key.second};
    const auto count = static_cast<size_t>(stage->parameters());
    snapshot.gradients.resize(count);
    snapshot.weights.resize(count);
    const std::pair<std::vector<float>*, const float*> sources[] = {
        {&snapshot.gradients, stage->gradients()},
        {&snapshot.weights, stage->master()}};
    for (const auto& [host, device] : sources) {
      if (device == nullptr) continue;  // CopyHostMaster below
      PW_RETURN_IF_ERROR(
          Failed(handle_.kernels->copy(handle_.device, handle_.stream,
                                       PW_DEVICE_TO_HOST, host->data(), device,
                                       count * 4),
                 "snapshot"));
    }
    PW_RETURN_IF_ERROR(
        Failed(handle_.kernels->synchronize(handle_.device, handle_.stream),
               "snapshot"));
    std::tie(snapshot.begin, snapshot.end) = OwnShard(*stage);
    PW_RETURN_IF_ERROR(CopyHostMaster(key.first, &snapshot));
    snapshots->push_back(std::move(snapshot));
  }
  return absl::OkStatus();
}

}  // namespace pipewright

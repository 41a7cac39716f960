// What a worker does between passes: reduction and gathering, norms, the step,
// its validation and roll-back.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/model_worker.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// A failing step's limit, as part of its norm.
constexpr double kFailingLimit = 1e-3;

template <class T>
Payload ValuePayload(const T& value) {
  auto owner = std::make_shared<T>(value);
  return {.data = std::shared_ptr<void>(owner, owner.get()),
          .bytes = sizeof(T)};
}

}  // namespace

std::pair<int64_t, int64_t> ModelWorker::ShardOf(const Stage& stage, int member,
                                                 int members) const {
  const int64_t size = stage.parameters();
  return {size * member / members, size * (member + 1) / members};
}

std::pair<int64_t, int64_t> ModelWorker::OwnShard(const Stage& stage) const {
  if (!options_.sharded_step) return {0, stage.parameters()};
  return ShardOf(stage, self_.replica, program_.replicas);
}

// A middle rank of a bidirectional schedule may hold both copies of a stage.
std::vector<Stage*> ModelWorker::StagesOfOp(const SideOp& op) {
  std::vector<Stage*> found;
  for (auto& [key, stage] : stages_) {
    if (key.first == op.stage) found.push_back(stage.get());
  }
  return found;
}

absl::Status ModelWorker::Synchronize(const char* what) {
  return Failed(handle_.kernels->synchronize(handle_.device, handle_.stream),
                what);
}

absl::Status ModelWorker::CopyOut(const float* from, int64_t count,
                                  Payload* payload) {
  PW_ASSIGN_OR_RETURN(*payload, arena_->Take(static_cast<size_t>(count) * 4));
  return Failed(
      handle_.kernels->copy(handle_.device, handle_.stream, PW_DEVICE_TO_DEVICE,
                            payload->data.get(), from, payload->bytes),
      "copy");
}

Payload ModelWorker::GivePart(int32_t side_op, int, int to, int members) {
  const SideOp& op = OpOf(side_op);
  Payload payload;
  if (op.stage < 0) {
    if (op.kind != OpKind::kAllReduce) return payload;
    NormState state;
    failed_.Update(LocalNorm(&state));
    return ValuePayload(state);
  }
  const std::vector<Stage*> stages = StagesOfOp(op);
  Stage& stage = *stages[0];
  switch (op.kind) {
    case OpKind::kAllReduce:
      failed_.Update(CopyOut(stage.gradients(), stage.parameters(), &payload));
      for (size_t copy = 1; copy < stages.size(); ++copy) {
        failed_.Update(Failed(handle_.kernels->accumulate(
                                  handle_.device, handle_.stream,
                                  stage.parameters(), stages[copy]->gradients(),
                                  static_cast<float*>(payload.data.get())),
                              "accumulate"));
      }
      break;
    case OpKind::kReduceScatter: {
      const auto [begin, end] = ShardOf(stage, to, members);
      failed_.Update(CopyOut(stage.gradients() + begin, end - begin, &payload));
      // What has been given is in the sum of somebody.
      if (to + 1 == members) failed_.Update(stage.ZeroGradients());
      break;
    }
    case OpKind::kAllGather: {
      const auto [begin, end] = OwnShard(stage);
      failed_.Update(CopyOut(stage.master() + begin, end - begin, &payload));
      break;
    }
    default:
      break;
  }
  failed_.Update(Failed(
      handle_.kernels->synchronize(handle_.device, handle_.stream), "part"));
  return payload;
}

// In the order of the members, so that all of them get the same bits.
absl::Status ModelWorker::SumParts(const std::vector<Payload>& parts,
                                   float* into) {
  const auto count = static_cast<int64_t>(parts[0].bytes / 4);
  PW_RETURN_IF_ERROR(Failed(
      handle_.kernels->copy(handle_.device, handle_.stream, PW_DEVICE_TO_DEVICE,
                            into, parts[0].data.get(), parts[0].bytes),
      "reduce"));
  for (size_t member = 1; member < parts.size(); ++member) {
    PW_RETURN_IF_ERROR(
        Failed(handle_.kernels->accumulate(
                   handle_.device, handle_.stream, count,
                   static_cast<const float*>(parts[member].data.get()), into),
               "reduce"));
  }
  return absl::OkStatus();
}

absl::Status ModelWorker::TakeParts(int32_t side_op, int,
                                    const std::vector<Payload>& parts) {
  PW_RETURN_IF_ERROR(failed_);
  const SideOp& op = OpOf(side_op);
  if (op.stage < 0) {
    if (op.kind != OpKind::kAllReduce) return absl::OkStatus();
    full_ = {};
    for (const Payload& part : parts) {
      const auto& state = *static_cast<const NormState*>(part.data.get());
      full_.squares += state.squares;
      full_.not_finite += state.not_finite;
    }
    return absl::OkStatus();
  }
  const std::vector<Stage*> stages = StagesOfOp(op);
  Stage& stage = *stages[0];
  switch (op.kind) {
    case OpKind::kAllReduce:
      for (Stage* const each : stages) {
        PW_RETURN_IF_ERROR(SumParts(parts, each->gradients()));
      }
      break;
    case OpKind::kReduceScatter: {
      // Without a collective of its own data the reduction of several blocks
      // adds up here.
      Payload sum;
      PW_ASSIGN_OR_RETURN(sum, arena_->Take(parts[0].bytes));
      PW_RETURN_IF_ERROR(SumParts(parts, static_cast<float*>(sum.data.get())));
      std::vector<float>& total = shard_sums_.at({op.stage, 0});
      std::vector<float> host(total.size());
      PW_RETURN_IF_ERROR(
          Failed(handle_.kernels->copy(handle_.device, handle_.stream,
                                       PW_DEVICE_TO_HOST, host.data(),
                                       sum.data.get(), sum.bytes),
                 "reduce"));
      PW_RETURN_IF_ERROR(
          Failed(handle_.kernels->synchronize(handle_.device, handle_.stream),
                 "reduce"));
      for (size_t index = 0; index < host.size(); ++index) {
        total[index] += host[index];
      }
      break;
    }
    case OpKind::kAllGather:
      for (size_t member = 0; member < parts.size(); ++member) {
        const auto [begin, end] = ShardOf(stage, static_cast<int>(member),
                                          static_cast<int>(parts.size()));
        PW_RETURN_IF_ERROR(Failed(
            handle_.kernels->copy(handle_.device, handle_.stream,
                                  PW_DEVICE_TO_DEVICE, stage.master() + begin,
                                  parts[member].data.get(),
                                  parts[member].bytes),
            "gather"));
        PW_CHECK(parts[member].bytes == static_cast<size_t>(end - begin) * 4);
      }
      PW_RETURN_IF_ERROR(stage.Publish(0, stage.parameters()));
      break;
    default:
      break;
  }
  return Failed(handle_.kernels->synchronize(handle_.device, handle_.stream),
                "collective");
}

// Sharded gradients come together where the step takes them.
absl::Status ModelWorker::Assemble() {
  for (auto& [key, sums] : shard_sums_) {
    Stage& stage = *stages_.at(key);
    const auto [begin, end] = OwnShard(stage);
    if (stale_[key]) continue;
    std::vector<float> local(sums.size());
    PW_RETURN_IF_ERROR(Failed(
        handle_.kernels->copy(handle_.device, handle_.stream, PW_HOST_TO_DEVICE,
                              stage.gradients() + begin, sums.data(),
                              sums.size() * 4),
        "shard"));
    PW_RETURN_IF_ERROR(Failed(
        handle_.kernels->synchronize(handle_.device, handle_.stream), "shard"));
  }
  return absl::OkStatus();
}

// Each stage counts once: both directions hold the same after the reduction,
// and each data-parallel replica has its shard.
absl::Status ModelWorker::LocalNorm(NormState* state) {
  PW_RETURN_IF_ERROR(Assemble());
  for (auto& [key, stage] : stages_) {
    if (key.second != 0) continue;
    const auto [begin, end] = OwnShard(*stage);
    double sums[2] = {0, 0};
    PW_RETURN_IF_ERROR(stage->SquareSum(begin, end, sums));
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
  const Channel& link = program_.channels[channel];
  if (link.kind != ChannelKind::kMessage || payload.bytes == 0) return;
  NormState& state = link.from_rank < self_.rank ? above_ : full_;
  std::memcpy(&state, payload.data.get(), sizeof(state));
}

Payload ModelWorker::GiveSideOutput(int32_t, int32_t channel) {
  const Channel& link = program_.channels[channel];
  if (link.to_rank < self_.rank) return ValuePayload(full_);
  failed_.Update(PartialNorm());
  return ValuePayload(partial_);
}

double ModelWorker::Limit(int iteration, double norm) const {
  const std::vector<int>& failing = model_.failing_steps;
  if (std::find(failing.begin(), failing.end(), iteration) != failing.end()) {
    return norm * kFailingLimit;
  }
  return model_.clip_norm;
}

float ModelWorker::ClipScale(int iteration, const NormState& state) const {
  const double norm = std::sqrt(state.squares);
  const double limit = Limit(iteration, norm);
  return limit <= 0 || norm <= limit ? 1.0f : static_cast<float>(limit / norm);
}

absl::StatusOr<double> ModelWorker::RunSideOp(int32_t side_op,
                                              const Start& start) {
  PW_RETURN_IF_ERROR(failed_);
  start_ = start;
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
      return Timed([&] {
        return StepAll(steps_ + 1, options_.synchronised
                                       ? ClipScale(start.iteration, full_)
                                       : 1);
      });
    case OpKind::kValidate: {
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
      const int ahead = program_.pp() - 1 - self_.rank;
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
    // Parameters of others are as old as the last gather: a forward that does
    // not wait for the next one shall fail its check.
    PW_RETURN_IF_ERROR(stages_.at(key)->ForgetOthers(
        OwnShard(*stages_.at(key)).first, OwnShard(*stages_.at(key)).second));
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
  PW_RETURN_IF_ERROR(TakeSnapshots(iteration));
  for (auto& [key, stage] : stages_) stale_[key] = true;
  for (auto& [key, sums] : shard_sums_) {
    std::fill(sums.begin(), sums.end(), 0.0f);
  }
  return absl::OkStatus();
}

absl::Status ModelWorker::TakeSnapshots(int iteration) {
  const std::vector<int>& wanted = options_.snapshot_iterations;
  if (std::find(wanted.begin(), wanted.end(), iteration) == wanted.end()) {
    return absl::OkStatus();
  }
  PW_RETURN_IF_ERROR(Assemble());
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
    record_.snapshots.push_back(std::move(snapshot));
  }
  return absl::OkStatus();
}

// A pull takes what the puller's stage has here; a push adds to it.
Payload ModelWorker::ServePull(Address from, int32_t side_op) {
  const SideOp& op = program_.ranks[from.rank].side_ops[side_op];
  Payload payload;
  const std::vector<Stage*> stages = StagesOfOp(op);
  if (stages.empty()) return payload;
  failed_.Update(
      CopyOut(stages[0]->master(), stages[0]->parameters(), &payload));
  failed_.Update(Synchronize("pull"));
  return payload;
}

void ModelWorker::TakePulled(int32_t side_op, Payload payload) {
  const std::vector<Stage*> stages = StagesOfOp(OpOf(side_op));
  if (stages.empty() || payload.bytes == 0) return;
  failed_.Update(
      Failed(handle_.kernels->copy(handle_.device, handle_.stream,
                                   PW_DEVICE_TO_DEVICE, stages[0]->master(),
                                   payload.data.get(), payload.bytes),
             "pull"));
  failed_.Update(stages[0]->Publish(0, stages[0]->parameters()));
  failed_.Update(Synchronize("pull"));
}

Payload ModelWorker::GivePush(int32_t side_op) {
  const std::vector<Stage*> stages = StagesOfOp(OpOf(side_op));
  Payload payload;
  if (stages.empty()) return payload;
  failed_.Update(
      CopyOut(stages[0]->gradients(), stages[0]->parameters(), &payload));
  failed_.Update(Synchronize("push"));
  return payload;
}

void ModelWorker::TakePush(Address from, int32_t side_op, Payload payload) {
  const SideOp& op = program_.ranks[from.rank].side_ops[side_op];
  const std::vector<Stage*> stages = StagesOfOp(op);
  if (stages.empty() || payload.bytes == 0) return;
  failed_.Update(Failed(
      handle_.kernels->accumulate(handle_.device, handle_.stream,
                                  stages[0]->parameters(),
                                  static_cast<const float*>(payload.data.get()),
                                  stages[0]->gradients()),
      "push"));
  failed_.Update(Synchronize("push"));
}

}  // namespace pipewright

// What a worker gives to others of its group and makes of what they give:
// collectives, pulls and pushes.
#include <utility>

#include "execute/train/model_worker.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {

Payload ModelWorker::PayloadOf(const NormState& state) {
  auto owner = std::make_shared<NormState>(state);
  return {.data = std::shared_ptr<void>(owner, owner.get()),
          .bytes = sizeof(NormState)};
}

std::pair<int64_t, int64_t> ModelWorker::ShardOf(const Stage& stage, int member,
                                                 int members) const {
  return ShardRange(stage.parameters(), member, members);
}

std::pair<int64_t, int64_t> ModelWorker::OwnShard(const Stage& stage) const {
  if (!options_.sharded_step) return {0, stage.parameters()};
  return ShardOf(stage, self_.replica, program_.replicas);
}

// A middle rank of a bidirectional schedule may hold both copies of a stage.
std::vector<Stage*> ModelWorker::StagesOf(int unit) {
  std::vector<Stage*> found;
  for (auto& [key, stage] : stages_) {
    if (key.first == unit) found.push_back(stage.get());
  }
  return found;
}

ModelWorker::Reduced ModelWorker::ReducedBy(int32_t side_op) {
  const SideOp& op = OpOf(side_op);
  Reduced reduced;
  if (!op.tied) {
    for (Stage* const stage : StagesOf(unit_of_op_[side_op])) {
      reduced.count = stage->parameters();
      reduced.gradients.push_back(stage->gradients());
    }
    return reduced;
  }
  reduced.count = model_.TableElements();
  for (auto& [key, stage] : stages_) {
    float* const table = stage->table_gradients();
    if (table != nullptr) reduced.gradients.push_back(table);
  }
  return reduced;
}

absl::Status ModelWorker::Synchronize(const char* what) {
  return Failed(handle_.kernels->synchronize(handle_.device, handle_.stream),
                what);
}

absl::Status ModelWorker::CopyOut(const void* from, size_t bytes,
                                  Payload* payload) {
  PW_ASSIGN_OR_RETURN(*payload, arena_->TakeForMessages(bytes));
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
    return PayloadOf(state);
  }
  const std::vector<Stage*> stages = StagesOf(unit_of_op_[side_op]);
  Stage& stage = *stages[0];
  switch (op.kind) {
    case OpKind::kAllReduce: {
      const Reduced mine = ReducedBy(side_op);
      failed_.Update(CopyFloats(mine.gradients[0], mine.count, &payload));
      for (size_t copy = 1; copy < mine.gradients.size(); ++copy) {
        failed_.Update(Failed(
            handle_.kernels->accumulate(
                handle_.device, handle_.stream, mine.count,
                mine.gradients[copy], static_cast<float*>(payload.data.get())),
            "accumulate"));
      }
      break;
    }
    case OpKind::kReduceScatter: {
      const auto [begin, end] = ShardOf(stage, to, members);
      failed_.Update(
          CopyFloats(stage.gradients() + begin, end - begin, &payload));
      // What has been given is in the sum of somebody.
      if (to + 1 == members) failed_.Update(stage.ZeroGradients());
      break;
    }
    case OpKind::kAllGather: {
      const auto [begin, end] = OwnShard(stage);
      const Stage::Shared own = stage.SharedOf(begin, end);
      failed_.Update(CopyOut(own.data, own.bytes, &payload));
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

absl::Status ModelWorker::TakeParts(int32_t side_op, int self,
                                    const std::vector<Payload>& given) {
  PW_RETURN_IF_ERROR(failed_);
  const SideOp& op = OpOf(side_op);
  std::vector<Payload> parts = given;
  if (options_.alone && op.kind != OpKind::kAllGather) {
    for (Payload& part : parts) part = given[self];
  }
  if (op.stage < 0) {
    // What each owner has been sent is there; the other meeting is of all
    // ranks.
    if (op.kind == OpKind::kBarrier && !owners().empty() &&
        program_.groups[op.group].span == Group::Span::kReplicas) {
      return TakeSums();
    }
    if (op.kind != OpKind::kAllReduce) return absl::OkStatus();
    full_ = {};
    for (const Payload& part : parts) {
      const auto& state = *static_cast<const NormState*>(part.data.get());
      full_.squares += state.squares;
      full_.not_finite += state.not_finite;
    }
    return absl::OkStatus();
  }
  const std::vector<Stage*> stages = StagesOf(unit_of_op_[side_op]);
  Stage& stage = *stages[0];
  switch (op.kind) {
    case OpKind::kAllReduce:
      for (float* const gradients : ReducedBy(side_op).gradients) {
        PW_RETURN_IF_ERROR(SumParts(parts, gradients));
      }
      break;
    case OpKind::kReduceScatter: {
      // Without a collective of its own data the reduction of several blocks
      // adds up here.
      Payload sum;
      PW_ASSIGN_OR_RETURN(sum, arena_->TakeForMessages(parts[0].bytes));
      PW_RETURN_IF_ERROR(SumParts(parts, static_cast<float*>(sum.data.get())));
      std::vector<float>& total = shard_sums_.at({unit_of_op_[side_op], 0});
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
      not_assembled_.insert({unit_of_op_[side_op], 0});
      break;
    }
    case OpKind::kAllGather:
      for (size_t member = 0; member < parts.size(); ++member) {
        if (options_.alone && parts[member].bytes == 0) continue;
        const auto [begin, end] = ShardOf(stage, static_cast<int>(member),
                                          static_cast<int>(parts.size()));
        PW_CHECK(parts[member].bytes == stage.SharedOf(begin, end).bytes);
        PW_RETURN_IF_ERROR(
            stage.TakeShared(begin, end, parts[member].data.get()));
      }
      PW_RETURN_IF_ERROR(PublishShared(&stage));
      break;
    default:
      break;
  }
  return Failed(handle_.kernels->synchronize(handle_.device, handle_.stream),
                "collective");
}

// A pull takes what the puller's stage has here; a push adds to it.
Payload ModelWorker::ServePull(Address from, int32_t side_op) {
  const DpClass& theirs = program_.OfReplica(from.replica);
  Payload payload;
  const std::vector<Stage*> stages =
      StagesOf(theirs.ranks[from.rank].side_ops[side_op].stage);
  if (stages.empty()) return payload;
  const Stage::Shared own = stages[0]->SharedOf(0, stages[0]->parameters());
  failed_.Update(CopyOut(own.data, own.bytes, &payload));
  failed_.Update(Synchronize("pull"));
  return payload;
}

void ModelWorker::TakePulled(int32_t side_op, Payload payload) {
  const std::vector<Stage*> stages = StagesOf(unit_of_op_[side_op]);
  if (stages.empty() || payload.bytes == 0) return;
  failed_.Update(
      stages[0]->TakeShared(0, stages[0]->parameters(), payload.data.get()));
  failed_.Update(PublishShared(stages[0]));
  failed_.Update(Synchronize("pull"));
}

Payload ModelWorker::GivePush(int32_t side_op) {
  const std::vector<Stage*> stages = StagesOf(unit_of_op_[side_op]);
  Payload payload;
  if (stages.empty()) return payload;
  failed_.Update(
      CopyFloats(stages[0]->gradients(), stages[0]->parameters(), &payload));
  failed_.Update(Synchronize("push"));
  return payload;
}

void ModelWorker::TakePush(Address from, int32_t side_op, Payload payload) {
  const DpClass& theirs = program_.OfReplica(from.replica);
  const std::vector<Stage*> stages =
      StagesOf(theirs.ranks[from.rank].side_ops[side_op].stage);
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

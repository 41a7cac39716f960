// Layers that are gathered for each pass and forgotten behind it, and what a
// worker reads from owners and writes to them (owner_memory.h).
#include <algorithm>
#include <cstring>
#include <utility>

#include "execute/train/model_worker.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {

absl::Status ModelWorker::OpenOwner() {
  for (const LaneHook& hook : rank().hooks) {
    keeps_gathered_ |= hook.fires == LaneHook::Fires::kUnlessKept;
  }
  if (!rank().layers.empty()) {
    for (auto& [key, stage] : stages_) {
      const auto [begin, end] = OwnShard(*stage);
      PW_RETURN_IF_ERROR(stage->ForgetOthers(begin, end));
    }
  }
  if (options_.owners == nullptr) return absl::OkStatus();
  for (int replica = 0; replica < program_.replicas; ++replica) {
    owner_memories_.push_back(
        &options_.owners->of[replica * program_.pp() + self_.rank]);
  }
  for (const int unit : units_.OfRank(self_.rank, 0)) {
    const auto place = static_cast<int>(place_of_unit_.size());
    place_of_unit_[unit] = place;
    const auto [begin, end] = OwnShard(StageOf(unit, 0));
    PW_CHECK(end - begin ==
             owner_memories_[self_.replica]->shape().shards[place]);
  }
  PW_RETURN_IF_ERROR(ShowWeights());
  service_ = std::make_unique<OwnerService>(owner_memories_[self_.replica],
                                            options_.owner_poll_s);
  return absl::OkStatus();
}

void ModelWorker::ShareScratch() {
  std::map<StageKey, const Stage*> widest;  // [stage of the schedule, replica]
  for (const auto& [key, stage] : stages_) {
    const Stage*& most = widest[{units_.StageOf(key.first), key.second}];
    if (most == nullptr || stage->workspace_bytes() > most->workspace_bytes()) {
      most = stage.get();
    }
  }
  for (auto& [key, stage] : stages_) {
    const Stage* const most = widest[{units_.StageOf(key.first), key.second}];
    if (most != stage.get()) stage->ShareScratch(*most);
  }
}

void ModelWorker::CountOwnerBytes() {
  for (const auto& [key, sums] : shard_sums_) {
    record_.owner_bytes += sums.size() * sizeof(float);
  }
  if (owners().empty()) return;
  record_.owner_bytes += owners()[self_.replica]->shape().Bytes();
  // One push is under way at a time.
  int64_t largest = 0;
  for (const auto& [key, stage] : stages_) {
    largest = std::max(largest, stage->parameters());
  }
  record_.owner_bytes += static_cast<size_t>(largest) * sizeof(float);
}

absl::Status ModelWorker::ShowWeights() {
  if (owners().empty()) return absl::OkStatus();
  for (const auto& [unit, place] : place_of_unit_) {
    Stage& stage = StageOf(unit, 0);
    const auto [begin, end] = OwnShard(stage);
    PW_RETURN_IF_ERROR(Failed(
        handle_.kernels->copy(handle_.device, handle_.stream, PW_DEVICE_TO_HOST,
                              owners()[self_.replica]->weights(place),
                              stage.master() + begin,
                              static_cast<size_t>(end - begin) * 4),
        "weights"));
  }
  return Synchronize("weights");
}

// Nobody pushes before all have stepped.
absl::Status ModelWorker::TakeSums() {
  OwnerMemory& own = *owners()[self_.replica];
  // As in the repository: an owner knows how many requests it has been sent.
  if (own.posted() != own.added()) {
    return absl::InternalError("requests are left when all have been met");
  }
  for (const auto& [unit, place] : place_of_unit_) {
    std::vector<float>& total = shard_sums_.at({unit, 0});
    const size_t bytes = total.size() * sizeof(float);
    memcpy(total.data(), own.sums(place), bytes);
    memset(own.sums(place), 0, bytes);
    not_assembled_.insert({unit, 0});
  }
  return absl::OkStatus();
}

absl::Status ModelWorker::Reshard(Pass pass) {
  if (rank().layers.empty() || pass.kind() == PassKind::kBackwardWeight) {
    return absl::OkStatus();
  }
  if (keeps_gathered_ && !IsBackward(pass.kind())) return absl::OkStatus();
  Stage& stage = StageOf(UnitOf(pass), pass.direction());
  const auto [begin, end] = OwnShard(stage);
  return stage.ForgetOthers(begin, end);
}

// The thread has the unit's master weights, and the copy of its gradients, for
// itself: no pass of the unit runs before a pull has ended, and the gradients
// of the next microbatch begin at 0. On the CPU alone, where a stream is its
// caller's (CheckReplicas).
void ModelWorker::StartReach(int32_t side_op,
                             std::function<void(absl::Status)> ended) {
  if (owners().empty() || !failed_.ok()) return ended(failed_);
  if (OpOf(side_op).kind == OpKind::kPull) {
    BesideOf(side_op).thread->Start([this, side_op] { return Pull(side_op); },
                                    std::move(ended));
    return;
  }
  Stage& stage = StageOf(unit_of_op_[side_op], 0);
  std::vector<float> gradients(static_cast<size_t>(stage.parameters()));
  failed_.Update(Failed(
      handle_.kernels->copy(handle_.device, handle_.stream, PW_DEVICE_TO_HOST,
                            gradients.data(), stage.gradients(),
                            gradients.size() * sizeof(float)),
      "push"));
  failed_.Update(stage.ZeroGradients());
  failed_.Update(Synchronize("push"));
  if (!failed_.ok()) return ended(failed_);
  BesideOf(side_op).thread->Start(
      [this, side_op, gradients = std::move(gradients)] {
        return Push(side_op, gradients);
      },
      std::move(ended));
}

absl::Status ModelWorker::Pull(int32_t side_op) {
  const SideOp& op = OpOf(side_op);
  const int unit = unit_of_op_[side_op];
  const int place = place_of_unit_.at(unit);
  Stage& stage = StageOf(unit, 0);
  const int replicas = program_.replicas;
  for (const PeerPlan::Step& step : op.peers->steps) {
    for (const PeerPlan::Peer& peer : step.peers) {
      const int owner = op.peers->ReplicaOf(peer, self_.replica, replicas);
      const auto [begin, end] = ShardOf(stage, owner, replicas);
      PW_RETURN_IF_ERROR(Failed(
          handle_.kernels->copy(handle_.device, handle_.stream,
                                PW_HOST_TO_DEVICE, stage.master() + begin,
                                owners()[owner]->weights(place),
                                static_cast<size_t>(end - begin) * 4),
          "pull"));
    }
  }
  PW_RETURN_IF_ERROR(stage.Publish(0, stage.parameters()));
  return Synchronize("pull");
}

absl::Status ModelWorker::Push(int32_t side_op,
                               const std::vector<float>& gradients) {
  const int unit = unit_of_op_[side_op];
  Stage& stage = StageOf(unit, 0);
  // Its own part goes the same way: sums have one writer.
  std::vector<int64_t> begins;
  for (int owner = 0; owner < program_.replicas; ++owner) {
    begins.push_back(ShardOf(stage, owner, program_.replicas).first);
  }
  return PushToOwners(owners(), self_.replica, place_of_unit_.at(unit),
                      gradients.data(), begins, options_.owner_patience_s,
                      [this]() -> absl::Status {
                        if (!ends_.load(std::memory_order_relaxed)) {
                          return absl::OkStatus();
                        }
                        return absl::CancelledError("the run has ended");
                      });
}

}  // namespace pipewright

#include "execute/train/owners.h"

#include <algorithm>
#include <utility>

#include "execute/train/memory_pool.h"
#include "execute/train/units.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Size of all clients' buffers at an owner, in elements (sail-sg/odc,
// ODC_MAX_BUFFER_SIZE).
constexpr int64_t kBufferElements = int64_t{64} << 20;

}  // namespace

absl::StatusOr<std::vector<int64_t>> UnitParameters(const ExecutedModel& model,
                                                    const PwKernels* kernels,
                                                    int device_index) {
  PwDevice* opened = nullptr;
  PW_RETURN_IF_ERROR(
      KernelStatus(*kernels, kernels->open(device_index, &opened), "device"));
  const std::shared_ptr<PwDevice> device(
      opened, [kernels](PwDevice* each) { kernels->close(each); });
  std::vector<int64_t> parameters;
  for (const std::vector<StagePart>& unit : model.stages) {
    int64_t sum = 0;
    for (const StagePart& part : unit) {
      const PwWork work = model.WorksOf(0, 0)[0];
      PwPartSize size{};
      PW_RETURN_IF_ERROR(KernelStatus(
          *kernels,
          pw_part_size(kernels, opened, &model.shape, &work, part.part, &size),
          "part size"));
      sum += size.parameters;
    }
    parameters.push_back(sum);
  }
  return parameters;
}

bool HasOwners(const Program& program) {
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.kind == OpKind::kPush && op.peers != nullptr) return true;
  }
  return false;
}

std::vector<OwnerShape> OwnerShapes(const Program& program,
                                    const std::vector<int64_t>& parameters) {
  const Units units(program);
  const int replicas = program.replicas;
  std::vector<OwnerShape> shapes;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int rank = 0; rank < program.pp(); ++rank) {
      OwnerShape& shape = shapes.emplace_back();
      shape.clients = replicas;
      int64_t largest = 1;  // any owner's
      for (const int unit : units.OfRank(rank, 0)) {
        const auto [begin, end] =
            ShardRange(parameters[unit], replica, replicas);
        shape.shards.push_back(end - begin);
        largest =
            std::max(largest, (parameters[unit] + replicas - 1) / replicas);
      }
      shape.buffer =
          std::max(int64_t{1}, std::min(largest, kBufferElements / replicas));
    }
  }
  return shapes;
}

absl::StatusOr<std::shared_ptr<Owners>> MakeOwners(const Program& program,
                                                   const ExecutedModel& model,
                                                   const PwKernels* kernels,
                                                   int device_index,
                                                   ProcessGroup* job,
                                                   double timeout_s) {
  PW_ASSIGN_OR_RETURN(const std::vector<int64_t> parameters,
                      UnitParameters(model, kernels, device_index));
  std::vector<OwnerShape> shapes = OwnerShapes(program, parameters);
  std::vector<size_t> bytes;
  for (const OwnerShape& shape : shapes) bytes.push_back(shape.Bytes());
  auto owners = std::make_shared<Owners>();
  if (job == nullptr) {
    PW_ASSIGN_OR_RETURN(owners->blocks, SharedBlocks::OfThreads(bytes));
  } else {
    PW_ASSIGN_OR_RETURN(owners->blocks,
                        SharedBlocks::OfProcesses(job, timeout_s, bytes));
  }
  for (size_t index = 0; index < shapes.size(); ++index) {
    owners->of.emplace_back(std::move(shapes[index]),
                            owners->blocks->block(index));
  }
  return owners;
}

absl::Status OwnerClient::Open(const WorkerOptions& options) {
  if (options.owners == nullptr) return absl::OkStatus();
  patience_s_ = options.owner_patience_s;
  const Program& program = stages_.program();
  const int rank = stages_.self().rank;
  for (int replica = 0; replica < program.replicas; ++replica) {
    memories_.push_back(&options.owners->of[replica * program.pp() + rank]);
  }
  for (const int unit : stages_.units().OfRank(rank, 0)) {
    const auto place = static_cast<int>(place_of_unit_.size());
    place_of_unit_[unit] = place;
    const auto [begin, end] = stages_.OwnShard(stages_.at({unit, 0}));
    PW_CHECK(end - begin == own().shape().shards[place]);
  }
  PW_RETURN_IF_ERROR(ShowWeights());
  service_ = std::make_unique<OwnerService>(&own(), options.owner_poll_s);
  return absl::OkStatus();
}

size_t OwnerClient::bytes() const {
  if (!is_open()) return 0;
  // One push is under way at a time.
  int64_t largest = 0;
  for (const auto& [key, stage] : stages_.all()) {
    largest = std::max(largest, stage->parameters());
  }
  return own().shape().Bytes() + static_cast<size_t>(largest) * sizeof(float);
}

absl::Status OwnerClient::ShowWeights() {
  if (!is_open()) return absl::OkStatus();
  for (const auto& [unit, place] : place_of_unit_) {
    Stage& stage = stages_.at({unit, 0});
    const auto [begin, end] = stages_.OwnShard(stage);
    PW_RETURN_IF_ERROR(device_.Copy(
        PW_DEVICE_TO_HOST, own().weights(place), stage.master() + begin,
        static_cast<size_t>(end - begin) * 4, "weights"));
  }
  return device_.Synchronize("weights");
}

absl::Status OwnerClient::TakeSums(
    const std::function<void(int, float*)>& take) const {
  // As in the repository: an owner knows how many requests it has been sent.
  if (own().posted() != own().added()) {
    return absl::InternalError("requests are left when all have been met");
  }
  for (const auto& [unit, place] : place_of_unit_) {
    take(unit, own().sums(place));
  }
  return absl::OkStatus();
}

// The thread has the unit's master weights, and the copy of its gradients, for
// itself: no pass of the unit runs before a pull has ended, and the gradients
// of the next microbatch begin at 0. On the CPU alone, where a stream is its
// caller's (CheckReplicas).
absl::Status OwnerClient::StartReach(int32_t side_op, WorkThread::Ended ended) {
  const SideOp& op = stages_.op(side_op);
  if (op.kind == OpKind::kPull) {
    PW_RETURN_IF_ERROR(device_.OpenBeside(op.stream, "stream beside compute"));
    device_.StartBeside(
        op.stream, [this, side_op](PwStream*) { return Pull(side_op); },
        std::move(ended));
    return absl::OkStatus();
  }
  Stage& stage = stages_.at({stages_.UnitOfOp(side_op), 0});
  std::vector<float> gradients(static_cast<size_t>(stage.parameters()));
  PW_RETURN_IF_ERROR(device_.Copy(PW_DEVICE_TO_HOST, gradients.data(),
                                  stage.gradients(),
                                  gradients.size() * sizeof(float), "push"));
  PW_RETURN_IF_ERROR(stage.ZeroGradients());
  PW_RETURN_IF_ERROR(device_.Synchronize("push"));
  PW_RETURN_IF_ERROR(device_.OpenBeside(op.stream, "stream beside compute"));
  device_.StartBeside(
      op.stream,
      [this, side_op, gradients = std::move(gradients)](PwStream*) {
        return Push(side_op, gradients);
      },
      std::move(ended));
  return absl::OkStatus();
}

absl::Status OwnerClient::Pull(int32_t side_op) {
  const SideOp& op = stages_.op(side_op);
  const int unit = stages_.UnitOfOp(side_op);
  const int place = place_of_unit_.at(unit);
  Stage& stage = stages_.at({unit, 0});
  const int replicas = stages_.program().replicas;
  for (const PeerPlan::Step& step : op.peers->steps) {
    for (const PeerPlan::Peer& peer : step.peers) {
      const int owner =
          op.peers->ReplicaOf(peer, stages_.self().replica, replicas);
      const auto [begin, end] = ShardRange(stage.parameters(), owner, replicas);
      PW_RETURN_IF_ERROR(device_.Copy(PW_HOST_TO_DEVICE, stage.master() + begin,
                                      memories_[owner]->weights(place),
                                      static_cast<size_t>(end - begin) * 4,
                                      "pull"));
    }
  }
  PW_RETURN_IF_ERROR(stage.Publish(0, stage.parameters()));
  return device_.Synchronize("pull");
}

absl::Status OwnerClient::Push(int32_t side_op,
                               const std::vector<float>& gradients) {
  const int unit = stages_.UnitOfOp(side_op);
  const int64_t parameters = stages_.at({unit, 0}).parameters();
  const int replicas = stages_.program().replicas;
  // Its own part goes the same way: sums have one writer.
  std::vector<int64_t> begins;
  for (int owner = 0; owner < replicas; ++owner) {
    begins.push_back(ShardRange(parameters, owner, replicas).first);
  }
  return PushToOwners(memories_, stages_.self().replica,
                      place_of_unit_.at(unit), gradients.data(), begins,
                      patience_s_, [this]() -> absl::Status {
                        if (!device_.ends()) return absl::OkStatus();
                        return absl::CancelledError("the run has ended");
                      });
}

}  // namespace pipewright

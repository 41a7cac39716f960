#include "execute/train/owners.h"

#include <algorithm>
#include <utility>

#include "execute/train/memory_pool.h"
#include "execute/train/units.h"
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

}  // namespace pipewright

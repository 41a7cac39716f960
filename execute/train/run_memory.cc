#include "execute/train/run_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "execute/train/memory_pool.h"
#include "execute/train/owners.h"
#include "execute/train/reference.h"
#include "execute/train/units.h"
#include "sim/base/status.h"
#include "sim/program/network_time.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

constexpr int64_t kFloatBytes = 4;

class Estimate {
 public:
  Estimate(const Program& program, const ExecutedModel& model,
           const TrainingOptions& training, std::vector<int64_t> parameters)
      : program_(program),
        model_(model),
        worker_(training.worker),
        units_(program),
        plain_(std::move(parameters)),
        parameters_(plain_) {
    if (model.copies_table) parameters_.back() += model.TableElements();
    if (HasOwners(program)) owners_ = OwnerShapes(program, plain_);
  }

  // What a rank tells of the steps that are compared.
  int64_t Snapshots(int index) const {
    const int64_t steps = std::ssize(worker_.snapshot_iterations) +
                          (worker_.keeps_first_step ? 1 : 0);
    return 2 * kFloatBytes * steps * ParametersOf(index);
  }

  // With what it holds itself.
  DeviceAndHost Training(int index, DeviceAndHost needs, bool processes) const {
    const int rank = index % program_.pp();
    const DpClass& own = program_.OfReplica(index / program_.pp());
    int64_t messages =
        static_cast<int64_t>(model_.BoundaryBytes()) *
        ReservedOutputs(units_, own, rank, model_.BoundaryBytes());
    // What comes from another process is copied.
    if (processes) messages *= 2;
    needs.device += messages;
    // Master weights, gradients and moments have blocks of their own, or not.
    int64_t large = 0;
    for (int replica = 0; replica < own.schedule->directions; ++replica) {
      for (const int unit : units_.OfRank(rank, replica)) {
        const int64_t block = kFloatBytes * parameters_[unit];
        if (block > static_cast<int64_t>(MemoryPool::kLargestShared)) {
          large += 4 * block;
        }
      }
    }
    const int64_t shared = std::max<int64_t>(0, needs.device - large);
    needs.device += static_cast<int64_t>(
                        MemoryPool::SlabBytes(static_cast<size_t>(shared))) -
                    shared;
    AddCollectives(index, processes, &needs);
    if (worker_.sharded_step) {
      needs.host += kFloatBytes * ParametersOf(index) / program_.replicas;
    }
    if (owners_.empty()) return needs;
    needs.host += static_cast<int64_t>(owners_[index].Bytes());
    needs.host += kFloatBytes * *std::max_element(plain_.begin(), plain_.end());
    return needs;
  }

 private:
  int64_t ParametersOf(int index) const {
    int64_t sum = 0;
    const DpClass& own = program_.OfReplica(index / program_.pp());
    for (int replica = 0; replica < own.schedule->directions; ++replica) {
      for (const int unit : units_.OfRank(index % program_.pp(), replica)) {
        sum += parameters_[unit];
      }
    }
    return sum;
  }

  // Blocks that members give each other; those of one size are used again.
  void AddCollectives(int index, bool processes, DeviceAndHost* needs) const {
    const int self = index / program_.pp();
    const RankProgram& rank =
        program_.OfReplica(self).ranks[index % program_.pp()];
    const std::vector<int> unit_of = units_.OfSideOps(rank);
    std::map<int64_t, int64_t> most;  // [bytes] blocks
    int64_t sums = 0;
    for (size_t op = 0; op < rank.side_ops.size(); ++op) {
      const SideOp& side_op = rank.side_ops[op];
      if (!side_op.tied && (side_op.stage < 0 || unit_of[op] < 0)) continue;
      int64_t bytes = kFloatBytes * (side_op.tied ? model_.TableElements()
                                                  : parameters_[unit_of[op]]);
      int64_t members = 1;
      if (IsCollective(side_op.kind)) {
        members = std::ssize(
            GroupMembers(program_, program_.groups[side_op.group], self));
      }
      int64_t blocks = members + (processes ? members - 1 : 0);
      switch (side_op.kind) {
        case OpKind::kAllReduce:
          break;
        case OpKind::kReduceScatter:
          bytes /= members;
          ++blocks;  // their sum
          sums = std::max(sums, bytes);
          break;
        case OpKind::kAllGather:
          bytes /= members;
          break;
        case OpKind::kPull:
        case OpKind::kPush:
          if (side_op.peers != nullptr) continue;
          break;
        default:
          continue;
      }
      most[bytes] = std::max(most[bytes], blocks);
    }
    for (const auto& [bytes, blocks] : most) needs->device += bytes * blocks;
    needs->host += sums;
  }

  const Program& program_;
  const ExecutedModel& model_;
  const WorkerOptions& worker_;
  const Units units_;
  const std::vector<int64_t> plain_;  // [unit] without the copy of a table
  std::vector<int64_t> parameters_;   // [unit]
  std::vector<OwnerShape> owners_;    // [replica * pp + rank], or none
};

}  // namespace

absl::StatusOr<RunMemory> EstimateRunMemory(const Program& program,
                                            const ExecutedModel& model,
                                            const PwKernels* kernels,
                                            const TrainingOptions& training,
                                            const RunMemoryOptions& options) {
  PW_ASSIGN_OR_RETURN(std::vector<int64_t> parameters,
                      UnitParameters(model, kernels, training.device_index));
  const Estimate estimate(program, model, training, std::move(parameters));
  RunMemory memory;
  DeviceAndHost& training_part = memory[RunPart::kTraining];
  int64_t told = 0;
  bool concludes = false;
  for (const int index : options.own) {
    const DeviceAndHost rank =
        estimate.Training(index, options.ranks[index], options.processes);
    if (options.in_turn) {
      training_part.device = std::max(training_part.device, rank.device);
      training_part.host = std::max(training_part.host, rank.host);
      continue;
    }
    training_part += rank;
    told += estimate.Snapshots(index);
    concludes |= index == 0;
  }
  training_part.host += told;
  // Sent as a copy.
  int64_t kept = options.processes ? 2 * told : told;
  if (concludes && options.processes) {
    // What all have told, as it came, joined, and taken apart.
    kept = 0;
    for (int index = 0; index < program.replicas * program.pp(); ++index) {
      kept += 3 * estimate.Snapshots(index);
    }
  }
  memory[RunPart::kReference].host = kept;
  memory[RunPart::kSequential].host = kept;
  if (concludes && training.reference) {
    memory[RunPart::kReference].host +=
        ReferenceMemory(model, FirstStepMicrobatches(program));
  }
  if (concludes && training.check) {
    PW_ASSIGN_OR_RETURN(
        const SequentialBytes bytes,
        SequentialMemory(model, kernels, training.device_index,
                         SequentialOptionsFor(program, training.worker)));
    memory[RunPart::kSequential] += {bytes.device, bytes.host};
  }
  return memory;
}

}  // namespace pipewright

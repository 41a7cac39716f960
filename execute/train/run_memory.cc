#include "execute/train/run_memory.h"

#include <algorithm>
#include <set>
#include <tuple>

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

  // Beside what it holds itself.
  DeviceAndHost Beside(int index, bool processes) const {
    DeviceAndHost beside;
    const int rank = index % program_.pp();
    const DpClass& own = program_.OfReplica(index / program_.pp());
    const auto boundary = static_cast<int64_t>(model_.BoundaryBytes());
    beside.device =
        boundary * ReservedOutputs(units_, own, rank, model_.BoundaryBytes());
    // What comes from another process is copied.
    if (processes) beside.device *= 2;
    AddCollectives(index, processes, &beside);
    if (worker_.sharded_step) {
      beside.host += kFloatBytes * ParametersOf(index) / program_.replicas;
    }
    if (owners_.empty()) return beside;
    beside.host += static_cast<int64_t>(owners_[index].Bytes());
    beside.host +=
        kFloatBytes * *std::max_element(plain_.begin(), plain_.end());
    return beside;
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
  void AddCollectives(int index, bool processes, DeviceAndHost* beside) const {
    const int self = index / program_.pp();
    const RankProgram& rank =
        program_.OfReplica(self).ranks[index % program_.pp()];
    const std::vector<int> unit_of = units_.OfSideOps(rank);
    std::set<std::tuple<OpKind, int64_t, int64_t>> made;
    for (size_t op = 0; op < rank.side_ops.size(); ++op) {
      const SideOp& side_op = rank.side_ops[op];
      if (side_op.stage < 0 && !side_op.tied) continue;
      int64_t floats = side_op.tied       ? model_.TableElements()
                       : unit_of[op] >= 0 ? parameters_[unit_of[op]]
                                          : 0;
      int64_t members = 1;
      if (IsCollective(side_op.kind)) {
        members = std::ssize(
            GroupMembers(program_, program_.groups[side_op.group], self));
      }
      if (!made.insert({side_op.kind, floats, members}).second) continue;
      switch (side_op.kind) {
        case OpKind::kAllReduce:
          floats *= members + (processes ? members - 1 : 0);
          break;
        case OpKind::kReduceScatter:
          // The parts, their sum, and the sum on the host.
          beside->host += kFloatBytes * floats / members;
          floats = (processes ? 2 : 1) * floats + floats / members;
          break;
        case OpKind::kAllGather:
          floats *= processes ? 2 : 1;
          break;
        case OpKind::kPull:
        case OpKind::kPush:
          if (side_op.peers != nullptr) floats = 0;
          break;
        default:
          floats = 0;
      }
      beside->device += kFloatBytes * floats;
    }
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
    DeviceAndHost rank = options.ranks[index];
    rank += estimate.Beside(index, options.processes);
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
    // What all have told, as it came and taken apart.
    kept = 0;
    for (int index = 0; index < program.replicas * program.pp(); ++index) {
      kept += 2 * estimate.Snapshots(index);
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

#include "execute/train/model_workers.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/train/memory_pool.h"
#include "execute/train/model_worker.h"
#include "execute/train/units.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

absl::Status NameDevice(const PwKernels* kernels, int device_index,
                        TrainedRun* trained) {
  PwDevice* device = nullptr;
  PW_RETURN_IF_ERROR(
      KernelStatus(*kernels, kernels->open(device_index, &device), "device"));
  PwDeviceInfo info{};
  const absl::Status known =
      KernelStatus(*kernels, kernels->info(device, &info), "device");
  kernels->close(device);
  trained->device = info.name;
  trained->libraries = info.libraries;
  return known;
}

// What moves the data of a stage must say of which unit.
absl::Status CheckUnits(const Program& program, const Units& units) {
  for (int index = 0; index < program.num_classes(); ++index) {
    for (const RankProgram& rank : program.dp_class(index).ranks) {
      const std::vector<int> of_ops = units.OfSideOps(rank);
      for (size_t op = 0; op < of_ops.size(); ++op) {
        const SideOp& side_op = rank.side_ops[op];
        const bool moves =
            IsCollective(side_op.kind) || IsOneSided(side_op.kind);
        const bool reaches =
            !IsOneSided(side_op.kind) || side_op.peers != nullptr;
        if (!moves || side_op.stage < 0 || (reaches && of_ops[op] >= 0)) {
          continue;
        }
        return absl::InvalidArgumentError(absl::StrCat(
            "strategy.shard_blocks: the executor does not know the layer of ",
            OpKindName(side_op.kind), " ", op, " of stage ", side_op.stage,
            "; allowed: layers without strategy.shard_group and near_group"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSupported(const Program& program,
                            const ExecutedModel& model) {
  const Schedule& schedule = *program.schedule;
  const Units units(program);
  if (units.count() != model.num_stages()) {
    return absl::InvalidArgumentError(
        absl::StrCat("strategy.layers: ", model.num_stages(),
                     " stages of layers for a schedule of ", units.count()));
  }
  PW_RETURN_IF_ERROR(CheckUnits(program, units));
  if (schedule.slices != model.slices) {
    return absl::InvalidArgumentError(
        absl::StrCat("strategy.slices: ", model.slices, " for a schedule of ",
                     schedule.slices));
  }
  return CheckExecutedModel(model);
}

// A worker of each rank that leaves its record in *records[replica * pp +
// rank].
MakeWorker ModelWorkers(const Program& program, const ExecutedModel& model,
                        const PwKernels* kernels,
                        const TrainingOptions& options,
                        std::shared_ptr<Owners> owners,
                        std::vector<WorkerRecord>* records) {
  records->resize(static_cast<size_t>(program.replicas) * program.pp());
  return [&program, &model, kernels, &options, owners = std::move(owners),
          records](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
    WorkerOptions worker_options = options.worker;
    worker_options.holds = options.execute.clock == ClockKind::kVirtual;
    worker_options.faults = options.execute.faults;
    worker_options.owners = owners;
    worker_options.owner_patience_s =
        options.execute.patience * options.execute.timeout_s;
    worker_options.record =
        &(*records)[self.replica * program.pp() + self.rank];
    PW_ASSIGN_OR_RETURN(
        std::unique_ptr<ModelWorker> worker,
        ModelWorker::Create(program, self, model, kernels, options.device_index,
                            worker_options));
    PW_RETURN_IF_ERROR(worker->WarmUp());
    return worker;
  };
}

absl::Status DescribeRun(const Program& program, const PwKernels* kernels,
                         int device_index, TrainedRun* trained) {
  const int pp = program.pp();
  PW_RETURN_IF_ERROR(NameDevice(kernels, device_index, trained));
  trained->peak_activations.resize(pp);
  trained->peak_bytes.resize(pp);
  trained->resident_bytes.resize(pp);
  trained->message_bytes.resize(pp);
  trained->owner_bytes.resize(pp);
  trained->peak_host_bytes.resize(pp);
  for (size_t index = 0; index < trained->records.size(); ++index) {
    const WorkerRecord& record = trained->records[index];
    const size_t rank = index % pp;
    trained->peak_activations[rank] =
        std::max(trained->peak_activations[rank], record.peak_activations);
    trained->peak_bytes[rank] = std::max(
        trained->peak_bytes[rank], static_cast<double>(record.peak_bytes));
    trained->resident_bytes[rank] =
        std::max(trained->resident_bytes[rank],
                 static_cast<double>(record.resident_bytes));
    trained->message_bytes[rank] =
        std::max(trained->message_bytes[rank],
                 static_cast<double>(record.message_bytes));
    trained->owner_bytes[rank] = std::max(
        trained->owner_bytes[rank], static_cast<double>(record.owner_bytes));
    trained->peak_host_bytes[rank] =
        std::max(trained->peak_host_bytes[rank],
                 static_cast<double>(record.peak_host_bytes));
  }
  return absl::OkStatus();
}

}  // namespace pipewright

#include "execute/train/host_optimizer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

size_t FloatBytes(int64_t count) { return static_cast<size_t>(count) * 4; }

float* FloatsOf(const Payload& payload) {
  return static_cast<float*>(payload.data.get());
}

// Which array the stream of a state copies; -1: it copies none.
int ArrayOf(Stream stream) {
  switch (stream) {
    case Stream::kMomentumCopy:
      return 0;
    case Stream::kVarianceCopy:
      return 1;
    case Stream::kMasterCopy:
      return 2;
    default:
      return -1;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostOptimizer>> HostOptimizer::Create(
    const Program& program, int rank, const OptimizerOffload& offload,
    const std::vector<SteppedPart>& parts, const DeviceHandle& handle,
    PwType weight_type, MemoryPool* arena, MemoryPool* host) {
  std::unique_ptr<HostOptimizer> made(new HostOptimizer(handle, weight_type));
  made->early_ = offload.placement == OptimizerPlacement::kSuperOffload;
  made->parts_ = parts;
  PW_RETURN_IF_ERROR(
      made->Check(pw_cpu_kernels()->open(0, &made->cores_), "host"));
  if (made->early_) {
    // A stage by itself, as soon as its gradients are there.
    for (size_t part = 0; part < parts.size(); ++part) {
      const auto count = static_cast<int>(NumSubgroups(
          offload.parameters[parts[part].number], offload.subgroup_size));
      made->Cut(part, part + 1, PlanRatio(count, 1));
    }
  } else {
    made->Cut(0, parts.size(), PlanOf(*program.schedule, offload, rank));
  }
  PW_RETURN_IF_ERROR(made->TakeStates(arena, host));
  PW_RETURN_IF_ERROR(made->Assign(program.ranks[rank]));
  return made;
}

HostOptimizer::~HostOptimizer() {
  if (cores_ != nullptr) pw_cpu_kernels()->close(cores_);
}

void HostOptimizer::Cut(size_t first, size_t last, const SubgroupPlan& plan) {
  int64_t total = 0;
  for (size_t part = first; part < last; ++part) total += parts_[part].size();
  const auto count = static_cast<int64_t>(plan.steps.size());
  for (int64_t index = 0; index < count; ++index) {
    Subgroup subgroup = {.step = plan.steps[index]};
    const int64_t begin = total * index / count;
    const int64_t end = total * (index + 1) / count;
    int64_t before = 0;  // in the parts before
    for (size_t part = first; part < last; ++part) {
      const Range range = {
          .part = static_cast<int>(part),
          .begin = std::clamp<int64_t>(begin - before, 0, parts_[part].size()),
          .end = std::clamp<int64_t>(end - before, 0, parts_[part].size())};
      before += parts_[part].size();
      if (range.count() > 0) subgroup.ranges.push_back(range);
      subgroup.count += range.count();
    }
    subgroups_.push_back(std::move(subgroup));
  }
}

absl::Status HostOptimizer::TakeStates(MemoryPool* arena, MemoryPool* host) {
  states_.resize(parts_.size());
  int64_t visitor = 0;
  for (const Subgroup& subgroup : subgroups_) {
    if (subgroup.step == SubgroupStep::kDevice) {
      visitor = std::max(visitor, subgroup.count);
    }
    if (subgroup.step == SubgroupStep::kResident) continue;
    for (const Range& range : subgroup.ranges) {
      States& states = states_[range.part];
      states.on_host = std::max(states.on_host, range.end);
    }
  }
  for (Payload& array : visitor_) {
    PW_ASSIGN_OR_RETURN(array, arena->Take(FloatBytes(visitor)));
  }
  for (size_t part = 0; part < parts_.size(); ++part) {
    States& states = states_[part];
    const int64_t on_device = parts_[part].size() - states.on_host;
    const float* const master =
        parts_[part].stage->master() + parts_[part].begin;
    for (int array = 0; array < kArrays; ++array) {
      PW_ASSIGN_OR_RETURN(states.host[array],
                          host->Take(FloatBytes(states.on_host)));
      PW_ASSIGN_OR_RETURN(states.device[array],
                          arena->Take(FloatBytes(on_device)));
      if (states.on_host > 0 && array != kMaster) {
        std::memset(states.host[array].data.get(), 0, states.host[array].bytes);
      }
      if (on_device > 0 && array != kMaster) {
        PW_RETURN_IF_ERROR(
            Check(handle_.kernels->zero(handle_.device, handle_.stream,
                                        states.device[array].data.get(),
                                        states.device[array].bytes),
                  "states"));
      }
    }
    PW_ASSIGN_OR_RETURN(states.gradients,
                        host->Take(FloatBytes(states.on_host)));
    if (early_ && weight_type_ != PW_FP32) {
      PW_ASSIGN_OR_RETURN(states.arrived,
                          arena->Take(FloatBytes(states.on_host)));
    }
    PW_RETURN_IF_ERROR(Copy(handle_.stream, PW_DEVICE_TO_HOST,
                            states.host[kMaster].data.get(), master,
                            states.host[kMaster].bytes));
    PW_RETURN_IF_ERROR(Copy(
        handle_.stream, PW_DEVICE_TO_DEVICE, states.device[kMaster].data.get(),
        master + states.on_host, states.device[kMaster].bytes));
    parts_[part].stage->ReleaseMaster();
  }
  arena->Settle();
  before_.resize(subgroups_.size());
  return absl::OkStatus();
}

// The program has operations of one kind in the order of their subgroups.
absl::Status HostOptimizer::Assign(const RankProgram& rank) {
  std::vector<int> on_host;
  std::vector<int> visitors;
  std::vector<int> on_device;
  std::map<int, std::vector<int>> of_stage;  // where steps are early
  for (size_t index = 0; index < subgroups_.size(); ++index) {
    const SubgroupStep step = subgroups_[index].step;
    const auto number = static_cast<int>(index);
    if (step == SubgroupStep::kDevice) visitors.push_back(number);
    const bool device =
        step == SubgroupStep::kDevice || step == SubgroupStep::kResident;
    (device ? on_device : on_host).push_back(number);
    if (early_ && !subgroups_[index].ranges.empty()) {
      of_stage[parts_[subgroups_[index].ranges[0].part].number].push_back(
          number);
    }
  }
  bool fits = true;
  // How many of (kind, array, stage, repeated) there have been.
  std::map<std::tuple<Kind, int, int, bool>, size_t> taken;
  const auto next = [&](Action action, const std::vector<int>& of,
                        bool repeats) {
    size_t& count = taken[{action.kind, action.array, action.stage, repeats}];
    fits = fits && count < of.size();
    if (count < of.size()) action.subgroup = of[count];
    ++count;
    return action;
  };
  std::vector<int> stepped;  // in the order of early steps
  actions_.resize(rank.side_ops.size());
  for (size_t index = 0; index < rank.side_ops.size(); ++index) {
    const SideOp& op = rank.side_ops[index];
    const bool begins = early_ && op.stage >= 0;
    const std::vector<int>& host = begins   ? of_stage[op.stage]
                                   : early_ ? stepped
                                            : on_host;
    Action action = {.array = ArrayOf(op.stream),
                     .stage = begins ? op.stage : -1};
    const auto as = [&](Kind kind) {
      action.kind = kind;
      return action;
    };
    Action& into = actions_[index];
    switch (op.kind) {
      case OpKind::kFlush:
        into = {.kind = Kind::kGradientsOut, .stage = op.stage};
        break;
      case OpKind::kCopyOut:
        if (action.array >= 0) {
          into = next(as(Kind::kStatesOut), visitors, false);
        } else if (early_) {
          into = next(as(Kind::kGradientsOut), host, false);
        } else {
          into = {.kind = Kind::kGradientsOut, .stage = op.stage};
        }
        break;
      case OpKind::kCopyIn:
        into = action.array >= 0
                   ? next(as(Kind::kStatesIn), visitors, false)
                   : next(as(Kind::kWeightsIn), host, op.if_undone);
        break;
      case OpKind::kHostAdam:
        into = next(as(Kind::kHostStep), host, op.if_undone);
        if (begins && into.subgroup >= 0) stepped.push_back(into.subgroup);
        break;
      case OpKind::kHostCast:
        into = next(as(Kind::kHostCast), host, false);
        break;
      case OpKind::kHostUndo:
        into = next(as(Kind::kHostUndo), host, true);
        break;
      case OpKind::kCast:
        into = begins ? next(as(Kind::kGradientsCast), host, false)
                      : next(as(Kind::kWeightsCast), host, op.if_undone);
        break;
      case OpKind::kOptimizer:
        into = next(as(Kind::kDeviceStep), on_device, false);
        break;
      default:
        break;
    }
  }
  const auto all = [&](Kind kind, const std::vector<int>& of) {
    size_t sum = 0;
    for (const auto& [key, count] : taken) {
      if (std::get<0>(key) == kind && !std::get<3>(key)) sum += count;
    }
    return sum == of.size();
  };
  fits = fits && all(Kind::kHostStep, early_ ? stepped : on_host) &&
         all(Kind::kDeviceStep, on_device) &&
         (!early_ || stepped.size() == on_host.size());
  if (!fits) {
    return absl::InternalError(
        "the program steps other subgroups than the host has");
  }
  return absl::OkStatus();
}

bool HostOptimizer::NeedsNorm(int32_t side_op) const {
  const Kind kind = actions_[side_op].kind;
  return early_ ? kind == Kind::kWeightsCast
                : kind == Kind::kHostStep || kind == Kind::kDeviceStep;
}

float* HostOptimizer::HostValues(const Range& range, int array) const {
  return FloatsOf(states_[range.part].host[array]) + range.begin;
}

float* HostOptimizer::HostGradients(const Range& range) const {
  return FloatsOf(states_[range.part].gradients) + range.begin;
}

float* HostOptimizer::DeviceGradients(const Range& range) const {
  const SteppedPart& part = parts_[range.part];
  return part.stage->gradients() + part.begin + range.begin;
}

size_t HostOptimizer::WeightBytes(int64_t count) const {
  return static_cast<size_t>(count) * (weight_type_ == PW_FP32 ? 4 : 2);
}

void* HostOptimizer::DeviceWeights(const Range& range) const {
  const SteppedPart& part = parts_[range.part];
  return part.stage->SharedOf(part.begin + range.begin, part.begin + range.end)
      .data;
}

absl::Status HostOptimizer::Copy(PwStream* stream, PwCopy kind, void* to,
                                 const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  PW_RETURN_IF_ERROR(Check(
      handle_.kernels->copy(handle_.device, stream, kind, to, from, bytes),
      "copy of optimizer states"));
  return Check(handle_.kernels->synchronize(handle_.device, stream),
               "copy of optimizer states");
}

absl::Status HostOptimizer::CopyGradients(const Range& range,
                                          PwStream* stream) {
  return Copy(stream, PW_DEVICE_TO_HOST, HostGradients(range),
              DeviceGradients(range), FloatBytes(range.count()));
}

absl::Status HostOptimizer::HostStep(const Subgroup& subgroup,
                                     const Step& step) {
  if (step.may_undo) {
    std::vector<float>& before = before_[&subgroup - subgroups_.data()];
    before.clear();
    for (const Range& range : subgroup.ranges) {
      for (int array = 0; array < kArrays; ++array) {
        const float* const values = HostValues(range, array);
        before.insert(before.end(), values, values + range.count());
      }
    }
  }
  for (const Range& range : subgroup.ranges) {
    PW_RETURN_IF_ERROR(KernelStatus(
        *pw_cpu_kernels(),
        pw_cpu_kernels()->adam_host(
            &step.adam, PW_FP32, range.count(), HostGradients(range),
            HostValues(range, kMaster), HostValues(range, kMomentum),
            HostValues(range, kVariance), nullptr),
        "adam on the host"));
  }
  return absl::OkStatus();
}

absl::Status HostOptimizer::Undo(const Subgroup& subgroup) {
  const float* from = before_[&subgroup - subgroups_.data()].data();
  for (const Range& range : subgroup.ranges) {
    for (int array = 0; array < kArrays; ++array) {
      std::copy_n(from, range.count(), HostValues(range, array));
      from += range.count();
    }
  }
  return absl::OkStatus();
}

absl::Status HostOptimizer::HostCast(const Range& range) {
  return KernelStatus(*pw_cpu_kernels(),
                      pw_cpu_kernels()->convert(
                          cores_, nullptr, weight_type_, HostGradients(range),
                          PW_FP32, HostValues(range, kMaster), range.count()),
                      "cast on the host");
}

absl::Status HostOptimizer::BringWeights(const Range& range, PwStream* stream) {
  if (!early_) {
    return Copy(stream, PW_HOST_TO_DEVICE, DeviceWeights(range),
                HostGradients(range), WeightBytes(range.count()));
  }
  const Payload& arrived = states_[range.part].arrived;
  void* const to = arrived.bytes == 0 ? DeviceWeights(range)
                                      : FloatsOf(arrived) + range.begin;
  return Copy(stream, PW_HOST_TO_DEVICE, to, HostValues(range, kMaster),
              FloatBytes(range.count()));
}

absl::Status HostOptimizer::CastWeights(const Range& range, PwStream* stream) {
  const Payload& arrived = states_[range.part].arrived;
  if (arrived.bytes == 0) return absl::OkStatus();
  return Check(handle_.kernels->convert(
                   handle_.device, stream, weight_type_, DeviceWeights(range),
                   PW_FP32, FloatsOf(arrived) + range.begin, range.count()),
               "cast");
}

absl::Status HostOptimizer::MoveStates(const Subgroup& subgroup, int array,
                                       bool out, PwStream* stream) {
  float* visiting = FloatsOf(visitor_[array]);
  for (const Range& range : subgroup.ranges) {
    float* const home = HostValues(range, array);
    PW_RETURN_IF_ERROR(Copy(stream, out ? PW_DEVICE_TO_HOST : PW_HOST_TO_DEVICE,
                            out ? home : visiting, out ? visiting : home,
                            FloatBytes(range.count())));
    visiting += range.count();
  }
  return absl::OkStatus();
}

absl::Status HostOptimizer::DeviceStep(const Subgroup& subgroup,
                                       const Step& step, PwStream* stream) {
  const bool visits = subgroup.step == SubgroupStep::kDevice;
  int64_t place = 0;  // among the visitor's
  for (const Range& range : subgroup.ranges) {
    const States& states = states_[range.part];
    const auto values = [&](int array) {
      return visits ? FloatsOf(visitor_[array]) + place
                    : FloatsOf(states.device[array]) + range.begin -
                          states.on_host;
    };
    PW_RETURN_IF_ERROR(
        Check(handle_.kernels->adam(handle_.device, stream, &step.adam, PW_FP32,
                                    range.count(), DeviceGradients(range),
                                    values(kMaster), values(kMomentum),
                                    values(kVariance), nullptr),
              "adam"));
    PW_RETURN_IF_ERROR(
        Check(handle_.kernels->convert(handle_.device, stream, weight_type_,
                                       DeviceWeights(range), PW_FP32,
                                       values(kMaster), range.count()),
              "weights"));
    place += range.count();
  }
  return absl::OkStatus();
}

absl::Status HostOptimizer::Run(int32_t side_op, const Step& step,
                                PwStream* stream) {
  const Action& action = actions_[side_op];
  if (action.kind == Kind::kGradientsOut && action.subgroup < 0) {
    for (const Subgroup& subgroup : subgroups_) {
      if (subgroup.step == SubgroupStep::kDevice ||
          subgroup.step == SubgroupStep::kResident) {
        continue;
      }
      for (const Range& range : subgroup.ranges) {
        if (parts_[range.part].number != action.stage) continue;
        PW_RETURN_IF_ERROR(CopyGradients(range, stream));
      }
    }
    return absl::OkStatus();
  }
  const Subgroup& subgroup = subgroups_[action.subgroup];
  const auto each = [&](auto run) {
    absl::Status status;
    for (const Range& range : subgroup.ranges) status.Update(run(range));
    return status;
  };
  switch (action.kind) {
    case Kind::kGradientsOut:
      return each([&](const Range& of) { return CopyGradients(of, stream); });
    case Kind::kWeightsIn:
      return each([&](const Range& of) { return BringWeights(of, stream); });
    case Kind::kWeightsCast:
      return each([&](const Range& of) { return CastWeights(of, stream); });
    case Kind::kHostCast:
      return each([&](const Range& of) { return HostCast(of); });
    case Kind::kStatesOut:
    case Kind::kStatesIn:
      return MoveStates(subgroup, action.array, action.kind == Kind::kStatesOut,
                        stream);
    case Kind::kDeviceStep:
      return DeviceStep(subgroup, step, stream);
    case Kind::kHostStep:
      return HostStep(subgroup, step);
    case Kind::kHostUndo:
      return Undo(subgroup);
    case Kind::kGradientsCast:
    case Kind::kNone:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status HostOptimizer::CopyMaster(size_t part, float* to) {
  const States& states = states_[part];
  std::copy_n(FloatsOf(states.host[kMaster]), states.on_host, to);
  return Copy(handle_.stream, PW_DEVICE_TO_HOST, to + states.on_host,
              states.device[kMaster].data.get(), states.device[kMaster].bytes);
}

}  // namespace pipewright

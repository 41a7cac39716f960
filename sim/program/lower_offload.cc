// An optimizer whose states are in the memory of the host (strategy.
// optimizer_placement): gradients go there, subgroups of parameters are stepped
// by the host or visit the device, weights come back.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/lowering.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Bytes of a parameter in one array, fp32; of a weight or a gradient, bf16.
// [numerics, bytes]
constexpr double kStateBytesEach = 4;
constexpr double kWeightBytesEach = 2;

constexpr std::array<Stream, 3> kStateStreams = {
    Stream::kMomentumCopy, Stream::kVarianceCopy, Stream::kMasterCopy};

// Attaches operations of one rank at one position, each after others.
class StepBuilder {
 public:
  using Attach = std::function<void(SideOp)>;
  StepBuilder(Program* program, int rank, Attach attach)
      : program_(*program), rank_(rank), attach_(std::move(attach)) {}

  // Returns its index. Operations below 0 are none.
  int Add(SideOp op, const std::vector<int>& after) {
    attach_(std::move(op));
    const int index = static_cast<int>(ops().size()) - 1;
    for (const int other : after) After(index, other);
    return index;
  }

 private:
  std::vector<SideOp>& ops() { return program_.ranks[rank_].side_ops; }

  void After(int index, int other) {
    if (other < 0) return;
    const Stream stream = ops()[other].stream;
    // A stream runs in order, and nothing is issued before the compute stream
    // has come to it.
    const bool in_order = stream == ops()[index].stream && RunsInOrder(stream);
    if (stream == Stream::kCompute || in_order) return;
    program_.channels.push_back(
        {.kind = ChannelKind::kEvent, .from_rank = rank_, .to_rank = rank_});
    const auto event = static_cast<int32_t>(program_.channels.size()) - 1;
    ops()[other].outputs.push_back(event);
    ops()[index].inputs.push_back(event);
  }

  Program& program_;
  int rank_;
  Attach attach_;
};

// Operations on a subgroup of so many parameters.
class SubgroupOps {
 public:
  SubgroupOps(const OptimizerOffload& offload, double parameters)
      : offload_(offload), parameters_(parameters) {}

  SideOp HostAdam(OpKind kind = OpKind::kHostAdam) const {
    return {.kind = kind,
            .stream = Stream::kCpu,
            .parameters = parameters_,
            .host_bytes_each = offload_.adam_bytes,
            .most_per_s = offload_.adam_rate};
  }
  SideOp HostCast() const {
    return {.kind = OpKind::kHostCast,
            .stream = offload_.slots > 1 ? Stream::kCast : Stream::kCpu,
            .parameters = parameters_,
            .host_bytes_each = offload_.cast_bytes,
            .most_per_s = offload_.cast_rate};
  }
  // On the device: the step, or a cast.
  SideOp Device(OpKind kind) const {
    const bool casts = kind == OpKind::kCast && offload_.device_cast_rate > 0;
    return {.kind = kind,
            .seconds = parameters_ / (casts ? offload_.device_cast_rate
                                            : offload_.device_adam_rate)};
  }
  SideOp Copy(OpKind kind, Stream stream, double bytes_each) const {
    return {.kind = kind, .stream = stream, .bytes = parameters_ * bytes_each};
  }
  SideOp WeightsIn(double bytes_each) const {
    return Copy(OpKind::kCopyIn, Stream::kWeightCopy, bytes_each);
  }

 private:
  const OptimizerOffload& offload_;
  double parameters_;
};

}  // namespace

absl::Status LoweringCheck::CheckOffload() const {
  const OptimizerOffload& offload = options_.offload;
  if (!offload.active()) return absl::OkStatus();
  const absl::string_view name = TraitsOf(offload.placement).name;
  constexpr char kField[] = "strategy.optimizer_placement";
  if (options_.optimizer != OptimizerMode::kSynchronised || never_flushes()) {
    return BadValue(kField, name,
                    "gpu, unless strategy.optimizer is synchronised");
  }
  if (schedule_.directions > 1) {
    return BadValue(
        kField, name,
        absl::StrCat("gpu: schedule ", schedule_.name,
                     " holds every stage twice, and an optimizer on the host "
                     "for both copies is not lowered yet"));
  }
  if (offload.parameters.size() != static_cast<size_t>(schedule_.stages())) {
    return BadValue("parameters of the optimizer",
                    absl::StrCat(offload.parameters.size(), " stages"),
                    absl::StrCat("pp * vpp = ", schedule_.stages()));
  }
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    const double parameters = ParametersOf(schedule_, options_.offload, rank);
    if (NumSubgroups(parameters, offload.subgroup_size) > kMostSubgroups) {
      return BadValue(
          "strategy.subgroup_size", absl::StrCat(offload.subgroup_size),
          absl::StrCat("at least ", parameters / kMostSubgroups,
                       ", so that the ", parameters, " parameters of rank ",
                       rank, " are at most ", kMostSubgroups, " subgroups"));
    }
  }
  return absl::OkStatus();
}

double ParametersOf(const Schedule& schedule, const OptimizerOffload& offload,
                    int rank) {
  double parameters = 0;
  for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
    parameters +=
        offload.parameters[schedule.placement.StageOf(rank, chunk, 0)];
  }
  return parameters;
}

SubgroupPlan PlanOf(const Schedule& schedule, const OptimizerOffload& offload,
                    int rank) {
  const auto subgroups = static_cast<int>(NumSubgroups(
      ParametersOf(schedule, offload, rank), offload.subgroup_size));
  return TraitsOf(offload.placement).has_stride
             ? PlanStrides(subgroups, offload.stride,
                           HostSubgroups(subgroups, offload.ratio))
             : PlanRatio(subgroups, offload.ratio);
}

// Once an iteration, as soon as the gradients of a chunk are complete and
// reduced. Where their reduction is sharded, or a table is summed, that is when
// all of the rank are.
absl::Status OffloadedStep::AddFlush(const GradientReduction& reduction,
                                     const TableSum& table,
                                     RankEvents* events) {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    PW_ASSIGN_OR_RETURN(const std::vector<Reduction> reductions,
                        reduction.ReductionsOf(rank));
    std::vector<Reduction> late;
    for (const Reduction& each : reductions) {
      const bool end = each.stage == 0 || each.stage + 1 == schedule_.stages();
      if (shards() || (end && table.HasTable(rank))) {
        late.push_back({OrderSize(rank), each.chunk, each.stage});
      } else {
        FlushStage(rank, each, reduction, events);
      }
    }
    if (late.empty()) continue;
    std::vector<int32_t>& own = (*events)[rank];
    if (!own.empty()) {
      Attach(rank, OrderSize(rank),
             {.kind = OpKind::kWait, .inputs = std::move(own)});
      own.clear();
    }
    for (const Reduction& each : late) {
      FlushStage(rank, each, reduction, events);
    }
  }
  return absl::OkStatus();
}

bool LoweringStep::Flushes(int rank) const {
  const OptimizerOffload& offload = options_.offload;
  return offload.active() &&
         PlanOf(schedule_, options_.offload, rank).HostShare() > 0;
}

void OffloadedStep::FlushStage(int rank, const Reduction& where,
                               const GradientReduction& reduction,
                               RankEvents* events) {
  if (!Flushes(rank)) return;
  const OptimizerOffload& offload = options_.offload;
  std::vector<int32_t> inputs;
  const std::map<int, int32_t>& event_of = reduction.reduced(rank);
  const auto reduced = event_of.find(where.stage);
  if (reduced != event_of.end()) inputs.push_back(reduced->second);
  if (offload.placement == OptimizerPlacement::kSuperOffload) {
    return StepEarly(rank, where, std::move(inputs));
  }
  const double parameters =
      offload.parameters[where.stage] *
      PlanOf(schedule_, options_.offload, rank).HostShare();
  if (offload.flush == GradientFlush::kBlocking) {
    return Attach(rank, where.position,
                  {.kind = OpKind::kFlush,
                   .seconds = parameters / offload.flush_rate,
                   .chunk = where.chunk,
                   .stage = where.stage,
                   .inputs = std::move(inputs)});
  }
  const int32_t event = AddEvent(rank);
  (*events)[rank].push_back(event);
  Attach(rank, where.position,
         {.kind = OpKind::kCopyOut,
          .stream = Stream::kGradientCopy,
          .bytes = parameters * kWeightBytesEach,
          .chunk = where.chunk,
          .stage = where.stage,
          .inputs = std::move(inputs),
          .outputs = {event}});
}

// The gradients of a stage, cast by the device, go to the host, which steps
// with them before anybody has seen the norm; its weights come back in fp32.
void OffloadedStep::StepEarly(int rank, const Reduction& where,
                              std::vector<int32_t> inputs) {
  const OptimizerOffload& offload = options_.offload;
  const double parameters = offload.parameters[where.stage];
  if (parameters == 0 && inputs.empty()) return;
  const int64_t subgroups = NumSubgroups(parameters, offload.subgroup_size);
  const SubgroupOps ops(offload, parameters / static_cast<double>(subgroups));
  StepBuilder step(&program_, rank, [&](SideOp op) {
    op.chunk = where.chunk;
    op.stage = where.stage;
    Attach(rank, where.position, std::move(op));
  });
  for (int64_t index = 0; index < subgroups; ++index) {
    SideOp cast = ops.Device(OpKind::kCast);
    // The device goes on with its passes, so its cast must not wait: it waits
    // for the reduction on the stream that copies.
    SideOp copy =
        ops.Copy(OpKind::kCopyOut, Stream::kGradientCopy, kStateBytesEach);
    if (index == 0) copy.inputs = std::move(inputs);
    step.Add(std::move(cast), {});
    const int out = step.Add(std::move(copy), {});
    const int adam = step.Add(ops.HostAdam(), {out});
    early_[rank].push_back({step.Add(ops.WeightsIn(kStateBytesEach), {adam}),
                            parameters / static_cast<double>(subgroups)});
  }
}

// Behind the norm: who has stepped early casts what came back. A step that must
// not have been is undone, parameter by parameter, and repeated.
void OffloadedStep::AddCheckedStep(int rank, int32_t norm) {
  StepBuilder step(&program_, rank, [&](SideOp op) {
    Attach(rank, OrderSize(rank), std::move(op));
  });
  step.Add({.kind = OpKind::kWait, .inputs = {norm}}, {});
  for (const auto& [weights, parameters] : early_[rank]) {
    const SubgroupOps ops(options_.offload, parameters);
    step.Add(ops.Device(OpKind::kCast), {weights});
  }
  if (options_.failing_steps.empty()) return;
  const auto undone = [](SideOp op) {
    op.if_undone = true;
    return op;
  };
  std::vector<int> again;
  for (const auto& [weights, parameters] : early_[rank]) {
    const SubgroupOps ops(options_.offload, parameters);
    step.Add(undone(ops.HostAdam(OpKind::kHostUndo)), {});
    const int adam = step.Add(undone(ops.HostAdam()), {});
    again.push_back(step.Add(undone(ops.WeightsIn(kStateBytesEach)), {adam}));
  }
  for (size_t index = 0; index < again.size(); ++index) {
    const SubgroupOps ops(options_.offload, early_[rank][index].second);
    step.Add(undone(ops.Device(OpKind::kCast)), {again[index]});
  }
}

// Deep Optimizer States' loop over the subgroups (its code, stage3.py), of
// which ZeRO-Offload and TwinFlow are the case without triggers that waits for
// each cast and copy.
void OffloadedStep::AddPlannedStep(int rank, int32_t norm) {
  const OptimizerOffload& offload = options_.offload;
  const SubgroupPlan plan = PlanOf(schedule_, options_.offload, rank);
  const bool serial = !TraitsOf(offload.placement).has_stride;
  const SubgroupOps ops(offload,
                        ParametersOf(schedule_, options_.offload, rank) /
                            static_cast<double>(plan.steps.size()));
  StepBuilder step(&program_, rank, [&](SideOp op) {
    Attach(rank, OrderSize(rank), std::move(op));
  });
  step.Add({.kind = OpKind::kWait, .inputs = {norm}}, {});
  int flushed = -1;
  int loop = -1;   // the last operation of the loop
  int fetch = -1;  // the last copy of weights
  std::array<int, 3> states = {-1, -1, -1};
  std::vector<int> to_cast;
  const auto move = [&](OpKind kind, bool wanted) {
    for (size_t array = 0; wanted && array < states.size(); ++array) {
      states[array] = step.Add(
          ops.Copy(kind, kStateStreams[array], kStateBytesEach), {loop});
    }
  };
  auto transfer = plan.transfers.begin();
  for (size_t index = 0; index < plan.steps.size(); ++index) {
    const SubgroupStep kind = plan.steps[index];
    if (kind == SubgroupStep::kDevice || kind == SubgroupStep::kResident) {
      const bool fetched = kind == SubgroupStep::kDevice;
      loop = fetched ? step.Add(ops.Device(OpKind::kOptimizer),
                                {loop, states[0], states[1], states[2]})
                     : step.Add(ops.Device(OpKind::kOptimizer),
                                {loop, serial ? fetch : -1});
      continue;
    }
    const bool triggers = kind == SubgroupStep::kHostTriggers;
    if (triggers) {
      move(OpKind::kCopyOut, transfer->flush > flushed);
      flushed = transfer->flush;
      move(OpKind::kCopyIn, transfer->prefetch >= 0);
      ++transfer;
    }
    loop = step.Add(ops.HostAdam(), {loop, triggers || serial ? fetch : -1});
    to_cast.push_back(loop);
    const bool more = index + 1 < plan.steps.size() &&
                      plan.steps[index + 1] != SubgroupStep::kDevice &&
                      plan.steps[index + 1] != SubgroupStep::kResident;
    if (more && !serial) continue;
    for (const int adam : to_cast) {
      const int cast = step.Add(ops.HostCast(), {adam});
      fetch = step.Add(ops.WeightsIn(kWeightBytesEach), {cast});
    }
    to_cast.clear();
  }
  move(OpKind::kCopyOut, plan.last_flush >= 0 && offload.flush_last);
  step.Add({.kind = OpKind::kWait},
           {loop, fetch, states[0], states[1], states[2]});
}

void OffloadedStep::AddStep(int rank, int32_t norm) {
  if (options_.offload.placement == OptimizerPlacement::kSuperOffload) {
    AddCheckedStep(rank, norm);
  } else {
    AddPlannedStep(rank, norm);
  }
}

}  // namespace pipewright

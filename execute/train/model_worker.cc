#include "execute/train/model_worker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/compute_stream.h"
#include "sim/program/program.h"

namespace pipewright {

ModelWorker::ModelWorker(const Program& program, Address self,
                         const ExecutedModel& model,
                         const WorkerOptions& options)
    : options_(options),
      microbatches_(program),
      tokens_(TokensOfStep(model, program)),
      stages_(program, self, model, options.sharded_step),
      gradients_(stages_, device_),
      owners_(stages_, device_),
      memory_(stages_, device_),
      steps_(stages_, gradients_, owners_, device_, options_, &record_) {}

absl::StatusOr<std::unique_ptr<ModelWorker>> ModelWorker::Create(
    const Program& program, Address self, const ExecutedModel& model,
    const PwKernels* kernels, int device_index, const WorkerOptions& options) {
  std::unique_ptr<ModelWorker> worker(
      new ModelWorker(program, self, model, options));
  PW_RETURN_IF_ERROR(worker->Initialize(kernels, device_index));
  return worker;
}

absl::Status ModelWorker::Initialize(const PwKernels* kernels,
                                     int device_index) {
  const Program& program = stages_.program();
  const Address self = stages_.self();
  PW_RETURN_IF_ERROR(device_.Open(kernels, device_index, options_,
                                  self.replica * program.pp() + self.rank,
                                  program.replicas * program.pp()));
  for (const Stream stream : {Stream::kD2H, Stream::kH2D}) {
    PW_RETURN_IF_ERROR(device_.OpenBeside(stream, "copy stream"));
  }
  PW_RETURN_IF_ERROR(stages_.Create(device_, options_.offload.active()
                                                 ? Stage::States::kElsewhere
                                                 : Stage::States::kHere));
  gradients_.Open();
  PW_RETURN_IF_ERROR(owners_.Open(options_));
  record_.owner_bytes = gradients_.bytes() + owners_.bytes();
  PW_RETURN_IF_ERROR(steps_.Open());
  memory_.Measure();
  return absl::OkStatus();
}

ModelWorker::~ModelWorker() {
  device_.EndBeside();
  if (options_.record == nullptr || !device_.is_open()) return;
  memory_.Tell(&record_);
  *options_.record = std::move(record_);
}

std::optional<Payload> PassPayloads::Take(Box box, Pass pass, int unit) {
  const auto found = waiting_.find({box, KeyOf(pass, unit)});
  if (found == waiting_.end()) return std::nullopt;
  Payload payload = std::move(found->second);
  waiting_.erase(found);
  return payload;
}

absl::StatusOr<Payload> ModelWorker::RandomBlock() {
  const ExecutedModel& model = stages_.model();
  const DeviceHandle& handle = device_.handle();
  PW_ASSIGN_OR_RETURN(Payload block,
                      device_.memory().Take(model.BoundaryBytes()));
  PW_RETURN_IF_ERROR(device_.Check(
      handle.kernels->random(
          handle.device, handle.stream, model.shape.type, block.data.get(),
          model.batch * model.slice_tokens() * model.shape.hidden, 1, 1.0f),
      "random"));
  return block;
}

absl::Status ModelWorker::WarmUp() {
  const int slices = stages_.model().slices;
  for (auto& [key, stage] : stages_.all()) {
    for (int slice = 0; slice < slices; ++slice) {
      Payload from;
      if (!stage->first()) {
        PW_ASSIGN_OR_RETURN(from, RandomBlock());
      }
      Payload out;
      PW_RETURN_IF_ERROR(stage->Forward({0, slice}, 0, 0, /*again=*/false,
                                        std::move(from), &out));
    }
    for (int slice = slices; slice-- > 0;) {
      Payload gradient;
      if (!stage->last()) {
        PW_ASSIGN_OR_RETURN(gradient, RandomBlock());
      }
      Payload out;
      PW_RETURN_IF_ERROR(stage->BackwardInput({0, slice}, std::move(gradient),
                                              LossScale(0), &out));
      PW_RETURN_IF_ERROR(stage->BackwardWeight({0, slice}));
    }
    PW_RETURN_IF_ERROR(stage->ZeroGradients());
    stage->DropActivations();
    if (stages_.own().schedule->update_every == 1 &&
        stages_.rank().later_start > 0) {
      PW_RETURN_IF_ERROR(stage->Predict(0, 0));
    }
  }
  // A head has added to the table of another stage.
  for (auto& [key, stage] : stages_.all()) {
    if (stage->table_gradients() != nullptr) {
      PW_RETURN_IF_ERROR(stage->ZeroGradients());
    }
  }
  if (options_.alone) {
    PW_ASSIGN_OR_RETURN(stand_in_, RandomBlock());
    device_.memory().ChargeMessages(&stand_in_);
  }
  PW_RETURN_IF_ERROR(device_.Synchronize("warm-up"));
  PW_RETURN_IF_ERROR(memory_.Reserve());
  device_.memory().ResetPeak();
  device_.memory().ResetMessagesPeak();
  return absl::OkStatus();
}

// Every microbatch of the run has tokens of its own: of which iteration,
// data-parallel replica, direction.
int64_t ModelWorker::SampleOf(Pass pass, int iteration) const {
  return iteration * microbatches_.all +
         microbatches_.first_of[stages_.self().replica] +
         pass.direction() *
             stages_.own().schedule->microbatches_per_direction() +
         pass.microbatch();
}

// The loss of a step is the mean over its tokens, whichever replica and
// microbatch they are of.
float ModelWorker::LossScale(int64_t sample) const {
  const ExecutedModel& model = stages_.model();
  const int update_every = stages_.own().schedule->update_every;
  double tokens = tokens_;
  if (update_every > 0) {
    tokens = static_cast<double>(model.batch) * model.sequence * update_every *
             stages_.program().replicas;
  }
  if (options_.faults.weighs_microbatches) {
    tokens = static_cast<double>(model.TokensOf(sample)) *
             static_cast<double>(microbatches_.all);
  }
  return static_cast<float>(1.0 / tokens);
}

absl::Status ModelWorker::BeginStart(const Start& start) {
  if (start.is_false) payloads_.BeginFalseStart();
  if (!start.again) return absl::OkStatus();
  // What the false start has computed stands on weights that are undone.
  payloads_.BeginAgain();
  issued_.clear();
  stages_.DropActivations();
  return absl::OkStatus();
}

void ModelWorker::Forget() {
  device_.EndBeside();
  payloads_.Clear();
  issued_.clear();
  stages_.DropActivations();
}

// Without a step nothing holds the next backward back from gradients that are
// still being reduced.
bool ModelWorker::WantsAllEnded(int iteration) const {
  const std::vector<SideOp>& side_ops = stages_.rank().side_ops;
  return steps_.WantsSnapshot(iteration) ||
         std::none_of(side_ops.begin(), side_ops.end(), [](const SideOp& op) {
           return op.kind == OpKind::kOptimizer || op.kind == OpKind::kHostAdam;
         });
}

absl::Status ModelWorker::EndIteration(int iteration) {
  PW_RETURN_IF_ERROR(failed_);
  for (auto& [key, stage] : stages_.all()) {
    for (const auto& [microbatch, loss] : stage->losses()) {
      record_.loss_sum[iteration] += loss;
    }
    stage->ForgetLosses();
  }
  return steps_.EndIteration(iteration);
}

absl::StatusOr<Payload> ModelWorker::TakeMemory(size_t bytes) {
  return device_.memory().TakeSettledForMessages(bytes);
}

void ModelWorker::TakeInput(Pass pass, int, Payload payload) {
  if (options_.alone) {
    failed_.Update(device_.CopyOut(stand_in_.data.get(),
                                   stages_.model().BoundaryBytes(), &payload));
  }
  payloads_.Put(PassPayloads::Box::kInput, pass, stages_.UnitOf(pass),
                std::move(payload));
}

Payload ModelWorker::GiveOutput(Pass pass, int) {
  std::optional<Payload> payload =
      payloads_.Take(PassPayloads::Box::kOutput, pass, stages_.UnitOf(pass));
  PW_CHECK(payload.has_value());
  device_.memory().ChargeMessages(&*payload);
  return *std::move(payload);
}

absl::StatusOr<double> ModelWorker::RunPass(Pass pass, int) {
  const int unit = stages_.UnitOf(pass);
  Stage& stage = stages_.at({unit, pass.direction()});
  PW_RETURN_IF_ERROR(failed_);
  if (pass.kind() != PassKind::kForward &&
      pass.kind() != PassKind::kRecompute) {
    PW_RETURN_IF_ERROR(gradients_.Refresh({unit, pass.direction()}));
    if (stage.shares_table()) {
      PW_RETURN_IF_ERROR(gradients_.Refresh({0, pass.direction()}));
    }
  }
  // Memory of another rank, which may use it again as soon as this returns.
  Payload held;
  PW_ASSIGN_OR_RETURN(
      const double seconds,
      device_.Timed([&] { return RunKernels(pass, unit, &held); },
                    /*held=*/true));
  stage.TakeLosses();
  PW_RETURN_IF_ERROR(stages_.Reshard(pass));
  return seconds;
}

absl::Status ModelWorker::RunKernels(Pass pass, int unit, Payload* held) {
  Stage& target = stages_.at({unit, pass.direction()});
  const Stage::Key key = {pass.microbatch(), pass.slice()};
  const bool forward = pass.kind() == PassKind::kForward;
  if (pass.kind() == PassKind::kBackwardWeight) {
    return target.BackwardWeight(key);
  }
  if (pass.kind() == PassKind::kRecompute) return target.Recompute(key);
  Payload input;
  if (!(forward ? target.first() : target.last())) {
    std::optional<Payload> came =
        payloads_.Take(PassPayloads::Box::kInput, pass, unit);
    if (!came.has_value()) {
      return absl::InternalError(absl::StrCat(
          "rank ", stages_.self().rank, ": ",
          PassToString(*stages_.own().schedule, stages_.rank().Whole(pass)),
          " begins without its input"));
    }
    input = *std::move(came);
    device_.memory().ChargeUsed(&input);
    *held = input;
  }
  Payload output;
  const float scale = LossScale(SampleOf(pass, 0));
  if (forward) {
    const int iteration = payloads_.CountForward(pass, unit);
    PW_RETURN_IF_ERROR(
        target.Forward(key, SampleOf(pass, iteration), steps_.Behind(iteration),
                       stages_.RunsAgain(pass), std::move(input), &output));
    if (target.last()) return absl::OkStatus();
  } else if (pass.kind() == PassKind::kBackwardInput) {
    PW_RETURN_IF_ERROR(
        target.BackwardInput(key, std::move(input), scale, &output));
  } else {
    PW_RETURN_IF_ERROR(
        target.BackwardFull(key, std::move(input), scale, &output));
  }
  if (!forward && target.first()) return absl::OkStatus();
  // To the next stage, on this rank or another.
  const int next = forward ? unit + 1 : unit - 1;
  if (stages_.units().RankOf(next, pass.direction()) == stages_.self().rank) {
    payloads_.Put(PassPayloads::Box::kInput, pass, next, std::move(output));
  } else {
    payloads_.Put(PassPayloads::Box::kOutput, pass, unit, std::move(output));
  }
  return absl::OkStatus();
}

absl::Status ModelWorker::IssueCopy(Pass pass, int stage) {
  Stage& target = stages_.at({stage, pass.direction()});
  const Stage::Key key = {pass.microbatch(), pass.slice()};
  PW_ASSIGN_OR_RETURN(HostCopy copy, pass.kind() == PassKind::kOffload
                                         ? target.BeginOffload(key)
                                         : target.BeginLoad(key));
  issued_[pass.bits()] = std::move(copy);
  memory_.Watch();
  return absl::OkStatus();
}

absl::StatusOr<double> ModelWorker::RunCopy(Pass pass, int) {
  const HostCopy copy = std::move(issued_.at(pass.bits()));
  issued_.erase(pass.bits());
  return device_.Timed(
      [&] { return copy.Run(device_.handle(), device_.handle().stream); });
}

void ModelWorker::StartCopy(Pass pass, int,
                            std::function<void(absl::Status)> ended) {
  device_.StartBeside(
      CopyStream(pass.kind()),
      [copy = std::move(issued_.at(pass.bits())), handle = device_.handle()](
          PwStream* stream) { return copy.Run(handle, stream); },
      std::move(ended));
  issued_.erase(pass.bits());
}

absl::Status ModelWorker::FreeOffloaded(Pass pass, int stage) {
  return stages_.at({stage, pass.direction()})
      .FreeOffloaded({pass.microbatch(), pass.slice()});
}

absl::StatusOr<double> ModelWorker::RunSideOp(int32_t side_op,
                                              const Start& start) {
  PW_RETURN_IF_ERROR(failed_);
  return steps_.Run(side_op, start);
}

void ModelWorker::StartSideOp(int32_t side_op, const Start& start,
                              std::function<void(absl::Status)> ended) {
  const Stream stream = stages_.op(side_op).stream;
  failed_.Update(device_.OpenBeside(stream, "stream beside compute"));
  absl::Status ready = failed_;
  HostOptimizer::Step step;
  if (ready.ok()) {
    absl::StatusOr<HostOptimizer::Step> begun =
        steps_.BeginHostOp(side_op, start);
    ready = begun.status();
    if (begun.ok()) step = *begun;
  }
  device_.StartBeside(
      stream,
      [this, side_op, ready, step](PwStream* own) {
        return ready.ok() ? steps_.RunHostOp(side_op, step, own) : ready;
      },
      std::move(ended));
}

void ModelWorker::TakeSideInput(int32_t, int32_t channel, Payload payload) {
  const Channel& link = stages_.own().channels[channel];
  if (link.kind != ChannelKind::kMessage || payload.bytes == 0) return;
  GradientNorm& norm = steps_.norm();
  (link.from_rank < stages_.self().rank ? norm.above : norm.full) =
      NormSums::Of(payload);
}

Payload ModelWorker::GiveSideOutput(int32_t side_op, int32_t channel) {
  // A turn on a PCIe switch says nothing but that it has come.
  const SideOp& op = stages_.op(side_op);
  if (op.kind == OpKind::kWait &&
      (op.stream == Stream::kD2H || op.stream == Stream::kH2D)) {
    return {};
  }
  const Channel& link = stages_.own().channels[channel];
  if (link.to_rank < stages_.self().rank) {
    return steps_.norm().full.ToPayload();
  }
  failed_.Update(steps_.KnowPartialNorm());
  return steps_.norm().partial.ToPayload();
}

Payload ModelWorker::GivePart(int32_t side_op, int, int to, int members) {
  const SideOp& op = stages_.op(side_op);
  Payload payload;
  if (op.stage < 0) {
    if (op.kind != OpKind::kAllReduce) return payload;
    NormSums sums;
    failed_.Update(gradients_.AddNorm(&sums));
    return sums.ToPayload();
  }
  Stage& stage = *stages_.OfUnit(stages_.UnitOfOp(side_op)).front();
  switch (op.kind) {
    case OpKind::kAllReduce:
      failed_.Update(gradients_.GivePart(side_op, &payload));
      break;
    case OpKind::kReduceScatter: {
      const auto [begin, end] = ShardRange(stage.parameters(), to, members);
      failed_.Update(device_.CopyOut(stage.gradients() + begin,
                                     static_cast<size_t>(end - begin) * 4,
                                     &payload));
      // What has been given is in the sum of somebody.
      if (to + 1 == members) failed_.Update(stage.ZeroGradients());
      break;
    }
    case OpKind::kAllGather: {
      const auto [begin, end] = stages_.OwnShard(stage);
      const Stage::Shared own = stage.SharedOf(begin, end);
      failed_.Update(device_.CopyOut(own.data, own.bytes, &payload));
      break;
    }
    default:
      break;
  }
  failed_.Update(device_.Synchronize("part"));
  return payload;
}

absl::Status ModelWorker::TakeParts(int32_t side_op, int self,
                                    const std::vector<Payload>& given) {
  PW_RETURN_IF_ERROR(failed_);
  const SideOp& op = stages_.op(side_op);
  std::vector<Payload> parts = given;
  if (options_.alone && op.kind != OpKind::kAllGather) {
    for (Payload& part : parts) part = given[self];
  }
  if (op.stage < 0) {
    // What each owner has been sent is there; the other meeting is of all
    // ranks.
    if (op.kind == OpKind::kBarrier && owners_.is_open() &&
        stages_.program().groups[op.group].span == Group::Span::kReplicas) {
      return owners_.TakeSums(
          [&](int unit, float* sums) { gradients_.TakeSums(unit, sums); });
    }
    if (op.kind == OpKind::kAllReduce) steps_.norm().TakeFull(parts);
    return absl::OkStatus();
  }
  Stage& stage = *stages_.OfUnit(stages_.UnitOfOp(side_op)).front();
  switch (op.kind) {
    case OpKind::kAllReduce:
      PW_RETURN_IF_ERROR(gradients_.TakeParts(side_op, parts));
      break;
    case OpKind::kReduceScatter:
      // Without a collective of its own data the reduction of several blocks
      // adds up here.
      PW_RETURN_IF_ERROR(gradients_.Add(stages_.UnitOfOp(side_op), parts));
      break;
    case OpKind::kAllGather:
      for (size_t member = 0; member < parts.size(); ++member) {
        if (options_.alone && parts[member].bytes == 0) continue;
        const auto [begin, end] =
            ShardRange(stage.parameters(), static_cast<int>(member),
                       static_cast<int>(parts.size()));
        PW_CHECK(parts[member].bytes == stage.SharedOf(begin, end).bytes);
        PW_RETURN_IF_ERROR(
            stage.TakeShared(begin, end, parts[member].data.get()));
      }
      PW_RETURN_IF_ERROR(steps_.PublishShared(stage));
      break;
    default:
      break;
  }
  return device_.Synchronize("collective");
}

void ModelWorker::StartReach(int32_t side_op,
                             std::function<void(absl::Status)> ended) {
  if (owners_.is_open() && failed_.ok()) {
    failed_ = owners_.StartReach(side_op, ended);
    if (failed_.ok()) return;
  }
  ended(failed_);
}

}  // namespace pipewright

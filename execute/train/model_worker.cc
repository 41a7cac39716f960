// Passes and their data. model_worker_groups.cc has what it shares with other
// ranks' workers, model_worker_step.cc the optimizer's step,
// model_worker_host.cc what goes to the host.
#include "execute/train/model_worker.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/loader.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Ranks of one process share a GPU: passes that overlap on it would time each
// other.
std::mutex& GpuToken() {
  static std::mutex token;
  return token;
}

bool IsForwardInput(Pass pass) { return pass.kind() == PassKind::kForward; }

}  // namespace

ModelWorker::ModelWorker(const Program& program, Address self,
                         const ExecutedModel& model,
                         const WorkerOptions& options)
    : program_(program),
      self_(self),
      model_(model),
      options_(options),
      units_(program),
      microbatches_(program),
      tokens_(TokensOfStep(model, program)),
      holds_(options.holds) {
  unit_of_op_ = units_.OfSideOps(rank());
}

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
  handle_.kernels = kernels;
  if (options_.parts) {
    const PwOpenPart open_part = pw_open_part_of(kernels);
    if (open_part == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the processors of ", kernels->name, " cannot be divided"));
    }
    PW_RETURN_IF_ERROR(Failed(
        open_part(device_index, self_.replica * program_.pp() + self_.rank,
                  program_.replicas * program_.pp(), &handle_.device),
        "part of the device"));
  } else {
    PW_RETURN_IF_ERROR(
        Failed(kernels->open(device_index, &handle_.device), "device"));
  }
  device_.reset(handle_.device,
                [kernels](PwDevice* device) { kernels->close(device); });
  PW_RETURN_IF_ERROR(
      Failed(kernels->create_event(handle_.device, &begin_), "event"));
  PW_RETURN_IF_ERROR(
      Failed(kernels->create_event(handle_.device, &end_), "event"));
  for (PwStream*& stream : copy_streams_) {
    PW_RETURN_IF_ERROR(Failed(
        kernels->create_stream(handle_.device, 0, &stream), "copy stream"));
  }
  arena_ = std::make_shared<MemoryPool>(kernels, device_);
  host_ = std::make_shared<MemoryPool>(kernels, device_, PoolKind::kPinnedHost);
  for (int replica = 0; replica < own().schedule->directions; ++replica) {
    for (const int stage : units_.OfRank(self_.rank, replica)) {
      PW_ASSIGN_OR_RETURN(
          (stages_[{stage, replica}]),
          Stage::Create(model_, stage, handle_, arena_.get(), host_.get(),
                        options_.offload.active() ? Stage::States::kElsewhere
                                                  : Stage::States::kHere));
      if (options_.sharded_step) {
        const auto [begin, end] = OwnShard(StageOf(stage, replica));
        shard_sums_[{stage, replica}].resize(end - begin);
      }
    }
  }
  for (auto& [key, stage] : stages_) {
    const auto owner = stages_.find({0, key.second});
    if (model_.shape.tied != 0 && !model_.copies_table && key.first > 0 &&
        key.first + 1 == model_.num_stages() && owner != stages_.end()) {
      stage->ShareTable(owner->second.get());
    }
  }
  for (const SideOp& op : rank().side_ops) {
    steps_weights_ |=
        op.kind == OpKind::kOptimizer || op.kind == OpKind::kHostAdam;
  }
  ShareScratch();
  PW_RETURN_IF_ERROR(OpenOwner());
  CountOwnerBytes();
  if (options_.offload.active()) PW_RETURN_IF_ERROR(MakeHostStep());
  record_.resident_bytes = arena_->used();
  MeasureMicrobatch();
  return absl::OkStatus();
}

ModelWorker::~ModelWorker() {
  EndThreads();
  service_.reset();
  if (options_.record != nullptr && arena_ != nullptr) {
    record_.peak_bytes = std::max(record_.peak_bytes, arena_->peak());
    record_.message_bytes = arena_->messages_peak();
    record_.peak_host_bytes = host_->peak();
    *options_.record = std::move(record_);
  }
  inputs_.clear();
  outputs_.clear();
  issued_.clear();
  host_step_.reset();
  stages_.clear();
  stand_in_ = {};
  host_.reset();
  arena_.reset();
  if (handle_.device == nullptr) return;
  for (PwStream* const stream : copy_streams_) {
    if (stream == nullptr) continue;
    handle_.kernels->destroy_stream(handle_.device, stream);
  }
  if (begin_ != nullptr) handle_.kernels->destroy_event(handle_.device, begin_);
  if (end_ != nullptr) handle_.kernels->destroy_event(handle_.device, end_);
}

absl::StatusOr<Payload> ModelWorker::RandomBlock() {
  PW_ASSIGN_OR_RETURN(Payload block, arena_->Take(model_.BoundaryBytes()));
  PW_RETURN_IF_ERROR(Failed(
      handle_.kernels->random(
          handle_.device, handle_.stream, model_.shape.type, block.data.get(),
          model_.batch * model_.slice_tokens() * model_.shape.hidden, 1, 1.0f),
      "random"));
  return block;
}

absl::Status ModelWorker::WarmUp() {
  for (auto& [key, stage] : stages_) {
    for (int slice = 0; slice < model_.slices; ++slice) {
      Payload from;
      if (!stage->first()) {
        PW_ASSIGN_OR_RETURN(from, RandomBlock());
      }
      Payload out;
      PW_RETURN_IF_ERROR(
          stage->Forward({0, slice}, 0, 0, std::move(from), &out));
    }
    for (int slice = model_.slices; slice-- > 0;) {
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
    if (own().schedule->update_every == 1 && rank().later_start > 0) {
      PW_RETURN_IF_ERROR(stage->Predict(0, 0));
    }
  }
  // A head has added to the table of another stage.
  for (auto& [key, stage] : stages_) {
    if (stage->table_gradients() != nullptr) {
      PW_RETURN_IF_ERROR(stage->ZeroGradients());
    }
  }
  if (options_.alone) {
    PW_ASSIGN_OR_RETURN(stand_in_, RandomBlock());
    arena_->ChargeMessages(&stand_in_);
  }
  PW_RETURN_IF_ERROR(Failed(
      handle_.kernels->synchronize(handle_.device, handle_.stream), "warm-up"));
  PW_RETURN_IF_ERROR(ReserveBlocks());
  arena_->ResetPeak();
  arena_->ResetMessagesPeak();
  return absl::OkStatus();
}

// Every microbatch of the run has tokens of its own: of which iteration,
// data-parallel replica, direction.
int64_t ModelWorker::SampleOf(Pass pass, int iteration) const {
  return iteration * microbatches_.all + microbatches_.first_of[self_.replica] +
         pass.direction() * own().schedule->microbatches_per_direction() +
         pass.microbatch();
}

// All microbatches of an iteration use the weights of one step, the first of
// them before it is the newest, the last behind it.
int ModelWorker::Behind(int iteration) const {
  if (model_.weight_delay == 0) return 0;
  const int64_t wanted = std::max(0, iteration - model_.weight_delay);
  return static_cast<int>(std::max<int64_t>(0, steps_ - wanted));
}

// The loss of a step is the mean over its tokens, whichever replica and
// microbatch they are of.
float ModelWorker::LossScale(int64_t sample) const {
  double tokens = tokens_;
  if (own().schedule->update_every > 0) {
    tokens = static_cast<double>(model_.batch) * model_.sequence *
             own().schedule->update_every * program_.replicas;
  }
  if (options_.faults.weighs_microbatches) {
    tokens = static_cast<double>(model_.TokensOf(sample)) *
             static_cast<double>(microbatches_.all);
  }
  return static_cast<float>(1.0 / tokens);
}

absl::Status ModelWorker::BeginStart(const Start& start) {
  start_ = start;
  if (start.is_false) forwards_of_false_start_ = forwards_;
  if (!start.again) return absl::OkStatus();
  // What the false start has computed stands on weights that are undone.
  forwards_ = forwards_of_false_start_;
  inputs_.clear();
  outputs_.clear();
  issued_.clear();
  for (auto& [key, stage] : stages_) stage->DropActivations();
  return absl::OkStatus();
}

void ModelWorker::Forget() {
  EndThreads();
  inputs_.clear();
  outputs_.clear();
  issued_.clear();
  for (auto& [key, stage] : stages_) stage->DropActivations();
}

void ModelWorker::TakeInput(Pass pass, int, Payload payload) {
  const int stage = UnitOf(pass);
  if (options_.alone) {
    failed_.Update(
        CopyOut(stand_in_.data.get(), model_.BoundaryBytes(), &payload));
  }
  inputs_[{IsForwardInput(pass), stage, pass.direction(), pass.microbatch(),
           pass.slice()}] = std::move(payload);
}

Payload ModelWorker::GiveOutput(Pass pass, int) {
  const int stage = UnitOf(pass);
  const InputKey key = {IsForwardInput(pass), stage, pass.direction(),
                        pass.microbatch(), pass.slice()};
  const auto found = outputs_.find(key);
  PW_CHECK(found != outputs_.end());
  Payload payload = std::move(found->second);
  outputs_.erase(found);
  arena_->ChargeMessages(&payload);
  return payload;
}

absl::StatusOr<Payload> ModelWorker::TakeMemory(size_t bytes) {
  return arena_->TakeSettledForMessages(bytes);
}

absl::StatusOr<double> ModelWorker::Timed(
    const std::function<absl::Status()>& work, bool held) {
  std::unique_lock<std::mutex> token;
  if (options_.token != nullptr) {
    token = std::unique_lock<std::mutex>(*options_.token);
  } else if (!options_.parts &&
             absl::string_view(handle_.kernels->name) == "cuda") {
    token = std::unique_lock<std::mutex>(GpuToken());
  }
  const PwKernels& kernels = *handle_.kernels;
  held = held && holds_;
  if (held) {
    PW_RETURN_IF_ERROR(Failed(
        kernels.hold_stream(handle_.device, handle_.stream), "hold a pass"));
  }
  absl::Status queued =
      Failed(kernels.record(handle_.device, handle_.stream, begin_), "event");
  if (queued.ok()) queued = work();
  if (queued.ok()) {
    queued =
        Failed(kernels.record(handle_.device, handle_.stream, end_), "event");
  }
  // Whatever happened: what is held would run into its time-out. A pass of
  // more launches than the driver queues has done so: its time is that of the
  // events all the same, with gaps, and so are those of the passes after it.
  if (held && kernels.release_streams(handle_.device) != PW_OK) holds_ = false;
  PW_RETURN_IF_ERROR(queued);
  PW_RETURN_IF_ERROR(Failed(kernels.synchronize(handle_.device, handle_.stream),
                            "synchronize"));
  arena_->Settle();
  double seconds = 0;
  PW_RETURN_IF_ERROR(
      Failed(kernels.elapsed(handle_.device, begin_, end_, &seconds), "event"));
  return seconds;
}

// Gradients of a new step begin at 0.
absl::Status ModelWorker::Refresh(StageKey key) {
  if (!std::exchange(stale_[key], false)) return absl::OkStatus();
  return StageOf(key.first, key.second).ZeroGradients();
}

absl::StatusOr<double> ModelWorker::RunPass(Pass pass, int) {
  const int stage = UnitOf(pass);
  PW_RETURN_IF_ERROR(failed_);
  if (pass.kind() != PassKind::kForward &&
      pass.kind() != PassKind::kRecompute) {
    PW_RETURN_IF_ERROR(Refresh({stage, pass.direction()}));
    if (StageOf(stage, pass.direction()).shares_table()) {
      PW_RETURN_IF_ERROR(Refresh({0, pass.direction()}));
    }
  }
  // Memory of another rank, which may use it again as soon as this returns.
  Payload held;
  PW_ASSIGN_OR_RETURN(
      const double seconds,
      Timed([&] { return RunKernels(pass, stage, &held); }, /*held=*/true));
  StageOf(stage, pass.direction()).TakeLosses();
  PW_RETURN_IF_ERROR(Reshard(pass));
  return seconds;
}

absl::Status ModelWorker::RunKernels(Pass pass, int stage, Payload* held) {
  Stage& target = StageOf(stage, pass.direction());
  const Stage::Key key = {pass.microbatch(), pass.slice()};
  const bool forward = pass.kind() == PassKind::kForward;
  if (pass.kind() == PassKind::kBackwardWeight) {
    return target.BackwardWeight(key);
  }
  if (pass.kind() == PassKind::kRecompute) return target.Recompute(key);
  Payload input;
  const InputKey from = {forward, stage, pass.direction(), pass.microbatch(),
                         pass.slice()};
  if (!(forward ? target.first() : target.last())) {
    const auto found = inputs_.find(from);
    if (found == inputs_.end()) {
      return absl::InternalError(
          absl::StrCat("rank ", self_.rank, ": ",
                       PassToString(*own().schedule, rank().Whole(pass)),
                       " begins without its input"));
    }
    input = std::move(found->second);
    inputs_.erase(found);
    arena_->ChargeUsed(&input);
    *held = input;
  }
  Payload output;
  const int64_t sample = SampleOf(pass, 0);
  if (forward) {
    int& times =
        forwards_[{stage, pass.direction(), pass.microbatch(), pass.slice()}];
    const int iteration = times++;
    PW_RETURN_IF_ERROR(target.Forward(key, SampleOf(pass, iteration),
                                      Behind(iteration), std::move(input),
                                      &output));
    if (target.last()) return absl::OkStatus();
  } else if (pass.kind() == PassKind::kBackwardInput) {
    PW_RETURN_IF_ERROR(target.BackwardInput(key, std::move(input),
                                            LossScale(sample), &output));
  } else {
    PW_RETURN_IF_ERROR(
        target.BackwardFull(key, std::move(input), LossScale(sample), &output));
  }
  if (!forward && target.first()) return absl::OkStatus();
  // To the next stage, on this rank or another.
  const int next = forward ? stage + 1 : stage - 1;
  const bool local = units_.RankOf(next, pass.direction()) == self_.rank;
  InputKey to = from;
  if (local) std::get<1>(to) = next;
  (local ? inputs_ : outputs_)[to] = std::move(output);
  return absl::OkStatus();
}

}  // namespace pipewright

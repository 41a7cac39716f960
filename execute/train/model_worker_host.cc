// What a worker's program does with the memory of its host: copies of
// activations, and the step of an optimizer that lives there.
#include <time.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "execute/train/model_worker.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// As events of the CPU's kernels count.
double SecondsOfThread() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

absl::Status ModelWorker::IssueCopy(Pass pass, int stage) {
  Stage& target = StageOf(stage, pass.direction());
  const Stage::Key key = {pass.microbatch(), pass.slice()};
  PW_ASSIGN_OR_RETURN(HostCopy copy, pass.kind() == PassKind::kOffload
                                         ? target.BeginOffload(key)
                                         : target.BeginLoad(key));
  issued_[pass.bits()] = std::move(copy);
  record_.peak_activations = std::max(record_.peak_activations, HeldNow());
  return absl::OkStatus();
}

HostCopy ModelWorker::TakeIssued(Pass pass) {
  const auto found = issued_.find(pass.bits());
  PW_CHECK(found != issued_.end());
  HostCopy copy = std::move(found->second);
  issued_.erase(found);
  return copy;
}

absl::StatusOr<double> ModelWorker::RunCopy(Pass pass, int) {
  const HostCopy copy = TakeIssued(pass);
  return Timed([&] { return copy.Run(handle_, handle_.stream); });
}

void ModelWorker::StartCopy(Pass pass, int,
                            std::function<void(absl::Status)> ended) {
  if (copies_ == nullptr) copies_ = std::make_unique<CopyEngine>();
  const auto direction = pass.kind() == PassKind::kOffload
                             ? CopyEngine::kToHost
                             : CopyEngine::kToDevice;
  copies_->Start(
      direction,
      [copy = TakeIssued(pass), handle = handle_,
       stream = copy_streams_[direction]] { return copy.Run(handle, stream); },
      std::move(ended));
}

absl::Status ModelWorker::FreeOffloaded(Pass pass, int stage) {
  return StageOf(stage, pass.direction())
      .FreeOffloaded({pass.microbatch(), pass.slice()});
}

void ModelWorker::EndThreads() {
  ends_.store(true, std::memory_order_relaxed);
  copies_.reset();
  for (auto& [stream, beside] : beside_) {
    beside.thread.reset();
    handle_.kernels->destroy_stream(handle_.device, beside.stream);
  }
  beside_.clear();
}

absl::Status ModelWorker::MakeHostStep() {
  std::vector<SteppedPart> parts;
  for (auto& [key, stage] : stages_) {
    const auto [begin, end] = OwnShard(*stage);
    parts.push_back({.stage = stage.get(),
                     .number = key.first,
                     .begin = begin,
                     .end = end});
  }
  PW_ASSIGN_OR_RETURN(
      host_step_, HostOptimizer::Create(program_, self_.rank, options_.offload,
                                        parts, handle_, model_.shape.type,
                                        arena_.get(), host_.get()));
  return absl::OkStatus();
}

// Shared parameters have been written: those that passes use follow.
absl::Status ModelWorker::PublishShared(Stage* stage) {
  return host_step_ != nullptr ? stage->FinishWeights()
                               : stage->Publish(0, stage->parameters());
}

// On the rank's own thread: what must be so before the operation runs.
absl::StatusOr<HostOptimizer::Step> ModelWorker::BeginHostOp(int32_t side_op) {
  PW_RETURN_IF_ERROR(failed_);
  HostOptimizer::Step step = {.adam = model_.adam,
                              .may_undo = !program_.undone_steps.empty()};
  step.adam.step = steps_ + 1;
  step.adam.gradient_scale = 1;
  const bool repeats = OpOf(side_op).if_undone;
  if (options_.synchronised && (!host_step_->early() || repeats)) {
    step.adam.gradient_scale = ClipScale(start_.iteration, full_);
  }
  // Other stages may still be adding up.
  if (host_step_->CopiesGradients(side_op)) {
    PW_RETURN_IF_ERROR(Assemble({OpOf(side_op).stage, 0}));
  }
  if (!host_step_->NeedsNorm(side_op) || stepping_) return step;
  stepping_ = true;
  if (host_step_->early() && !options_.alone) {
    // It has stepped already; the program knows whether it was to.
    const bool fails =
        full_.not_finite > 0 || ClipScale(start_.iteration, full_) < 1;
    if (fails != start_.undone) {
      return absl::InternalError(absl::StrCat(
          "rank ", self_.rank, ": the early step of iteration ",
          start_.iteration, fails ? " fails" : " holds", " (norm ",
          std::sqrt(full_.squares), ", values not finite ", full_.not_finite,
          "), which the program does not expect; see "
          "strategy.rollback_iterations"));
    }
  }
  if (options_.keeps_first_step && steps_ == 0) {
    PW_RETURN_IF_ERROR(Assemble());
    PW_RETURN_IF_ERROR(KeepFirstStep());
  }
  PW_RETURN_IF_ERROR(ForgetOthers());
  return step;
}

absl::StatusOr<double> ModelWorker::RunHostStep(int32_t side_op) {
  PW_ASSIGN_OR_RETURN(const HostOptimizer::Step step, BeginHostOp(side_op));
  const auto run = [&] {
    return host_step_->Run(side_op, step, handle_.stream);
  };
  if (!host_step_->OnCores(side_op)) return Timed(run);
  const double start_s = SecondsOfThread();
  PW_RETURN_IF_ERROR(run());
  return SecondsOfThread() - start_s;
}

// Work beside compute on the operation's stream.
ModelWorker::Beside& ModelWorker::BesideOf(int32_t side_op) {
  Beside& beside = beside_[OpOf(side_op).stream];
  if (beside.thread == nullptr) {
    beside.thread = std::make_unique<WorkThread>();
    failed_.Update(Failed(
        handle_.kernels->create_stream(handle_.device, 0, &beside.stream),
        "stream beside compute"));
  }
  return beside;
}

void ModelWorker::StartSideOp(int32_t side_op, const Start& start,
                              std::function<void(absl::Status)> ended) {
  start_ = start;
  Beside& beside = BesideOf(side_op);
  absl::Status ready = failed_;
  absl::StatusOr<HostOptimizer::Step> step = BeginHostOp(side_op);
  ready.Update(step.status());
  beside.thread->Start(
      [this, side_op, ready, step = step.ok() ? *step : HostOptimizer::Step(),
       stream = beside.stream] {
        return ready.ok() ? host_step_->Run(side_op, step, stream) : ready;
      },
      std::move(ended));
}

// All that the host has done for this iteration has come back.
absl::Status ModelWorker::EndHostStep() {
  if (host_step_ == nullptr || !std::exchange(stepping_, false)) {
    return absl::OkStatus();
  }
  ++steps_;
  for (auto& [key, stage] : stages_) {
    PW_RETURN_IF_ERROR(stage->FinishWeights());
  }
  return absl::OkStatus();
}

absl::Status ModelWorker::CopyHostMaster(int stage, StageSnapshot* snapshot) {
  if (host_step_ == nullptr) return absl::OkStatus();
  const std::vector<SteppedPart>& parts = host_step_->parts();
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].number != stage) continue;
    PW_RETURN_IF_ERROR(host_step_->CopyMaster(
        part, snapshot->weights.data() + parts[part].begin));
  }
  return absl::OkStatus();
}

}  // namespace pipewright

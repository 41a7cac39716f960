#include "execute/train/optimizer_steps.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
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

Payload NormSums::ToPayload() const {
  auto owner = std::make_shared<NormSums>(*this);
  return {.data = std::shared_ptr<void>(owner, owner.get()),
          .bytes = sizeof(NormSums)};
}

void GradientNorm::TakeFull(const std::vector<Payload>& parts) {
  full = {};
  for (const Payload& part : parts) {
    full.squares += NormSums::Of(part).squares;
    full.not_finite += NormSums::Of(part).not_finite;
  }
}

double GradientNorm::value() const { return std::sqrt(full.squares); }

float GradientNorm::ClipScale(const ExecutedModel& model, int iteration) const {
  const double limit = model.NormLimit(iteration, value(), model.clip_norm);
  return limit <= 0 || value() <= limit ? 1.0f
                                        : static_cast<float>(limit / value());
}

void GradientSums::Open() {
  if (!stages_.sharded()) return;
  for (const auto& [key, stage] : stages_.all()) {
    const auto [begin, end] = stages_.OwnShard(*stage);
    sums_[key].resize(end - begin);
  }
}

size_t GradientSums::bytes() const {
  size_t bytes = 0;
  for (const auto& [key, sums] : sums_) bytes += sums.size() * sizeof(float);
  return bytes;
}

absl::Status GradientSums::Refresh(Key key) {
  if (!std::exchange(stale_[key], false)) return absl::OkStatus();
  return stages_.at(key).ZeroGradients();
}

void GradientSums::Forget() {
  for (const auto& [key, stage] : stages_.all()) stale_[key] = true;
  for (auto& [key, sums] : sums_) std::fill(sums.begin(), sums.end(), 0.0f);
  not_assembled_.clear();
}

std::vector<float*> GradientSums::ReducedBy(int32_t side_op,
                                            int64_t* count) const {
  std::vector<float*> reduced;
  const bool tied = stages_.op(side_op).tied;
  const int unit = stages_.UnitOfOp(side_op);
  for (auto& [key, stage] : stages_.all()) {
    if (!tied && key.first != unit) continue;
    float* const own = tied ? stage->table_gradients() : stage->gradients();
    if (own == nullptr) continue;
    reduced.push_back(own);
    *count = tied ? stages_.model().TableElements() : stage->parameters();
  }
  return reduced;
}

absl::Status GradientSums::GivePart(int32_t side_op, Payload* payload) const {
  int64_t count = 0;
  const std::vector<float*> mine = ReducedBy(side_op, &count);
  absl::Status given =
      device_.CopyOut(mine[0], static_cast<size_t>(count) * 4, payload);
  for (size_t copy = 1; copy < mine.size(); ++copy) {
    given.Update(device_.Accumulate(count, mine[copy],
                                    static_cast<float*>(payload->data.get()),
                                    "accumulate"));
  }
  return given;
}

absl::Status GradientSums::TakeParts(int32_t side_op,
                                     const std::vector<Payload>& parts) const {
  int64_t count = 0;
  for (float* const gradients : ReducedBy(side_op, &count)) {
    PW_RETURN_IF_ERROR(SumParts(parts, gradients));
  }
  return absl::OkStatus();
}

// In the order of the members, so that all of them get the same bits.
absl::Status GradientSums::SumParts(const std::vector<Payload>& parts,
                                    float* into) const {
  const auto count = static_cast<int64_t>(parts[0].bytes / 4);
  PW_RETURN_IF_ERROR(device_.Copy(PW_DEVICE_TO_DEVICE, into,
                                  parts[0].data.get(), parts[0].bytes,
                                  "reduce"));
  for (size_t member = 1; member < parts.size(); ++member) {
    PW_RETURN_IF_ERROR(
        device_.Accumulate(count, parts[member].data.get(), into, "reduce"));
  }
  return absl::OkStatus();
}

absl::Status GradientSums::Add(int unit, const std::vector<Payload>& parts) {
  Payload sum;
  PW_ASSIGN_OR_RETURN(sum, device_.memory().TakeForMessages(parts[0].bytes));
  PW_RETURN_IF_ERROR(SumParts(parts, static_cast<float*>(sum.data.get())));
  std::vector<float>& total = sums_.at({unit, 0});
  std::vector<float> host(total.size());
  PW_RETURN_IF_ERROR(device_.Copy(PW_DEVICE_TO_HOST, host.data(),
                                  sum.data.get(), sum.bytes, "reduce"));
  PW_RETURN_IF_ERROR(device_.Synchronize("reduce"));
  for (size_t index = 0; index < host.size(); ++index) {
    total[index] += host[index];
  }
  not_assembled_.insert({unit, 0});
  return absl::OkStatus();
}

void GradientSums::TakeSums(int unit, float* sums) {
  std::vector<float>& total = sums_.at({unit, 0});
  const size_t bytes = total.size() * sizeof(float);
  std::memcpy(total.data(), sums, bytes);
  std::memset(sums, 0, bytes);
  not_assembled_.insert({unit, 0});
}

absl::Status GradientSums::Assemble() {
  for (const auto& [key, sums] : sums_) PW_RETURN_IF_ERROR(Assemble(key));
  return absl::OkStatus();
}

absl::Status GradientSums::Assemble(Key key) {
  if (stale_[key] || not_assembled_.erase(key) == 0) return absl::OkStatus();
  const std::vector<float>& sums = sums_.at(key);
  Stage& stage = stages_.at(key);
  const auto [begin, end] = stages_.OwnShard(stage);
  PW_RETURN_IF_ERROR(device_.Copy(PW_HOST_TO_DEVICE, stage.gradients() + begin,
                                  sums.data(), sums.size() * 4, "shard"));
  return device_.Synchronize("shard");
}

absl::Status GradientSums::AddNorm(NormSums* sums) {
  PW_RETURN_IF_ERROR(Assemble());
  for (auto& [key, stage] : stages_.all()) {
    if (key.second != 0) continue;
    const auto [begin, end] = stages_.OwnShard(*stage);
    double of_stage[2] = {0, 0};
    PW_RETURN_IF_ERROR(stage->SquareSum(std::min(begin, stage->counted()),
                                        std::min(end, stage->counted()),
                                        of_stage));
    sums->squares += of_stage[0];
    sums->not_finite += of_stage[1];
  }
  return absl::OkStatus();
}

absl::Status OptimizerSteps::Open() {
  if (!options_.offload.active()) return absl::OkStatus();
  std::vector<SteppedPart> parts;
  for (auto& [key, stage] : stages_.all()) {
    const auto [begin, end] = stages_.OwnShard(*stage);
    parts.push_back({.stage = stage.get(),
                     .number = key.first,
                     .begin = begin,
                     .end = end});
  }
  PW_ASSIGN_OR_RETURN(
      host_, HostOptimizer::Create(stages_.program(), stages_.self().rank,
                                   options_.offload, parts, device_.handle(),
                                   stages_.model().shape.type,
                                   &device_.memory(), &device_.host()));
  return absl::OkStatus();
}

// All microbatches of an iteration use the weights of one step, the first of
// them before it is the newest, the last behind it.
int OptimizerSteps::Behind(int iteration) const {
  const int delay = stages_.model().weight_delay;
  if (delay == 0) return 0;
  const int64_t wanted = std::max(0, iteration - delay);
  return static_cast<int>(std::max<int64_t>(0, steps_ - wanted));
}

absl::Status OptimizerSteps::KnowPartialNorm() {
  if (norm_.has_partial) return absl::OkStatus();
  norm_.partial = norm_.above;
  PW_RETURN_IF_ERROR(gradients_.AddNorm(&norm_.partial));
  norm_.has_partial = true;
  if (stages_.self().rank + 1 == stages_.program().pp()) {
    norm_.full = norm_.partial;
  }
  return absl::OkStatus();
}

absl::StatusOr<double> OptimizerSteps::Run(int32_t side_op,
                                           const Start& start) {
  if (host_ != nullptr && host_->Has(side_op)) {
    return RunHostStep(side_op, start);
  }
  switch (stages_.op(side_op).kind) {
    case OpKind::kOptimizer:
      return RunStep(start);
    case OpKind::kValidate: {
      const int iteration = start.iteration - 1;
      if (options_.alone ||
          norm_.Fails(stages_.model(), iteration) == start.is_false) {
        return 0.0;
      }
      return Misjudged("the step", iteration,
                       start.is_false ? "holds" : "fails its validation");
    }
    case OpKind::kRollback:
      --steps_;
      return device_.Timed([&]() -> absl::Status {
        for (auto& [key, stage] : stages_.all()) {
          PW_RETURN_IF_ERROR(stage->Restore());
        }
        return absl::OkStatus();
      });
    case OpKind::kPredict: {
      // As many steps as lie between this forward and its backward.
      const auto ahead = static_cast<int>(stages_.rank().later_start);
      return device_.Timed([&]() -> absl::Status {
        for (auto& [key, stage] : stages_.all()) {
          PW_RETURN_IF_ERROR(stage->Predict(steps_, ahead));
        }
        return absl::OkStatus();
      });
    }
    default:
      return 0.0;
  }
}

absl::StatusOr<double> OptimizerSteps::RunStep(const Start& start) {
  float scale = 1;
  if (start.is_false) {
    // The step of the iteration before once more, as it should have been.
    scale = norm_.ClipScale(stages_.model(), start.iteration - 1);
  } else if (!stages_.program().false_starts.empty() ||
             options_.post_validated) {
    PW_RETURN_IF_ERROR(KnowPartialNorm());
    for (auto& [key, stage] : stages_.all()) PW_RETURN_IF_ERROR(stage->Save());
  } else {
    PW_RETURN_IF_ERROR(gradients_.Assemble());
    if (options_.keeps_first_step && steps_ == 0) {
      PW_RETURN_IF_ERROR(KeepFirstStep());
    }
    if (options_.synchronised)
      scale = norm_.ClipScale(stages_.model(), start.iteration);
  }
  return device_.Timed([&] { return StepAll(scale); });
}

absl::Status OptimizerSteps::Misjudged(const char* step, int iteration,
                                       const char* outcome) const {
  return absl::InternalError(
      absl::StrCat("rank ", stages_.self().rank, ": ", step, " of iteration ",
                   iteration, " ", outcome, " (norm ", norm_.value(),
                   ", values not finite ", norm_.full.not_finite,
                   "), which the program does not expect; see "
                   "strategy.rollback_iterations"));
}

absl::Status OptimizerSteps::StepAll(float scale) {
  ++steps_;
  norm_.has_partial = false;
  for (auto& [key, stage] : stages_.all()) {
    const auto [begin, end] = stages_.OwnShard(*stage);
    PW_RETURN_IF_ERROR(stage->Step(steps_, scale, begin, end));
  }
  gradients_.Forget();
  PW_RETURN_IF_ERROR(ForgetOthers());
  return owners_.ShowWeights();
}

absl::Status OptimizerSteps::ForgetOthers() {
  if (options_.alone || !stages_.sharded()) return absl::OkStatus();
  for (const auto& [key, stage] : stages_.all()) {
    PW_RETURN_IF_ERROR(stages_.ForgetOthers(*stage));
  }
  return absl::OkStatus();
}

absl::StatusOr<HostOptimizer::Step> OptimizerSteps::BeginHostOp(
    int32_t side_op, const Start& start) {
  const SideOp& op = stages_.op(side_op);
  HostOptimizer::Step step = {
      .adam = stages_.model().adam,
      .may_undo = !stages_.program().undone_steps.empty()};
  step.adam.step = steps_ + 1;
  step.adam.gradient_scale = 1;
  if (options_.synchronised && (!host_->early() || op.if_undone)) {
    step.adam.gradient_scale =
        norm_.ClipScale(stages_.model(), start.iteration);
  }
  // Other stages may still be adding up.
  if (host_->CopiesGradients(side_op)) {
    PW_RETURN_IF_ERROR(gradients_.Assemble({op.stage, 0}));
  }
  if (!host_->NeedsNorm(side_op) || stepping_) return step;
  stepping_ = true;
  // It has stepped already; the program knows whether it was to.
  if (host_->early() && !options_.alone &&
      norm_.Fails(stages_.model(), start.iteration) != start.undone) {
    return Misjudged("the early step", start.iteration,
                     start.undone ? "holds" : "fails");
  }
  if (options_.keeps_first_step && steps_ == 0) {
    PW_RETURN_IF_ERROR(gradients_.Assemble());
    PW_RETURN_IF_ERROR(KeepFirstStep());
  }
  PW_RETURN_IF_ERROR(ForgetOthers());
  return step;
}

absl::StatusOr<double> OptimizerSteps::RunHostStep(int32_t side_op,
                                                   const Start& start) {
  PW_ASSIGN_OR_RETURN(const HostOptimizer::Step step,
                      BeginHostOp(side_op, start));
  const auto run = [&] {
    return RunHostOp(side_op, step, device_.handle().stream);
  };
  if (!host_->OnCores(side_op)) return device_.Timed(run);
  const double start_s = SecondsOfThread();
  PW_RETURN_IF_ERROR(run());
  return SecondsOfThread() - start_s;
}

absl::Status OptimizerSteps::PublishShared(Stage& stage) const {
  return host_ != nullptr ? stage.FinishWeights()
                          : stage.Publish(0, stage.parameters());
}

bool OptimizerSteps::WantsSnapshot(int iteration) const {
  const std::vector<int>& wanted = options_.snapshot_iterations;
  return std::find(wanted.begin(), wanted.end(), iteration) != wanted.end();
}

absl::Status OptimizerSteps::EndIteration(int iteration) {
  // All that the host has done for this iteration has come back.
  if (std::exchange(stepping_, false)) {
    ++steps_;
    for (auto& [key, stage] : stages_.all()) {
      PW_RETURN_IF_ERROR(stage->FinishWeights());
    }
  }
  if (WantsSnapshot(iteration)) {
    PW_RETURN_IF_ERROR(gradients_.Assemble());
    PW_RETURN_IF_ERROR(TakeSnapshots(iteration, &record_.snapshots));
  }
  gradients_.Forget();
  return absl::OkStatus();
}

absl::Status OptimizerSteps::KeepFirstStep() {
  for (const auto& [key, stage] : stages_.all()) {
    for (const auto& [microbatch, loss] : stage->losses()) {
      record_.first_loss_sum += loss;
    }
  }
  return TakeSnapshots(0, &record_.first_step);
}

absl::Status OptimizerSteps::TakeSnapshots(
    int iteration, std::vector<StageSnapshot>* snapshots) {
  for (auto& [key, stage] : stages_.all()) {
    StageSnapshot snapshot = {.iteration = iteration,
                              .stage = key.first,
                              .bidirectional = key.second};
    const auto count = static_cast<size_t>(stage->parameters());
    snapshot.gradients.resize(count);
    snapshot.weights.resize(count);
    const std::pair<std::vector<float>*, const float*> sources[] = {
        {&snapshot.gradients, stage->gradients()},
        {&snapshot.weights, stage->master()}};
    for (const auto& [host, device] : sources) {
      if (device == nullptr) continue;  // below
      PW_RETURN_IF_ERROR(device_.Copy(PW_DEVICE_TO_HOST, host->data(), device,
                                      count * 4, "snapshot"));
    }
    PW_RETURN_IF_ERROR(device_.Synchronize("snapshot"));
    std::tie(snapshot.begin, snapshot.end) = stages_.OwnShard(*stage);
    for (size_t part = 0; host_ != nullptr && part < host_->parts().size();
         ++part) {
      const SteppedPart& of_host = host_->parts()[part];
      if (of_host.number != key.first) continue;
      PW_RETURN_IF_ERROR(
          host_->CopyMaster(part, snapshot.weights.data() + of_host.begin));
    }
    snapshots->push_back(std::move(snapshot));
  }
  return absl::OkStatus();
}

}  // namespace pipewright

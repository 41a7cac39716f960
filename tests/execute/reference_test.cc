// The float64 reference: it agrees with kernels that are right, and finds those
// that are wrong where the sequential run, which calls the same ones, does not.
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "execute/train/training.h"
#include "tests/support/faulty_kernels.h"
#include "tests/support/small_training.h"

namespace pipewright::reference_test {
namespace {

using testing::FaultyKernels;
using testing::KernelFault;
using testing::MakeSmallTraining;
using testing::SmallTraining;

constexpr float kLearningRate = 1e-3f;

struct Options {
  int dp = 1;
  DataParallel mode = DataParallel::kDdp;
  PwStyle style = PW_GPT;
  PwType type = PW_FP32;
  bool fp8 = false;
  bool experts = false;
  bool balanced = true;
};

SmallTraining Make(const std::string& schedule, const Options& options) {
  SmallTraining training =
      MakeSmallTraining(schedule, 2, options.dp, WaitRule::kBuffered, 2,
                        options.mode)
          .value();
  const ExecutedModel old = training.model;
  training.model =
      testing::SmallModel(options.style, old.num_stages(), old.slices);
  training.model.batch = 2;
  training.model.adam.learning_rate = kLearningRate;
  PwModel& shape = training.model.shape;
  shape.type = options.type;
  if (options.fp8) {
    training.model.sequence = shape.sequence = 32;
    shape.fp8_linear = 1;
  }
  if (options.experts) {
    shape.experts = 4;
    shape.experts_per_token = 2;
    shape.expert_ffn = 16;
    shape.shared_ffn = 8;
    shape.ep = 1;
    shape.balanced = options.balanced ? 1 : 0;
    for (std::vector<StagePart>& stage : training.model.stages) {
      for (StagePart& part : stage) {
        if (part.layer % 2 == 1) part.part = PW_EXPERT_LAYER;
      }
    }
  }
  SetWeightVersions(*training.schedule, &training.model);
  training.options.reference = true;
  KeepFirstStep(training.program, &training.options.worker);
  return training;
}

TrainedRun Train(const SmallTraining& training,
                 const PwKernels* kernels = pw_cpu_kernels()) {
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(training.program, training.model, kernels, training.options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  REQUIRE(trained->reference.has_value());
  return *trained;
}

void CheckAgrees(const TrainedRun& run) {
  const ReferenceCheck& check = *run.reference;
  INFO("loss " << check.loss << " and " << check.reference_loss
               << ", gradients " << check.gradient_error << " in "
               << check.worst_gradient << ", weights "
               << check.weight_error.value_or(-1) << " in "
               << check.worst_weight << ", missing " << check.missing);
  CHECK(check.ok());
  CHECK(check.loss_error() < 1e-6);
  CHECK(check.gradient_error > 0);
  CHECK(check.gradient_error < 1e-5);
  CHECK(check.tolerance == 1e-4);
}

TEST_CASE("reference: agrees with the kernels under every kind of schedule",
          "[execute]") {
  for (const PwStyle style : {PW_GPT, PW_LLAMA}) {
    for (const char* schedule :
         {"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "zb-v", "seq1f1b",
          "chimera", "dualpipe", "dualpipe-v", "pipedream-2bw", "pipeoptim"}) {
      INFO(schedule << (style == PW_GPT ? " gpt" : " llama"));
      const SmallTraining training = Make(schedule, {.style = style});
      const TrainedRun run = Train(training);
      CHECK(run.check.ok());
      CheckAgrees(run);
      // If an iteration has several steps, weights behind the first are not
      // kept.
      CHECK(run.reference->weight_error.has_value() ==
            (std::string(schedule) != "pipeoptim"));
      CHECK(run.reference->weight_error.value_or(0) < 1e-3);
    }
  }
}

TEST_CASE("reference: copies, shards, experts and recomputation", "[execute]") {
  for (const DataParallel mode : {DataParallel::kDdp, DataParallel::kZero1,
                                  DataParallel::kZero2, DataParallel::kFsdp}) {
    INFO("data parallel " << static_cast<int>(mode));
    CheckAgrees(Train(Make("zb-h1", {.dp = 2, .mode = mode})));
  }
  for (const PwStyle style : {PW_GPT, PW_LLAMA}) {
    for (const bool balanced : {true, false}) {
      INFO("experts of style " << style << " balanced " << balanced);
      CheckAgrees(Train(Make(
          "zb-v", {.style = style, .experts = true, .balanced = balanced})));
    }
  }
  SmallTraining recomputes = Make("1f1b", {});
  recomputes.model.recompute = true;
  CheckAgrees(Train(recomputes));
  SmallTraining clipped = Make("1f1b", {});
  clipped.model.clip_norm = 1e-3;
  CheckAgrees(Train(clipped));
  SmallTraining all = Make("1f1b", {});
  all.model.shape.causal = 0;
  CheckAgrees(Train(all));
}

TEST_CASE("reference: finds kernels that are wrong in both runs alike",
          "[execute]") {
  // Without B gradients are of memory that nobody has written: a NaN counts as
  // infinity.
  constexpr double kAnything = std::numeric_limits<double>::infinity();
  const struct {
    KernelFault fault;
    double least;  // error that it makes
    double most;
  } faults[] = {{KernelFault::kNoWeightPass, 0.999, 1.001},
                {KernelFault::kNoInputPass, 0.5, kAnything},
                {KernelFault::kWeightPassScaled, 9.9e-3, 1.01e-2},
                {KernelFault::kInputPassScaled, 9e-3, 1e-1},
                {KernelFault::kMaskOffByOne, 1e-3, 1},
                {KernelFault::kNoBias, 1e-3, 10},
                {KernelFault::kNoBiasGradient, 0.999, 10},
                {KernelFault::kEmbeddingNotAdded, 0.1, 2},
                {KernelFault::kNoGainGradient, 0.999, 1.001}};
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    const SmallTraining training = Make(schedule, {});
    CheckAgrees(Train(training, FaultyKernels(KernelFault::kNone)));
    for (const auto& [fault, least, most] : faults) {
      const TrainedRun run = Train(training, FaultyKernels(fault));
      const ReferenceCheck& check = *run.reference;
      INFO(schedule << " fault " << static_cast<int>(fault) << " gradients "
                    << check.gradient_error << " in " << check.worst_gradient);
      CHECK_FALSE(check.ok());
      CHECK(check.gradient_error >= least);
      CHECK(check.gradient_error <= most);
      if (fault == KernelFault::kNoInputPass) continue;
      CHECK(run.check.ok());
      CHECK(run.check.same_bits);
    }
  }
  FaultyKernels(KernelFault::kNone);
}

TEST_CASE("reference: finds a wrong step of the optimizer", "[execute]") {
  const SmallTraining training = Make("1f1b", {});
  const TrainedRun run =
      Train(training, FaultyKernels(KernelFault::kNoWeightDecay));
  FaultyKernels(KernelFault::kNone);
  CHECK(run.check.same_bits);
  CHECK(run.reference->gradient_error < 1e-5);
  REQUIRE(run.reference->weight_error.has_value());
  CHECK(*run.reference->weight_error > 1e-2);
  CHECK_FALSE(run.reference->ok());
}

TEST_CASE("reference: a stage or a copy that says nothing fails it",
          "[execute]") {
  const SmallTraining training = Make("zb-v", {.dp = 2});
  TrainedRun run = Train(training);
  const ReferenceRun reference =
      RunReference(training.model, FirstStepMicrobatches(training.program))
          .value();
  const auto check = [&] {
    return CheckReference(training.program, training.model, run.records,
                          training.options.worker.synchronised, reference);
  };
  CHECK(check().ok());
  float& gradient = run.records[3].snapshots[0].gradients[5];
  const float right = gradient;
  gradient += 1;
  CHECK_FALSE(check().ok());
  CHECK(absl::StrContains(check().worst_gradient, " of stage "));
  gradient = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(check().ok());
  gradient = right;
  run.records[1].loss_sum[0] = std::numeric_limits<double>::quiet_NaN();
  run.records[0].loss_sum[0] = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(check().ok());
  run = Train(training);
  run.records[3].snapshots.clear();
  CHECK(check().missing > 0);
  CHECK_FALSE(check().ok());
}

TEST_CASE("reference: what rounding to fewer bits may do", "[execute]") {
  for (const PwStyle style : {PW_GPT, PW_LLAMA}) {
    const ReferenceCheck half =
        *Train(Make("zb-h1", {.style = style, .type = PW_BF16}),
               FaultyKernels(KernelFault::kNone))
             .reference;
    INFO("bf16 " << half.gradient_error << " in " << half.worst_gradient);
    CHECK(half.tolerance == 2e-2);
    CHECK(half.gradient_error > 1e-4);
    CHECK(half.ok());
    const ReferenceCheck eighth =
        *Train(Make("zb-h1", {.style = style, .fp8 = true})).reference;
    INFO("fp8 " << eighth.gradient_error << " in " << eighth.worst_gradient);
    CHECK(eighth.gradient_error > 2e-3);
    CHECK(eighth.ok());
  }
  const ReferenceCheck none = *Train(Make("zb-h1", {.fp8 = true}),
                                     FaultyKernels(KernelFault::kNoWeightPass))
                                   .reference;
  FaultyKernels(KernelFault::kNone);
  CHECK_FALSE(none.ok());
}

TEST_CASE("reference: what it costs is known before", "[execute]") {
  const ExecutedModel model = testing::SmallModel(PW_GPT, 2, 1);
  // Layers: qkv 3 * 32^2, out 32^2, up and down 2 * 32 * 48; head 61 * 32;
  // attention sees half of 24 keys, twice in F and, with the scores again,
  // five times in B.
  const double matrices = 4 * (4 * 32 * 32 + 2 * 32 * 48) + 61 * 32;
  const double attention = 4 * 7 * 24 / 2.0 * 32;
  CHECK(ReferenceProducts(model, 3) ==
        Approx(3 * 24 * (3 * matrices + attention)).epsilon(0.02));
  CHECK(ReferenceParameters(model) ==
        Approx(matrices + 61 * 32 + 24 * 32).epsilon(0.05));
}

}  // namespace
}  // namespace pipewright::reference_test

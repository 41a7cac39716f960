// Muon's work, shares and bytes, counted by hand from the sizes of a model's
// matrices: neither the inventory of operations nor its kernels take part.
#include "sim/cost/optimizer_time.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/memory/stage_memory.h"

namespace pipewright::optimizer_time_test {
namespace {

// Outputs and inputs.
using Sizes = std::vector<std::pair<double, double>>;

AnalyticOptions OnH100() {
  AnalyticOptions options = {.device = *FindDevice("h100")};
  options.network = {.devices_per_node = 8,
                     .nvlink_bytes_per_s = 450e9,
                     .nic_bytes_per_s = 50e9};
  return options;
}

// One of two inner products a multiply-add: X X^T and B X of rows^2 columns,
// A A of rows^3; B itself is a sum.
double ByHand(const Sizes& sizes, int steps) {
  double adds = 0;
  for (const auto& [outputs, inputs] : sizes) {
    const double rows = std::min(outputs, inputs);
    const double columns = outputs * inputs / rows;
    for (int step = 0; step < steps; ++step) {
      adds += rows * rows * columns;
      adds += std::pow(rows, 3);
      adds += rows * columns * rows;
    }
  }
  return 2 * adds;
}

ModelSpec Llama() { return *FindModel("llama3-8b"); }

TrainingSpec ByMuon(int tp = 1) {
  TrainingSpec training;
  training.tp = tp;
  training.sequence = 8192;
  training.optimizer.kind = OptimizerKind::kMuon;
  return training;
}

std::vector<WeightMatrix> Matrices(const ModelSpec& model,
                                   const TrainingSpec& training,
                                   BlockKind block) {
  std::vector<WeightMatrix> all;
  for (const ModelOp& op : BlockOps(model, training, block)) {
    for (const WeightMatrix& each : MatricesOf(training, block, op)) {
      all.push_back(each);
    }
  }
  return all;
}

double Flops(const ModelSpec& model, const TrainingSpec& training,
             BlockKind block) {
  double flops = 0;
  for (const WeightMatrix& each : Matrices(model, training, block)) {
    flops += OrthogonalisedBy(OnH100(), training, each).flops;
  }
  return flops;
}

TEST_CASE("muon: products of a layer of Llama 3 8B", "[cost]") {
  const Sizes projection_and_ffn = {{4096, 4096}, {28672, 4096}, {4096, 14336}};
  Sizes apart = projection_and_ffn;
  apart.insert(apart.end(), {{4096, 4096}, {1024, 4096}, {1024, 4096}});
  Sizes together = projection_and_ffn;
  together.push_back({6144, 4096});
  TrainingSpec training = ByMuon();
  const BlockKind layer = BlockKind::kDenseLayer;
  CHECK(Flops(Llama(), training, layer) == Approx(ByHand(apart, 5)));
  training.optimizer.splits_qkv = false;
  training.optimizer.newton_schulz_steps = 7;
  CHECK(Flops(Llama(), training, layer) == Approx(ByHand(together, 7)));
  // Embedding and head are Adam's.
  CHECK(Matrices(Llama(), training, BlockKind::kEmbedding).empty());
  CHECK(Matrices(Llama(), training, BlockKind::kHead).empty());
}

TEST_CASE("muon: what tensor parallelism splits", "[cost]") {
  constexpr double kParts = 8;
  TrainingSpec training = ByMuon(8);
  training.optimizer.splits_qkv = false;
  const BlockKind layer = BlockKind::kDenseLayer;
  training.optimizer.tp_mode = MuonTpMode::kBlockwise;
  CHECK(Flops(Llama(), training, layer) ==
        Approx(ByHand({{6144 / kParts, 4096},
                       {4096, 4096 / kParts},
                       {28672 / kParts, 4096},
                       {4096, 14336 / kParts}},
                      5)));
  training.optimizer.tp_mode = MuonTpMode::kDuplicated;
  CHECK(Flops(Llama(), training, layer) ==
        Approx(ByHand(
            {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}, 5)));
  // The side that is whole makes the square, however narrow the part is.
  training.optimizer.tp_mode = MuonTpMode::kDistributed;
  double adds = 0;
  for (const double part : {6144 / 8., 4096 / 8., 28672 / 8., 14336 / 8.}) {
    adds += 5 * (2 * 4096. * 4096 * part + 4096. * 4096 * 4096);
  }
  CHECK(Flops(Llama(), training, layer) == Approx(2 * adds));
}

TEST_CASE("muon: experts one by one", "[cost]") {
  ModelSpec model;
  model.layers = 1;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.vocabulary = 128;
  model.sequence = 16;
  model.gated = true;
  model.experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden = 32;
  TrainingSpec training = ByMuon();
  training.sequence = 16;
  training.ep = training.dp = 4;
  Sizes sizes = {{64, 64}, {64, 64}, {64, 64}, {64, 64}, {8, 64}};
  for (int expert = 0; expert < 2; ++expert) {
    sizes.push_back({64, 64});
    sizes.push_back({64, 32});
  }
  CHECK(Flops(model, training, BlockKind::kExpertLayer) ==
        Approx(ByHand(sizes, 5)));
}

TEST_CASE("muon: whole matrices on single devices", "[cost]") {
  // A bucket goes on until its largest matrix leaves a tenth empty at most.
  const MatrixOwners three = OwnersOf({50e6, 50e6, 50e6}, 2);
  CHECK(three.held == std::vector<double>{100e6, 50e6});
  CHECK(three.padded == 200e6);
  CHECK(three.owner == std::vector<int>{0, 1, 0});
  // The largest first, each to who has least: 5 | 4, 3 and then 2 with the 5.
  const MatrixOwners mixed = OwnersOf({2e6, 3e6, 4e6, 5e6}, 2);
  CHECK(mixed.held == std::vector<double>{7e6, 7e6});
  CHECK(mixed.padded == 14e6);
  CHECK(OwnersOf({}, 3).padded == 0);
  // All in one, 50 | 45 + 5, in place of 50 + 5 | 45.
  CHECK(OwnersOf({5e6, 45e6, 50e6}, 2).padded > 100e6);
  CHECK(OwnersOf({5e6, 45e6, 50e6}, 2, true).padded == 100e6);
  // However many there are: nobody loses or gains, nobody has more than the
  // even share and a largest matrix of each bucket.
  for (const int devices : {1, 2, 5, 64}) {
    std::vector<double> elements;
    for (int index = 0; index < 300; ++index) {
      elements.push_back(1e6 * (1 + (index * 7919) % 113));
    }
    const MatrixOwners owners = OwnersOf(elements, devices);
    std::vector<double> held(devices, 0.0);
    for (size_t index = 0; index < elements.size(); ++index) {
      held[owners.owner[index]] += elements[index];
    }
    CHECK(held == owners.held);
    const double all = std::accumulate(elements.begin(), elements.end(), 0.0);
    CHECK(owners.padded >= all);
    CHECK(owners.padded <= all / 0.9 + devices * 113e6);
    CHECK(owners.most() * devices <= owners.padded);
  }
}

TEST_CASE("muon: seconds of a step are those of its busiest device", "[cost]") {
  const AnalyticOptions options = OnH100();
  TrainingSpec training = ByMuon();
  const std::vector<WeightMatrix> layer =
      Matrices(Llama(), training, BlockKind::kDenseLayer);
  std::vector<StageMatrices> stage(1);
  for (int at = 0; at < 32; ++at) {
    stage[0].matrices.insert(stage[0].matrices.end(), layer.begin(),
                             layer.end());
  }
  double held = 0;
  const double alone = MuonSeconds(options, training, stage, &held);
  const double matrices =
      32. * (4096 * 6144. + 4096 * 4096. + 3 * 4096. * 14336);
  CHECK(held == Approx(matrices));
  // Between the peak of the data sheet and half of it.
  const double products = ByHand({{4096, 4096},
                                  {1024, 4096},
                                  {1024, 4096},
                                  {4096, 4096},
                                  {28672, 4096},
                                  {4096, 14336}},
                                 5) *
                          32 / options.device.bf16_flops;
  CHECK(alone > products);
  CHECK(alone < 2 * products + 100 * matrices / options.device.hbm_bytes_per_s);
  // Replicas that share nothing step all.
  training.dp = 8;
  CHECK(MuonSeconds(options, training, stage, &held) == alone);
  training.zero = 1;
  const double shared = MuonSeconds(options, training, stage, &held);
  CHECK(shared >= alone / 8);
  CHECK(shared < 1.2 * alone / 8);
  CHECK(held >= matrices / 8);
  // Stages but the first are one bucket, whichever rank has them.
  std::vector<double> elements;
  for (const WeightMatrix& matrix : stage[0].matrices) {
    elements.push_back(matrix.elements());
  }
  CHECK(held == OwnersOf(elements, 8).most());
  stage[0].stage = 1;
  MuonSeconds(options, training, stage, &held);
  CHECK(held == OwnersOf(elements, 8, true).most());
  CHECK(held < OwnersOf(elements, 8).most());
  stage[0].stage = 0;
  // In parts all of them orthogonalise all.
  training.optimizer.distribution = MuonDistribution::kGathered;
  const double gathered = MuonSeconds(options, training, stage, &held);
  CHECK(held == Approx(matrices / 8));
  CHECK(gathered > products);
  CHECK(gathered < alone);
}

int64_t StatesOf(const TrainingSpec& training, MemoryKind kind) {
  const std::vector<StageBlock> stage = {
      {.kind = BlockKind::kEmbedding},
      {.kind = BlockKind::kDenseLayer, .count = 32},
      {.kind = BlockKind::kHead}};
  return BuildStageMemory(Llama(), training, stage, 0).fixed[kind];
}

// Llama 3 8B: table and head of 128256 x 4096, two norms a layer and one behind
// them.
TEST_CASE("optimizer: bytes of its states", "[memory]") {
  const double tables = 2. * 128256 * 4096;
  const double norms = 65. * 4096;
  const double matrices =
      32. * (4096 * 6144. + 4096 * 4096. + 3 * 4096. * 14336);
  TrainingSpec training = ByMuon();
  const auto moments = [&] { return StatesOf(training, MemoryKind::kMoments); };
  CHECK(moments() == Approx(4 * matrices + 8 * (tables + norms)));
  training.optimizer.momentum_bytes = 2;
  training.moment_bytes = 4;
  CHECK(moments() == Approx(2 * matrices + 4 * (tables + norms)));
  training.optimizer.kind = OptimizerKind::kSgd;
  CHECK(moments() == 0);
  training.optimizer.kind = OptimizerKind::kLion;
  CHECK(moments() == Approx(2 * (matrices + tables + norms)));
  training.optimizer.kind = OptimizerKind::kAdam;
  CHECK(moments() == Approx(4 * (matrices + tables + norms)));
  training.optimizer.kind = OptimizerKind::kAdafactor;
  const double factors =
      32. * (6144 + 4096 + 2 * 4096 + 28672 + 4096 + 4096 + 14336) +
      2. * (128256 + 4096);
  CHECK(moments() == Approx(4 * (factors + norms)).epsilon(1e-6));
}

TEST_CASE("muon: the fullest of those that share a step", "[memory]") {
  TrainingSpec training = ByMuon();
  training.zero = 1;
  training.dp = 8;
  // In the order of the backward, 4.3 layers at a time: the largest matrix is
  // 28672 x 4096, and eight of them less a tenth fill a bucket.
  std::vector<double> loads(8, 0.0);
  std::vector<double> held(8, 0.0);
  double sum = 0;
  double empty = 0;
  std::vector<double> bucket;
  const std::vector<double> layer = {4096. * 14336, 28672. * 4096, 4096. * 4096,
                                     6144. * 4096};
  const auto close = [&] {
    std::sort(bucket.rbegin(), bucket.rend());
    std::vector<double> own(8, 0.0);
    for (const double each : bucket) {
      *std::min_element(own.begin(), own.end()) += each;
    }
    for (int device = 0; device < 8; ++device) held[device] += own[device];
    empty += 8 * *std::max_element(own.begin(), own.end()) -
             std::accumulate(own.begin(), own.end(), 0.0);
    bucket.clear();
    sum = 0;
  };
  for (int at = 0; at < 32; ++at) {
    for (const double each : layer) {
      bucket.push_back(each);
      sum += each;
      const double largest = *std::max_element(bucket.begin(), bucket.end());
      if (sum >= std::max(40e6, 0.9 * 8 * largest)) close();
    }
  }
  if (!bucket.empty()) close();
  const double most = *std::max_element(held.begin(), held.end());
  const double rest = 2. * 128256 * 4096 + 65. * 4096;
  const auto of = [&](MemoryKind kind) {
    return static_cast<double>(StatesOf(training, kind));
  };
  CHECK(of(MemoryKind::kMoments) == Approx(4 * most + 8 * rest / 8));
  CHECK(of(MemoryKind::kMaster) == Approx(4 * (most + rest / 8)));
  TrainingSpec adam = training;
  adam.optimizer.kind = OptimizerKind::kAdam;
  CHECK(of(MemoryKind::kGradients) ==
        Approx(StatesOf(adam, MemoryKind::kGradients) + 4 * empty));
  // Parts are even.
  training.optimizer.distribution = MuonDistribution::kGathered;
  const double matrices = std::accumulate(held.begin(), held.end(), 0.0);
  CHECK(of(MemoryKind::kMoments) == Approx((4 * matrices + 8 * rest) / 8));
}

}  // namespace
}  // namespace pipewright::optimizer_time_test

#include "sim/model/weight_matrices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pipewright {
namespace {

// Elements of a bucket: Megatron-LM's default with overlapped reductions
// (megatron/core/distributed/distributed_data_parallel.py). It goes on until
// the largest matrix of it leaves so little empty (layer_wise_optimizer.py,
// PADDING_FLOOR). [framework source]
constexpr double kBucketElements = 40e6;
constexpr double kBucketElementsOfDevice = 1e6;
constexpr double kPaddingFloor = 0.9;
// Factors of Adafactor in fp32. [numerics, bytes]
constexpr double kFactorBytes = 4;

double BytesOfFactors(BlockKind block, const ModelOp& op) {
  if (IsLinear(op)) {
    const double elements = op.count * op.n * op.k;
    return kFactorBytes *
           (op.count * (op.n + op.k) + std::max(0.0, op.parameters - elements));
  }
  // Rows of the table over its width.
  if (block == BlockKind::kEmbedding && op.kind == OpClass::kLookup) {
    return kFactorBytes * (op.parameters / op.k + op.k);
  }
  return kFactorBytes * op.parameters;
}

}  // namespace

std::vector<WeightMatrix> MatricesOf(const TrainingSpec& training,
                                     BlockKind block, const ModelOp& op) {
  const bool is_matrix = IsLinear(op) && !op.is_frozen && op.parameters > 0 &&
                         block != BlockKind::kEmbedding &&
                         block != BlockKind::kHead;
  if (!is_matrix) return {};
  WeightMatrix matrix = {.outputs = op.n,
                         .inputs = op.k,
                         .split = op.split,
                         .is_expert = op.is_expert};
  if (training.optimizer.splits_qkv && op.part == OpPart::kAttention) {
    matrix.parts = op.products;
  }
  return std::vector<WeightMatrix>(std::llround(op.count), matrix);
}

double StateBytes(const TrainingSpec& training, BlockKind block,
                  const ModelOp& op) {
  const OptimizerRule& rule = training.optimizer;
  switch (rule.kind) {
    case OptimizerKind::kAdam:
      return training.moment_bytes * op.parameters;
    case OptimizerKind::kMuon: {
      double elements = 0;
      for (const WeightMatrix& matrix : MatricesOf(training, block, op)) {
        elements += matrix.elements();
      }
      return rule.momentum_bytes * elements +
             training.moment_bytes * (op.parameters - elements);
    }
    case OptimizerKind::kAdafactor:
      return BytesOfFactors(block, op);
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kSgdMomentum:
    case OptimizerKind::kLion:
      return rule.momentum_bytes * op.parameters;
  }
  return 0;
}

double MatrixOwners::most() const {
  return held.empty() ? 0 : *std::max_element(held.begin(), held.end());
}

MatrixOwners OwnersOf(const std::vector<double>& elements, int devices,
                      bool one_bucket) {
  MatrixOwners owners;
  owners.owner.assign(elements.size(), 0);
  owners.held.assign(devices, 0.0);
  const double bucket =
      one_bucket ? std::numeric_limits<double>::infinity()
                 : std::max(kBucketElements, kBucketElementsOfDevice * devices);
  size_t end = elements.size();
  while (end > 0) {
    size_t begin = end;
    double sum = 0;
    double largest = 0;
    do {
      --begin;
      sum += elements[begin];
      largest = std::max(largest, elements[begin]);
    } while (begin > 0 &&
             sum < std::max(bucket, kPaddingFloor * devices * largest));
    std::vector<size_t> order(end - begin);
    std::iota(order.rbegin(), order.rend(), begin);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return elements[a] > elements[b];
    });
    std::vector<double> loads(devices, 0.0);
    for (const size_t index : order) {
      const auto least = std::min_element(loads.begin(), loads.end());
      *least += elements[index];
      owners.owner[index] = static_cast<int>(least - loads.begin());
    }
    for (int device = 0; device < devices; ++device) {
      owners.held[device] += loads[device];
    }
    owners.padded += devices * *std::max_element(loads.begin(), loads.end());
    end = begin;
  }
  return owners;
}

bool HasOneBucket(const TrainingSpec& training, int stage) {
  return !training.optimizer.overlaps || stage > 0;
}

bool IsLayerWise(const TrainingSpec& training) {
  return training.optimizer.is_muon() && training.zero == 1 &&
         training.optimizer.distribution == MuonDistribution::kLayerWise;
}

}  // namespace pipewright

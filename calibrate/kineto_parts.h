// What each region of a rank's trace spends on the embedding, on its layers, on
// the head, on communication and on the rest.
//
// A kernel of a forward belongs to the part that it was launched in: inside of
// a mark (module, record_function) or of an operator of that part. Where layers
// are marked, what stands before the first one is the embedding's if the region
// has an embedding, and what stands behind the last one the head's if it has a
// head (the last norm, for one); without marks all is the layers' that is not
// the embedding's or the head's. A kernel of a backward belongs to the part
// whose forward operators have the sequence number of the node that launched
// it; a node without one (the sum of gradients) follows the node before it.
//
// The parts of a region add up to its length: where kernels overlap, the time
// is the earliest one's, but communication's only where it is alone; a gap is
// the next kernel's. Kernels of nccl are communication: a simulation adds its
// own.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/kineto_names.h"
#include "calibrate/kineto_rank.h"
#include "sim/profile/profile.h"

namespace pipewright {

struct PartSizes {
  ProfileModel model;
  int64_t tp = 1;
  int64_t tokens = 0;  // in a microbatch
};

// Is one size of the product that of the vocabulary, padded or not and none of
// a layer's own, and another one the hidden size?
bool IsVocabularyProduct(const KinetoOp& op, const PartSizes& sizes);

struct RegionParts {
  const TraceRegion* region = nullptr;
  std::array<double, kNumTraceParts> us = {};
  // Layers that it goes through; 0: the trace does not say.
  int64_t layers = 0;
  // Their ids, and a name of one.
  std::set<std::string> layer_ids;
  std::string layer_name;
  // It has the loss, but nothing tells the product of the head from those of
  // the layers.
  bool has_vague_head = false;
  // The names of its layers' kernels by launch.
  std::vector<int32_t> layer_kernels;

  double Us(TracePart part) const { return us[static_cast<size_t>(part)]; }
};

// `sum_kernels`: the kernels' times are summed instead. Error:
// kInvalidArgument for a forward that goes through the same layer twice, which
// is no region of one microbatch.
absl::StatusOr<std::vector<RegionParts>> PartsOfRegions(const KinetoRank& rank,
                                                        const PartSizes& sizes,
                                                        bool sum_kernels);

// A kernel of a part, in a stretch of time that parts share.
struct PartKernel {
  TracePart part = TracePart::kLayer;
  double start_us = 0;
  double end_us = 0;
};

// Microseconds by TracePart. They add up to the time from the first start to
// the last end: an overlap is the earliest kernel's, but communication's only
// where it is alone; a gap is that of the kernel behind it.
std::array<double, kNumTraceParts> ShareTimeline(
    std::vector<PartKernel> kernels);

}  // namespace pipewright

// Packing: which samples of a minibatch a device gets, and in which
// microbatches. It sees lengths alone, no schedule and no times.
//
// Source: the packing program of ODC (sail-sg/odc, 13cfbd3,
// examples/llm_training/packing.py) and arXiv 2601.19362, section 5. Orders and
// ties are the program's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/model/partition.h"

namespace pipewright {

enum class Packer : uint8_t {
  kNone,       // round robin, a microbatch a sample
  kLocalSort,  // the same samples, ascending
  // Devices of equally many samples and microbatches.
  kLbMicro,
  // Devices of about equal cost, each with as many microbatches as it needs.
  kLbMini,
  kLbMiniBfd,  // the same devices, microbatches by best-fit decreasing
  // Round robin, then first-fit decreasing on each device: packs, and balances
  // nothing.
  kFfd,
};

struct PackerTraits {
  Packer packer;
  const char* name;   // name in sequences.packer
  const char* other;  // in the paper
  // Every device has equally many microbatches, whatever the lengths.
  bool same_microbatches;
  // Several samples make a microbatch, so that one longer than the limit has
  // no place.
  bool packs;
};

inline constexpr std::array<PackerTraits, 6> kPackers = {{
    {Packer::kNone, "none", "None", true, false},
    {Packer::kLocalSort, "local-sort", "LocalSort", true, false},
    {Packer::kLbMicro, "lb-micro", "LB-Micro", true, true},
    {Packer::kLbMini, "lb-mini", "LB-Mini", false, true},
    {Packer::kLbMiniBfd, "lb-mini-bfd", "LB-Mini with best-fit decreasing",
     false, true},
    {Packer::kFfd, "ffd", "first-fit decreasing", false, true},
}};
constexpr const PackerTraits& TraitsOf(Packer packer) {
  return kPackers[static_cast<std::size_t>(packer)];
}

enum class PackerCost : uint8_t {
  kLinear,  // tokens
  kFit,     // ODC's fit to a 7B model on an A100
  kFlops,   // FLOPs of the model's linear layers and of attention
};

// Time of a microbatch, forward and backward with recomputation, over its
// tokens s with x = s / 32000: a x^2 + b x of every sequence. ODC's
// documentation of get_seq_costs_fit; seconds on an A100 (the unit is not
// stated). What a microbatch costs besides is not part of it.
// [paper]
struct TokenFit {
  double square = 0;
  double linear = 0;
  double At(int64_t tokens) const {
    const double x = static_cast<double>(tokens) / 32000;
    return square * x * x + linear * x;
  }
};
inline constexpr TokenFit kFit1B = {1.982122, 2.611821};  // 1.5B
inline constexpr TokenFit kFit7B = {4.348357, 8.768377};

struct SampleCost {
  PackerCost kind = PackerCost::kLinear;
  // Weights of all linear layers over the outputs of all query projections, for
  // kFlops.
  double weights_over_queries = 0;

  double At(int64_t tokens) const;
};

struct PackRequest {
  std::vector<int64_t> lengths;  // lengths in a minibatch, of all devices
  int devices = 1;
  int64_t max_token_len = 0;  // limit of a microbatch that is packed
  Packer packer = Packer::kNone;
  SampleCost cost;
  int least_microbatches = 1;  // for a device; for packers that choose
};

// [device][microbatch] -> indices of samples.
using Packing = std::vector<Parts>;

// Errors: kInvalidArgument that begins with the field ("sequences.lengths",
// ...) for a device without a sample, a sample above max_token_len, a number of
// samples that lb-micro cannot divide, more microbatches than samples.
absl::StatusOr<Packing> Pack(const PackRequest& request);

// "lb-mini: 3 2 3 2 microbatches, 31 samples", for tests and messages.
std::string ToString(const PackRequest& request, const Packing& packing);

}  // namespace pipewright

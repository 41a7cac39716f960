// The modes of data parallelism: their names and what each of them shards. Who
// needs to know asks for a trait, not for a mode. What the modes put into a
// Program is lower_sync.cc's and lower_shards.cc's.
//
// Source: ZeRO, arXiv 1910.02054, section 5.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pipewright {

enum class DataParallel : uint8_t {
  kNone,
  kDdp,    // all-reduce of a chunk's gradients after its last backward
  kZero1,  // reduce-scatter there, all-gather before its next first forward
  kZero2,  // reduce-scatter after every backward, the same all-gather
  kFsdp,   // all-gather before every forward and backward, reduce-scatter after
           // every backward
  kOdc,    // parameters pulled from their owners before every layer's forward
           // and backward, gradients pushed to them: nobody meets anybody but
           // twice an iteration (arXiv 2601.19362)
};

struct DataParallelTraits {
  DataParallel mode;
  const char* name;       // in strategy.data_parallel
  bool reduces;           // gradients of the replicas are summed
  bool shards_step;       // a replica steps its part of the parameters,
  bool shards_gradients;  // keeps its part of the gradients,
  bool shards_weights;    // and its part of the weights
  // ZeRO's stage: 1 shards the optimizer, 2 gradients too, 3 weights too.
  constexpr int zero_stage() const {
    return int{shards_step} + int{shards_gradients} + int{shards_weights};
  }
};

// A row a mode, in the order of the modes; by ZeRO's stage a later one shards
// no less.
inline constexpr std::array<DataParallelTraits, 6> kDataParallelModes = {{
    {DataParallel::kNone, "none", false, false, false, false},
    {DataParallel::kDdp, "ddp", true, false, false, false},
    {DataParallel::kZero1, "zero1", true, true, false, false},
    {DataParallel::kZero2, "zero2", true, true, true, false},
    {DataParallel::kFsdp, "fsdp", true, true, true, true},
    {DataParallel::kOdc, "odc", true, true, true, true},
}};

constexpr const DataParallelTraits& TraitsOf(DataParallel mode) {
  return kDataParallelModes[static_cast<std::size_t>(mode)];
}

// Do all replicas meet at every microbatch, so that each needs as many of them
// as the others? Gradients or weights in parts are exchanged then, collectively.
constexpr bool MeetsEveryMicrobatch(const DataParallelTraits& mode) {
  return mode.shards_gradients && mode.mode != DataParallel::kOdc;
}

}  // namespace pipewright

// Memory of the executor (execute/): what its stages have on a device, from an
// inventory of the tensors of its layers (executor_tensors.h) and the order in
// which its passes take and give back. Independent of the executor's code,
// which counts what it really takes: the two are held against each other.
//
// Not in it: what is on its way between ranks or waits for a pass, and parts of
// collectives. How much that is hangs on how far ranks are apart.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/memory/schedule_memory.h"

namespace pipewright {

struct ExecutorSpec {
  bool gpu = false;    // its kernels' workspaces, else those of the CPU's
  int type_bytes = 4;  // for weights that passes read, and for activations
  bool fp8 = false;    // linear layers
  // Only a stage's input is kept, and the whole stage runs again, in front of
  // the backward or as R: always so with full recomputation, and where the
  // order has an R.
  bool recompute = false;
  // Layers are gathered one by one, each a unit with what goes in and out of
  // it: with `recompute` each keeps its input and runs again by itself.
  bool by_layer = false;
  // Weights that passes read are never the master weights themselves.
  bool keeps_versions = false;
  // The optimizer's states are on the host, and so are the master weights.
  bool host_optimizer = false;
  // The head of a rank that has the embedding too reads its table; on another
  // rank it has a copy.
  bool ties_table = false;
  // A second set of master weights and moments, to go back to.
  bool keeps_last_step = false;
  // With packed samples, where a sequence is a row of several: tokens of the
  // longest, and positions that are learned. 0: those of a sequence.
  int64_t longest_sample = 0;
  int64_t positions = 0;
};

// The executor shards nothing: ZeRO's stages reduce and gather, but each device
// has all gradients and optimizer states of its stages.
std::shared_ptr<const MemoryFramework> ExecutorMemory(const ExecutorSpec& spec);

// The subgroups of an optimizer on the host, as a rank of the executor has
// them.
struct HostSubgroupCounts {
  int64_t parameters = 0;  // that the rank steps
  int64_t held = 0;        // in its stages, shards of others included
  int64_t subgroups = 1;
  int64_t residents = 0;  // the last ones: their states stay on the device
  std::vector<int64_t> visitors;  // whose states come to the device in turn
  bool early = false;  // fp32 weights come back before the norm is known
};
// It has no copies of gradients beside those that it adds up in fp32.
OffloadedStates ExecutorHostStates(const HostSubgroupCounts& of,
                                   const ExecutorSpec& spec);

}  // namespace pipewright

// Layers as the unit of sharding: what FSDP2 and ODC gather and reduce at a
// time. Of a stage, its layers share its time and its bytes.
//
// Sources: FSDP2, pytorch torch/distributed/fsdp/_fully_shard; ZeRO++ (hpZ),
// arXiv 2306.10209; ODC, arXiv 2601.19362 and its repository sail-sg/odc.
#pragma once

#include <vector>

namespace pipewright {

// Share of one layer, relative to the others of its stage.
struct LayerShare {
  double seconds = 1;
  double parameters = 1;  // that are trained, and reduced
  double stored = 1;      // and frozen ones, which are gathered too
};

// [stage]: how many layers stand in front of the first that has anything
// trained. No gradient flows there, so no backward gathers their weights.
std::vector<int> LayersInFront(
    const std::vector<std::vector<LayerShare>>& stages);

struct LayerOptions {
  std::vector<std::vector<LayerShare>> stages;  // [stage][layer]
  // False: what a forward has gathered stays until its layer's next backward
  // has run.
  bool reshard_after_forward = true;
  // Replicas over which parameters, gradients and states are sharded; every
  // such part of the replicas holds all of them (HSDP). 0: all.
  int shard_group = 0;
  // Replicas among which the backward gathers (ZeRO++ hpZ); of odc every
  // gather but one a minibatch. 0: as many as are sharded over.
  int near_group = 0;
  // Gradients are reduced with the last microbatch alone, and kept whole until
  // then.
  bool reduces_once = false;
  // Gathers and reductions take turns on one stream.
  bool one_stream = true;
  // Layers are copied out of what a gather has brought, and their gradients
  // into the buffer that is reduced, by the device itself, which reads and
  // writes so many bytes a second; 0: such copies take no time.
  double copies_bytes_per_s = 0;
  // Bytes of a gradient as a backward makes it, over its bytes in that buffer.
  double made_part = 1;

  // Options of odc alone.
  // Every pull and push a flow of its own, peer after peer; else those inside a
  // node are one activity, and those to other nodes are one.
  bool pulls_apart = false;
  // Between two looks of an owner's process at its requests.
  double poll_s = 100e-6;
  // Bytes of gradients that a client's buffer at an owner takes; 0: no limit.
  double push_buffer_bytes = 0;
  // Bytes of gradients a second that an owner adds; 0: at once.
  double adds_bytes_per_s = 0;
};

}  // namespace pipewright

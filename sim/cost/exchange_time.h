// Times of exchanges that are no collectives of NCCL: all-to-alls with experts,
// and rings of context parallelism.
#pragma once

#include "sim/cost/analytic.h"

namespace pipewright {

// What one device sends in an all-to-all: over NVLink and over its part of the
// network cards, and the buffer that NCCL would exchange for the same bytes
// over NVLink.
struct ExchangeBytes {
  double nvlink = 0;
  double nic = 0;
  double buffer = 0;
};

// Bytes between `ranks` devices on `nodes` nodes. Each row goes to another
// device, evenly; with OpComm::copies a token goes once to each device and,
// between nodes, once to each node, which hands it on.
ExchangeBytes BytesOfExchange(const OpComm& comm, int ranks, int nodes);

// What the bytes of an all-to-all take on each kind of link.
LinkSeconds AllToAllSeconds(const AnalyticOptions& options, const OpComm& comm,
                            int ranks, int nodes);

// What the bytes of any exchange take on each kind of link, over what they take
// on the slowest: 1 for that.
LinkSeconds ShareOfLinks(const AnalyticOptions& options,
                         const TrainingSpec& training, const OpComm& comm);

// One exchange inside a pass; those of NCCL's collectives are CommSeconds's.
double ExchangeSeconds(const AnalyticOptions& options, const OpComm& comm,
                       const NcclGroup& group, bool is_measured);

}  // namespace pipewright

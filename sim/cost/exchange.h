// What passes exchange inside the groups of tensor, context and expert
// parallelism: how much of their time it is, and what it sends. Engines that
// share links make traffic of it; the times of passes have it in them already.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cost/analytic.h"

namespace pipewright {

// The least share of a link's rate that an estimate of exchanges takes.
double LeastShareOfLinks(const DeviceSpec& device);

// Times of exchanges that are no collectives of NCCL: all-to-alls with experts,
// and rings of context parallelism.

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

// Adds `times` as much to the entries of the same group; takes away where it is
// below 0, and leaves out what becomes nothing.
void AddExchanges(const std::vector<PassExchange>& more, double times,
                  std::vector<PassExchange>* sum);

// Returns one exchange by itself.
PassExchange ExchangeOf(const AnalyticOptions& options,
                        const TrainingSpec& training, const OpComm& comm);

// Exchanges of one pass of `op`, with the times that BlockTimes has.
std::vector<PassExchange> ExchangesOf(const AnalyticOptions& options,
                                      const TrainingSpec& training,
                                      const ModelOp& op, const OpTime& time,
                                      OpPass pass);

// [stage] those of all blocks, where nothing hides any; empty without links.
std::vector<StageExchanges> ExchangesOfStages(
    const ModelSpec& model, const TrainingSpec& training,
    const AnalyticOptions* options, const StageLayout& layout,
    const std::vector<int>& rank_of_stage);

}  // namespace pipewright

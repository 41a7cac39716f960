#include "sim/cost/overlap_time.h"

#include <algorithm>

#include "sim/cost/kernel_time.h"

namespace pipewright {
namespace {

// From one device to the next one in the group, by its copy engines.
double HopSeconds(const AnalyticOptions& options, const NcclGroup& group,
                  double bytes) {
  const double nvlink = options.network.nvlink_bytes_per_s *
                        options.device.collective_sustained;
  const double rate = group.nodes == 1
                          ? nvlink
                          : std::min(nvlink, options.network.nic_bytes_per_s);
  return bytes / rate + kKernelGapSeconds;
}

double PiecesSeconds(const AnalyticOptions& options,
                     const TrainingSpec& training, const OpComm& comm,
                     double product_s) {
  const NcclGroup group = NcclGroupOf(options, training, comm);
  const double piece = comm.bytes / comm.members;
  double exposed = ExposedInPieces(
      product_s, HopSeconds(options, group, piece), comm.members);
  if (comm.kind == CommKind::kReduceScatter) {
    // The pieces of all members are summed by a kernel of their own.
    exposed += StreamSeconds(options.device, comm.bytes + piece) +
               kKernelGapSeconds;
  }
  // Never worse than one after the other: who tunes leaves it off then.
  return std::min(exposed, CommSeconds(options, training, comm));
}

// Kernels of NCCL hold a multiprocessor for each channel, which the computation
// beside them has not.
double HeldPart(const AnalyticOptions& options, const TrainingSpec& training,
                const OpComm& comm) {
  const NcclGroup group = NcclGroupOf(options, training, comm);
  return std::min(1.0, static_cast<double>(group.channels) /
                           options.device.multiprocessors);
}

}  // namespace

double ExposedInPieces(double product_s, double hop_s, int pieces) {
  const double piece_s = product_s / pieces;
  return piece_s + (pieces - 1) * std::max(piece_s, hop_s) - product_s;
}

void AddExposed(const AnalyticOptions& options, const TrainingSpec& training,
                const ModelOp& op, OpTime* time) {
  double beside[kNumOpPasses] = {0, 0, 0};
  double weight_s = time->seconds[static_cast<int>(OpPass::kBackwardWeight)];
  for (const OpComm& comm : op.comms) {
    const int pass = static_cast<int>(comm.pass);
    const double seconds = CommSeconds(options, training, comm);
    switch (comm.overlap) {
      case CommOverlap::kBeside:
        beside[pass] += seconds;
        break;
      case CommOverlap::kPieces:
        time->comm_seconds[pass] +=
            PiecesSeconds(options, training, comm, time->seconds[pass]);
        break;
      case CommOverlap::kWeight: {
        time->comm_seconds[pass] += seconds;
        const double hidden = std::min(seconds, weight_s);
        weight_s -= hidden;
        time->hidden_seconds +=
            hidden * (1 - HeldPart(options, training, comm));
        break;
      }
      case CommOverlap::kNone:
        time->comm_seconds[pass] += seconds;
        break;
    }
  }
  for (int pass = 0; pass < kNumOpPasses; ++pass) {
    time->comm_seconds[pass] +=
        std::max(0.0, beside[pass] - time->seconds[pass]);
  }
}

}  // namespace pipewright

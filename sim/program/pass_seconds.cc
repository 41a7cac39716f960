// What a pass or a side operation takes when it runs, noise included.
#include "sim/program/program.h"

namespace pipewright {

double Program::PassSeconds(int iteration, int replica, int rank,
                            Pass pass) const {
  const DpClass& own = OfReplica(replica);
  const Lane& lane = own.ranks[rank].lanes[pass.lane()];
  const double seconds = lane.seconds * own.Factor(rank, pass);
  return jitter == nullptr ? seconds
                           : seconds * jitter->OfPass(iteration, replica, rank,
                                                      lane.stage, pass);
}

double Program::SideSeconds(int iteration, int replica, int rank,
                            const SideOp& op) const {
  return jitter == nullptr || op.kind != OpKind::kOptimizer
             ? op.seconds
             : op.seconds * jitter->OfOptimizer(iteration, replica, rank);
}

}  // namespace pipewright

// What an owner of ODC takes to add what a client pushes to it.
#pragma once

#include "sim/program/program.h"

namespace pipewright {

// Time that owners add for in a push with several peers. SideOp::parameters are
// then the bytes that each owner adds, for one client after the other, and
// most_per_s is how many of them a second (0: at once).
inline double AddSeconds(const SideOp& op) {
  return op.most_per_s > 0 ? op.parameters / op.most_per_s : 0;
}

// Clients of an owner: the replicas that its part of the weights is shared by.
inline int ClientsOf(const SideOp& op, int replicas) {
  const PeerPlan& plan = *op.peers;
  return plan.nodes > 0 ? plan.nodes * plan.node_size : replicas;
}

// Time if nobody is waited for: as if all clients came at once and this one
// were the last. Of clients in lock-step the last decides when a step ends.
inline double AddAllSeconds(const SideOp& op, int replicas) {
  return ClientsOf(op, replicas) * AddSeconds(op);
}

}  // namespace pipewright

// Transfers spelled out device by device: one flow for each, shared max-min by
// progressive filling from scratch whenever one ends. What the product states
// for all devices of a rank at once is held against it.
#pragma once

#include <vector>

#include "sim/program/network_time.h"
#include "sim/program/program.h"

namespace pipewright {

struct DeviceFlow {
  std::vector<LinkId> links;
  double bytes = 0;
};

// When the last of them ends. All start at 0; latencies aside.
double LastEnd(const Cluster& cluster, const std::vector<DeviceFlow>& flows);

// As TransferSeconds, CopySeconds and OneSidedSeconds.
double NaiveTransferSeconds(const Program& program, const Channel& channel,
                            int replica);
double NaiveCopySeconds(const Program& program, const Lane& lane, PassKind kind,
                        int replica, int rank);
double NaiveOneSidedSeconds(const Program& program, const SideOp& op,
                            int replica, int rank);

// As HostOpSeconds.
double NaiveHostSeconds(const Program& program, const SideOp& op, int replica,
                        int rank);

// Every edge of every ring of a group, each with its part of `bytes`, the
// buffer of one device. `share`: of the buffer that crosses an edge, (n-1)/n or
// twice that.
std::vector<DeviceFlow> RingEdges(const Network& network,
                                  const std::vector<Member>& members,
                                  double bytes, double share);
// As PlanCollective, which says whether it is a ring, and its latency.
double NaiveCollectiveSeconds(const Program& program, OpKind kind, double bytes,
                              const std::vector<Member>& members);

}  // namespace pipewright

// Who shares the PCIe switches of a run, and what copies of activations take
// there.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sim/config/prepare.h"
#include "sim/program/network.h"

namespace pipewright {

struct Program;

// Which copies run beside one.
enum class CopiesBeside { kBothWays, kSameWay };

// How many devices may copy over one PCIe switch at a time. `network` must
// outlive this, and have a cluster with PCIe where it is asked.
class PcieSwitches {
 public:
  PcieSwitches(const Network& network, int replicas, int pp);

  // The switch of the first device of `rank`, of replica 0.
  int Of(int rank) const;
  // [switch] the ranks of replica 0 whose first devices are there.
  const std::map<int, std::vector<int>>& ranks() const { return ranks_; }
  // All devices of the run on the fullest switch of `rank`.
  int DevicesOn(int rank) const;
  // Is a switch of `rank` also that of another rank, or of another replica?
  bool IsShared(int rank) const;
  // How many times as long a copy of `rank`, of replica 0, takes while all
  // devices of the run copy, in both directions or, those on its switch, in
  // its own: links are shared by max-min, as engine simgrid does it.
  double SharersOf(int rank, bool to_host, CopiesBeside beside) const;
  // The same where one copy at a time is on each direction of a switch, of
  // the turns of `rank` and its neighbours in replica 0. Other replicas on the
  // switch copy between two of them.
  double SharersInTurn(int rank, bool to_host, CopiesBeside beside) const;
  // That have copies on the switches of `rank`.
  int ReplicasOn(int rank) const;

 private:
  // What can copy at a time: a rank, or one of those that take turns.
  struct Source {
    int owner = 0;  // rank of all replicas; or switch
    LinkId on = 0;  // its first switch
    bool to_host = false;
    std::vector<LinkLoad> loads;
  };
  // [node] of those that have a device there.
  using Sources = std::map<int, std::vector<Source>>;

  std::set<int> NodesOf(int replica, int rank) const;
  // Beside those of other owners and its owner's other way; with kSameWay
  // without that of all on its switch.
  double Slowdown(int rank, bool to_host, CopiesBeside beside, int owner,
                  const Sources& sources) const;

  const Network& network_;
  Sources sources_;
  // With one copy at a time on each direction of a switch: the widest.
  Sources in_turn_;
  std::map<LinkId, double> to_host_;  // devices that copy over a switch
  // [switch] replica and rank of each copy to the host.
  std::map<LinkId, std::set<std::pair<int, int>>> copies_;
  std::map<int, std::vector<int>> ranks_;
};

// Can copies of a run's devices, all at once and both ways, want more of the
// memory of some host than it has?
bool CopiesFillMemory(const Network& network, int replicas, int pp);

// An O or L of one microbatch of `stage` that takes `times` as long as alone.
double ActivationCopySeconds(const PreparedRun& run, const Program& program,
                             int stage, PassKind kind, double times);

}  // namespace pipewright

// Who shares the PCIe switches of a run, and what copies of activations take
// there.
#pragma once

#include <map>
#include <vector>

#include "sim/config/prepare.h"
#include "sim/program/program.h"

namespace pipewright {

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
  // How many times as long a copy of `rank`, of replica 0, takes while all
  // devices of the run copy: of one link, all devices over those of that rank.
  double SharersOf(int rank) const;
  // The same where ranks of a replica take turns and only other replicas leave
  // a part.
  double SharersInTurn(int rank) const;

 private:
  const Network& network_;
  std::map<LinkId, int> flows_;
  std::map<int, std::vector<int>> ranks_;
};

// An O or L of one microbatch of `stage` that takes `times` as long as alone.
double ActivationCopySeconds(const PreparedRun& run, const Program& program,
                             int stage, PassKind kind, double times);

}  // namespace pipewright

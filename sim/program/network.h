// What lies between the ranks of a Program.
#pragma once

#include <memory>

#include "sim/program/collective_algorithm.h"

namespace pipewright {

class Cluster;
class RankMapping;
struct Profile;

// Time of a hop: either the same for every hop, or a cluster's links.
struct Network {
  // Used when `cluster` is null; 0: free.
  double hop_s = 0;
  std::shared_ptr<const Cluster> cluster;
  std::shared_ptr<const RankMapping> mapping;
  // Whose collectives those of gradients and parameters take the time of
  // (network_time.h), of one device a rank; null: nobody's.
  std::shared_ptr<const Profile> measured;
  // Algorithm of collectives on a cluster that are not measured.
  CollectiveAlgorithm collectives = CollectiveAlgorithm::kRing;
  // So many parts a rank's devices are, one behind the other, that hold the
  // same parameters.
  int context_parallel = 1;
};

}  // namespace pipewright

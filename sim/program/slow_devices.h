// Devices that take longer, or shorter, than the costs of a run say: a factor
// on the times of their passes and optimizer steps. And links that do: a factor
// on the exchanges of groups that cross them. Transfers and collectives between
// passes keep their times, and wait. Bytes stay what they are.
#pragma once

#include <vector>

#include "sim/program/group_paths.h"

namespace pipewright {

struct DpClass;
struct Program;

// Factors of the devices of one rank of a replica.
struct Slowness {
  double device = 1;  // what it computes
  SlowPaths exchanges = {};

  auto operator<=>(const Slowness&) const = default;
};

// Makes the passes and steps of one rank slower. What a pass exchanges inside
// groups (Lane::exchanges) is no computation.
void ScaleRank(const Slowness& slowness, int rank, DpClass* own);

// [replica * pp + rank]; 1: as the costs say.
using DeviceFactors = std::vector<double>;

// Gives every rank of every replica its factor and its paths; either may be
// empty. Replicas that then differ become classes (DpClass), those that do not
// stay one: what costs memory, and time on engine fast, is how many kinds of
// replicas there are.
void ScaleDevices(const DeviceFactors& factors,
                  const std::vector<SlowPaths>& paths, Program* program);

}  // namespace pipewright

// Devices that take longer, or shorter, than the costs of a run say: a factor
// on the times of their passes and optimizer steps. Transfers and collectives
// keep their times, and wait.
#pragma once

#include <vector>

#include "sim/program/program.h"

namespace pipewright {

// Multiplies the times of the passes and steps of one rank.
void ScaleRank(double factor, RankProgram* rank);

// [replica * pp + rank]; 1: as the costs say.
using DeviceFactors = std::vector<double>;

// Gives every rank of every replica its factor. Replicas that then differ
// become classes (DpClass), those that do not stay one: what costs memory, and
// time on engine fast, is how many kinds of replicas there are.
void ScaleDevices(const DeviceFactors& factors, Program* program);

}  // namespace pipewright

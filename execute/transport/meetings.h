// Ranks and their collectives as transports name and know them.
#pragma once

#include <string>

#include "execute/transport/message.h"

namespace pipewright {

struct Program;
struct SideOp;

// "rank 2", "rank 2 of replica 1".
std::string RankName(const Program& program, Address address);

// Is `op` a collective on fp32 data of a device, the gradients or parameters of
// a stage on more than one rank? Other collectives exchange a few values.
bool IsCombined(const Program& program, const SideOp& op);

}  // namespace pipewright

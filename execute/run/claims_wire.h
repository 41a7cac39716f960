// Claims of memory as messages between processes.
#pragma once

#include <vector>

#include "execute/transport/wire.h"
#include "sim/base/memory_claim.h"

namespace pipewright {

void PutClaims(const std::vector<MemoryClaim>& claims, WireWriter* writer);
std::vector<MemoryClaim> GetClaims(WireReader* reader);

}  // namespace pipewright

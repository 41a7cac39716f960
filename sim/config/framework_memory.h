// Memory of a prepared run as another framework has it, an optimizer on the
// host included.
#pragma once

#include <memory>
#include <vector>

#include "sim/config/prepare.h"
#include "sim/memory/schedule_memory.h"

namespace pipewright {

// As TakeMemoryFramework (prepare.h). `states`: what that framework has of an
// optimizer on the host, [rank]; empty: its states are on the device.
void TakeMemoryFramework(std::shared_ptr<const MemoryFramework> framework,
                         std::vector<OffloadedStates> states, PreparedRun* run);

}  // namespace pipewright

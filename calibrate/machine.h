// What the machine says of itself: name of the system, date, how busy it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright {

std::string SystemName();  // "Linux 6.1.0 x86_64, Debian GNU/Linux 12"
std::string UtcDate();     // ISO 8601

// CPU time of the calling thread: that of others is not in it.
double ThreadSeconds();

struct MachineLoad {
  double runnable = 0;      // one-minute load average; below 0: not known
  int64_t preemptions = 0;  // involuntary context switches of this process
  int cores = 1;
};
MachineLoad CurrentLoad();

// Warns when others wanted the cores while this process measured.
void AppendLoadWarnings(const MachineLoad& before, const MachineLoad& after,
                        double seconds, std::vector<std::string>* warnings);

}  // namespace pipewright

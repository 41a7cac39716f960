// Facts about the machine: name of the system, date, how busy it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

std::string SystemName();  // "Linux 6.1.0 x86_64, Debian GNU/Linux 12"
std::string UtcDate();     // ISO 8601

// CPU time of the calling thread alone.
double ThreadSeconds();

// CPUs that the calling thread, and threads that it starts, may run on.
int AllowedCpus();
// The host's last-level cache, one of them if there are several; 0: not known.
int64_t HostCacheBytes();

struct MachineLoad {
  double runnable = 0;  // one-minute load average; below 0: not known
  // CPU seconds of all cores since the machine came up, and of this process;
  // `busy_s` below 0: not known. The first includes what a hypervisor took.
  double busy_s = -1;
  double own_s = 0;
  int cores = 1;
};
MachineLoad CurrentLoad();
// Busy seconds by the first line of Linux's /proc/stat; below 0 for another
// text.
double BusySeconds(absl::string_view stat, double ticks_per_second);

// Warns when others used the cores while this process measured for `seconds`.
void AppendLoadWarnings(const MachineLoad& before, const MachineLoad& after,
                        double seconds, std::vector<std::string>* warnings);

}  // namespace pipewright

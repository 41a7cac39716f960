// Subjects that time transfers between ranks: threads of this process, or
// whatever a Transport stands for (under mpirun: its processes).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/measure.h"
#include "calibrate/thread_group.h"

namespace pipewright {

// Ranks that transfer when told to.
struct Transport {
  std::string name;  // as TransferEntry has it
  int ranks = 0;
  // Seconds of one transfer, of `repeats` on end.
  std::function<absl::StatusOr<double>(TransferKind kind, int64_t bytes,
                                       int repeats)>
      run;
  // Other threads with other buffers; empty where ranks are processes.
  std::function<void()> renew;
};

std::vector<Subject> TransferSubjects(const Transport& transport, bool quick);

// Two threads, and as many as the machine has cores where that is more.
std::vector<Transport> ThreadTransports();

}  // namespace pipewright

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
#include "execute/transport/timed_transport.h"

namespace pipewright {

// A pair of ranks on one machine is the same whether there are more ranks or
// not. So send-recv is measured only by a transport of two, or by the only one
// (`alone`).
std::vector<Subject> TransferSubjects(const Transport& transport, bool quick,
                                      bool alone);

// Two threads, and as many as the machine has cores where that is more.
std::vector<Transport> ThreadTransports();

}  // namespace pipewright

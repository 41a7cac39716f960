#include "execute/transport/steady_seconds.h"

#include <time.h>

namespace pipewright {

double SteadySeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace pipewright

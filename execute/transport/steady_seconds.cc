#include "execute/transport/steady_seconds.h"

#include <time.h>

#include "absl/strings/ascii.h"
#include "sim/base/file.h"

namespace pipewright {

double SteadySeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

std::string MachineName() {
  const std::string text =
      ReadFile("/proc/sys/kernel/random/boot_id").value_or("");
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace pipewright

#include "calibrate/machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"

namespace pipewright {
namespace {

// A quiet process is interrupted a few times a second by the kernel's own
// threads.
constexpr double kQuietPreemptions = 20;

std::string Distribution() {
  const auto text = ReadFile("/etc/os-release");
  if (!text.ok()) return "";
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (absl::StartsWith(line, "PRETTY_NAME=\"") && line.size() > 14) {
      return absl::StrCat(", ", line.substr(13, line.size() - 14));
    }
  }
  return "";
}

}  // namespace

std::string SystemName() {
  utsname name = {};
  if (::uname(&name) != 0) return "";
  return absl::StrCat(name.sysname, " ", name.release, " ", name.machine,
                      Distribution());
}

std::string UtcDate() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02dZ", parts.tm_year + 1900,
                         parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                         parts.tm_min, parts.tm_sec);
}

double ThreadSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

MachineLoad CurrentLoad() {
  MachineLoad load;
  load.cores =
      static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  double average = 0;
  load.runnable = ::getloadavg(&average, 1) == 1 ? average : -1;
  rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    load.preemptions = usage.ru_nivcsw;
  }
  return load;
}

void AppendLoadWarnings(const MachineLoad& before, const MachineLoad& after,
                        double seconds, std::vector<std::string>* warnings) {
  const double rate =
      static_cast<double>(after.preemptions - before.preemptions) /
      std::max(seconds, 1e-3);
  if (before.runnable > after.cores - 1 || rate > kQuietPreemptions) {
    warnings->push_back(absl::StrFormat(
        "the machine was busy: load %.1f on %d cores before the run, preempted "
        "%.0f times a second; wall-clock times (transfers, what runs beside a "
        "pass) are less sure than thread times",
        before.runnable, after.cores, rate));
  }
}

}  // namespace pipewright

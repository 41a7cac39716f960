#include "calibrate/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"

namespace pipewright {
namespace {

// The share of all cores that others may use: the kernel's own threads and a
// shell take as much.
constexpr double kQuiet = 0.05;

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         1e-6 * static_cast<double>(time.tv_usec);
}

std::string DistributionName() {
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
                      DistributionName());
}

std::string UtcDate() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02dZ", parts.tm_year + 1900,
                         parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                         parts.tm_min, parts.tm_sec);
}

int AllowedCpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    return std::max(1, CPU_COUNT(&allowed));
  }
  // More of them than the set has places for.
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int64_t HostCacheBytes() {
  int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return std::max<int64_t>(bytes, 0);
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
    load.own_s = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  if (const auto stat = ReadFile("/proc/stat"); stat.ok()) {
    load.busy_s =
        BusySeconds(*stat, static_cast<double>(::sysconf(_SC_CLK_TCK)));
  }
  return load;
}

double BusySeconds(absl::string_view stat, double ticks_per_second) {
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(0, stat.find('\n')), ' ', absl::SkipEmpty());
  // cpu user nice system idle iowait irq softirq steal; guests are in user.
  constexpr size_t kBusy[] = {1, 2, 3, 6, 7, 8};
  if (fields.size() <= 8 || fields[0] != "cpu" || ticks_per_second <= 0) {
    return -1;
  }
  double ticks = 0;
  for (const size_t field : kBusy) {
    double value = 0;
    if (!absl::SimpleAtod(fields[field], &value)) return -1;
    ticks += value;
  }
  return ticks / ticks_per_second;
}

void AppendLoadWarnings(const MachineLoad& before, const MachineLoad& after,
                        double seconds, std::vector<std::string>* warnings) {
  const bool known = before.busy_s >= 0 && after.busy_s >= 0;
  const double others =
      known ? (after.busy_s - before.busy_s - (after.own_s - before.own_s)) /
                  std::max(seconds, 1e-3)
            : 0;
  // The load average counts work that ended before the run.
  const bool quiet = known ? others <= kQuiet * after.cores
                           : before.runnable <= after.cores - 1;
  if (quiet) return;
  warnings->push_back(absl::StrFormat(
      "the machine was busy: load %.1f on %d cores before the run, others used "
      "%s of them during it; wall-clock times (transfers, what runs beside a "
      "pass) are less sure than thread times",
      before.runnable, after.cores,
      known ? absl::StrFormat("%.1f", others) : "an unknown part"));
}

}  // namespace pipewright

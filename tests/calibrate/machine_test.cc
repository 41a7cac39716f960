#include "calibrate/machine.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "calibrate/memory_subjects.h"

namespace pipewright::machine_test {
namespace {

TEST_CASE("calibrate: what others use of the machine is told apart from ours",
          "[calibrate]") {
  // user nice system idle iowait irq softirq steal guest
  CHECK(BusySeconds("cpu  100 20 30 4000 500 6 7 8 9 0\ncpu0 1\n", 100) ==
        Approx(1.71));
  CHECK(BusySeconds("cpu 1 2 3\n", 100) < 0);
  CHECK(BusySeconds("intr 1 2 3 4 5 6 7 8 9\n", 100) < 0);
  CHECK(BusySeconds("", 100) < 0);

  const MachineLoad before = {.runnable = 0.2, .busy_s = 50, .cores = 2};
  std::vector<std::string> warnings;
  // Two threads of ours on two cores for ten seconds, and a bit of the system.
  AppendLoadWarnings(before, {.busy_s = 70.5, .own_s = 20, .cores = 2}, 10,
                     &warnings);
  CHECK(warnings.empty());
  AppendLoadWarnings(before, {.busy_s = 68, .own_s = 10, .cores = 2}, 10,
                     &warnings);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("others used 0.8 of them") != std::string::npos);
  // The load is of what was over before.
  warnings.clear();
  AppendLoadWarnings({.runnable = 1.5, .busy_s = 50, .cores = 2},
                     {.busy_s = 60, .own_s = 10, .cores = 2}, 10, &warnings);
  CHECK(warnings.empty());
  warnings.emplace_back();
  // What others use is not known: the load before it decides.
  AppendLoadWarnings({.runnable = 1.5, .cores = 2}, {.cores = 2}, 10,
                     &warnings);
  CHECK(warnings.size() == 2);
  AppendLoadWarnings({.runnable = 0.5, .cores = 2}, {.cores = 2}, 10,
                     &warnings);
  CHECK(warnings.size() == 2);
}

TEST_CASE("calibrate: the machine's own reading grows with what we use",
          "[calibrate]") {
  const MachineLoad before = CurrentLoad();
  const double start = ThreadSeconds();
  while (ThreadSeconds() < start + 0.05) {
  }
  const MachineLoad after = CurrentLoad();
  CHECK(after.own_s >= before.own_s + 0.05);
  CHECK(after.cores >= 1);
  if (before.busy_s >= 0) CHECK(after.busy_s >= before.busy_s);
}

TEST_CASE("calibrate: the host's bandwidth is of the CPUs we may use",
          "[calibrate]") {
  const int all = AllowedCpus();
  CHECK(all >= 1);
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
  CHECK(AllowedCpus() == 1);
  Subject subject = HostMemorySubject();
  std::vector<double> samples;
  CHECK(subject.visit(&samples).ok());
  REQUIRE(samples.size() == 1);
  // No CPU has so much, and none so little.
  CHECK(samples[0] > 1e7);
  CHECK(samples[0] < 1e12);
  sched_setaffinity(0, sizeof(before), &before);
  CHECK(AllowedCpus() == all);
}

}  // namespace
}  // namespace pipewright::machine_test

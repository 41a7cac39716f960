// Runs tests/execute/mpi_runner.cc under mpirun.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/run_binary.h"

namespace pipewright::testing {

// False, with a warning, where there is no mpirun or no MPI transport.
bool HaveMpirun();

// The built pipewright as a user would run it under mpirun.
BinaryResult RunBinaryUnderMpirun(int processes,
                                  const std::vector<std::string>& arguments);

class MpiRunner {
 public:
  // Starts it with `processes` processes. When one is lost mpirun sends SIGTERM
  // to the others and `kill_after_s` later SIGKILL; one second, its default,
  // has not let all of them speak on a busy machine. With two `nodes` the
  // second is this machine under another name: a daemon of its own, and TCP
  // instead of shared memory.
  MpiRunner(int processes, const std::vector<std::string>& arguments,
            int kill_after_s = 1, int nodes = 1);
  // Awaits the end of all of it.
  ~MpiRunner();

  // The id of a process, once it is part of the job.
  pid_t Pid(int process) const;
  void Await();
  // What is in a file of mpi_runner.cc, after Await; "" without it.
  std::string Read(const std::string& name, int process) const;
  // Output of mpirun and of all processes.
  std::string output() const;

 private:
  TemporaryFolder folder_;
  pid_t mpirun_ = -1;
};

}  // namespace pipewright::testing

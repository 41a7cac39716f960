// `pipewright execute` as processes that a file brings together, one a rank.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/run_binary.h"

namespace pipewright::testing {

// The words of a command line without quotes.
std::vector<std::string> WordsOf(const std::string& line);

class ExecuteJob {
 public:
  // `pipewright execute ARGUMENTS --bootstrap file:... --rank R --ranks RANKS`
  // for every R below `started` (-1: RANKS), and what is `own` to a process.
  ExecuteJob(int ranks, const std::vector<std::string>& arguments,
             int started = -1,
             const std::map<int, std::vector<std::string>>& own = {});
  ~ExecuteJob() { Await(); }

  // One process more, with these options.
  void Start(const std::vector<std::string>& options);
  // Until all have found each other.
  void AwaitMeeting() const;
  void Kill(int process, int signal) const { ::kill(pids_[process], signal); }
  // Its exit code; -1 if it was killed.
  int Await(int process);
  // Exit codes of all.
  std::vector<int> Await();
  std::string Out(int process) const { return Read("out", process); }
  std::string Err(int process) const { return Read("err", process); }
  // How many processes have said that something is wrong.
  int errors() const;
  std::vector<std::string> Files() const { return folder_.Files(); }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  std::string Read(const char* name, int process) const;

  TemporaryFolder folder_;
  std::vector<std::string> arguments_;
  std::vector<pid_t> pids_;
  std::map<int, int> codes_;
};

// A small model and schedule in front of `more`.
std::vector<std::string> SmallRun(const std::vector<std::string>& more);

}  // namespace pipewright::testing

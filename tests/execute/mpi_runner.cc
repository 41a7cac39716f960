// What the tests of the MPI transport start under mpirun: trains a small model
// and leaves in a folder, as files NAME.PROCESS, what a test wants to know:
//   pid   the process, once it is a part of the job
//   local which process of its node it is
//   said  the error, or "ok"
//   exit  the exit code
//   bits  of process 0: losses, gradients and weights of all ranks
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "execute/run/fixed_worker.h"
#include "execute/run/run_processes.h"
#include "execute/train/training.h"
#include "execute/transport/process_group.h"
#include "sim/base/status.h"
#include "sim/program/program.h"
#include "tests/support/small_training.h"

namespace pipewright::testing {
namespace {

struct Options {
  std::string folder;
  std::string schedule = "1f1b";
  int pp = 4;
  int dp = 1;
  bool rendezvous = false;
  int iterations = 2;
  double timeout_s = 60;
  int drop_of_rank = -1;  // its first message is lost
  int dies = -1;          // rank that kills itself in its second iteration
  // Without kernels: process 0 takes so long to make its worker, or for its
  // conclusion, during which process 2 dies.
  double start_s = 0;
  double conclude_s = 0;
  // Without kernels: a pass, and the end of the last step, of rank 2 take so
  // long.
  double slow_s = 0;
  // Without kernels: where process 0, or with "first" process 2, throws.
  std::string throws;
};

void Leave(const Options& options, const std::string& name, int process,
           const std::string& text) {
  const std::string path =
      absl::StrCat(options.folder, "/", name, ".", process);
  std::ofstream(path + ".part") << text;
  // Whoever sees the file sees all of it.
  ::rename((path + ".part").c_str(), path.c_str());
}

void Sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

class SlowWorker : public FixedWorker {
 public:
  SlowWorker(double seconds, int iterations)
      : seconds_(seconds), iterations_(iterations) {}
  absl::StatusOr<double> RunPass(Pass, int) override {
    if (!slept_) Sleep(seconds_);
    slept_ = true;
    return 0.0;
  }
  absl::Status EndIteration(int iteration) override {
    if (iteration + 1 == iterations_) Sleep(seconds_);
    return absl::OkStatus();
  }

 private:
  const double seconds_;
  const int iterations_;
  bool slept_ = false;
};

absl::Status RunFixed(ProcessGroup* job, const Options& options,
                      const Program& program, const ExecuteOptions& execute) {
  const int process = job->process();
  const auto throws = [&](const char* where) {
    if (options.throws == where) throw std::bad_alloc();
  };
  job->SetLastWords([&options, process](const std::string& why) {
    Leave(options, "said", process, why);
    Leave(options, "exit", process, "1");
    ::_exit(1);
  });
  PW_RETURN_IF_ERROR(
      FirstOfAll(job, execute.timeout_s, [&]() -> absl::StatusOr<FirstWord> {
        if (process == 2) throws("first");
        return FirstWord();
      }).status());
  RunReports reports;
  reports.conclude =
      [&](const ExecutedRun&,
          const std::vector<std::string>&) -> absl::StatusOr<std::string> {
    throws("conclude");
    Sleep(options.conclude_s);
    return "";
  };
  if (options.conclude_s > 0) {
    reports.report = [process]() -> std::string {
      if (process == 2) {
        std::thread([] {
          Sleep(0.5);
          ::raise(SIGKILL);
        }).detach();
      }
      return "";
    };
  }
  PW_RETURN_IF_ERROR(
      RunProcesses(
          job, program,
          [&](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
            if (self.rank == 0) Sleep(options.start_s);
            if (self.rank == 2 && options.slow_s > 0) {
              return std::make_unique<SlowWorker>(options.slow_s,
                                                  program.iterations);
            }
            return std::make_unique<FixedWorker>();
          },
          execute, reports)
          .status());
  return LastOfAll(job, program, execute, [&] {
    throws("last");
    return absl::OkStatus();
  });
}

absl::Status Train(ProcessGroup* job, const Options& options) {
  PW_ASSIGN_OR_RETURN(
      SmallTraining training,
      MakeSmallTraining(
          options.schedule, options.pp, options.dp,
          options.rendezvous ? WaitRule::kRendezvous : WaitRule::kBuffered,
          options.iterations));
  ExecuteOptions& execute = training.options.execute;
  execute.timeout_s = options.timeout_s;
  if (options.drop_of_rank >= 0) {
    execute.faults.late_messages = {
        {.rank = options.drop_of_rank, .number = 0, .seconds = -1}};
  }
  if (options.dies >= 0) {
    execute.faults.death = {.rank = options.dies, .iteration = 1};
  }
  if (options.start_s > 0 || options.conclude_s > 0 || options.slow_s > 0 ||
      !options.throws.empty()) {
    return RunFixed(job, options, training.program, execute);
  }
  // A run that a test ends.
  if (options.iterations > 10) {
    training.options.worker.snapshot_iterations.clear();
    training.options.check = false;
  }
  PW_ASSIGN_OR_RETURN(const TrainedRun trained,
                      TrainProcesses(job, training.program, training.model,
                                     pw_cpu_kernels(), training.options));
  if (training.options.check && !trained.check.ok())
    return absl::InternalError("wrong gradients");
  if (job->process() == 0) Leave(options, "bits", 0, BitsOf(trained));
  return absl::OkStatus();
}

int Run(const Options& options) {
  absl::StatusOr<std::unique_ptr<ProcessGroup>> job = ProcessGroup::Create();
  if (!job.ok()) {
    Leave(options, "said", 0, job.status().ToString());
    return 1;
  }
  const int process = (*job)->process();
  const char* const local = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  Leave(options, "local", process, local == nullptr ? "" : local);
  Leave(options, "pid", process, absl::StrCat(::getpid()));
  const absl::Status status = Train(job->get(), options);
  const int code = ExitCode(status);
  Leave(options, "said", process,
        status.ok() ? "ok" : std::string(status.message()));
  Leave(options, "speaks", process, (*job)->speaks() ? "yes" : "no");
  Leave(options, "exit", process, absl::StrCat(code));
  return code;
}

}  // namespace
}  // namespace pipewright::testing

int main(int argc, char** argv) {
  pipewright::testing::Options options;
  CLI::App app;
  app.add_option("--folder", options.folder)->required();
  app.add_option("--schedule", options.schedule);
  app.add_option("--pp", options.pp);
  app.add_option("--dp", options.dp);
  app.add_flag("--rendezvous", options.rendezvous);
  app.add_option("--iterations", options.iterations);
  app.add_option("--timeout", options.timeout_s);
  app.add_option("--drop", options.drop_of_rank);
  app.add_option("--dies", options.dies);
  app.add_option("--start", options.start_s);
  app.add_option("--conclude", options.conclude_s);
  app.add_option("--slow", options.slow_s);
  app.add_option("--throws", options.throws);
  CLI11_PARSE(app, argc, argv);
  return pipewright::testing::Run(options);
}

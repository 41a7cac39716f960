// A pool of workers behind a socket, in a process of its own: for a process
// that must not fork any more, because a library has started threads in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/sweep/pool.h"

namespace pipewright {

// Tasks and finished points as bytes.
void AppendTask(const PointTask& task, std::string* bytes);
bool TakeTask(absl::string_view* bytes, PointTask* task);
void AppendFinished(const FinishedPoint& point, std::string* bytes);
bool TakeFinished(absl::string_view* bytes, FinishedPoint* point);

class PoolServer {
 public:
  // To be called while this process has one thread. It ends with this process,
  // or with the object. Error: kInternal.
  static absl::StatusOr<PoolServer> Start(const SweepPoints* points,
                                          const PoolOptions& options,
                                          const EvaluateFunction& evaluate);
  ~PoolServer();
  PoolServer(PoolServer&& other) noexcept;
  PoolServer& operator=(PoolServer&&) = delete;

  // `tasks`: AppendTask, any number. Error: kInternal where it has ended.
  absl::Status Send(absl::string_view tasks);
  // What has come (AppendFinished, any number), "" for nothing; waits for
  // `seconds` at most. Error: kInternal where it has ended.
  absl::StatusOr<std::string> Receive(double seconds);

 private:
  PoolServer(int process, int file) : process_(process), file_(file) {}

  int process_;
  int file_;
  std::string inbox_;
};

}  // namespace pipewright

// Workers that live as long as a sweep and evaluate its points in child
// processes: one process of several threads, or several of one thread. A point
// that ends its process costs nobody else more than a repetition: all points
// of a lost process are tried again one by one in a process of their own, so
// that the row of the one at fault says so.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/result.h"
#include "sim/config/run_context.h"

namespace pipewright {

struct PointTask {
  uint64_t serial = 0;
  SweepChoices choices;
  int attempts = 0;  // that ended badly
};

struct FinishedPoint {
  uint64_t serial = 0;
  PointResult result;
};

// Whoever turns tasks into results: the workers of this machine, or of many.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // How many more tasks keep everybody busy.
  virtual int64_t wants() const = 0;
  virtual void Give(PointTask task) = 0;
  // Tasks without a result.
  virtual int64_t pending() const = 0;
  // Adds results to `finished`; waits until there is one, a signal comes or
  // `seconds` have passed. Error: kInternal where no worker can be started.
  virtual absl::Status Wait(double seconds,
                            std::vector<FinishedPoint>* finished) = 0;
};

struct PoolOptions {
  int workers = 1;
  bool threads = true;   // threads of one process; false: each a process
  double timeout_s = 0;  // limit of a point; 0: none
  int retries = 2;       // for a point that crashes or times out
};

using EvaluateFunction =
    std::function<PointResult(const SweepChoices& choices)>;

class WorkerPool : public Evaluator {
 public:
  // `points` and `evaluate` are used in the children, as they are when each is
  // started; `evaluate` from several threads with PoolOptions::threads. To be
  // used by one thread of a process that has no other.
  WorkerPool(const SweepPoints* points, PoolOptions options,
             EvaluateFunction evaluate);
  // Ends the workers, whatever they do.
  ~WorkerPool() override;

  int64_t wants() const override;
  void Give(PointTask task) override;
  int64_t pending() const override { return pending_; }
  absl::Status Wait(double seconds,
                    std::vector<FinishedPoint>* finished) override;

  // Process ids of the workers; for tests.
  std::vector<int> processes() const;
  // Another descriptor that ends a Wait when something can be read from it.
  void WatchToo(int file) { watched_ = file; }

 private:
  // One thread of a worker and the socket to it.
  struct Lane {
    int file = -1;
    std::deque<PointTask> given;
    double since_s = 0;  // when the first of them may have begun
    double chunk_s = 0;  // when the newest chunk was given
    int64_t chunk = 1;
    std::string inbox;
    std::vector<std::string> shapes;
  };
  struct Child {
    int process = -1;
    bool careful = false;  // one task at a time
    int64_t finished = 0;
    std::list<Lane> lanes;
  };

  absl::Status Start(int lanes, bool careful);
  absl::Status StartWhatIsMissing();
  void Feed();
  void Feed(Child* child, Lane* lane);
  bool Send(Lane* lane, size_t first);
  bool Receive(Child* child, Lane* lane, std::vector<FinishedPoint>* finished);
  void TakeFrames(Child* child, Lane* lane,
                  std::vector<FinishedPoint>* finished);
  void Lose(Child* child, std::vector<FinishedPoint>* finished);
  void EndSlow(std::vector<FinishedPoint>* finished);
  void TryAgain(PointTask task, PointStatus status, const std::string& reason,
                std::vector<FinishedPoint>* finished);
  std::string End(Child* child, bool kills);
  int64_t MostOfChunk() const;

  const SweepPoints* points_;
  const PoolOptions options_;
  const EvaluateFunction evaluate_;
  std::list<std::unique_ptr<Child>> children_;
  std::deque<PointTask> ready_;
  std::deque<PointTask> careful_;
  int64_t pending_ = 0;
  int barren_ = 0;  // processes in a row that ended without a result
  int watched_ = -1;
};

// Works for a pool: takes tasks from `file` and sends results until it ends.
// `at_once`: each result by itself.
void ServeLane(int file, bool at_once, const EvaluateFunction& evaluate);

}  // namespace pipewright

// A sweep on several machines, under mpirun: process 0 walks the grid and has
// the file; every process, that one too, evaluates points in children of its
// own. Whoever is faster gets more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "execute/transport/process_group.h"
#include "sim/analysis/sweep/pool_server.h"

namespace pipewright {

// Evaluator of process 0.
class MpiEvaluator : public Evaluator {
 public:
  // `held`: tasks that a process may have at a time.
  MpiEvaluator(ProcessGroup* job, PoolServer* own, int64_t held);
  // Tells the others that it is over.
  ~MpiEvaluator() override;

  int64_t wants() const override;
  void Give(PointTask task) override;
  int64_t pending() const override { return pending_; }
  // A process that is not heard of for ten seconds is lost: its points are run
  // by the others.
  absl::Status Wait(double seconds,
                    std::vector<FinishedPoint>* finished) override;

 private:
  struct Site {
    std::map<uint64_t, PointTask> held;
    double heard_s = 0;  // 0: not yet
    bool lost = false;
  };
  absl::Status Feed();
  void Take(Site* site, absl::string_view bytes,
            std::vector<FinishedPoint>* finished);
  void LoseSilent();

  ProcessGroup& job_;
  PoolServer& own_;
  const int64_t held_;
  std::vector<Site> sites_;  // by process
  std::deque<PointTask> queue_;
  int64_t pending_ = 0;
};

// Evaluates, in the other processes, what process 0 sends until it says that it
// is over. Error: kInternal when the job is ended from outside.
absl::Status ServeSweep(ProcessGroup* job, PoolServer* own);

}  // namespace pipewright

#include "sim/cli/sweep_mpi.h"

#include <time.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr double kSignOfLifeSeconds = 1;
constexpr double kSilenceSeconds = 10;
// What a message of process 0 begins with.
constexpr char kTasks = 'T';
constexpr char kOver = 'E';

double SteadyNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

}  // namespace

MpiEvaluator::MpiEvaluator(ProcessGroup* job, PoolServer* own, int64_t held)
    : job_(*job), own_(*own), held_(held), sites_(job->processes()) {
  sites_[0].heard_s = SteadyNow();
}

MpiEvaluator::~MpiEvaluator() {
  for (int process = 1; process < job_.processes(); ++process) {
    if (!sites_[process].lost) {
      job_.Send(process, ProcessGroup::kControl, absl::string_view(&kOver, 1));
    }
  }
}

int64_t MpiEvaluator::wants() const {
  int64_t free = 0;
  for (const Site& site : sites_) {
    if (site.heard_s > 0 && !site.lost) {
      free += held_ - static_cast<int64_t>(site.held.size());
    }
  }
  return free - static_cast<int64_t>(queue_.size());
}

void MpiEvaluator::Give(PointTask task) {
  ++pending_;
  queue_.push_back(std::move(task));
}

absl::Status MpiEvaluator::Feed() {
  for (int process = 0; process < job_.processes(); ++process) {
    Site& site = sites_[process];
    if (site.heard_s == 0 || site.lost) continue;
    // Half of it at a time, so that messages are few.
    if (2 * static_cast<int64_t>(site.held.size()) > held_) continue;
    std::string message(1, kTasks);
    while (!queue_.empty() && static_cast<int64_t>(site.held.size()) < held_) {
      PointTask task = std::move(queue_.front());
      queue_.pop_front();
      AppendTask(task, &message);
      site.held.emplace(task.serial, std::move(task));
    }
    if (message.size() == 1) continue;
    if (process == 0) {
      PW_RETURN_IF_ERROR(own_.Send(absl::string_view(message).substr(1)));
    } else {
      job_.Send(process, ProcessGroup::kControl, message);
    }
  }
  return absl::OkStatus();
}

void MpiEvaluator::Take(Site* site, absl::string_view bytes,
                        std::vector<FinishedPoint>* finished) {
  site->heard_s = SteadyNow();
  FinishedPoint point;
  while (!bytes.empty() && TakeFinished(&bytes, &point)) {
    // One that was taken for lost may still answer.
    if (site->held.erase(point.serial) == 0) continue;
    --pending_;
    finished->push_back(std::move(point));
    point = FinishedPoint();
  }
}

void MpiEvaluator::LoseSilent() {
  for (size_t process = 1; process < sites_.size(); ++process) {
    Site& site = sites_[process];
    if (site.lost || site.heard_s == 0 ||
        SteadyNow() - site.heard_s < kSilenceSeconds) {
      continue;
    }
    site.lost = true;
    // MPI cannot be left in good order any more.
    job_.Abandon();
    for (auto& [serial, task] : site.held) queue_.push_back(std::move(task));
    site.held.clear();
  }
}

absl::Status MpiEvaluator::Wait(double seconds,
                                std::vector<FinishedPoint>* finished) {
  PW_RETURN_IF_ERROR(Feed());
  const double deadline_s = SteadyNow() + seconds;
  do {
    ProcessGroup::Incoming incoming;
    while (job_.Receive(ProcessGroup::kControl, 0, &incoming) ==
           Received::kMessage) {
      Take(&sites_[incoming.from], incoming.text(), finished);
    }
    if (!job_.ended_by().empty()) return absl::InternalError(job_.ended_by());
    PW_ASSIGN_OR_RETURN(const std::string results, own_.Receive(0.001));
    if (!results.empty()) Take(&sites_[0], results, finished);
  } while (finished->empty() && SteadyNow() < deadline_s);
  LoseSilent();
  return Feed();
}

absl::Status ServeSweep(ProcessGroup* job, PoolServer* own) {
  double said_s = 0;
  while (true) {
    PW_ASSIGN_OR_RETURN(const std::string results, own->Receive(0.001));
    if (!results.empty() || SteadyNow() - said_s > kSignOfLifeSeconds) {
      job->Send(0, ProcessGroup::kControl, results);
      said_s = SteadyNow();
    }
    ProcessGroup::Incoming incoming;
    while (job->Receive(ProcessGroup::kControl, 0, &incoming) ==
           Received::kMessage) {
      const absl::string_view text = incoming.text();
      if (text.empty()) continue;
      if (text[0] == kOver) return absl::OkStatus();
      PW_RETURN_IF_ERROR(own->Send(text.substr(1)));
    }
    if (!job->ended_by().empty()) return absl::InternalError(job->ended_by());
  }
}

}  // namespace pipewright

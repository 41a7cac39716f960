#include "sim/cost/failure_days.h"

#include <algorithm>
#include <cmath>

#include "sim/base/statistics.h"

namespace pipewright {
namespace {

// Cycles and restarts before a day begins: by then the state at a random time
// no longer depends on how the run began. [numerics]
constexpr double kCyclesBefore = 20;

// One run, from its start to the end of the day that is looked at.
class FailingRun {
 public:
  FailingRun(const FailingJob& job, double horizon_s, uint64_t seed,
             uint64_t day)
      : job_(job),
        segment_s_(job.checkpoint_every_s + job.checkpoint_write_s),
        seed_(seed),
        day_(day),
        begin_s_((kCyclesBefore + UniformDraw(seed, day, 0, 0)) * segment_s_ +
                 kCyclesBefore * job.restart_s),
        end_s_(begin_s_ + horizon_s) {}

  FailureDay Run() {
    double now_s = 0;
    while (now_s < end_s_) {
      const double failure_s = now_s + TimeToFailure();
      Work(now_s, failure_s);
      now_s = failure_s;
      if (now_s >= end_s_) break;
      now_s = Restart(now_s);
    }
    return out_;
  }

 private:
  // The first of all devices fails: the least of their exponentials.
  double TimeToFailure() {
    return -job_.mtbf_s() * std::log(UniformDraw(seed_, day_, ++draws_, 1));
  }
  double Inside(double from_s, double to_s) const {
    return std::max(0.0, std::min(to_s, end_s_) - std::max(from_s, begin_s_));
  }
  // Seconds of work among the first `since_s` of work and writing in turn.
  double WorkWithin(double since_s) const {
    const double cycles = std::floor(since_s / segment_s_);
    return cycles * job_.checkpoint_every_s +
           std::min(since_s - cycles * segment_s_, job_.checkpoint_every_s);
  }
  // Work and writing without a break. What was done after the last checkpoint
  // is lost.
  void Work(double from_s, double failure_s) {
    const double whole = std::floor((failure_s - from_s) / segment_s_);
    const double saved_s = from_s + whole * segment_s_;
    const double inside_s = Inside(from_s, saved_s);
    const double first_s = std::max(begin_s_ - from_s, 0.0);
    // Rounding must not make one of the two negative.
    const double kept_s = std::clamp(
        WorkWithin(first_s + inside_s) - WorkWithin(first_s), 0.0, inside_s);
    out_.seconds.kept += kept_s;
    out_.seconds.checkpoint += inside_s - kept_s;
    out_.seconds.lost += Inside(saved_s, failure_s);
    CountFailure(failure_s);
  }
  // Until one succeeds; when that is.
  double Restart(double from_s) {
    double now_s = from_s;
    while (now_s < end_s_) {
      const double failure_s = now_s + TimeToFailure();
      const double done_s = now_s + job_.restart_s;
      out_.seconds.restart += Inside(now_s, std::min(done_s, failure_s));
      if (failure_s >= done_s) return done_s;
      CountFailure(failure_s);
      now_s = failure_s;
    }
    return now_s;
  }
  void CountFailure(double at_s) {
    if (at_s >= begin_s_ && at_s < end_s_) ++out_.failures;
  }

  const FailingJob& job_;
  const double segment_s_;
  const uint64_t seed_;
  const uint64_t day_;
  const double begin_s_;  // begin of the day
  const double end_s_;
  uint64_t draws_ = 0;
  FailureDay out_;
};

}  // namespace

std::vector<FailureDay> DrawFailureDays(const FailingJob& job, double horizon_s,
                                        int days, uint64_t seed) {
  std::vector<FailureDay> out;
  out.reserve(days);
  for (int day = 0; day < days; ++day) {
    out.push_back(
        FailingRun(job, horizon_s, seed, static_cast<uint64_t>(day)).Run());
  }
  return out;
}

double FailuresToDraw(const FailingJob& job, double horizon_s, int days) {
  const double before_s =
      kCyclesBefore *
      (job.checkpoint_every_s + job.checkpoint_write_s + job.restart_s);
  return days * (1 + (horizon_s + before_s) / job.mtbf_s());
}

}  // namespace pipewright

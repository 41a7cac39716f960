// How much of a job's time makes progress that is kept when devices fail: in
// closed form. failure_days.h draws days of the same job by chance; the two
// share nothing but `FailingJob`.
//
// The job: it works for `checkpoint_every_s`, then stops and writes a
// checkpoint for `checkpoint_write_s`, and begins again. Each device fails at
// random, independently and without ageing (exponential), so the first failure
// of n devices is exponential with 1/n of the mean: nothing here grows with the
// devices. A failure at any time, also while a checkpoint is written, loses
// what was done since the last checkpoint that was written to its end, and
// costs `restart_s`. A failure during a restart begins the restart anew. All
// times are seconds.
//
// Sources: J. W. Young, "A first order approximation to the optimum checkpoint
// interval", CACM 17(9), 1974; J. T. Daly, "A higher order estimate of the
// optimum checkpoint interval for restart dumps", FGCS 22, 2006. The formula is
// derived in docs/dev/reliability.md.
#pragma once

#include <cstdint>

namespace pipewright {

struct FailingJob {
  int64_t devices = 1;
  double mtbf_per_device_s = 0;   // mean time between failures of one, above 0
  double checkpoint_every_s = 0;  // work between two checkpoints, above 0
  double checkpoint_write_s = 0;
  double restart_s = 0;

  // Mean time between failures of all devices together.
  double mtbf_s() const {
    return mtbf_per_device_s / static_cast<double>(devices);
  }
};

// Parts of the time of a long run; they add up to 1.
struct TimeParts {
  double kept = 0;        // work that is kept: the goodput
  double checkpoint = 0;  // checkpoints that were written to their end
  double lost = 0;        // work and writing that a failure has undone
  double restart = 0;
};
TimeParts LongRunParts(const FailingJob& job);

// Intervals of work for a job's mtbf_s() and checkpoint_write_s, whatever its
// own interval. Young 1974: the square root of twice their product.
double YoungInterval(const FailingJob& job);
// Daly 2006, equation 37; the mtbf where writing takes twice as long or longer.
double DalyInterval(const FailingJob& job);
// Interval at which LongRunParts is best, to 1e-9; 0 if writing takes no time.
double BestInterval(const FailingJob& job);

}  // namespace pipewright

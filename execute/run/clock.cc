#include "execute/run/clock.h"
#include "execute/transport/steady_seconds.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <chrono>

namespace pipewright {
namespace {

class VirtualClock : public Clock {
 public:
  explicit VirtualClock(bool takes_given) : takes_given_(takes_given) {}
  bool computed() const override { return true; }
  bool takes_given() const override { return takes_given_; }
  double Now() const override { return 0; }
  bool Reached(double) const override { return true; }
  double Begin(double ready_s) override { return ready_s; }
  double End(double start_s, double seconds) override {
    return start_s + seconds;
  }

 private:
  const bool takes_given_;
};

// Sleeps to absolute times; what it tells is when it has really woken.
class PacedClock : public Clock {
 public:
  PacedClock(double epoch_s, double* late_s)
      : epoch_s_(epoch_s), late_s_(late_s) {}
  bool computed() const override { return true; }
  bool takes_given() const override { return true; }
  double Now() const override { return SteadySeconds() - epoch_s_; }
  bool Reached(double date_s) const override {
    return date_s - Now() <= kSpin_s;  // Begin waits for the rest
  }
  double Begin(double ready_s) override { return WaitUntil(ready_s); }
  double End(double start_s, double seconds) override {
    return WaitUntil(start_s + seconds);
  }

 private:
  double WaitUntil(double date_s) {
    const double wall_s = epoch_s_ + date_s;
    if (wall_s - SteadySeconds() > kSpin_s) {
      const double wake_s = wall_s - kSpin_s;
      timespec wake;
      wake.tv_sec = static_cast<time_t>(wake_s);
      wake.tv_nsec =
          static_cast<long>((wake_s - static_cast<double>(wake.tv_sec)) * 1e9);
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr) ==
             EINTR) {
      }
    }
    // Rounding may have it before the date that has come.
    double now_s = Now();
    while (now_s < date_s) now_s = Now();
    if (late_s_ != nullptr) *late_s_ = std::max(*late_s_, now_s - date_s);
    return now_s;
  }

  const double epoch_s_;
  double* const late_s_;
};

class RealClock : public Clock {
 public:
  RealClock(double epoch_s, bool network_given)
      : epoch_s_(epoch_s), network_given_(network_given) {}
  bool computed() const override { return false; }
  bool takes_given() const override { return false; }
  bool network_given() const override { return network_given_; }
  double Now() const override { return SteadySeconds() - epoch_s_; }
  bool Reached(double date_s) const override {
    if (date_s - Now() > kSpin_s) return false;
    while (Now() < date_s) {
    }
    return true;
  }
  double Begin(double) override { return Now(); }
  double End(double, double) override { return Now(); }

 private:
  const double epoch_s_;
  const bool network_given_;
};

}  // namespace

std::unique_ptr<Clock> MakeVirtualClock(bool takes_given) {
  return std::make_unique<VirtualClock>(takes_given);
}
std::unique_ptr<Clock> MakePacedClock(double epoch_s, double* late_s) {
  return std::make_unique<PacedClock>(epoch_s, late_s);
}
std::unique_ptr<Clock> MakeRealClock(double epoch_s) {
  return std::make_unique<RealClock>(epoch_s, /*network_given=*/false);
}
std::unique_ptr<Clock> MakeReplayClock(double epoch_s) {
  return std::make_unique<RealClock>(epoch_s, /*network_given=*/true);
}

}  // namespace pipewright

// The clocks of a rank (see `execute --clock`):
//   virtual  an operation starts when its inputs are there and takes what the
//            worker measured, or what the program says; nobody waits for it.
//            Any number of ranks on any number of cores.
//   paced    the program's durations in wall time: passes sleep and take until
//            they have woken, messages come to be seen when the link would have
//            brought them after that.
//   real     everything takes what it takes.
//   replay   as real for what the rank does itself; what others do, and the
//            network, take the times that they say (replay.h).
// Seconds since the start that all ranks agree on.
#pragma once

#include <memory>
#include <string>

namespace pipewright {

enum class ClockKind { kVirtual, kPaced, kReal };

class Clock {
 public:
  virtual ~Clock() = default;

  // True where operations on which no thread waits (copies, the network) follow
  // from messages and durations alone. Otherwise an operation's times are when
  // it happened.
  virtual bool computed() const = 0;
  // True where durations are the program's, not the worker's.
  virtual bool takes_given() const = 0;
  // True where messages say when they come and the network takes the program's
  // time. Else both are when they happen.
  virtual bool network_given() const { return computed(); }
  virtual double Now() const = 0;
  // True when it is `date_s`, or so shortly before that this has waited for it.
  virtual bool Reached(double date_s) const = 0;
  // Waits where this clock waits; returns when the operation really starts.
  virtual double Begin(double ready_s) = 0;
  // The end of an operation that began at `start_s` and should take
  // `seconds`. Waits the same way.
  virtual double End(double start_s, double seconds) = 0;
};

std::unique_ptr<Clock> MakeVirtualClock(bool takes_given);
// `epoch_s` of SteadySeconds() is zero on all of them. `late_s`, if not null,
// is raised to the longest that a rank woke up too late.
std::unique_ptr<Clock> MakePacedClock(double epoch_s, double* late_s);
std::unique_ptr<Clock> MakeRealClock(double epoch_s);
std::unique_ptr<Clock> MakeReplayClock(double epoch_s);

// The kernel wakes late; this much before a date waiting becomes spinning
// (50 us are usual).
inline constexpr double kSpin_s = 60e-6;

}  // namespace pipewright

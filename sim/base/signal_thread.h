// Takes signals on a thread of its own, so that no handler ever runs on a
// thread that computes: generated code (oneDNN's matrix products) moves the
// stack pointer into its scratch memory, and the kernel would write the
// handler's frame over what lies below. Not for signals of a fault.
#pragma once

#include <csignal>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <thread>

namespace pipewright {

// From its creation to its end the signals are blocked in the thread that
// creates it and in all that are started after it: create it before those that
// compute. Afterwards the creating thread has its old mask again.
class SignalThread {
 public:
  // `taken` runs on the thread, with how many signals there have been (from 1).
  SignalThread(std::initializer_list<int> signals,
               std::function<void(int count)> taken);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  void Loop();

  sigset_t signals_;
  sigset_t old_;
  int wake_ = 0;  // one of the signals
  std::function<void(int count)> taken_;
  std::atomic<bool> quit_{false};
  std::thread thread_;
};

}  // namespace pipewright

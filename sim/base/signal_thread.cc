#include "sim/base/signal_thread.h"

#include <pthread.h>

#include <utility>

#include "sim/base/check.h"

namespace pipewright {

SignalThread::SignalThread(std::initializer_list<int> signals,
                           std::function<void(int count)> taken)
    : taken_(std::move(taken)) {
  PW_CHECK(signals.size() > 0);
  wake_ = *signals.begin();
  sigemptyset(&signals_);
  for (const int signal : signals) sigaddset(&signals_, signal);
  PW_CHECK(pthread_sigmask(SIG_BLOCK, &signals_, &old_) == 0);
  thread_ = std::thread([this] { Loop(); });
}

SignalThread::~SignalThread() {
  quit_ = true;
  pthread_kill(thread_.native_handle(), wake_);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &old_, nullptr);
}

void SignalThread::Loop() {
  for (int count = 1;; ++count) {
    int signal = 0;
    while (sigwait(&signals_, &signal) != 0) continue;
    if (quit_) return;
    taken_(count);
  }
}

}  // namespace pipewright

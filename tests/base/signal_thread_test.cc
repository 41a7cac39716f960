#include "sim/base/signal_thread.h"

#include <pthread.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>

namespace pipewright::signal_thread_test {
namespace {

bool Blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

TEST_CASE("signals: are taken on a thread of their own", "[base]") {
  std::promise<std::thread::id> first;
  std::promise<int> second;
  {
    const SignalThread signals({SIGTERM, SIGINT}, [&](int count) {
      if (count == 1) first.set_value(std::this_thread::get_id());
      if (count == 2) second.set_value(count);
    });
    CHECK(Blocked(SIGTERM));
    bool inherited = false;
    std::thread([&] { inherited = Blocked(SIGINT); }).join();
    CHECK(inherited);
    ::kill(::getpid(), SIGTERM);
    auto taken = first.get_future();
    REQUIRE(taken.wait_for(std::chrono::seconds(60)) ==
            std::future_status::ready);
    CHECK(taken.get() != std::this_thread::get_id());
    ::kill(::getpid(), SIGINT);
    auto again = second.get_future();
    REQUIRE(again.wait_for(std::chrono::seconds(60)) ==
            std::future_status::ready);
  }
  CHECK_FALSE(Blocked(SIGTERM));
  CHECK_FALSE(Blocked(SIGINT));
}

}  // namespace
}  // namespace pipewright::signal_thread_test

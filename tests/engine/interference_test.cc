#include "sim/engine/interference.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <utility>

namespace pipewright::interference_test {
namespace {

using Kind = Interference::Kind;

// Timers in a map, and a note of when each item ended.
class Clock {
 public:
  explicit Clock(const InterferenceMatrix& matrix, int devices = 2)
      : running(matrix, devices,
                [this](uint32_t item, double end_s, uint32_t version) {
                  timers_.insert({end_s, {item, version}});
                }) {}

  void At(double date_s, std::function<void(double)> action) {
    actions_.insert({date_s, std::move(action)});
  }
  void Run() {
    while (!timers_.empty() || !actions_.empty()) {
      const bool acts = timers_.empty() ||
                        (!actions_.empty() &&
                         actions_.begin()->first <= timers_.begin()->first);
      if (acts) {
        const auto [date_s, action] = *actions_.begin();
        actions_.erase(actions_.begin());
        action(date_s);
        continue;
      }
      const auto [date_s, timer] = *timers_.begin();
      timers_.erase(timers_.begin());
      if (!running.IsCurrent(timer.first, timer.second)) continue;
      ends_s[timer.first] = date_s;
      running.End(timer.first, date_s);
    }
  }

  Interference running;
  std::map<uint32_t, double> ends_s;

 private:
  std::multimap<double, std::pair<uint32_t, uint32_t>> timers_;
  std::multimap<double, std::function<void(double)>> actions_;
};

InterferenceMatrix Matrix() {
  InterferenceMatrix matrix;
  const auto set = [&](int pass, Beside beside, double slow, double other) {
    matrix.entries[pass][static_cast<int>(beside)] = {slow, other};
  };
  set(0, Beside::kD2H, 1.25, 1.5);
  set(0, Beside::kH2D, 1.1, 1.2);
  set(0, Beside::kBothCopies, 1.4, 2);
  set(0, Beside::kSendRecv, 1.5, 1.25);
  set(1, Beside::kSendRecv, 2, 3);
  set(2, Beside::kSendRecv, 1, 1);
  set(0, Beside::kCollective, 2, 4);
  return matrix;
}

constexpr PassMix kForward = {.forward = 1};

}  // namespace

TEST_CASE("interference: a copy beside a pass slows both as measured",
          "[engine]") {
  Clock clock(Matrix());
  // 4 ms of copying take 6 beside the pass, which does 4.8 of its 10 in them.
  const uint32_t pass = clock.running.StartPass(0, 10, 0, kForward);
  const uint32_t copy = clock.running.StartBeside(0, 4, Kind::kD2H, {0});
  clock.Run();
  CHECK(clock.ends_s[copy] == Approx(6).epsilon(1e-12));
  CHECK(clock.ends_s[pass] == Approx(11.2).epsilon(1e-12));
}

TEST_CASE("interference: what outlasts the pass runs on at full speed",
          "[engine]") {
  Clock clock(Matrix());
  // From 2 to 12 the pass does its last 8; the copy 10 / 1.5 of its 20.
  const uint32_t pass = clock.running.StartPass(0, 10, 0, kForward);
  uint32_t copy = 0;
  clock.At(2, [&](double now_s) {
    copy = clock.running.StartBeside(now_s, 20, Kind::kD2H, {0});
  });
  clock.Run();
  CHECK(clock.ends_s[pass] == Approx(12).epsilon(1e-12));
  CHECK(clock.ends_s[copy] == Approx(12 + 20 - 10 / 1.5).epsilon(1e-12));
}

TEST_CASE("interference: both directions have an entry of their own",
          "[engine]") {
  Clock clock(Matrix());
  const uint32_t pass = clock.running.StartPass(0, 100, 0, kForward);
  const uint32_t out = clock.running.StartBeside(0, 5, Kind::kD2H, {0});
  const uint32_t in = clock.running.StartBeside(0, 8, Kind::kH2D, {0});
  clock.Run();
  // Both at half speed to 10; then 3 are left at 1.2.
  CHECK(clock.ends_s[out] == Approx(10).epsilon(1e-12));
  CHECK(clock.ends_s[in] == Approx(13.6).epsilon(1e-12));
  CHECK(clock.ends_s[pass] ==
        Approx(13.6 + 100 - 10 / 1.4 - 3.6 / 1.1).epsilon(1e-12));
}

TEST_CASE("interference: mixed passes, and other devices", "[engine]") {
  Clock clock(Matrix());
  // BW of B 3 and W 1: slowdowns 1.75 and 2.5 beside a transfer.
  const PassMix mix = MixOf(PassKind::kBackwardFull, 3, 1);
  const uint32_t backward = clock.running.StartPass(0, 10, 0, mix);
  const uint32_t apart = clock.running.StartPass(0, 10, 1, kForward);
  const uint32_t transfer =
      clock.running.StartBeside(0, 2, Kind::kSendRecv, {0});
  clock.Run();
  CHECK(clock.ends_s[apart] == Approx(10).epsilon(1e-12));
  CHECK(clock.ends_s[transfer] == Approx(5).epsilon(1e-12));
  CHECK(clock.ends_s[backward] == Approx(5 + 10 - 5 / 1.75).epsilon(1e-12));
}

TEST_CASE("interference: a transfer keeps the pace of its slower end",
          "[engine]") {
  Clock clock(Matrix());
  const uint32_t forward = clock.running.StartPass(0, 10, 0, kForward);
  const uint32_t backward =
      clock.running.StartPass(0, 1, 1, MixOf(PassKind::kBackwardInput, 0, 0));
  const uint32_t transfer =
      clock.running.StartBeside(0, 2, Kind::kSendRecv, {0, 1});
  clock.Run();
  // At a third of its speed until B ends at 2, then at 1 / 1.25.
  CHECK(clock.ends_s[backward] == Approx(2).epsilon(1e-12));
  const double end_s = 2 + (2 - 2.0 / 3) * 1.25;
  CHECK(clock.ends_s[transfer] == Approx(end_s).epsilon(1e-12));
  CHECK(clock.ends_s[forward] ==
        Approx(end_s + 10 - end_s / 1.5).epsilon(1e-12));
}

TEST_CASE("interference: slowdowns of different things multiply", "[engine]") {
  Clock clock(Matrix());
  const uint32_t pass = clock.running.StartPass(0, 1, 0, kForward);
  clock.running.StartBeside(0, 100, Kind::kCollective, {0, 1});
  clock.running.StartBeside(0, 100, Kind::kD2H, {0});
  clock.Run();
  CHECK(clock.ends_s[pass] == Approx(2.5).epsilon(1e-12));
}

TEST_CASE("interference: a flow slows passes and keeps its own time",
          "[engine]") {
  Clock clock(Matrix());
  const uint32_t pass = clock.running.StartPass(0, 10, 0, kForward);
  const uint32_t flow = clock.running.StartBeside(0, 0, Kind::kSendRecv, {0},
                                                  /*has_clock=*/false);
  clock.At(3, [&](double now_s) { clock.running.End(flow, now_s); });
  clock.Run();
  CHECK(clock.ends_s[pass] == Approx(3 + 10 - 3 / 1.5).epsilon(1e-12));
}

TEST_CASE("interference: the matrix is the profile's, never below 1",
          "[engine]") {
  Profile profile;
  CHECK_FALSE(InterferenceMatrix::Of(profile).has_value());
  profile.interference = {{.pass = ProfilePass::kBackwardWeight,
                           .beside = Beside::kCollective,
                           .pass_slowdown = 1.3,
                           .beside_slowdown = 0.98}};
  const auto matrix = InterferenceMatrix::Of(profile);
  REQUIRE(matrix);
  const Slowdown slow =
      matrix->At(MixOf(PassKind::kBackwardWeight, 1, 1), Beside::kCollective);
  CHECK(slow.pass == 1.3);
  CHECK(slow.beside == 1);
  CHECK(matrix->At(kForward, Beside::kCollective).pass == 1);
}

}  // namespace pipewright::interference_test

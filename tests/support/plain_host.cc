#include "tests/support/plain_host.h"

#include <algorithm>
#include <limits>

namespace pipewright::testing {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

// Memory, to the host, to the device.
using Loads = std::array<double, 3>;

struct Activity {
  double left = 0;
  Loads loads{};
  double most = kForever;
  std::vector<int> after;
  bool done = false;
};

class Plain {
 public:
  explicit Plain(const PlainHost& host) : host_(host) {}

  int Adam(double parameters, std::vector<int> after) {
    return Add({parameters, {host_.adam_bytes}, host_.adam_rate, after});
  }
  int Cast(double parameters, std::vector<int> after) {
    return Add({parameters, {host_.cast_bytes}, host_.cast_rate, after});
  }
  int Device(double parameters, std::vector<int> after) {
    return Add({parameters, {}, host_.device_rate, after});
  }
  int Out(double bytes, std::vector<int> after) {
    return Add({bytes, {1, 1, 0}, kForever, after});
  }
  int In(double bytes, std::vector<int> after) {
    return Add({bytes, {1, 0, 1}, kForever, after});
  }

  double Run() {
    double now_s = 0;
    for (std::vector<int> running = Ready(); !running.empty();
         running = Ready()) {
      const std::vector<double> rates = Rates(running);
      double step_s = kForever;
      for (size_t index = 0; index < running.size(); ++index) {
        step_s = std::min(step_s, all_[running[index]].left / rates[index]);
      }
      now_s += step_s;
      for (size_t index = 0; index < running.size(); ++index) {
        Activity& each = all_[running[index]];
        const double needed_s = each.left / rates[index];
        each.left -= rates[index] * step_s;
        each.done = needed_s <= step_s * (1 + 1e-12);
      }
    }
    return now_s;
  }

 private:
  int Add(Activity activity) {
    all_.push_back(std::move(activity));
    return static_cast<int>(all_.size()) - 1;
  }

  std::vector<int> Ready() const {
    std::vector<int> ready;
    for (size_t index = 0; index < all_.size(); ++index) {
      const std::vector<int>& after = all_[index].after;
      const bool free = std::all_of(after.begin(), after.end(), [&](int other) {
        return other < 0 || all_[other].done;
      });
      if (free && !all_[index].done) ready.push_back(static_cast<int>(index));
    }
    return ready;
  }

  // All grow alike until a limit of their own or a full resource stops some.
  std::vector<double> Rates(const std::vector<int>& running) const {
    std::vector<double> rates(running.size(), -1);
    Loads left = {host_.memory_bytes_per_s, host_.copy_bytes_per_s,
                  host_.copy_bytes_per_s};
    for (size_t fixed = 0; fixed < running.size();) {
      Loads wanted = {};
      double rate = kForever;
      for (size_t index = 0; index < running.size(); ++index) {
        if (rates[index] >= 0) continue;
        const Activity& each = all_[running[index]];
        rate = std::min(rate, each.most);
        for (size_t of = 0; of < wanted.size(); ++of) {
          wanted[of] += each.loads[of];
        }
      }
      std::array<bool, 3> full = {};
      for (size_t of = 0; of < wanted.size(); ++of) {
        if (wanted[of] > 0) rate = std::min(rate, left[of] / wanted[of]);
      }
      for (size_t of = 0; of < wanted.size(); ++of) {
        full[of] = wanted[of] > 0 && left[of] / wanted[of] <= rate;
      }
      for (size_t index = 0; index < running.size(); ++index) {
        if (rates[index] >= 0) continue;
        const Activity& each = all_[running[index]];
        bool stops = each.most <= rate;
        for (size_t of = 0; of < full.size(); ++of) {
          stops |= full[of] && each.loads[of] > 0;
        }
        if (!stops) continue;
        rates[index] = rate;
        ++fixed;
      }
      // What stops takes its part; a full resource is then empty.
      for (size_t of = 0; of < left.size(); ++of) {
        left[of] = of == 0 ? host_.memory_bytes_per_s : host_.copy_bytes_per_s;
        for (size_t index = 0; index < running.size(); ++index) {
          if (rates[index] < 0) continue;
          left[of] -= all_[running[index]].loads[of] * rates[index];
        }
      }
    }
    return rates;
  }

  PlainHost host_;
  std::vector<Activity> all_;
};

}  // namespace

double PlainStepSeconds(const PlainHost& host, const PlainStep& step) {
  Plain plain(host);
  const double size = step.parameters / step.subgroups;
  const auto on_host = [&](int x) { return x < step.on_host; };
  int loop = -1;
  if (step.stride == 0) {
    for (int x = 0; x < step.subgroups; ++x) {
      if (on_host(x)) {
        const int adam = plain.Adam(size, {loop});
        loop = plain.In(2 * size, {plain.Cast(size, {adam})});
      } else {
        loop = plain.Device(size, {loop});
      }
    }
    return plain.Run();
  }
  const auto visits = [&](int x) {
    return on_host(x) && x % step.stride != 0 && (x + 1) % step.stride == 0;
  };
  int last_device = -1;
  int fetch = -1;
  int cast = -1;
  std::array<int, 3> states = {-1, -1, -1};
  bool away = false;  // a subgroup on the device is not yet flushed
  std::vector<int> to_cast;
  for (int x = 0; x < step.subgroups; ++x) {
    if (!on_host(x)) {
      loop = plain.Device(size, {loop});
    } else if (visits(x)) {
      loop = last_device =
          plain.Device(size, {loop, states[0], states[1], states[2]});
      away = true;
    } else if (x % step.stride == 0) {
      bool more = false;
      for (int y = x; y < step.subgroups; ++y) more |= visits(y);
      for (int& state : states) {
        std::vector<int> after = {state, loop, last_device};
        if (away) after = {state = plain.Out(4 * size, after)};
        if (more) state = plain.In(4 * size, after);
      }
      away = false;
      loop = plain.Adam(size, {loop, fetch});
      to_cast.push_back(loop);
    } else {
      loop = plain.Adam(size, {loop});
      to_cast.push_back(loop);
    }
    const bool ends =
        x + 1 == step.subgroups || visits(x + 1) || !on_host(x + 1);
    if (!on_host(x) || visits(x) || !ends) continue;
    for (const int adam : to_cast) {
      cast = plain.Cast(size, {adam, cast});
      fetch = plain.In(2 * size, {cast});
    }
    to_cast.clear();
  }
  for (int& state : states) {
    if (away && step.flush_last) {
      plain.Out(4 * size, {state, loop, last_device});
    }
  }
  return plain.Run();
}

}  // namespace pipewright::testing

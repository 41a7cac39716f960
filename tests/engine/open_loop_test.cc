// Flows that start at given dates, whatever happens: SimGrid's own network
// model, FluidLinks, and progressive filling from scratch at every start and
// end give the same ends. (Where ends decide starts, rounding decides who comes
// first, and runs drift apart.)
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/load_module.h"
#include "sim/engine/fluid_links.h"
#include "sim/engine/simgrid_child.h"
#include "sim/engine/simgrid_module.h"
#include "tests/support/lowering.h"

namespace pipewright::open_loop_test {
namespace {

constexpr double kOpenNever = std::numeric_limits<double>::infinity();

struct OpenFlow {
  double start_s = 0;
  double bytes = 0;
  std::vector<LinkLoad> loads;
};

struct OpenLoop {
  std::vector<double> bytes_per_s;  // [link]
  std::vector<OpenFlow> flows;      // by start

  std::shared_ptr<const Cluster> Links() const {
    std::vector<Link> links;
    for (const double rate : bytes_per_s)
      links.push_back({.bytes_per_s = rate});
    return ClusterOf(1, links, {});
  }
};

// Links of two bandwidths, or all different; starts close together, or not.
OpenLoop RandomOpenLoop(uint32_t seed, int links, int flows) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> part(0, 1);
  OpenLoop made;
  for (int link = 0; link < links; ++link) {
    made.bytes_per_s.push_back(seed % 2 == 0 ? 1.0 + link % 2
                                             : 0.5 + 2 * part(random));
  }
  double now_s = 0;
  for (int number = 0; number < flows; ++number) {
    OpenFlow& flow = made.flows.emplace_back();
    now_s += part(random) * (seed % 3 == 0 ? 0.3 : 0.05);
    flow.start_s = now_s;
    flow.bytes = 0.05 + part(random);
    std::vector<int> own(links);
    for (int link = 0; link < links; ++link) own[link] = link;
    std::shuffle(own.begin(), own.end(), random);
    own.resize(1 + random() % std::min(links, 4));
    for (const int link : own) {
      flow.loads.push_back({link, 1.0 + static_cast<double>(random() % 2)});
    }
  }
  return made;
}

// Every rate anew at every start and end.
std::vector<double> NaiveEnds(const OpenLoop& given) {
  std::vector<double> ends_s(given.flows.size(), kOpenNever);
  std::vector<double> left;
  std::vector<size_t> running;
  size_t next = 0;
  double now_s = 0;
  for (const OpenFlow& flow : given.flows) left.push_back(flow.bytes);
  while (next < given.flows.size() || !running.empty()) {
    std::vector<double> rates(given.flows.size(), 0);
    std::vector<double> room = given.bytes_per_s;
    std::vector<size_t> waiting = running;
    while (!waiting.empty()) {
      std::vector<double> wanted(room.size(), 0);
      for (const size_t flow : waiting) {
        for (const LinkLoad& load : given.flows[flow].loads) {
          wanted[load.link] += load.flows;
        }
      }
      size_t narrowest = room.size();
      for (size_t link = 0; link < room.size(); ++link) {
        if (wanted[link] > 0 &&
            (narrowest == room.size() ||
             room[link] / wanted[link] < room[narrowest] / wanted[narrowest])) {
          narrowest = link;
        }
      }
      const double share = room[narrowest] / wanted[narrowest];
      std::vector<size_t> still;
      for (const size_t flow : waiting) {
        const std::vector<LinkLoad>& loads = given.flows[flow].loads;
        if (std::none_of(loads.begin(), loads.end(), [&](const LinkLoad& load) {
              return static_cast<size_t>(load.link) == narrowest;
            })) {
          still.push_back(flow);
          continue;
        }
        rates[flow] = share;
        for (const LinkLoad& load : loads)
          room[load.link] -= load.flows * share;
      }
      waiting = std::move(still);
    }
    double date_s =
        next < given.flows.size() ? given.flows[next].start_s : kOpenNever;
    size_t first = given.flows.size();
    for (const size_t flow : running) {
      const double end_s = now_s + left[flow] / rates[flow];
      if (end_s >= date_s) continue;
      date_s = end_s;
      first = flow;
    }
    for (const size_t flow : running)
      left[flow] -= rates[flow] * (date_s - now_s);
    now_s = date_s;
    if (first == given.flows.size()) {
      running.push_back(next++);
    } else {
      ends_s[first] = now_s;
      running.erase(std::find(running.begin(), running.end(), first));
    }
  }
  return ends_s;
}

std::vector<double> FluidEnds(const OpenLoop& given) {
  const auto cluster = given.Links();
  std::vector<SourcePlan> plans;
  for (const OpenFlow& flow : given.flows) {
    plans.push_back({.sharing = Sharing::kFlow,
                     .bytes_per_s = cluster->RateOf(flow.loads),
                     .shared = flow.loads});
  }
  FluidLinks links(*cluster, plans);
  std::vector<double> ends_s(given.flows.size(), kOpenNever);
  size_t next = 0;
  double now_s = 0;
  while (true) {
    const double end_s = links.NextEnd(now_s);
    const double start_s =
        next < given.flows.size() ? given.flows[next].start_s : kOpenNever;
    now_s = std::min(end_s, start_s);
    if (now_s == kOpenNever) return ends_s;
    uint32_t transfer = 0;
    while (links.TakeEnded(now_s, &transfer)) ends_s[transfer] = end_s;
    for (; next < given.flows.size() && given.flows[next].start_s <= now_s;
         ++next) {
      links.Start(now_s, static_cast<int>(next), given.flows[next].bytes,
                  static_cast<uint32_t>(next));
    }
  }
}

// What SimGrid's clock calls.
struct NativeRun {
  const OpenLoop& given;
  const SimgridModule& module;
  SimgridClock* clock = nullptr;
  std::vector<double> ends_s;
};

// In a child: SimGrid's engine exists once in a process.
std::vector<double> NativeEnds(const OpenLoop& given) {
  const absl::StatusOr<void*> function =
      LoadModule({.library = "libpipewright_simgrid.so",
                  .variable = "PIPEWRIGHT_SIMGRID_LIBRARY",
                  .function = kSimgridModuleFunction},
                 "");
  INFO(function.status());
  REQUIRE(function.ok());
  const SimgridModule& module =
      *reinterpret_cast<SimgridModuleFunction>(*function)();
  const auto run =
      RunInChild(nullptr, [&](TraceSink*) -> absl::StatusOr<RunSummary> {
        NativeRun own = {.given = given, .module = module};
        own.ends_s.assign(given.flows.size(), kOpenNever);
        SimgridPlatform platform = {.hosts = {"host"}};
        for (const double rate : given.bytes_per_s) {
          platform.links.push_back(
              {absl::StrCat("link", platform.links.size()), rate});
        }
        for (const OpenFlow& flow : given.flows) {
          platform.largest_bytes = std::max(platform.largest_bytes, flow.bytes);
          std::vector<SimgridLoad>& route = platform.routes.emplace_back();
          for (const LinkLoad& load : flow.loads) {
            route.push_back({load.link, std::llround(load.flows)});
          }
        }
        SimgridCalls calls;
        calls.run = &own;
        // A date of a flow's start, or its end.
        calls.on_end = [](void* self, uint64_t code, double now_s) {
          auto* me = static_cast<NativeRun*>(self);
          const uint64_t flow = code / 2;
          if (code % 2 == 1) {
            me->ends_s[flow] = now_s;
            return;
          }
          me->module.start_comm(me->clock, 0, 0, static_cast<int32_t>(flow),
                                me->given.flows[flow].bytes, code + 1);
        };
        own.clock = module.open(calls, platform);
        for (size_t flow = 0; flow < given.flows.size(); ++flow) {
          module.set_timer(own.clock, given.flows[flow].start_s, 2 * flow);
        }
        module.run(own.clock);
        RunSummary summary;
        summary.iteration_end_s = own.ends_s;
        return summary;
      });
  INFO(run.status());
  REQUIRE(run.ok());
  return run->iteration_end_s;
}

// The largest difference, relative to the date.
double Apart(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t flow = 0; flow < a.size(); ++flow) {
    REQUIRE(std::isfinite(a[flow]));
    REQUIRE(std::isfinite(b[flow]));
    most = std::max(most, std::abs(a[flow] - b[flow]) / std::abs(b[flow]));
  }
  return most;
}

TEST_CASE("fluid: ends of open-loop flows are SimGrid's, to 1e-12",
          "[engine]") {
  int met = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    const int links = 1 + static_cast<int>(seed * 5 % 30);
    const int flows = seed % 4 == 0 ? 400 : 120;
    INFO("seed " << seed << ", " << links << " links, " << flows << " flows");
    const OpenLoop given = RandomOpenLoop(seed, links, flows);
    const std::vector<double> fluid = FluidEnds(given);
    CHECK(Apart(fluid, NaiveEnds(given)) < 1e-12);
    CHECK(Apart(fluid, NativeEnds(given)) < 1e-12);
    for (size_t flow = 0; flow < given.flows.size(); ++flow) {
      const OpenFlow& own = given.flows[flow];
      const double alone_s =
          own.bytes / given.Links()->RateOf(own.loads) + own.start_s;
      met += fluid[flow] > alone_s * (1 + 1e-9) ? 1 : 0;
    }
  }
  CHECK(met > 2000);
}

}  // namespace
}  // namespace pipewright::open_loop_test

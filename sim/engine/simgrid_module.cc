// Built as libpipewright_simgrid.so: all that is linked with SimGrid.
#include "sim/engine/simgrid_module.h"

#include <simgrid/s4u.hpp>
// s4u.hpp first: version.h is not self-contained in 3.32.
#include <simgrid/version.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/StarZone.hpp>
#include <string>
#include <utility>

namespace pipewright {
namespace {

namespace sg = simgrid::s4u;

// SimGrid counts whole bytes. Bytes and bandwidths are scaled alike so that
// the largest transfer has this many units: rounding is below 1e-9 of
// anything that takes part in a simulation with it.
constexpr double kUnitsOfLargest = 9007199254740992.0;  // 2^53

// Bytes a second of the link of a Comm that has no bytes.
constexpr double kDelayBytesPerS = 1e12;

using Links = std::vector<simgrid::kernel::resource::StandardLinkImpl*>;

// Every Comm has the route of its source, from the first device of a rank to
// the first of another. It may cross a link several times, as all flows of a
// bundle together do: SimGrid then counts it as often.
class SourceZone : public simgrid::kernel::routing::StarZone {
 public:
  using StarZone::StarZone;

  Links LinksOf(const std::vector<sg::LinkInRoute>& links) const {
    return get_link_list_impl(links, false);
  }
  // The route of what starts next.
  void SetNext(const Links* links, double latency_s) {
    links_ = links;
    latency_s_ = latency_s;
  }

  void get_local_route(const simgrid::kernel::routing::NetPoint*,
                       const simgrid::kernel::routing::NetPoint*,
                       simgrid::kernel::routing::Route* route,
                       double* latency_s) override {
    route->link_list_ = *links_;
    if (latency_s != nullptr) *latency_s += latency_s_;
  }

 private:
  const Links* links_ = nullptr;
  double latency_s_ = 0;
};

}  // namespace

struct SimgridClock {
 public:
  SimgridClock(const SimgridCalls& calls, const SimgridPlatform& platform)
      : calls_(calls) {
    self_ = this;
    std::vector<std::string> words = {"pipewright",
                                      "--log=root.thres:critical"};
    // Constant bandwidth, max-min; no cross traffic from acknowledgements, no
    // window limit; dates exact to a picosecond.
    for (const char* option :
         {"network/model:CM02", "network/crosstraffic:0",
          "network/TCP-gamma:1e20",
          SIMGRID_VERSION >= 33400 ? "precision/timing:1e-12"
                                   : "surf/precision:1e-12"}) {
      words.push_back(std::string("--cfg=") + option);
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    int count = static_cast<int>(arguments.size());
    engine_ = std::make_unique<sg::Engine>(&count, arguments.data());
    BuildPlatform(platform);
    // From 3.34 on kinds of activities have callbacks of their own.
    const auto end = [](const sg::Activity& activity) { self_->End(activity); };
#if SIMGRID_VERSION >= 33400
    sg::Exec::on_completion_cb(end);
    sg::Comm::on_completion_cb(end);
#else
    sg::Activity::on_completion_cb(end);
#endif
  }

  void Run() { engine_->run(); }
  const SimgridCounts& ended() const { return ended_; }

  uint32_t StartExec(int32_t host, double seconds, uint64_t code) {
    sg::ExecPtr exec = sg::Exec::init();
    exec->set_flops_amount(seconds * speed_)->set_host(hosts_[host]);
    return Start(std::move(exec), code);
  }

  uint32_t StartComm(int32_t from, int32_t to, int32_t source, double bytes,
                     uint64_t code) {
    zone_->SetNext(&routes_[source], 0);
    sg::CommPtr comm = sg::Comm::sendto_init(hosts_[from], hosts_[to]);
    comm->set_payload_size(std::max<uint64_t>(1, std::llround(bytes * units_)));
    return Start(std::move(comm), code);
  }

  uint32_t StartDelay(int32_t from, int32_t to, double seconds, uint64_t code) {
    zone_->SetNext(&delay_routes_[from], seconds);
    sg::CommPtr comm = sg::Comm::sendto_init(hosts_[from], hosts_[to]);
    comm->set_payload_size(0);
    return Start(std::move(comm), code);
  }

  // SimGrid may look at it again until it has cleaned up behind it.
  void Cancel(uint32_t number) {
    sg::ActivityPtr activity = std::move(running_[number].activity);
    free_.push_back(number);
    activity->set_data(nullptr);
    activity->cancel();
    cancelled_.push_back(std::move(activity));
  }

  void SetTimer(double date_s, uint64_t code) {
    simgrid::kernel::timer::Timer::set(date_s, [this, code] {
      calls_.on_end(calls_.run, code, sg::Engine::get_clock());
    });
  }

 private:
  struct Running {
    sg::ActivityPtr activity;
    uint64_t code = 0;
  };

  // Latencies are timers of the program's: SimGrid would share bandwidth in
  // proportion to 1/latency.
  void BuildPlatform(const SimgridPlatform& platform) {
    zone_ = new SourceZone("root");  // SimGrid owns it
    sg::NetZone* const zone = zone_->get_iface();
    speed_ = platform.speed;
    for (const std::string& name : platform.hosts) {
      hosts_.push_back(zone->create_host(name, speed_)
                           ->set_core_count(platform.cores)
                           ->seal());
      sg::Link* const delay =
          zone->create_link(name + "/delay", kDelayBytesPerS)
              ->set_latency(0)
              ->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)
              ->seal();
      delay_routes_.push_back(zone_->LinksOf({sg::LinkInRoute(delay)}));
    }
    units_ = kUnitsOfLargest / std::max(1.0, platform.largest_bytes);
    std::vector<sg::Link*> links(platform.links.size());
    for (const std::vector<SimgridLoad>& of_source : platform.routes) {
      std::vector<sg::LinkInRoute> route;
      for (const SimgridLoad& load : of_source) {
        sg::Link*& link = links[load.link];
        if (link == nullptr) {
          link =
              zone->create_link(platform.links[load.link].name,
                                platform.links[load.link].bytes_per_s * units_)
                  ->set_latency(0)
                  ->seal();
        }
        route.insert(route.end(), static_cast<size_t>(load.times),
                     sg::LinkInRoute(link));
      }
      routes_.push_back(zone_->LinksOf(route));
    }
    zone->seal();
  }

  uint32_t Start(sg::ActivityPtr activity, uint64_t code) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(running_.size()));
      running_.emplace_back();
    }
    const uint32_t number = free_.back();
    free_.pop_back();
    sg::Activity* const started = activity.get();
    running_[number] = {std::move(activity), code};
    started->set_data(
        reinterpret_cast<void*>(static_cast<uintptr_t>(number) + 1));
    started->start();
    return number;
  }

  void End(const sg::Activity& activity) {
    const auto data = reinterpret_cast<uintptr_t>(activity.get_data<void>());
    if (data == 0) return;
    const bool is_exec = dynamic_cast<const sg::Exec*>(&activity) != nullptr;
    ++(is_exec ? ended_.execs : ended_.comms);
    const auto number = static_cast<uint32_t>(data - 1);
    // 3.32 uses the activity after this callback: it lives until the next.
    grave_ = std::move(running_[number].activity);
    free_.push_back(number);
    calls_.on_end(calls_.run, running_[number].code, sg::Engine::get_clock());
  }

  static SimgridClock* self_;

  const SimgridCalls calls_;
  std::unique_ptr<sg::Engine> engine_;
  SourceZone* zone_ = nullptr;
  double speed_ = 1;
  double units_ = 1;
  std::vector<sg::Host*> hosts_;
  std::vector<Links> routes_;        // [source]
  std::vector<Links> delay_routes_;  // [host] that sends
  std::vector<Running> running_;
  std::vector<uint32_t> free_;
  SimgridCounts ended_;
  sg::ActivityPtr grave_;
  std::vector<sg::ActivityPtr> cancelled_;
};

SimgridClock* SimgridClock::self_ = nullptr;

}  // namespace pipewright

extern "C" __attribute__((visibility("default")))
const pipewright::SimgridModule*
pipewright_simgrid() {
  using pipewright::SimgridCalls;
  using pipewright::SimgridClock;
  using pipewright::SimgridPlatform;
  static const pipewright::SimgridModule module = {
      .abi = pipewright::kSimgridModuleAbi,
      .open =
          [](const SimgridCalls& calls, const SimgridPlatform& platform) {
            return new SimgridClock(calls, platform);
          },
      .close = [](SimgridClock* clock) { delete clock; },
      .start_exec =
          [](SimgridClock* clock, int32_t host, double seconds, uint64_t code) {
            return clock->StartExec(host, seconds, code);
          },
      .start_comm =
          [](SimgridClock* clock, int32_t from, int32_t to, int32_t source,
             double bytes, uint64_t code) {
            return clock->StartComm(from, to, source, bytes, code);
          },
      .start_delay =
          [](SimgridClock* clock, int32_t from, int32_t to, double seconds,
             uint64_t code) {
            return clock->StartDelay(from, to, seconds, code);
          },
      .cancel = [](SimgridClock* clock,
                   uint32_t activity) { clock->Cancel(activity); },
      .set_timer = [](SimgridClock* clock, double date_s,
                      uint64_t code) { clock->SetTimer(date_s, code); },
      .run = [](SimgridClock* clock) { clock->Run(); },
      .ended = [](const SimgridClock* clock) { return clock->ended(); },
  };
  return &module;
}

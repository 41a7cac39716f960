// Built as libpipewright_simgrid.so: all that is linked with SimGrid.
#include "sim/engine/simgrid_module.h"

#include <simgrid/s4u.hpp>
// s4u.hpp first: version.h is not self-contained in 3.32.
#include <simgrid/version.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <simgrid/kernel/resource/Model.hpp>
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

// The program's own events.
class CalledModel : public simgrid::kernel::resource::Model {
 public:
  explicit CalledModel(const SimgridCalls& calls)
      : Model("fluid"), calls_(calls) {}

  double next_occurring_event(double now) override {
    const double next_s = calls_.next_event(calls_.run, now);
    return std::isinf(next_s) ? -1 : std::max(0.0, next_s - now);
  }

  void update_actions_state(double now, double) override {
    calls_.call_events(calls_.run, now);
  }

 private:
  const SimgridCalls calls_;
};

// A star whose routes may cross a link several times, as the flows of a bundle
// do: SimGrid then counts it as often.
class BundleZone : public simgrid::kernel::routing::StarZone {
 public:
  using StarZone::StarZone;

  // Everything that `from` sends crosses `links`.
  void AddRoute(const sg::Host* from,
                const std::vector<sg::LinkInRoute>& links) {
    routes_[from->get_netpoint()] = get_link_list_impl(links, false);
  }

  // Latencies are zero.
  void get_local_route(const simgrid::kernel::routing::NetPoint* from,
                       const simgrid::kernel::routing::NetPoint*,
                       simgrid::kernel::routing::Route* route,
                       double*) override {
    route->link_list_ = routes_.at(from);
  }

 private:
  std::map<const simgrid::kernel::routing::NetPoint*,
           std::vector<simgrid::kernel::resource::StandardLinkImpl*>>
      routes_;
};

}  // namespace

struct SimgridClock {
 public:
  SimgridClock(const SimgridCalls& calls, const SimgridPlatform* platform)
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
    if (platform != nullptr) {
      BuildPlatform(*platform);
    } else {
#if SIMGRID_VERSION < 40000
      sg::create_star_zone("root")->seal();
#endif
    }
    engine_->add_model(std::make_shared<CalledModel>(calls_));
    if (platform != nullptr) {
      sg::Activity::on_completion_cb(
          [](const sg::Activity& activity) { self_->FlowEnd(activity); });
    }
  }

  void Run() { engine_->run(); }

  void StartFlow(int32_t source, double bytes, uint32_t transfer) {
    if (flows_.size() <= transfer) flows_.resize(transfer + 1);
    Flow& flow = flows_[transfer];
    flow.comm = sg::Comm::sendto_init(host_of_source_[source], sink_);
    flow.comm->set_payload_size(
        std::max<uint64_t>(1, std::llround(bytes * units_)));
    flow.comm->set_data(
        reinterpret_cast<void*>(static_cast<uintptr_t>(transfer)));
    flow.comm->start();
  }

 private:
  struct Flow {
    sg::CommPtr comm;
  };

  // One virtual host a source, which sends to a common sink. So any graph's
  // routes can be had from one flat zone. Latencies are timers of the
  // program's: SimGrid would share bandwidth in proportion to 1/latency.
  void BuildPlatform(const SimgridPlatform& platform) {
    auto* const bundles = new BundleZone("root");  // SimGrid owns it
    sg::NetZone* const zone = bundles->get_iface();
    sink_ = zone->create_host("sink", 1e12)->seal();
    units_ = kUnitsOfLargest / std::max(1.0, platform.largest_bytes);
    std::vector<sg::Link*> links(platform.bytes_per_s.size());
    host_of_source_.assign(platform.routes.size(), nullptr);
    for (size_t source = 0; source < platform.routes.size(); ++source) {
      if (platform.routes[source].empty()) continue;
      sg::Host* const host =
          zone->create_host("source" + std::to_string(source), 1e12)->seal();
      std::vector<sg::LinkInRoute> route;
      for (const SimgridLoad& load : platform.routes[source]) {
        sg::Link*& link = links[load.link];
        if (link == nullptr) {
          link = zone->create_link("link" + std::to_string(load.link),
                                   platform.bytes_per_s[load.link] * units_)
                     ->set_latency(0)
                     ->seal();
        }
        route.insert(route.end(), static_cast<size_t>(load.times),
                     sg::LinkInRoute(link));
      }
      bundles->AddRoute(host, route);
      host_of_source_[source] = host;
    }
    zone->seal();
  }

  void FlowEnd(const sg::Activity& activity) {
    const auto* comm = dynamic_cast<const sg::Comm*>(&activity);
    if (comm == nullptr) return;
    const auto transfer = static_cast<uint32_t>(
        reinterpret_cast<uintptr_t>(comm->get_data<void>()));
    // 3.32 uses the activity after this callback: it lives until the next.
    grave_ = std::move(flows_[transfer].comm);
    calls_.on_flow_end(calls_.run, transfer, sg::Engine::get_clock());
  }

  static SimgridClock* self_;

  const SimgridCalls calls_;
  std::unique_ptr<sg::Engine> engine_;
  sg::Host* sink_ = nullptr;
  double units_ = 1;
  std::vector<sg::Host*> host_of_source_;
  std::vector<Flow> flows_;  // [transfer]
  sg::CommPtr grave_;
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
          [](const SimgridCalls& calls, const SimgridPlatform* platform) {
            return new SimgridClock(calls, platform);
          },
      .close = [](SimgridClock* clock) { delete clock; },
      .start_flow =
          [](SimgridClock* clock, int32_t source, double bytes,
             uint32_t transfer) { clock->StartFlow(source, bytes, transfer); },
      .run = [](SimgridClock* clock) { clock->Run(); },
  };
  return &module;
}

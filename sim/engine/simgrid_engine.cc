#include "sim/engine/simgrid_engine.h"

#include <simgrid/s4u.hpp>
// s4u.hpp first: version.h is not self-contained in 3.32.
#include <simgrid/version.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/resource/Model.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/StarZone.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/engine/event_run.h"
#include "sim/engine/fluid_links.h"
#include "sim/engine/simgrid_child.h"

namespace pipewright {
namespace {

namespace sg = simgrid::s4u;

// SimGrid counts whole bytes. Bytes and bandwidths are scaled alike so that
// the largest transfer has this many units: rounding is below 1e-9 of
// anything that takes part in a simulation with it.
constexpr double kUnitsOfLargest = 9007199254740992.0;  // 2^53

// SimGrid's clock and timers. Who shares links is what follows.
class SimgridTransport : public EventTransport {
 public:
  explicit SimgridTransport(EventRun* run) : run_(run) {
    std::vector<std::string> words = {"pipewright",
                                      "--log=root.thres:critical"};
    // Constant bandwidth, max-min; no cross traffic from acknowledgements, no
    // window limit; dates exact to a picosecond.
    for (const char* option :
         {"network/model:CM02", "network/crosstraffic:0",
          "network/TCP-gamma:1e20",
          SIMGRID_VERSION >= 33400 ? "precision/timing:1e-12"
                                   : "surf/precision:1e-12"}) {
      words.push_back(absl::StrCat("--cfg=", option));
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    int count = static_cast<int>(arguments.size());
    engine_ = std::make_unique<sg::Engine>(&count, arguments.data());
  }

  void Run() { engine_->run(); }

  void At(double date_s, uint64_t code) override {
    simgrid::kernel::timer::Timer::set(date_s, TimerCall{run_, code});
  }

  // Timers are all that keeps SimGrid going; EventRun ignores those that are
  // left, and starts nothing new.
  void Stop() override {}

 protected:
  EventRun* const run_;
  std::unique_ptr<sg::Engine> engine_;

 private:
  struct TimerCall {
    EventRun* run;
    uint64_t code;
    void operator()() const { run->OnTimer(code); }
  };
};

// Links shared by FluidLinks, which SimGrid asks for the next date as it asks
// its own models: when all timers of a date have been called.
class FluidTransport : public SimgridTransport {
 public:
  FluidTransport(const Program& program, EventRun* run)
      : SimgridTransport(run) {
#if SIMGRID_VERSION < 40000
    sg::create_star_zone("root")->seal();
#endif
    AddFluid(program);
  }

  void StartFlow(int source, double bytes, double now_s,
                 uint32_t transfer) override {
    model_->links().Start(now_s, source, bytes, transfer);
  }

 protected:
  struct OwnZone {};
  // The same in a platform of the caller's.
  FluidTransport(EventRun* run, OwnZone) : SimgridTransport(run) {}

  void AddFluid(const Program& program) {
    if (program.network.cluster == nullptr) return;
    auto model = std::make_shared<FluidModel>(*program.network.cluster, run_);
    model_ = model.get();
    engine_->add_model(std::move(model));
  }

 private:
  class FluidModel : public simgrid::kernel::resource::Model {
   public:
    FluidModel(const Cluster& cluster, EventRun* run)
        : Model("fluid"), links_(cluster, run->plans()), run_(run) {}

    FluidLinks& links() { return links_; }

    double next_occurring_event(double now) override {
      end_s_ = links_.NextEnd(now);
      return std::isinf(end_s_) ? -1 : std::max(0.0, end_s_ - now);
    }

    void update_actions_state(double now, double) override {
      uint32_t transfer = 0;
      while (links_.TakeEnded(now, &transfer)) {
        run_->OnFlowEnd(transfer, end_s_);
      }
    }

   private:
    FluidLinks links_;
    EventRun* run_;
    double end_s_ = 0;
  };

  FluidModel* model_ = nullptr;
};

// Those of hosts, and those that share links with them, over as many others as
// it takes.
std::vector<bool> SourcesOfHosts(const std::vector<TrafficSource>& sources,
                                 const std::vector<SourcePlan>& plans) {
  std::vector<bool> of_host(sources.size());
  std::set<LinkId> links;
  for (bool found = true; found;) {
    found = false;
    for (size_t source = 0; source < sources.size(); ++source) {
      const std::vector<LinkLoad>& shared = plans[source].shared;
      const bool meets = std::any_of(
          shared.begin(), shared.end(),
          [&](const LinkLoad& load) { return links.count(load.link) > 0; });
      if (of_host[source] || !(meets || sources[source].of_host)) continue;
      of_host[source] = found = true;
      for (const LinkLoad& load : shared) links.insert(load.link);
    }
  }
  return of_host;
}

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

// SimGrid's native network model. Every link has latency zero: SimGrid would
// share bandwidth in proportion to 1/latency; latencies are timers of ours.
// What uses a host, and whatever can meet that, stays with FluidLinks.
class NativeTransport : public FluidTransport {
 public:
  NativeTransport(const Program& program, EventRun* run)
      : FluidTransport(run, OwnZone()) {
    self_ = this;
    of_host_ = SourcesOfHosts(run->sources(), run->plans());
    BuildPlatform(program);
    AddFluid(program);
    sg::Activity::on_completion_cb(
        [](const sg::Activity& activity) { self_->FlowEnd(activity); });
  }

  void StartFlow(int source, double bytes, double now_s,
                 uint32_t transfer) override {
    if (of_host_[source]) {
      return FluidTransport::StartFlow(source, bytes, now_s, transfer);
    }
    if (flows_.size() <= transfer) flows_.resize(transfer + 1);
    Flow& flow = flows_[transfer];
    flow.transfer = transfer;
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
    uint32_t transfer = 0;
  };

  // One virtual host a source, which sends to a common sink. So any graph's
  // routes can be had from one flat zone.
  void BuildPlatform(const Program& program) {
    const std::vector<TrafficSource>& sources = run_->sources();
    const std::vector<SourcePlan>& plans = run_->plans();
    auto* const bundles = new BundleZone("root");  // SimGrid owns it
    sg::NetZone* const zone = bundles->get_iface();
    sink_ = zone->create_host("sink", 1e12)->seal();
    units_ = kUnitsOfLargest / std::max(1.0, run_->LargestTransfer());
    std::vector<sg::Link*> links;
    host_of_source_.assign(sources.size(), nullptr);
    for (size_t source = 0; source < sources.size(); ++source) {
      if (plans[source].sharing != Sharing::kFlow || of_host_[source]) continue;
      sg::Host* const host =
          zone->create_host(absl::StrCat("source", source), 1e12)->seal();
      std::vector<sg::LinkInRoute> route;
      for (const LinkLoad& load : sources[source].flows.loads) {
        const LinkId id = load.link;
        if (links.size() <= static_cast<size_t>(id)) links.resize(id + 1);
        if (links[id] == nullptr) {
          const Link& link = program.network.cluster->links()[id];
          links[id] = zone->create_link(absl::StrCat("link", id),
                                        link.bytes_per_s * units_)
                          ->set_latency(0)
                          ->seal();
        }
        route.insert(route.end(), static_cast<size_t>(load.flows),
                     sg::LinkInRoute(links[id]));
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
    run_->OnFlowEnd(transfer, sg::Engine::get_clock());
  }

  static NativeTransport* self_;

  sg::Host* sink_ = nullptr;
  double units_ = 1;
  std::vector<bool> of_host_;  // [source]
  std::vector<sg::Host*> host_of_source_;
  std::vector<Flow> flows_;  // [transfer]
  sg::CommPtr grave_;
};

NativeTransport* NativeTransport::self_ = nullptr;

template <class Transport>
absl::StatusOr<RunSummary> RunOn(const Program& program,
                                 const EngineOptions& options) {
  EventRun run(program, options);
  Transport transport(program, &run);
  run.Launch(&transport);
  transport.Run();
  return run.Finish();
}

absl::StatusOr<RunSummary> RunHere(const Program& program,
                                   const EngineOptions& options) {
  try {
    return options.native_flows ? RunOn<NativeTransport>(program, options)
                                : RunOn<FluidTransport>(program, options);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("SimGrid: ", error.what()));
  }
}

}  // namespace

absl::StatusOr<RunSummary> RunSimgrid(const Program& program,
                                      const EngineOptions& options) {
  return RunInChild(options.trace, [&](TraceSink* sink) {
    EngineOptions here = options;
    here.trace = sink;
    return RunHere(program, here);
  });
}

}  // namespace pipewright

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
#include <simgrid/kernel/Timer.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/engine/event_run.h"
#include "sim/engine/simgrid_child.h"

namespace pipewright {
namespace {

namespace sg = simgrid::s4u;

// SimGrid counts whole bytes. Bytes and bandwidths are scaled alike so that
// the largest transfer has this many units: rounding is below 1e-9 of
// anything that takes part in a simulation with it.
constexpr double kUnitsOfLargest = 9007199254740992.0;  // 2^53

// SimGrid's clock, timers and native network model. Every link has latency
// zero: SimGrid would share bandwidth in proportion to 1/latency; latencies
// are timers of ours.
class SimgridTransport : public EventTransport {
 public:
  SimgridTransport(const Program& program, EventRun* run) : run_(run) {
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
      words.push_back(absl::StrCat("--cfg=", option));
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    int count = static_cast<int>(arguments.size());
    engine_ = std::make_unique<sg::Engine>(&count, arguments.data());
    BuildPlatform(program);
    sg::Activity::on_completion_cb(
        [](const sg::Activity& activity) { self_->FlowEnd(activity); });
  }

  void Run() { engine_->run(); }

  void At(double date_s, uint64_t code) override {
    simgrid::kernel::timer::Timer::set(date_s, TimerCall{run_, code});
  }

  void StartFlow(int source, double bytes, uint32_t transfer) override {
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

  // Timers are all that keeps SimGrid going; EventRun ignores those that are
  // left, and starts nothing new.
  void Stop() override {}

 private:
  struct TimerCall {
    EventRun* run;
    uint64_t code;
    void operator()() const { run->OnTimer(code); }
  };
  struct Flow {
    sg::CommPtr comm;
    uint32_t transfer = 0;
  };

  // One virtual host a route: it carries all links of the route as its way
  // up, and the common sink has none on its way down. So any graph's routes
  // can be had from one flat star zone.
  void BuildPlatform(const Program& program) {
    const std::vector<TrafficSource>& sources = run_->sources();
    const std::vector<SourcePlan>& plans = run_->plans();
#if SIMGRID_VERSION >= 40000
    sg::NetZone* const zone =
        sg::Engine::get_instance()->get_netzone_root()->add_netzone_star(
            "root");
#else
    sg::NetZone* const zone = sg::create_star_zone("root");
#endif
    sink_ = zone->create_host("sink", 1e12)->seal();
    zone->add_route(nullptr, sink_->get_netpoint(), nullptr, nullptr,
                    std::vector<sg::LinkInRoute>(), false);
    units_ = kUnitsOfLargest / std::max(1.0, run_->LargestTransfer());
    std::vector<sg::Link*> links;
    std::map<std::vector<LinkId>, sg::Host*> hosts;
    host_of_source_.assign(sources.size(), nullptr);
    for (size_t source = 0; source < sources.size(); ++source) {
      if (plans[source].sharing != Sharing::kFlow) continue;
      const std::vector<LinkId>& route = sources[source].links;
      sg::Host*& host = hosts[route];
      if (host == nullptr) {
        host = zone->create_host(absl::StrCat("route", source), 1e12)->seal();
        std::vector<sg::LinkInRoute> up;
        for (const LinkId id : route) {
          if (links.size() <= static_cast<size_t>(id)) links.resize(id + 1);
          if (links[id] == nullptr) {
            const Link& link = program.network.cluster->links()[id];
            links[id] = zone->create_link(absl::StrCat("link", id),
                                          link.bytes_per_s * units_)
                            ->set_latency(0)
                            ->seal();
          }
          up.emplace_back(links[id]);
        }
        zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, up,
                        false);
      }
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

  static SimgridTransport* self_;

  EventRun* run_;
  std::unique_ptr<sg::Engine> engine_;
  sg::Host* sink_ = nullptr;
  double units_ = 1;
  std::vector<sg::Host*> host_of_source_;
  std::vector<Flow> flows_;  // [transfer]
  sg::CommPtr grave_;
};

SimgridTransport* SimgridTransport::self_ = nullptr;

absl::StatusOr<RunSummary> RunHere(const Program& program,
                                   const EngineOptions& options) {
  try {
    EventRun run(program, options);
    SimgridTransport transport(program, &run);
    run.Launch(&transport);
    transport.Run();
    return run.Finish();
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

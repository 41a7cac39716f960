#include "sim/engine/simgrid_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/load_module.h"
#include "sim/base/status.h"
#include "sim/engine/event_run.h"
#include "sim/engine/parted_events.h"
#include "sim/engine/simgrid_child.h"
#include "sim/engine/simgrid_module.h"

namespace pipewright {
namespace {

// Timers; enough for memory to answer in the meantime.
constexpr int kLookAhead = 8;

// Sources of hosts, and those that share links with them, over as many others
// as it takes.
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

// The flows that SimGrid's own network model shares links among, one source
// each.
SimgridPlatform PlatformOf(const Program& program, const EventRun& run,
                           const std::vector<bool>& of_host) {
  SimgridPlatform platform;
  platform.largest_bytes = run.LargestTransfer();
  platform.routes.resize(run.sources().size());
  if (program.network.cluster == nullptr) return platform;
  for (const Link& link : program.network.cluster->links()) {
    platform.bytes_per_s.push_back(link.bytes_per_s);
  }
  for (size_t source = 0; source < platform.routes.size(); ++source) {
    if (run.plans()[source].sharing != Sharing::kFlow || of_host[source]) {
      continue;
    }
    for (const LinkLoad& load : run.sources()[source].flows.loads) {
      // Whole numbers alone.
      platform.routes[source].push_back(
          {load.link, std::max<int64_t>(1, std::llround(load.flows))});
    }
    // A limit is a link of its own.
    const double most_per_s = run.sources()[source].most_per_s;
    if (std::isinf(most_per_s)) continue;
    platform.routes[source].push_back(
        {static_cast<LinkId>(platform.bytes_per_s.size()), 1});
    platform.bytes_per_s.push_back(most_per_s);
  }
  return platform;
}

// SimGrid's clock. Timers are our own, since SimGrid allocates each of its;
// links are shared by FluidLinks, or by SimGrid's native model; then what uses
// a host, and whatever can meet that, stays with FluidLinks.
class SimgridTransport : public EventTransport {
 public:
  SimgridTransport(const SimgridModule& module, const Program& program,
                   const EngineOptions& options, EventRun* run)
      : module_(module),
        run_(run),
        native_(options.native_flows),
        events_(program, run) {
    SimgridCalls calls;
    calls.run = this;
    calls.on_flow_end = [](void* self, uint32_t transfer, double now_s) {
      static_cast<SimgridTransport*>(self)->run_->OnFlowEnd(transfer, now_s);
    };
    calls.next_event = [](void* self, double now_s) {
      return static_cast<SimgridTransport*>(self)->NextEvent(now_s);
    };
    calls.call_events = [](void* self, double now_s) {
      static_cast<SimgridTransport*>(self)->CallEvents(now_s);
    };
    SimgridPlatform platform;
    if (native_) {
      of_host_ = SourcesOfHosts(run->sources(), run->plans());
      platform = PlatformOf(program, *run, of_host_);
    }
    clock_ = module_.open(calls, native_ ? &platform : nullptr);
  }
  ~SimgridTransport() override { module_.close(clock_); }
  SimgridTransport(const SimgridTransport&) = delete;
  SimgridTransport& operator=(const SimgridTransport&) = delete;

  void Run() { module_.run(clock_); }

  void At(double date_s, uint64_t code) override {
    events_.timers().Push(date_s, code);
  }

  void StartFlow(int source, double bytes, double now_s,
                 uint32_t transfer) override {
    if (native_ && !of_host_[source]) {
      module_.start_flow(clock_, source, bytes, transfer);
    } else {
      events_.links()->Start(now_s, source, bytes, transfer);
    }
  }

  // Events are all that keeps SimGrid going; EventRun ignores those that are
  // left, and starts nothing new.
  void Stop() override {}

 private:
  // What parts do before they can meet happens here, ahead of SimGrid's clock.
  double NextEvent(double now_s) {
    events_.RunApart(now_s, [this](double date_s) {
      end_s_ = events_.NextFlowEnd(date_s);
      CallEvents(date_s);
    });
    end_s_ = events_.NextFlowEnd(now_s);
    return std::min(end_s_, events_.timers().next_s());
  }

  void CallEvents(double now_s) {
    uint32_t transfer = 0;
    FluidLinks* const links = events_.links();
    while (links != nullptr && links->TakeEnded(now_s, &transfer)) {
      run_->OnFlowEnd(transfer, end_s_);
    }
    TimerQueue& timers = events_.timers();
    while (timers.next_s() <= now_s) {
      timers.LookAhead(kLookAhead,
                       [this](uint64_t code) { run_->Expect(code); });
      run_->OnTimer(timers.Pop());
    }
  }

  const SimgridModule& module_;
  EventRun* const run_;
  const bool native_;
  std::vector<bool> of_host_;  // [source], with native_
  PartedEvents events_;
  double end_s_ = 0;
  SimgridClock* clock_ = nullptr;
};

absl::StatusOr<RunSummary> RunHere(const SimgridModule& module,
                                   const Program& program,
                                   const EngineOptions& options) {
  try {
    EventRun run(program, options);
    SimgridTransport transport(module, program, options, &run);
    run.Launch(&transport);
    transport.Run();
    return run.Finish();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("SimGrid: ", error.what()));
  }
}

absl::StatusOr<const SimgridModule*> LoadSimgrid() {
  PW_ASSIGN_OR_RETURN(
      void* const function,
      LoadModule({.library = "libpipewright_simgrid.so",
                  .variable = "PIPEWRIGHT_SIMGRID_LIBRARY",
                  .function = kSimgridModuleFunction},
                 "engine simgrid needs it, engine fast does not; it is built "
                 "and installed with the program"));
  const SimgridModule* const module =
      reinterpret_cast<SimgridModuleFunction>(function)();
  if (module->abi != kSimgridModuleAbi) {
    return absl::UnavailableError(
        absl::StrCat("libpipewright_simgrid.so is of interface ", module->abi,
                     ", this program of ", kSimgridModuleAbi,
                     ": build both from the same sources"));
  }
  return module;
}

// Here, not in the child: other runs of this process find it loaded.
const absl::StatusOr<const SimgridModule*>& Loaded() {
  static const auto* const loaded =
      new absl::StatusOr<const SimgridModule*>(LoadSimgrid());
  return *loaded;
}

}  // namespace

absl::StatusOr<RunSummary> RunSimgrid(const Program& program,
                                      const EngineOptions& options) {
  PW_RETURN_IF_ERROR(SimgridStarts());
  return RunInChild(options.trace, [&](TraceSink* sink) {
    EngineOptions here = options;
    here.trace = sink;
    return RunHere(**Loaded(), program, here);
  });
}

absl::Status SimgridStarts() { return Loaded().status(); }

bool SimgridIsBuilt() { return true; }

}  // namespace pipewright

#include "sim/engine/simgrid_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/load_module.h"
#include "sim/base/status.h"
#include "sim/engine/event_run.h"
#include "sim/engine/simgrid_child.h"
#include "sim/engine/simgrid_module.h"
#include "sim/engine/simgrid_platform.h"
#include "sim/topology/mapping.h"

namespace pipewright {
namespace {

// The most copies of a link that SimGrid counts for one flow of ours.
constexpr int kMostTimes = 1024;

// What a factor makes a whole number of is one to this much, relative.
constexpr double kWhole = 1e-12;

// Host of SimGrid for each device of a cluster, and for each host's memory. Of
// several devices of a rank the first runs what all of them do.
class SimgridHosts {
 public:
  explicit SimgridHosts(const Program& program) : program_(program) {
    const Cluster* const cluster = program.network.cluster.get();
    if (cluster == nullptr) {
      for (int device = 0; device < program.pp() * program.replicas; ++device) {
        names_.push_back(absl::StrCat("replica", device / program.pp(), "/rank",
                                      device % program.pp()));
      }
      names_.push_back("memory");
      return;
    }
    first_memory_ = static_cast<int32_t>(cluster->devices().size());
    names_ = SimgridHostNames(*cluster);
  }

  const std::vector<std::string>& names() const { return names_; }

  // `device`: of the program.
  int32_t Of(int device) const {
    if (program_.network.cluster == nullptr) return device;
    return program_.network.mapping->DeviceOf(device / program_.pp(),
                                              device % program_.pp());
  }
  int32_t MemoryOf(int device) const {
    const Cluster* const cluster = program_.network.cluster.get();
    if (cluster == nullptr) return static_cast<int32_t>(names_.size()) - 1;
    return first_memory_ + cluster->devices()[Of(device)].node;
  }

 private:
  const Program& program_;
  std::vector<std::string> names_;
  int32_t first_memory_ = 0;
};

// For each link the least factor by which all flows of sources on it are whole
// numbers: SimGrid counts a link of a route as often as it stands there, so the
// link is then so many times as wide. Error: there is none.
absl::StatusOr<std::vector<double>> WholeFactors(
    const Cluster& cluster, const std::vector<TrafficSource>& sources) {
  std::vector<std::set<double>> flows(cluster.links().size());
  for (const TrafficSource& source : sources) {
    for (const LinkLoad& load : source.flows.loads) {
      flows[load.link].insert(load.flows);
    }
  }
  std::vector<double> factors(cluster.links().size(), 1);
  for (size_t link = 0; link < flows.size(); ++link) {
    if (flows[link].empty()) continue;
    const auto fits = [&](double factor) {
      return std::all_of(
          flows[link].begin(), flows[link].end(), [&](double each) {
            const double times = each * factor;
            return times <= kMostTimes &&
                   std::abs(times - std::round(times)) <= kWhole * times;
          });
    };
    const double least = *flows[link].begin();
    int times = 1;  // of the least
    while (times <= kMostTimes && !fits(times / least)) ++times;
    factors[link] = times / least;
    if (times <= kMostTimes) continue;
    return absl::UnimplementedError(absl::StrCat(
        "engine simgrid: transfers cross link ", cluster.links()[link].name,
        " with ", least, " to ", *flows[link].rbegin(),
        " flows each (parts of a host's memory, or strategy.dispatch: once), "
        "and SimGrid knows only whole ones (multiples of one number, at most ",
        kMostTimes, "); engine fluid knows all"));
  }
  return factors;
}

// The route of each source, without the links that cannot bind: those on which
// it meets nobody, but for the narrowest.
absl::StatusOr<SimgridPlatform> PlatformOf(const Program& program,
                                           const EventRun& run,
                                           const SimgridHosts& hosts) {
  SimgridPlatform platform = {.hosts = hosts.names(),
                              .cores = kNumStreams,
                              .speed = kSimgridSpeed,
                              .largest_bytes = run.LargestTransfer()};
  platform.routes.resize(run.sources().size());
  if (program.network.cluster == nullptr) return platform;
  const Cluster& cluster = *program.network.cluster;
  PW_ASSIGN_OR_RETURN(const std::vector<double> factors,
                      WholeFactors(cluster, run.sources()));
  const std::vector<std::string> names = SimgridLinkNames(cluster);
  for (size_t link = 0; link < factors.size(); ++link) {
    platform.links.push_back(
        {names[link], cluster.links()[link].bytes_per_s *
                          static_cast<double>(factors[link])});
  }
  for (size_t number = 0; number < platform.routes.size(); ++number) {
    const TrafficSource& source = run.sources()[number];
    const std::vector<LinkLoad>& met = run.plans()[number].shared;
    std::vector<SimgridLoad>& route = platform.routes[number];
    const auto add = [&](const LinkLoad& load) {
      route.push_back(
          {load.link, std::llround(load.flows * factors[load.link])});
    };
    for (const LinkLoad& load : met) add(load);
    // A limit is a link of its own.
    if (source.most_per_s <= cluster.RateOf(source.flows.loads)) {
      route.push_back({static_cast<LinkId>(platform.links.size()), 1});
      platform.links.push_back(
          {absl::StrCat("limit of source ", number), source.most_per_s});
      continue;
    }
    const LinkLoad* narrowest = nullptr;
    double least = cluster.RateOf(met);
    for (const LinkLoad& load : source.flows.loads) {
      const double rate = cluster.links()[load.link].bytes_per_s / load.flows;
      if (rate >= least) continue;
      least = rate;
      narrowest = &load;
    }
    if (narrowest != nullptr) add(*narrowest);
  }
  return platform;
}

// SimGrid keeps the clock: whatever takes time in an EventRun is an activity of
// it, and ends when SimGrid says so.
class SimgridTransport : public EventTransport {
 public:
  SimgridTransport(const SimgridModule& module, const SimgridHosts& hosts,
                   const SimgridPlatform& platform, EventRun* run)
      : module_(module), hosts_(hosts), run_(run) {
    SimgridCalls calls;
    calls.run = this;
    calls.on_end = [](void* self, uint64_t code, double now_s) {
      static_cast<SimgridTransport*>(self)->OnEnd(code, now_s);
    };
    clock_ = module_.open(calls, platform);
  }
  ~SimgridTransport() override { module_.close(clock_); }
  SimgridTransport(const SimgridTransport&) = delete;
  SimgridTransport& operator=(const SimgridTransport&) = delete;

  void Run() { module_.run(clock_); }

  void At(double date_s, uint64_t code) override {
    const EventRun::Activity activity = run_->ActivityOf(code);
    const double seconds = std::max(0.0, date_s - now_s_);
    if (activity.kind == EventRun::Activity::Kind::kTimer) {
      return module_.set_timer(clock_, std::max(date_s, now_s_), code);
    }
    EndBefore(code);
    uint32_t number = 0;
    if (activity.kind == EventRun::Activity::Kind::kExec) {
      number =
          module_.start_exec(clock_, hosts_.Of(activity.from), seconds, code);
    } else {
      const auto [from, to] = EndsOf(activity);
      number = module_.start_delay(clock_, from, to, seconds, code);
    }
    if (EventTimers::KindOf(code) == EventKind::kBesideEnd) {
      beside_[EventTimers::IndexOf(code)] = number;
    }
  }

  void StartFlow(int source, double bytes, double, uint32_t transfer) override {
    const auto [from, to] = EndsOf(run_->ActivityOf(run_->transfer(transfer)));
    module_.start_comm(clock_, from, to, source, bytes, kFlow | transfer);
  }

  // Activities are all that keeps SimGrid going; EventRun ignores those that
  // are left, and starts nothing new.
  void Stop() override {}

  void Count(RunSummary* summary) const {
    const SimgridCounts ended = module_.ended(clock_);
    summary->execs = ended.execs;
    summary->comms = ended.comms;
  }

 private:
  // No kind of timer.
  static constexpr uint64_t kFlow = uint64_t{15} << 60;
  static constexpr uint32_t kNone = ~uint32_t{0};

  void OnEnd(uint64_t code, double now_s) {
    now_s_ = now_s;
    const uint32_t index = EventTimers::IndexOf(code);
    if ((code & kFlow) == kFlow) return run_->OnFlowEnd(index, now_s);
    if (EventTimers::KindOf(code) == EventKind::kBesideEnd) {
      beside_[index] = kNone;
    }
    run_->OnTimer(code, now_s);
  }

  // What is left of something that runs, whose pace changes, starts anew.
  void EndBefore(uint64_t code) {
    if (EventTimers::KindOf(code) != EventKind::kBesideEnd) return;
    const uint32_t item = EventTimers::IndexOf(code);
    if (beside_.size() <= item) beside_.resize(item + 1, kNone);
    if (beside_[item] == kNone) return;
    module_.cancel(clock_, beside_[item]);
    run_->Forget();
  }

  std::pair<int32_t, int32_t> EndsOf(const EventRun::Activity& activity) const {
    return {activity.from < 0 ? hosts_.MemoryOf(activity.to)
                              : hosts_.Of(activity.from),
            activity.to < 0 ? hosts_.MemoryOf(activity.from)
                            : hosts_.Of(activity.to)};
  }

  const SimgridModule& module_;
  const SimgridHosts& hosts_;
  EventRun* const run_;
  double now_s_ = 0;
  std::vector<uint32_t> beside_;  // [item of Interference] its activity
  SimgridClock* clock_ = nullptr;
};

// SimGrid's dates are exact to a picosecond: shorter passes would be lost.
absl::Status CheckLengths(const Program& program) {
  constexpr double kLeast_s = 1e-10;
  for (int index = 0; index < program.num_classes(); ++index) {
    for (const RankProgram& rank : program.dp_class(index).ranks) {
      for (const Lane& lane : rank.lanes) {
        if (lane.seconds <= 0 || lane.seconds >= kLeast_s) continue;
        return absl::UnimplementedError(
            absl::StrCat("engine simgrid: a pass of ", lane.seconds,
                         " s, and SimGrid's clock steps in picoseconds: at "
                         "least 1e-10 s; engine fluid knows all"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RunSummary> RunHere(const SimgridModule& module,
                                   const Program& program,
                                   const EngineOptions& options) {
  PW_RETURN_IF_ERROR(CheckLengths(program));
  try {
    EventRun run(program, options);
    const SimgridHosts hosts(program);
    PW_ASSIGN_OR_RETURN(const SimgridPlatform platform,
                        PlatformOf(program, run, hosts));
    SimgridTransport transport(module, hosts, platform, &run);
    run.Launch(&transport);
    transport.Run();
    PW_ASSIGN_OR_RETURN(RunSummary summary, run.Finish());
    transport.Count(&summary);
    return summary;
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
                 "engine simgrid needs it, engine fluid does not; it is built "
                 "with the program, and Debian's package with it is "
                 "pipewright-simgrid"));
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
    here.as_activities = true;
    return RunHere(**Loaded(), program, here);
  });
}

absl::Status SimgridStarts() { return Loaded().status(); }

bool SimgridIsBuilt() { return true; }

}  // namespace pipewright

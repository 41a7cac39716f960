#include "tests/support/queue_transport.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sim/engine/event_run.h"

namespace pipewright {
namespace {

class QueueTransport : public EventTransport {
 public:
  QueueTransport(const Program& program, EventRun* run, double disturbance)
      : cluster_(program.network.cluster.get()),
        run_(run),
        disturbance_(disturbance) {}

  void At(double date_s, uint64_t code) override {
    timers_.insert({{date_s, next_++}, code});
  }
  void StartFlow(int source, double bytes, double now_s,
                 uint32_t transfer) override {
    Advance(now_s);
    const double part = static_cast<double>(started_++ % 7) / 6;
    flows_[transfer] = {source, bytes * (1 + disturbance_ * part), 0};
    Share();
  }
  void Stop() override { stopped_ = true; }

  void Run() {
    while (!stopped_ && (!timers_.empty() || !flows_.empty())) {
      double flow_end_s = std::numeric_limits<double>::infinity();
      uint32_t ending = 0;
      for (const auto& [transfer, flow] : flows_) {
        const double end_s = now_s_ + flow.bytes / flow.rate;
        if (end_s < flow_end_s) {
          flow_end_s = end_s;
          ending = transfer;
        }
      }
      if (!timers_.empty() && timers_.begin()->first.first <= flow_end_s) {
        const auto [when, code] = *timers_.begin();
        timers_.erase(timers_.begin());
        Advance(when.first);
        run_->OnTimer(code, now_s_);
      } else {
        Advance(flow_end_s);
        flows_.erase(ending);
        Share();
        run_->OnFlowEnd(ending, flow_end_s);
      }
    }
  }

 private:
  struct Flow {
    int source;
    double bytes;
    double rate;
  };

  const TrafficSource& Source(const Flow& flow) const {
    return run_->sources()[flow.source];
  }
  const std::vector<LinkLoad>& Loads(const Flow& flow) const {
    return Source(flow).flows.loads;
  }

  void Advance(double date_s) {
    for (auto& [transfer, flow] : flows_) {
      flow.bytes = std::max(0.0, flow.bytes - flow.rate * (date_s - now_s_));
    }
    now_s_ = date_s;
  }

  void Share() {
    std::map<LinkId, std::pair<double, double>> left;  // bandwidth, flows
    std::set<uint32_t> open;
    for (auto& [transfer, flow] : flows_) {
      open.insert(transfer);
      for (const LinkLoad& load : Loads(flow)) {
        left[load.link].first = cluster_->links()[load.link].bytes_per_s;
        left[load.link].second += load.flows;
      }
    }
    while (!open.empty()) {
      LinkId narrowest = -1;
      double share = std::numeric_limits<double>::infinity();
      for (const auto& [link, rest] : left) {
        if (rest.second > 1e-9 && rest.first / rest.second < share) {
          share = rest.first / rest.second;
          narrowest = link;
        }
      }
      std::vector<uint32_t> fixed;
      uint32_t capped = 0;
      for (const uint32_t transfer : open) {
        const double most = Source(flows_[transfer]).most_per_s;
        if (most >= share) continue;
        share = most;
        narrowest = -1;
        capped = transfer;
      }
      if (narrowest < 0) fixed.push_back(capped);
      for (const uint32_t transfer : open) {
        for (const LinkLoad& load : Loads(flows_[transfer])) {
          if (load.link == narrowest) fixed.push_back(transfer);
        }
      }
      for (const uint32_t transfer : fixed) {
        open.erase(transfer);
        flows_[transfer].rate = share;
        for (const LinkLoad& load : Loads(flows_[transfer])) {
          left[load.link].first -= load.flows * share;
          left[load.link].second -= load.flows;
        }
      }
    }
  }

  const Cluster* cluster_;
  EventRun* run_;
  double disturbance_;
  uint64_t started_ = 0;
  bool stopped_ = false;
  double now_s_ = 0;
  uint64_t next_ = 0;
  std::map<std::pair<double, uint64_t>, uint64_t> timers_;
  std::map<uint32_t, Flow> flows_;
};

}  // namespace

absl::StatusOr<RunSummary> RunOnQueue(const Program& program,
                                      TraceSink* trace, double disturbance) {
  EventRun run(
      program,
      {.trace = trace, .time_lone_transfers = false, .run_ahead = false});
  QueueTransport transport(program, &run, disturbance);
  run.Launch(&transport);
  transport.Run();
  return run.Finish();
}

}  // namespace pipewright

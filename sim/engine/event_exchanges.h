// Exchanges inside passes, where their links are not theirs alone. A pass then
// is computation and flows in turn, which alone take what the pass takes. The
// flows are those of its own device of the pipeline: a rank that is ahead of
// others of its group of experts does not wait for them here, and neither does
// one of several ranks that send over the same cards.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/engine/event_timers.h"
#include "sim/engine/event_traffic.h"
#include "sim/engine/event_transfers.h"
#include "sim/model/ops.h"

namespace pipewright {

// One source for each kind of group of each device.
class ExchangeSources {
 public:
  // Adds them; none if links are not shared or passes slow each other down.
  ExchangeSources(const Program& program, bool share_links,
                  TrafficSources* sources);

  struct Source {
    int source = -1;
    double parts = 1;  // parts of the bytes, of which a flow has one each
  };
  // Null: it uses no links.
  const Source* Find(int device, const PassExchange& exchange) const;
  bool empty() const { return sources_.empty(); }
  double largest_bytes() const { return largest_bytes_; }
  // Most links that one of them may share; `sources` are planned.
  size_t MostLinks(const TrafficSources& sources) const;

 private:
  // Exchanges of one device over the same links.
  using Key = std::tuple<CommGroup, int, bool>;
  static Key KeyOf(const PassExchange& exchange) {
    return {exchange.group, exchange.members, exchange.to_all};
  }
  void AddDevice(int replica, int rank, TrafficSources* sources);

  const Program& program_;
  std::map<std::pair<int, Key>, Source> sources_;  // by device
  double largest_bytes_ = 0;
};

// The steps that passes run in.
class PassExchanges {
 public:
  // `traffic` is planned.
  PassExchanges(const Program& program, const ExchangeSources& sources,
                const TrafficSources& traffic, EventTimers* timers);

  // Some pass has steps.
  bool any() const { return any_; }
  // Flows over many links are hardly ever alone on all of them, and to ask each
  // of these costs more than it saves.
  bool time_lone_transfers() const { return time_lone_transfers_; }

  // True if all that two devices exchange takes as long, links aside.
  bool Alike(int device, int other) const;

  // If any(): a block of `parts` passes that alone take `alone_s`. False if it
  // exchanges nothing that can meet others. Else its first flow has a timer
  // (kExchange).
  bool Begin(int device, const RankProgram& rank, const Pass* block, int parts,
             const std::array<double, 2>& alone_s, double start_s);
  // The flow of that timer. Nothing if its step has none: that is over at
  // *end_s.
  std::optional<EventTransfer> Flow(int device, int iteration,
                                    double* end_s) const;
  // A flow has ended; computation beside it may not have. When the block is
  // over; nothing if another flow has a timer now.
  std::optional<double> End(int device, double end_s);

 private:
  // One flow of a pass, with what comes before it.
  struct Step {
    double before_s = 0;  // nothing is on the links
    int32_t source = -1;
    double bytes = 0;    // in each flow
    double least_s = 0;  // not over before: computation the flow is beside
  };
  // The steps of one piece of a pass. All but `source` is for each second that
  // the pass takes alone.
  struct Plan {
    int pieces = 1;
    std::vector<Step> steps;  // empty: the pass is computation alone
  };
  // What a device runs of them.
  struct Running {
    std::vector<Step> steps;
    size_t next = 0;
    double start_s = 0;  // when the flow of the one that runs starts
  };

  Plan PlanOf(int device, const LaneExchanges& lane, bool has_layers,
              const ExchangeSources& sources,
              const TrafficSources& traffic) const;
  void SetTimer(int device, double now_s);

  EventTimers& timers_;
  std::vector<std::vector<Plan>> of_lanes_;  // [device][lane's]
  std::vector<Running> running_;             // [device]
  bool any_ = false;
  bool time_lone_transfers_ = true;
};

}  // namespace pipewright

// Which replicas cannot meet, and until when. Thousands of devices do not fit
// the cache; run one part after the other, those of each do.
//
// Replicas meet on links that their transfers share and in collectives. The
// former join them into parts, once. Of the latter it is known where in the
// order of a rank they stand, and what the passes before them take at least.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "sim/base/check.h"
#include "sim/engine/event_run.h"

namespace pipewright {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Blocks up to the horizon that make it worth while to run parts apart, and
// those that are looked at: each draws its jitter.
constexpr int kLeastBlocks = 8;
constexpr int kMostBlocks = 32;
// Rounding of a sum of times.
constexpr double kRoom = 1 - 1e-9;

// Sets that are joined by and by.
class Sets {
 public:
  explicit Sets(int count) : of_(count) {
    std::iota(of_.begin(), of_.end(), 0);
  }
  int Find(int one) {
    while (of_[one] != one) one = of_[one] = of_[of_[one]];
    return one;
  }
  void Join(int one, int other) { of_[Find(one)] = Find(other); }

 private:
  std::vector<int> of_;
};

}  // namespace

bool EventRun::SpansReplicas(const SideOp& op) const {
  return IsCollective(op.kind) &&
         program_.groups[op.group].span != Group::Span::kRanks;
}

// Otherwise replicas meet in ways that are not looked at here.
bool EventRun::CanBeApart(const EngineOptions& options) const {
  if (static_cast<int>(devices_.size()) < options.least_in_parts ||
      program_.replicas < 2 || program_.network.cluster == nullptr ||
      options.trace != nullptr || options.native_flows || beside_ != nullptr ||
      !pools_.empty() || program_.copies_in_turn) {
    return false;
  }
  for (int index = 0; index < program_.num_classes(); ++index) {
    for (const RankProgram& rank : program_.dp_class(index).ranks) {
      for (const SideOp& op : rank.side_ops) {
        if (IsOneSided(op.kind)) return false;
      }
      for (const LaneHook& hook : rank.hooks) {
        for (const int32_t op : hook.side_ops) {
          if (op >= 0 && SpansReplicas(rank.side_ops[op])) return false;
        }
      }
    }
  }
  return true;
}

void EventRun::FindReplicasOfSources() {
  replica_of_source_.assign(sources_.size(), -1);
  for (size_t slot = 0; slot < channel_source_.size(); ++slot) {
    if (channel_source_[slot] < 0) continue;
    replica_of_source_[channel_source_[slot]] =
        static_cast<int32_t>(slot / most_channels_);
  }
  for (const auto& [key, source] : side_source_) {
    replica_of_source_[source] = devices_[key >> 32].replica;
  }
  for (const auto& [key, source] : exchanges_.sources) {
    if (source.source < 0) continue;
    replica_of_source_[source.source] = devices_[key.first].replica;
  }
  for (const Meeting& meeting : meetings_) {
    if (program_.groups[meeting.group].span != Group::Span::kRanks) continue;
    if (meeting.source >= 0) {
      replica_of_source_[meeting.source] = meeting.replica;
    }
    for (const auto& [key, plan] : meeting.plans) {
      for (const int source : plan.sources) {
        if (source >= 0) replica_of_source_[source] = meeting.replica;
      }
    }
  }
}

void EventRun::PlanParts(const EngineOptions& options) {
  if (!CanBeApart(options)) return;
  FindReplicasOfSources();
  Sets sets(program_.replicas);
  std::vector<int32_t> first(program_.network.cluster->links().size(), -1);
  const auto use = [&](LinkId link, int32_t replica) {
    if (first[link] < 0) first[link] = replica;
    sets.Join(first[link], replica);
  };
  replica_of_queue_.assign(sharing_queues_.size(), -1);
  for (size_t source = 0; source < plans_.size(); ++source) {
    const SourcePlan& plan = plans_[source];
    const int32_t replica = replica_of_source_[source];
    if (replica < 0) continue;
    if (plan.sharing == Sharing::kQueue) {
      use(plan.link, replica);
      replica_of_queue_[queue_of_source_[source]] = replica;
    } else if (plan.sharing == Sharing::kFlow) {
      for (const LinkLoad& load : plan.shared) use(load.link, replica);
    }
  }
  part_of_replica_.assign(program_.replicas, -1);
  std::vector<int32_t> part_of_set(program_.replicas, -1);
  num_parts_ = 0;
  for (int replica = 0; replica < program_.replicas; ++replica) {
    int32_t& part = part_of_set[sets.Find(replica)];
    if (part < 0) part = num_parts_++;
    part_of_replica_[replica] = part;
  }
  for (int index = 0; index < program_.num_classes(); ++index) {
    std::vector<std::vector<int64_t>>& of_class = meets_at_.emplace_back();
    for (const RankProgram& rank : program_.dp_class(index).ranks) {
      std::vector<int64_t>& positions = of_class.emplace_back();
      for (const Attachment& attachment : rank.attachments) {
        if (SpansReplicas(rank.side_ops[attachment.side_op])) {
          positions.push_back(attachment.position);
        }
      }
    }
  }
}

int EventRun::ReplicaOfTransfer(uint32_t number) const {
  const Transfer& transfer = transfers_[number];
  switch (transfer.of) {
    case Transfer::Of::kChannel:
      return transfer.replica;
    case Transfer::Of::kStream:
    case Transfer::Of::kExchange:
      return devices_[transfer.index].replica;
    case Transfer::Of::kRing:
      return meetings_[transfer.index].replica;
  }
  return 0;
}

int EventRun::PartOfSource(int source) const {
  const int32_t replica = replica_of_source_[source];
  PW_CHECK(replica >= 0);
  return part_of_replica_[replica];
}

// Some timers are stale and do nothing: those may be of any part.
int EventRun::PartOf(uint64_t code) const {
  const auto index = EventTimers::IndexOf(code);
  switch (EventTimers::KindOf(code)) {
    case EventKind::kComputeEnd:
    case EventKind::kExchange:
      return part_of_replica_[devices_[index].replica];
    case EventKind::kStreamEnd:
      return part_of_replica_[devices_[index / kNumStreams].replica];
    case EventKind::kLatencyEnd:
    case EventKind::kTransferEnd:
    case EventKind::kLoneEnd:
      return part_of_replica_[ReplicaOfTransfer(index)];
    case EventKind::kMeetingEnd:
      return part_of_replica_[meetings_[index].replica];
    case EventKind::kQueueEnd:
      return part_of_replica_[std::max(0, replica_of_queue_[index])];
    case EventKind::kBesideStart:
    case EventKind::kBesideEnd:
      break;
  }
  PW_CHECK(false);
  return 0;
}

// A collective of several replicas waits in a stream for its inputs, or for
// those before it.
bool EventRun::MayMeetNow(const Device& device) const {
  for (const Fifo<Issued>& queue : device.queues) {
    for (size_t place = 0; place < queue.size(); ++place) {
      const int32_t op = queue[place].item.side_op;
      if (op >= 0 && SpansReplicas(device.program().side_ops[op])) return true;
    }
  }
  return false;
}

// Not before the passes up to the next collective of several replicas, or to
// the end of this start, have run one after the other. Looks no further than
// `latest_s` and some blocks of passes; *blocks: of passes up to there.
double EventRun::EarliestMeeting(const Device& device, double now_s,
                                 double latest_s, int* blocks) const {
  *blocks = 0;
  if (MayMeetNow(device)) return now_s;
  if (device.ended) return kNever;
  const RankOrder& order = *device.program().order;
  const std::vector<int64_t>& meets_at =
      meets_at_[program_.ClassOf(device.replica)][device.rank];
  const auto next =
      std::lower_bound(meets_at.begin(), meets_at.end(), device.position);
  int64_t stop = device.sequence.end();
  if (next != meets_at.end()) stop = std::min(stop, *next);
  int64_t position = device.position;
  // What runs there ends at some date after now.
  if (device.busy && position < stop &&
      EntryOf(order[position].kind()) == Entry::kBlock) {
    position += PartsOf(order[position]);
  }
  double date_s = std::max(now_s, device.clock_s);
  while (position < stop && date_s < latest_s && *blocks < kMostBlocks) {
    const Pass* const block = order.data() + position;
    if (EntryOf(block->kind()) != Entry::kBlock) {
      ++position;
      continue;
    }
    const int parts = PartsOf(*block);
    for (int part = 0; part < parts; ++part) {
      date_s += program_.PassSeconds(device.iteration, device.replica,
                                     device.rank, block[part]) *
                (parts == 2 ? program_.pair_factor : 1);
    }
    position += parts;
    ++*blocks;
  }
  return date_s;
}

double EventRun::Horizon(double now_s) const {
  if (num_parts_ == 1 || timers_.stopped() || open_meetings_ > 0) return now_s;
  double horizon_s = kNever;
  int blocks = 0;
  for (const Device& device : devices_) {
    int own_blocks = 0;
    const double date_s =
        EarliestMeeting(device, now_s, horizon_s, &own_blocks);
    if (date_s >= horizon_s) continue;
    horizon_s = date_s;
    blocks = own_blocks;
    if (horizon_s <= now_s) break;
  }
  return blocks < kLeastBlocks ? now_s : std::max(now_s, kRoom * horizon_s);
}

}  // namespace pipewright

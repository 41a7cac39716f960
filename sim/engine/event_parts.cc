#include "sim/engine/event_parts.h"

#include <numeric>

#include "sim/engine/event_meetings.h"
#include "sim/program/compute_stream.h"

namespace pipewright {
namespace {

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

ReplicaParts::ReplicaParts(const Program& program, const EngineOptions& options,
                           const TrafficSources& sources,
                           const SharedTransfers& sharing)
    : program_(program) {
  if (!CanBeApart(options, sources)) return;
  FindParts(sources, sharing);
  FindMeetings();
  meet_in_hooks_ = MeetInHooks();
}

// Otherwise replicas meet in ways that are not looked at here.
bool ReplicaParts::CanBeApart(const EngineOptions& options,
                              const TrafficSources& sources) const {
  if (program_.pp() * program_.replicas < options.least_in_parts ||
      program_.replicas < 2 || program_.network.cluster == nullptr ||
      options.trace != nullptr || options.as_activities ||
      program_.interference != nullptr || !sources.pools().empty() ||
      program_.copies_in_turn) {
    return false;
  }
  for (int index = 0; index < program_.num_classes(); ++index) {
    for (const RankProgram& rank : program_.dp_class(index).ranks) {
      for (const SideOp& op : rank.side_ops) {
        if (IsOneSided(op.kind)) return false;
      }
    }
  }
  return true;
}

bool ReplicaParts::MeetInHooks() const {
  for (int index = 0; index < program_.num_classes(); ++index) {
    for (const RankProgram& rank : program_.dp_class(index).ranks) {
      for (const LaneHook& hook : rank.hooks) {
        for (const int32_t op : hook.side_ops) {
          if (op >= 0 && SpansReplicas(program_, rank.side_ops[op])) {
            return true;
          }
        }
      }
    }
  }
  return false;
}

void ReplicaParts::FindParts(const TrafficSources& sources,
                             const SharedTransfers& sharing) {
  Sets sets(program_.replicas);
  std::vector<int32_t> first(program_.network.cluster->links().size(), -1);
  const auto use = [&](LinkId link, int32_t replica) {
    if (first[link] < 0) first[link] = replica;
    sets.Join(first[link], replica);
  };
  replica_of_queue_.assign(sharing.num_queues(), -1);
  for (size_t source = 0; source < sources.plans().size(); ++source) {
    const SourcePlan& plan = sources.plans()[source];
    const int32_t replica = sources.all()[source].replica;
    if (replica < 0) continue;
    if (plan.sharing == Sharing::kQueue) {
      use(plan.link, replica);
      replica_of_queue_[sharing.QueueOf(static_cast<int>(source))] = replica;
    } else if (plan.sharing == Sharing::kFlow) {
      for (const LinkLoad& load : plan.shared) use(load.link, replica);
    }
  }
  std::vector<int> part_of_set(program_.replicas, -1);
  count_ = 0;
  for (int replica = 0; replica < program_.replicas; ++replica) {
    int& part = part_of_set[sets.Find(replica)];
    if (part < 0) part = count_++;
    part_of_replica_.push_back(part);
  }
  for (const int32_t replica : first) {
    part_of_link_.push_back(replica < 0 ? -1 : part_of_replica_[replica]);
  }
}

// Parts that run are numbered anew.
void ReplicaParts::Fold(const AlikeParts::Planned& planned,
                        TrafficSources* sources) {
  if (count_ == 1 || program_.jitter != nullptr || !sources->AnyShared()) {
    return;
  }
  const AlikeParts alike(planned, part_of_replica_, part_of_link_);
  stand_ins_ = alike.stand_ins();
  std::vector<int> number_of(count_, -1);
  count_ = 0;
  for (int replica = 0; replica < program_.replicas; ++replica) {
    if (!Runs(replica)) continue;
    int& number = number_of[part_of_replica_[replica]];
    if (number < 0) number = count_++;
  }
  for (int& part : part_of_replica_) part = std::max(0, number_of[part]);
  for (size_t source = 0; source < sources->all().size(); ++source) {
    if (sources->all()[source].replica >= 0) continue;
    sources->Forget(static_cast<int>(source), alike.idle_links());
  }
}

void ReplicaParts::FindMeetings() {
  for (int index = 0; index < program_.num_classes(); ++index) {
    std::vector<std::vector<int64_t>>& of_class = meets_at_.emplace_back();
    for (const RankProgram& rank : program_.dp_class(index).ranks) {
      std::vector<int64_t>& positions = of_class.emplace_back();
      for (const Attachment& attachment : rank.attachments) {
        if (SpansReplicas(program_, rank.side_ops[attachment.side_op])) {
          positions.push_back(attachment.position);
        }
      }
    }
  }
}

// Not before the passes up to the next collective of several replicas, or to
// the end of this start, have run one after the other. Looks no further than
// `latest_s` and some blocks of passes; *blocks: of passes up to there.
double ReplicaParts::EarliestMeeting(const Place& place, double now_s,
                                     double latest_s, int* blocks) const {
  *blocks = 0;
  if (place.meets) return now_s;
  if (place.ended) return std::numeric_limits<double>::infinity();
  const RankOrder& order =
      *program_.OfReplica(place.replica).ranks[place.rank].order;
  const std::vector<int64_t>& meets_at =
      meets_at_[program_.ClassOf(place.replica)][place.rank];
  int64_t position = place.position;
  const auto next =
      std::lower_bound(meets_at.begin(), meets_at.end(), position);
  int64_t stop = place.end;
  if (next != meets_at.end()) stop = std::min(stop, *next);
  // What runs there ends at some date after now.
  if (place.busy && position < stop &&
      EntryOf(order[position].kind()) == Entry::kBlock) {
    position += PartsOf(order[position]);
  }
  double date_s = std::max(now_s, place.clock_s);
  while (position < stop && date_s < latest_s && *blocks < kMostBlocks) {
    const Pass* const block = order.data() + position;
    if (EntryOf(block->kind()) != Entry::kBlock) {
      ++position;
      continue;
    }
    const int parts = PartsOf(*block);
    for (int part = 0; part < parts; ++part) {
      date_s += program_.PassSeconds(place.iteration, place.replica, place.rank,
                                     block[part]) *
                (parts == 2 ? program_.pair_factor : 1);
    }
    position += parts;
    ++*blocks;
  }
  return date_s;
}

}  // namespace pipewright

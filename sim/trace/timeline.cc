#include "sim/trace/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "sim/program/program.h"
#include "sim/topology/mapping.h"
#include "sim/trace/memory_timeline.h"

namespace pipewright {
namespace {

int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string ProcessName(const Program& program, int replica, int rank) {
  std::string name = program.replicas > 1
                         ? absl::StrCat("replica ", replica, " rank ", rank)
                         : absl::StrCat("rank ", rank);
  if (program.num_classes() > 1) {
    absl::StrAppend(&name, " class ", program.ClassOf(replica));
  }
  const Network& network = program.network;
  if (network.cluster != nullptr && network.mapping != nullptr) {
    absl::StrAppend(&name, " (",
                    network.mapping->NameOf(*network.cluster, replica, rank),
                    ")");
  }
  return name;
}

// Senders first, so that an arrow whose transfer takes no time still points
// from sender to receiver.
int StreamPlace(const TraceOp& op) {
  if (op.kind == OpKind::kSend) return 0;
  return op.kind == OpKind::kReceive ? 1 : 2;
}

// Slices in the order of the file, their track not yet known.
std::vector<Timeline::Slice> SortedSlices(const std::vector<TraceOp>& ops) {
  std::vector<Timeline::Slice> slices;
  slices.reserve(ops.size());
  for (const TraceOp& op : ops) {
    Timeline::Slice slice = {.start_ns = Nanoseconds(op.start_s),
                             .end_ns = Nanoseconds(op.end_s),
                             .op = &op};
    if (op.kind == OpKind::kWait && slice.start_ns == slice.end_ns) continue;
    slices.push_back(slice);
  }
  std::stable_sort(
      slices.begin(), slices.end(),
      [](const Timeline::Slice& a, const Timeline::Slice& b) {
        return std::make_tuple(a.start_ns, StreamPlace(*a.op), a.end_ns) <
               std::make_tuple(b.start_ns, StreamPlace(*b.op), b.end_ns);
      });
  return slices;
}

// Gives each slice the first track of its stream that is free.
void PlaceSlices(const Program& program, Timeline* timeline) {
  struct Lane {
    int64_t end_ns = 0;
    std::vector<int64_t> slices;
  };
  using Streams = std::array<std::vector<Lane>, kNumStreams>;
  std::map<std::pair<int, int>, Streams> ranks;
  for (size_t index = 0; index < timeline->slices.size(); ++index) {
    Timeline::Slice& slice = timeline->slices[index];
    std::vector<Lane>& lanes = ranks[{slice.op->replica, slice.op->rank}]
                                    [static_cast<int>(slice.op->stream)];
    // One nanosecond of overlap is rounding of an engine's own clock.
    auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& l) {
      return l.end_ns <= slice.start_ns + 1;
    });
    if (lane == lanes.end()) lane = lanes.emplace(lanes.end());
    slice.start_ns = std::max(slice.start_ns, lane->end_ns);
    slice.end_ns = std::max(slice.end_ns, slice.start_ns);
    lane->end_ns = slice.end_ns;
    lane->slices.push_back(static_cast<int64_t>(index));
  }
  int next_id = 1;
  for (const auto& [rank, streams] : ranks) {
    timeline->processes.push_back(
        {next_id++, ProcessName(program, rank.first, rank.second), rank.first,
         rank.second});
  }
  int process = 0;
  for (const auto& [rank, streams] : ranks) {
    for (int stream = 0; stream < kNumStreams; ++stream) {
      for (size_t lane = 0; lane < streams[stream].size(); ++lane) {
        const absl::string_view name = StreamName(static_cast<Stream>(stream));
        for (const int64_t slice : streams[stream][lane].slices) {
          timeline->slices[slice].track =
              static_cast<int>(timeline->tracks.size());
        }
        timeline->tracks.push_back({process, next_id++,
                                    lane == 0
                                        ? std::string(name)
                                        : absl::StrCat(name, " ", lane + 1)});
      }
    }
    ++process;
  }
}

// Where a pass ran: data-parallel replica, rank, iteration, pass.
using PassPlace = std::tuple<int, int, int, uint64_t>;

// A transfer: replica, iteration, channel, pass.
using TransferKey = std::tuple<int, int, int, uint64_t>;

class FlowFinder {
 public:
  FlowFinder(const Program& program, Timeline* timeline)
      : program_(program), timeline_(*timeline) {
    for (size_t index = 0; index < timeline_.slices.size(); ++index) {
      const TraceOp& op = *timeline_.slices[index].op;
      if (op.kind == OpKind::kPass) {
        passes_[Place(op, op.rank, op.pass)] = static_cast<int64_t>(index);
      }
    }
  }

  void Run() {
    // Transfers of one key, as messages between side operations are, pair up
    // in the order of time.
    absl::flat_hash_map<TransferKey, std::vector<int64_t>> sends;
    absl::flat_hash_map<TransferKey, size_t> received;
    for (size_t index = 0; index < timeline_.slices.size(); ++index) {
      const TraceOp& op = *timeline_.slices[index].op;
      if (op.kind == OpKind::kSend) {
        sends[Key(op)].push_back(static_cast<int64_t>(index));
      }
    }
    for (size_t index = 0; index < timeline_.slices.size(); ++index) {
      const TraceOp& op = *timeline_.slices[index].op;
      if (op.kind != OpKind::kReceive) continue;
      const auto found = sends.find(Key(op));
      if (found == sends.end()) continue;
      const size_t nth = received[Key(op)]++;
      if (nth >= found->second.size()) continue;
      AddFlow(found->second[nth], static_cast<int64_t>(index));
    }
    std::stable_sort(
        timeline_.flows.begin(), timeline_.flows.end(),
        [](const Timeline::FlowPoint& a, const Timeline::FlowPoint& b) {
          return a.slice < b.slice;
        });
  }

 private:
  static PassPlace Place(const TraceOp& op, int rank, Pass pass) {
    return {op.replica, rank, op.iteration, pass.WithJoint(false).bits()};
  }
  static TransferKey Key(const TraceOp& op) {
    return {op.replica, op.iteration, op.channel,
            op.pass.WithJoint(false).bits()};
  }

  // Slice of the pass, -1 when the trace has none.
  int64_t Find(const TraceOp& op, int rank, Pass pass) const {
    const auto found = passes_.find(Place(op, rank, pass));
    return found == passes_.end() ? -1 : found->second;
  }

  // Slice of the pass that consumes what `op` transfers, or -1.
  int64_t Consumer(const TraceOp& op) const {
    const DpClass& own = program_.OfReplica(op.replica);
    const Channel& channel = own.channels[op.channel];
    const bool forward = channel.kind == ChannelKind::kActivation;
    const Placement& placement = own.schedule->placement;
    const int stage = channel.stage + (forward ? 1 : -1);
    if (stage < 0 || stage >= placement.stages()) return -1;
    const auto find = [&](PassKind kind) {
      return Find(op, channel.to_rank,
                  Pass(kind, op.pass.microbatch(), placement.ChunkOf(stage),
                       op.pass.slice(), op.pass.direction()));
    };
    if (forward) return find(PassKind::kForward);
    const int64_t split = find(PassKind::kBackwardInput);
    return split >= 0 ? split : find(PassKind::kBackwardFull);
  }

  void AddFlow(int64_t send, int64_t receive) {
    const TraceOp& op = *timeline_.slices[send].op;
    std::vector<int64_t> path = {send, receive};
    const bool of_passes =
        op.channel >= 0 && program_.schedule != nullptr && op.stage >= 0;
    if (of_passes) {
      const int64_t producer = Find(op, op.rank, op.pass);
      if (producer >= 0) path.insert(path.begin(), producer);
      const int64_t consumer = Consumer(op);
      if (consumer >= 0) path.push_back(consumer);
    }
    ++count_;
    for (const int64_t slice : path) {
      timeline_.flows.push_back(
          {slice, count_, slice == path.front(), slice == path.back()});
    }
  }

  const Program& program_;
  Timeline& timeline_;
  absl::flat_hash_map<PassPlace, int64_t> passes_;
  int64_t count_ = 0;
};

// Counts in whole parts, so that what is added is taken away exactly.
class CounterBuilder {
 public:
  void Add(int64_t time_ns, int64_t parts) {
    changes_.push_back({time_ns, parts});
  }
  bool empty() const { return changes_.empty(); }

  // Changes at one time are one sample.
  std::vector<Timeline::Sample> Samples(double parts_of_one) {
    std::stable_sort(
        changes_.begin(), changes_.end(),
        [](const Change& a, const Change& b) { return a.time_ns < b.time_ns; });
    std::vector<Timeline::Sample> samples;
    int64_t parts = 0;
    int64_t written = 0;
    for (size_t index = 0; index < changes_.size(); ++index) {
      parts += changes_[index].parts;
      const bool more = index + 1 < changes_.size() &&
                        changes_[index + 1].time_ns == changes_[index].time_ns;
      if (more || parts == written) continue;
      written = parts;
      samples.push_back(
          {changes_[index].time_ns, static_cast<double>(parts) / parts_of_one});
    }
    return samples;
  }

 private:
  struct Change {
    int64_t time_ns;
    int64_t parts;
  };
  std::vector<Change> changes_;
};

void CountActivations(const Timeline::Slice& slice, CounterBuilder* counter) {
  const TraceOp& op = *slice.op;
  if (op.kind == OpKind::kOffload) counter->Add(slice.end_ns, -1);
  if (op.kind == OpKind::kLoad) counter->Add(slice.start_ns, 1);
  if (op.kind != OpKind::kPass) return;
  switch (op.pass.kind()) {
    case PassKind::kForward:
      counter->Add(slice.start_ns, 1);
      break;
    case PassKind::kBackwardFull:
    case PassKind::kBackwardWeight:
      counter->Add(slice.end_ns, -1);
      break;
    default:
      break;
  }
}

// One builder a process; empty where the memory is not known.
std::vector<CounterBuilder> CountMemory(const Program& program,
                                        const ScheduleMemory* memory,
                                        const Timeline& timeline) {
  if (memory == nullptr || program.schedule == nullptr) return {};
  std::vector<CounterBuilder> counters(timeline.processes.size());
  const MemoryEffects effects(program, *memory);
  for (const Timeline::Slice& slice : timeline.slices) {
    CounterBuilder& counter = counters[timeline.tracks[slice.track].process];
    if (counter.empty()) {
      counter.Add(0, memory->ranks[slice.op->rank].fixed.total());
    }
    const MemoryEffect effect = effects.Of(*slice.op);
    const int64_t during = effect.during.total();
    const int64_t begin = effect.at_start.total() + during;
    const int64_t end = effect.at_end.total() - during;
    if (begin != 0) counter.Add(slice.start_ns, begin);
    if (end != 0) counter.Add(slice.end_ns, end);
  }
  std::vector<const TraceOp*> ops;
  std::map<std::pair<int, int>, int> process_of;  // replica and rank
  for (const Timeline::Slice& slice : timeline.slices) {
    ops.push_back(slice.op);
    process_of[{slice.op->replica, slice.op->rank}] =
        timeline.tracks[slice.track].process;
  }
  for (const FreedMemory& freed : FreesOf(program, *memory, ops)) {
    counters[process_of.at({freed.replica, freed.rank})].Add(
        Nanoseconds(freed.time_s), freed.activations);
  }
  return counters;
}

// The same for what a run has measured.
std::vector<CounterBuilder> CountMeasured(const Program& program,
                                          const MeasuredMemory* measured,
                                          const Timeline& timeline) {
  if (measured == nullptr) return {};
  struct Place {
    size_t passes = 0;  // passes of the rank so far
    int64_t now = 0;
  };
  std::vector<Place> counts(measured->size());
  const auto index_of = [&program](const TraceOp& op) {
    return static_cast<size_t>(op.replica) * program.pp() + op.rank;
  };
  for (const Timeline::Slice& slice : timeline.slices) {
    if (slice.op->kind == OpKind::kPass) ++counts[index_of(*slice.op)].passes;
  }
  std::vector<bool> told(counts.size());
  for (size_t index = 0; index < counts.size(); ++index) {
    told[index] = counts[index].passes == (*measured)[index].size();
    counts[index].passes = 0;
  }
  std::vector<CounterBuilder> counters(timeline.processes.size());
  for (const Timeline::Slice& slice : timeline.slices) {
    const size_t index = index_of(*slice.op);
    if (slice.op->kind != OpKind::kPass || !told[index]) continue;
    Place& place = counts[index];
    const PassBytes& bytes = (*measured)[index][place.passes++];
    const auto peak = static_cast<int64_t>(bytes.peak);
    const auto after = static_cast<int64_t>(bytes.after);
    CounterBuilder& counter = counters[timeline.tracks[slice.track].process];
    counter.Add(slice.start_ns, peak - place.now);
    counter.Add(slice.end_ns, after - peak);
    place.now = after;
  }
  return counters;
}

void AddCounters(const Program& program, const ScheduleMemory* memory,
                 const MeasuredMemory* measured, Timeline* timeline) {
  const size_t processes = timeline->processes.size();
  std::vector<CounterBuilder> activations(processes);
  std::vector<CounterBuilder> transfers(processes);
  for (const Timeline::Slice& slice : timeline->slices) {
    const int process = timeline->tracks[slice.track].process;
    CountActivations(slice, &activations[process]);
    const bool transfer =
        slice.op->kind == OpKind::kSend || slice.op->kind == OpKind::kReceive;
    if (transfer) {
      transfers[process].Add(slice.start_ns, 1);
      transfers[process].Add(slice.end_ns, -1);
    }
  }
  double parts_of_one = 1;
  if (program.schedule != nullptr) {
    parts_of_one = program.schedule->vpp() * program.schedule->slices;
  }
  int next_id =
      static_cast<int>(timeline->processes.size() + timeline->tracks.size()) +
      1;
  std::vector<CounterBuilder> bytes =
      measured != nullptr ? CountMeasured(program, measured, *timeline)
                          : CountMemory(program, memory, *timeline);
  for (size_t process = 0; process < processes; ++process) {
    const auto add = [&](const char* name, CounterBuilder* builder, double unit,
                         bool in_bytes) {
      if (builder->empty()) return;
      timeline->counters.push_back({static_cast<int>(process), next_id++, name,
                                    in_bytes, builder->Samples(unit)});
    };
    add("activations in flight", &activations[process], parts_of_one, false);
    add("transfers in flight", &transfers[process], 1, false);
    if (!bytes.empty()) add("memory", &bytes[process], 1, true);
  }
}

}  // namespace

Timeline BuildTimeline(const Program& program, const std::vector<TraceOp>& ops,
                       const ScheduleMemory* memory,
                       const MeasuredMemory* measured) {
  Timeline timeline;
  timeline.slices = SortedSlices(ops);
  PlaceSlices(program, &timeline);
  FlowFinder(program, &timeline).Run();
  AddCounters(program, memory, measured, &timeline);
  return timeline;
}

std::string SliceName(const Program& program, const TraceOp& op) {
  const bool of_pass = op.stage >= 0 && program.schedule != nullptr;
  const DpClass& own = program.OfReplica(op.replica);
  const std::string pass = of_pass ? PassToString(*own.schedule, op.pass) : "";
  switch (op.kind) {
    case OpKind::kPass:
    case OpKind::kOffload:
    case OpKind::kLoad:
      if (of_pass) return pass;
      break;
    case OpKind::kSend:
    case OpKind::kReceive:
      return absl::StrCat(OpKindName(op.kind), " ", of_pass ? pass : "message");
    default:
      break;
  }
  const std::string name(OpKindName(op.kind));
  if (op.side_op < 0) return name;
  const int chunk = own.ranks[op.rank].side_ops[op.side_op].chunk;
  return chunk < 0 ? name : absl::StrCat(name, " chunk ", chunk);
}

}  // namespace pipewright

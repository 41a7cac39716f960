#include "sim/trace/memory_timeline.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "sim/memory/activations.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

MemoryBytes Negative(MemoryBytes bytes) {
  for (int64_t& value : bytes.of) value = -value;
  return bytes;
}

struct Event {
  double time_s;
  MemoryBytes change;
};

std::vector<MemorySample> SamplesOf(std::vector<Event> events,
                                    const MemoryBytes& fixed) {
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& one, const Event& other) {
                     return one.time_s < other.time_s;
                   });
  std::vector<MemorySample> samples;
  MemoryBytes live = fixed;
  for (size_t index = 0; index < events.size(); ++index) {
    live += events[index].change;
    const bool more = index + 1 < events.size() &&
                      events[index + 1].time_s == events[index].time_s;
    if (more) continue;
    if (!samples.empty() && samples.back().bytes == live) continue;
    samples.push_back({events[index].time_s, live});
  }
  return samples;
}

}  // namespace

MemoryEffects::MemoryEffects(const Program& program,
                             const ScheduleMemory& memory)
    : program_(program), memory_(memory) {
  for (int index = 0; index < program.num_classes(); ++index) {
    const Schedule& schedule = *program.dp_class(index).schedule;
    auto& ranks = recomputed_.emplace_back();
    std::vector<bool>& frees = frees_.emplace_back();
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      ranks.push_back(RunAgain(schedule.order(rank)));
      frees.push_back(HasKind(schedule.order(rank), PassKind::kFree));
    }
  }
}

MemoryEffect MemoryEffects::Of(const TraceOp& op) const {
  MemoryEffect effect;
  const bool copies = op.kind == OpKind::kOffload || op.kind == OpKind::kLoad;
  if ((op.kind != OpKind::kPass && !copies) || op.stage < 0) return effect;
  const bool recomputed =
      recomputed_[program_.ClassOf(op.replica)][op.rank].contains(
          op.pass.activation());
  if (op.kind == OpKind::kOffload &&
      frees_[program_.ClassOf(op.replica)][op.rank]) {
    return effect;
  }
  // The memory is of one class of replicas, which may have no R.
  const bool has_again = recomputed && !memory_.again.empty();
  const StageMemory& stage =
      *(has_again ? memory_.again : memory_.stages)[op.stage];
  PassKind kind = op.pass.kind();
  if (op.kind == OpKind::kOffload) kind = PassKind::kOffload;
  if (op.kind == OpKind::kLoad) kind = PassKind::kLoad;
  const PassChange change = ChangeOf(kind, stage, recomputed);
  MemoryBytes& stays =
      op.kind == OpKind::kLoad ? effect.at_start : effect.at_end;
  stays[MemoryKind::kActivations] = change.activations;
  stays[MemoryKind::kRecomputed] = change.recomputed;
  if (const PassMemory* own = PeakOf(kind, stage, recomputed)) {
    effect.during = own->peak;
  }
  return effect;
}

std::vector<FreedMemory> FreesOf(const Program& program,
                                 const ScheduleMemory& memory,
                                 const std::vector<const TraceOp*>& ops) {
  // Ends of the passes and offloads of each rank, by what they are of.
  using Ends = absl::flat_hash_map<uint64_t, double>;
  struct Told {
    Ends passes;
    Ends offloads;
  };
  std::map<std::tuple<int, int, int>, Told> told;
  for (const TraceOp* const op : ops) {
    const bool offloads = op->kind == OpKind::kOffload;
    if (op->kind != OpKind::kPass && !offloads) continue;
    Told& rank = told[{op->replica, op->iteration, op->rank}];
    double& end_s = offloads ? rank.offloads[op->pass.activation()]
                             : rank.passes[op->pass.bits()];
    end_s = std::max(end_s, op->end_s);
  }
  std::vector<FreedMemory> freed;
  for (const auto& [key, ends] : told) {
    const auto [replica, iteration, rank] = key;
    const Schedule& schedule = *program.OfReplica(replica).schedule;
    double reached_s = 0;
    for (const Pass pass : schedule.order(rank)) {
      const auto ended = ends.passes.find(pass.bits());
      if (ended != ends.passes.end()) {
        reached_s = std::max(reached_s, ended->second);
      }
      if (pass.kind() != PassKind::kFree) continue;
      const auto away = ends.offloads.find(pass.activation());
      if (away == ends.offloads.end()) continue;
      reached_s = std::max(reached_s, away->second);
      const int stage =
          schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
      freed.push_back({.replica = replica,
                       .iteration = iteration,
                       .rank = rank,
                       .time_s = reached_s,
                       .activations = ChangeOf(PassKind::kFree,
                                               *memory.stages[stage], false)
                                          .activations});
    }
  }
  return freed;
}

std::vector<std::vector<MemorySample>> MemoryOverTime(
    const Program& program, const ScheduleMemory& memory,
    const std::vector<TraceOp>& ops, int replica, int iteration) {
  const MemoryEffects effects(program, memory);
  std::vector<std::vector<Event>> events(memory.ranks.size());
  for (const TraceOp& op : ops) {
    if (op.replica != replica || op.iteration != iteration) continue;
    const MemoryEffect effect = effects.Of(op);
    MemoryBytes begin = effect.at_start;
    begin += effect.during;
    MemoryBytes end = Negative(effect.during);
    end += effect.at_end;
    events[op.rank].push_back({op.start_s, begin});
    events[op.rank].push_back({op.end_s, end});
  }
  std::vector<const TraceOp*> own;
  for (const TraceOp& op : ops) {
    if (op.replica == replica && op.iteration == iteration) own.push_back(&op);
  }
  for (const FreedMemory& freed : FreesOf(program, memory, own)) {
    Event event = {.time_s = freed.time_s};
    event.change[MemoryKind::kActivations] = freed.activations;
    events[freed.rank].push_back(event);
  }
  std::vector<std::vector<MemorySample>> out;
  for (size_t rank = 0; rank < events.size(); ++rank) {
    out.push_back(SamplesOf(std::move(events[rank]), memory.ranks[rank].fixed));
  }
  return out;
}

}  // namespace pipewright

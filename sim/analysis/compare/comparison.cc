#include "sim/analysis/compare/comparison.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/compare/replay_pair.h"
#include "sim/base/status.h"
#include "sim/schedule/pass.h"

namespace pipewright {
namespace {

// One of trace_origin.h.
absl::string_view CauseOf(OpKind kind) {
  switch (kind) {
    case OpKind::kPass:
      return kKernelTimes;
    case OpKind::kSend:
    case OpKind::kReceive:
    case OpKind::kDrop:
      return kTransferTimes;
    case OpKind::kOffload:
    case OpKind::kLoad:
      return kCopyTimes;
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
    case OpKind::kBarrier:
    case OpKind::kPull:
    case OpKind::kPush:
      return kSynchronisationTimes;
    default:
      return kOptimizerTimes;
  }
}

// Exchanges times step by step and notes what each step does to the period.
class Exchange {
 public:
  Exchange(const PairedRun& run, const PairReplay& replay, int iteration)
      : run_(run), replay_(replay), iteration_(iteration) {
    choice_ = replay.Nothing();
    step_s_ = replay.StepSeconds(choice_, iteration);
  }

  std::vector<Difference> Run() {
    for (int kind = 0; kind < kNumPassKinds; ++kind) {
      Kernels(static_cast<PassKind>(kind));
    }
    Whole(kTransferTimes, kBoth);
    Whole(kCopyTimes, kBoth);
    Whole(kSynchronisationTimes, kBoth);
    Whole(kOptimizerTimes, kSeconds);
    Gaps();
    return std::move(differences_);
  }

 private:
  // Takes `part` from the measurement for the operations that `has` picks.
  template <typename Picks>
  bool Take(Part part, const Picks& has) {
    bool any = false;
    for (size_t op = 0; op < run_.ops.size(); ++op) {
      if (!has(run_.ops[op])) continue;
      choice_[op] |= static_cast<uint8_t>(part);
      any = true;
    }
    return any;
  }

  double Step() {
    const double before_s = step_s_;
    step_s_ = replay_.StepSeconds(choice_, iteration_);
    return step_s_ - before_s;
  }

  void Kernels(PassKind kind) {
    Difference difference = {.cause = std::string(kKernelTimes),
                             .kind = std::string(PassKindName(kind))};
    bool any = false;
    for (int rank = 0; rank < run_.pp; ++rank) {
      const bool here = Take(kSeconds, [&](const PairedOp& paired) {
        return paired.op.kind == OpKind::kPass &&
               paired.op.pass.kind() == kind && paired.op.rank == rank;
      });
      any |= here;
      difference.seconds_of_rank.push_back(here ? Step() : 0);
      difference.seconds += difference.seconds_of_rank.back();
    }
    if (any) differences_.push_back(std::move(difference));
  }

  void Whole(absl::string_view cause, Part part) {
    if (!Take(part, [&](const PairedOp& paired) {
          return CauseOf(paired.op.kind) == cause;
        })) {
      return;
    }
    differences_.push_back({.cause = std::string(cause), .seconds = Step()});
  }

  // All that is left: gaps on the compute stream, between passes and before
  // what else runs there.
  void Gaps() {
    Take(kBoth, [](const PairedOp&) { return true; });
    differences_.push_back(
        {.cause = std::string(kGapTimes), .seconds = Step()});
  }

  const PairedRun& run_;
  const PairReplay& replay_;
  const int iteration_;
  PairReplay::Choice choice_;
  double step_s_ = 0;
  std::vector<Difference> differences_;
};

struct Span {
  double first_s = std::numeric_limits<double>::infinity();
  double last_s = 0;
  double busy_s = 0;
  double span_s() const { return std::max(0.0, last_s - first_s); }
  void Add(double start_s, double end_s) {
    first_s = std::min(first_s, start_s);
    last_s = std::max(last_s, end_s);
    busy_s += end_s - start_s;
  }
};

void Measure(const PairedRun& run, Side side, double TwoValues::*value,
             TraceComparison* out) {
  std::vector<Span> ranks(static_cast<size_t>(run.replicas) * run.pp);
  std::vector<Span> replicas(run.replicas);
  for (const PairedOp& paired : run.ops) {
    if (paired.op.kind != OpKind::kPass ||
        paired.op.iteration != out->iteration || !paired.present[side]) {
      continue;
    }
    const size_t rank =
        static_cast<size_t>(paired.op.replica) * run.pp + paired.op.rank;
    ranks[rank].Add(paired.start_s[side], paired.end_s[side]);
    replicas[paired.op.replica].Add(paired.start_s[side], paired.end_s[side]);
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RankComparison& row = out->ranks[rank % run.pp];
    row.span_s.*value = std::max(row.span_s.*value, ranks[rank].span_s());
    row.busy_s.*value = std::max(row.busy_s.*value, ranks[rank].busy_s);
    out->span_per_rank_s.*value =
        std::max(out->span_per_rank_s.*value, ranks[rank].span_s());
    out->busy_s.*value = std::max(out->busy_s.*value, ranks[rank].busy_s);
  }
  for (const Span& replica : replicas) {
    out->span_global_s.*value =
        std::max(out->span_global_s.*value, replica.span_s());
  }
  const auto bubble = [&](const TwoValues& span) {
    return span.*value > 0 ? (span.*value - out->busy_s.*value) / span.*value
                           : 0;
  };
  out->bubble_global.*value = bubble(out->span_global_s);
  out->bubble_per_rank.*value = bubble(out->span_per_rank_s);
}

// The largest of the replicas; nothing where the trace has no such counter.
std::optional<double> PeakOf(const ReadTrace& trace, absl::string_view counter,
                             int rank) {
  std::optional<double> largest;
  for (const ReadPeak& peak : trace.peaks) {
    if (peak.counter != counter || peak.rank != rank) continue;
    largest = std::max(largest.value_or(peak.value), peak.value);
  }
  return largest;
}

void AddPeaks(const ReadTrace& simulated, const ReadTrace& measured,
              TraceComparison* out) {
  const std::array<const ReadTrace*, kNumSides> traces = {&simulated,
                                                          &measured};
  const bool same_memory = !simulated.origin.memory.empty() &&
                           simulated.origin.memory == measured.origin.memory;
  for (size_t rank = 0; rank < out->ranks.size(); ++rank) {
    RankComparison& row = out->ranks[rank];
    std::array<std::optional<double>, kNumSides> activations;
    for (const int side : {kSimulated, kMeasured}) {
      activations[side] = PeakOf(*traces[side], "activations in flight",
                                 static_cast<int>(rank));
      row.memory_bytes[side] =
          PeakOf(*traces[side], "memory", static_cast<int>(rank));
    }
    const auto pair = [](const auto& values) -> std::optional<TwoValues> {
      if (!values[kSimulated] || !values[kMeasured]) return {};
      return TwoValues{*values[kSimulated], *values[kMeasured]};
    };
    row.peak_activations = pair(activations);
    if (same_memory) row.peak_memory_bytes = pair(row.memory_bytes);
  }
}

}  // namespace

absl::StatusOr<TraceComparison> Compare(const PairedRun& run,
                                        const ReadTrace& simulated,
                                        const ReadTrace& measured,
                                        int iteration) {
  if (iteration >= run.iterations) {
    return BadValue("--iteration", absl::StrCat(iteration),
                    absl::StrCat("0 to ", run.iterations - 1,
                                 ", which both traces have in full"));
  }
  TraceComparison out;
  out.simulated = run.simulated;
  out.measured = run.measured;
  out.origin = {simulated.origin, measured.origin};
  out.schedule = run.schedule;
  out.pp = run.pp;
  out.replicas = run.replicas;
  out.iterations = run.iterations;
  out.iteration = iteration < 0 ? run.iterations - 1 : iteration;
  out.warnings = run.warnings;
  out.ranks.resize(run.pp);

  const PairReplay replay(run);
  const PairReplay::Choice simulated_times = replay.Nothing();
  const PairReplay::Choice measured_times(run.ops.size(), kBoth);
  const std::vector<double> ends = replay.IterationEnds(simulated_times);
  const std::vector<double> other = replay.IterationEnds(measured_times);
  for (int index = 0; index < run.iterations; ++index) {
    const auto step = [index](const std::vector<double>& list) {
      return index == 0 ? list[0] : list[index] - list[index - 1];
    };
    out.step_s_of.push_back({step(ends), step(other)});
  }
  out.step_s = out.step_s_of[out.iteration];
  if (!(out.step_s.measured > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(measured.source, ": iteration ", out.iteration,
                     " takes no time; allowed: a measured trace"));
  }
  Measure(run, kSimulated, &TwoValues::simulated, &out);
  Measure(run, kMeasured, &TwoValues::measured, &out);
  AddPeaks(simulated, measured, &out);
  out.differences = Exchange(run, replay, out.iteration).Run();
  for (Difference& difference : out.differences) {
    difference.given = measured.origin.Gave(difference.cause);
  }
  out.findings = FindCauses(run, replay, out.iteration);
  AddConditions(&out);
  if (out.iteration == 0) {
    out.warnings.push_back(
        "iteration 0 is compared: it has its warm-up in it, and no period");
  }
  return out;
}

namespace {

// "a, b and c".
std::string List(const std::vector<std::string>& words) {
  if (words.size() < 2) return absl::StrJoin(words, "");
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "),
                      " and ", words.back());
}

std::string ClockCondition(const TraceOrigin& origin, Side side) {
  const absl::string_view name =
      side == kSimulated ? "the simulated trace" : "the measured trace";
  if (origin.clock == kUnknownClock) {
    return absl::StrCat(name,
                        " does not say by which clock it ran: what of it was "
                        "given and not measured is unknown");
  }
  const bool is_simulated = origin.clock == kSimulatedClock;
  if (side == kSimulated) {
    return is_simulated ? ""
                        : absl::StrCat(name, " is an executed run (",
                                       origin.clock, " clock), no prediction");
  }
  if (is_simulated) {
    return absl::StrCat(name, " is simulated too: nothing in it is measured");
  }
  std::string text;
  if (!origin.given.empty()) {
    text = absl::StrCat(
        name, " ran by the ", origin.clock, " clock: its ", List(origin.given),
        " are the program's own numbers, not measured; they could not differ");
  }
  if (!origin.only_rank.empty()) {
    absl::StrAppend(&text, text.empty() ? name : "",
                    text.empty() ? " ran" : "; ", "only rank ",
                    origin.only_rank,
                    " ran: the passes of all others are given too");
  }
  return text;
}

}  // namespace

std::string MemoryInWords(absl::string_view memory) {
  if (memory == kAllocatorMemory) {
    return "what a model says that the device's allocator holds";
  }
  if (memory == kExecutorMemory) return "what the executor has allocated";
  if (memory.empty()) return "an unknown count";
  return absl::StrCat("a count called \"", memory, "\"");
}

void AddConditions(TraceComparison* comparison) {
  const auto add = [comparison](const std::string& text) {
    if (!text.empty()) comparison->conditions.push_back(text);
  };
  const TraceOrigin& simulated = comparison->origin[kSimulated];
  const TraceOrigin& measured = comparison->origin[kMeasured];
  add(ClockCondition(simulated, kSimulated));
  add(ClockCondition(measured, kMeasured));
  const std::vector<RankComparison>& ranks = comparison->ranks;
  const bool counts_activations =
      std::any_of(ranks.begin(), ranks.end(), [](const RankComparison& row) {
        return row.peak_activations.has_value();
      });
  // When a copy ends decides how many are held.
  const bool copies = std::any_of(
      comparison->differences.begin(), comparison->differences.end(),
      [](const Difference& each) { return each.cause == kCopyTimes; });
  if (counts_activations && !copies &&
      simulated.activations == kCountedFromOrder &&
      measured.activations == kCountedFromOrder) {
    add("peak activations are counted from the order of the passes in both, "
        "which is one: they could not differ");
  }
  const bool two_memories =
      std::any_of(ranks.begin(), ranks.end(), [](const RankComparison& row) {
        return row.memory_bytes[kSimulated] && row.memory_bytes[kMeasured] &&
               !row.peak_memory_bytes;
      });
  if (two_memories) {
    add(absl::StrCat("peak memory is not compared: simulated it is ",
                     MemoryInWords(simulated.memory), ", measured ",
                     MemoryInWords(measured.memory)));
  }
}

}  // namespace pipewright

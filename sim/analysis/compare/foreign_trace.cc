#include "sim/analysis/compare/foreign_trace.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"
#include "sim/schedule/pass.h"

namespace pipewright {
namespace {

constexpr double kMicro = 1e-6;

// The names are tried in this order, because "backward_weight" is a backward
// too, and a recomputed forward is a forward.
constexpr Region kOrder[] = {Region::kOptimizer,      Region::kRecompute,
                             Region::kBackwardWeight, Region::kBackwardInput,
                             Region::kBackwardFull,   Region::kForward};

std::optional<Region> RegionOf(const TraceOp& op) {
  if (op.kind == OpKind::kOptimizer) return Region::kOptimizer;
  if (op.kind != OpKind::kPass) return {};
  switch (op.pass.kind()) {
    case PassKind::kForward:
      return Region::kForward;
    case PassKind::kBackwardInput:
      return Region::kBackwardInput;
    case PassKind::kBackwardWeight:
      return Region::kBackwardWeight;
    case PassKind::kBackwardFull:
      return Region::kBackwardFull;
    case PassKind::kRecompute:
      return Region::kRecompute;
    default:
      return {};
  }
}

// By number where they are numbers.
struct ProcessOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    int64_t one = 0;
    int64_t other = 0;
    if (absl::SimpleAtoi(a, &one) && absl::SimpleAtoi(b, &other)) {
      return one < other;
    }
    return a < b;
  }
};

// On the device.
std::vector<TraceRegion> ByStart(std::vector<TraceRegion> regions) {
  std::stable_sort(regions.begin(), regions.end(),
                   [](const TraceRegion& a, const TraceRegion& b) {
                     return a.start_us < b.start_us;
                   });
  return regions;
}

using RankRegions = std::map<int, std::vector<TraceRegion>>;

void SortByRank(bool by_file, int file_rank, std::vector<TraceRegion> regions,
                RankRegions* ranks) {
  std::map<std::string, int, ProcessOrder> processes;
  for (const TraceRegion& region : regions) processes[region.process] = 0;
  int next = 0;
  for (auto& [process, rank] : processes) rank = next++;
  for (TraceRegion& region : regions) {
    const int rank = by_file ? file_rank : processes[region.process];
    (*ranks)[rank].push_back(std::move(region));
  }
}

// Calls the regions of every rank what the simulation calls them.
class Namer {
 public:
  Namer(const ReadTrace& simulated, const std::string& source, int skip)
      : source_(source), skip_(skip) {
    for (const ReadOp& read : simulated.ops) {
      const std::optional<Region> region = RegionOf(read.op);
      if (!region || read.op.replica != 0) continue;
      orders_[{read.op.rank, *region}].push_back(&read);
    }
    for (auto& [key, order] : orders_) {
      std::stable_sort(order.begin(), order.end(),
                       [](const ReadOp* a, const ReadOp* b) {
                         return a->op.start_s < b->op.start_s;
                       });
    }
  }

  absl::Status Name(const RankRegions& ranks, ReadTrace* trace) const {
    for (const auto& [key, order] : orders_) {
      const auto& [rank, region] = key;
      std::vector<const TraceRegion*> found;
      const auto regions = ranks.find(rank);
      if (regions != ranks.end()) {
        for (const TraceRegion& each : regions->second) {
          if (each.region == region) found.push_back(&each);
        }
      }
      const auto in_first = static_cast<size_t>(std::count_if(
          order.begin(), order.end(), [first = order[0]](const ReadOp* read) {
            return read->op.iteration == first->op.iteration;
          }));
      if (region == Region::kOptimizer && found.empty()) continue;
      const size_t skipped = in_first * static_cast<size_t>(skip_);
      if (found.size() < skipped + in_first) {
        return absl::InvalidArgumentError(absl::StrCat(
            source_, ": rank ", rank, " has ", found.size(),
            " regions that match ", RegionFlag(region), ", the ", "simulation ",
            in_first, " in an iteration; allowed: patterns ",
            "(--forward, --backward, ...) and a --rank-of that find them"));
      }
      for (size_t index = 0;
           index < order.size() && skipped + index < found.size(); ++index) {
        ReadOp read = *order[index];
        read.op.start_s = kMicro * found[skipped + index]->start_us;
        read.op.end_s = kMicro * found[skipped + index]->end_us;
        trace->ops.push_back(read);
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::string& source_;
  const int skip_;
  std::map<std::pair<int, Region>, std::vector<const ReadOp*>> orders_;
};

// Rank, iteration, stage, direction, microbatch and slice, forward or not.
using Place = std::tuple<int, int, int, int, uint64_t, bool>;

Place PlaceOf(const TraceOp& op, int rank, int stage) {
  return {rank,          op.iteration,
          stage,         op.pass.direction(),
          op.pass.key(), op.pass.kind() == PassKind::kForward};
}

// Finds messages with which the passes would run when they did.
void AddMessages(const ReadTrace& simulated, ReadTrace* trace) {
  std::map<int, std::vector<const ReadOp*>> ranks;
  const std::vector<ReadOp> passes = trace->ops;
  for (const ReadOp& read : passes) ranks[read.op.rank].push_back(&read);
  struct Known {
    double start_s;
    double end_s;
    double free_s;  // the rank is done with what was before
  };
  std::map<Place, Known> known;
  for (auto& [rank, list] : ranks) {
    std::stable_sort(list.begin(), list.end(),
                     [](const ReadOp* a, const ReadOp* b) {
                       return a->op.start_s < b->op.start_s;
                     });
    double free_s = list[0]->op.start_s;
    for (const ReadOp* read : list) {
      const TraceOp& op = read->op;
      const bool sends =
          op.kind == OpKind::kPass &&
          (op.pass.kind() == PassKind::kForward || IsBackward(op.pass.kind()));
      if (sends)
        known[PlaceOf(op, rank, op.stage)] = {op.start_s, op.end_s, free_s};
      free_s = std::max(free_s, op.end_s);
    }
  }
  for (const ReadOp& read : simulated.ops) {
    const TraceOp& op = read.op;
    if (op.kind != OpKind::kSend || op.stage < 0 || op.replica != 0) continue;
    const bool forward = op.pass.kind() == PassKind::kForward;
    const auto from = known.find(PlaceOf(op, op.rank, op.stage));
    const auto to =
        known.find(PlaceOf(op, read.peer, op.stage + (forward ? 1 : -1)));
    if (from == known.end() || to == known.end()) continue;
    ReadOp message = read;
    message.op.start_s = from->second.end_s;
    message.op.end_s = message.op.start_s + op.end_s - op.start_s;
    if (message.op.end_s >= to->second.free_s) {
      message.op.end_s = std::max(message.op.start_s, to->second.start_s);
    }
    trace->ops.push_back(message);
  }
}

}  // namespace

absl::StatusOr<ReadTrace> ReadForeignTrace(
    const std::vector<ForeignFile>& files, const ForeignOptions& options,
    const ReadTrace& simulated) {
  if (!options.rank_of.empty() && options.rank_of != "file" &&
      options.rank_of != "pid") {
    return BadValue("--rank-of", options.rank_of, "file or pid");
  }
  PW_ASSIGN_OR_RETURN(const std::vector<RegionPattern> patterns,
                      CompileRegions(options.patterns, kOrder));
  const bool by_file =
      options.rank_of.empty() ? files.size() > 1 : options.rank_of == "file";
  ReadTrace trace;
  trace.schedule = simulated.schedule;
  trace.wait_rule = simulated.wait_rule;
  trace.origin.clock = "real";
  RankRegions ranks;
  std::set<std::string> names;
  std::vector<std::string> sources;
  for (size_t file = 0; file < files.size(); ++file) {
    RegionReader reader(patterns);
    TraceHeader header;
    PW_RETURN_IF_ERROR(ReadTraceEvents(
        *files[file].in, files[file].name,
        [&](const TraceEvent& event) { return reader.See(event); }, &header));
    SortByRank(by_file, header.rank.value_or(static_cast<int>(file)),
               ByStart(reader.Finish()), &ranks);
    names.insert(reader.other_names().begin(), reader.other_names().end());
    sources.push_back(files[file].name);
  }
  trace.source = absl::StrJoin(sources, ", ");
  if (ranks.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        trace.source,
        ": no region is a forward or a backward; allowed: patterns "
        "(--forward, --backward, --backward-input, --backward-weight) that "
        "match names in the trace (",
        absl::StrJoin(names, ", "), ")"));
  }
  PW_RETURN_IF_ERROR(
      Namer(simulated, trace.source, options.skip).Name(ranks, &trace));
  AddMessages(simulated, &trace);
  return trace;
}

ReadTrace WithoutUnknown(const ReadTrace& simulated, const ReadTrace& foreign,
                         std::vector<std::string>* warnings) {
  std::set<OpKind> known;
  for (const ReadOp& read : foreign.ops) known.insert(read.op.kind);
  std::set<std::string> left_out;
  ReadTrace kept = simulated;
  kept.ops.clear();
  for (const ReadOp& read : simulated.ops) {
    if (read.op.replica != 0 || read.op.kind == OpKind::kReceive) continue;
    if (known.count(read.op.kind) > 0) {
      kept.ops.push_back(read);
    } else {
      left_out.insert(std::string(OpKindName(read.op.kind)));
    }
  }
  if (!left_out.empty()) {
    warnings->push_back(
        absl::StrCat("not in the measured trace, so counted as gaps: ",
                     absl::StrJoin(left_out, ", ")));
  }
  warnings->push_back(
      "messages are not read from the measured trace: one ends when the pass "
      "that waits for it begins");
  return kept;
}

}  // namespace pipewright

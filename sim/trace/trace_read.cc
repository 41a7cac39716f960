#include "sim/trace/trace_read.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/error_parts.h"
#include "sim/base/gzip.h"
#include "sim/base/status.h"
#include "sim/schedule/pass.h"

namespace pipewright {
namespace {

// More than any run has; what is made for each of them still fits.
constexpr int kMostRanks = 1 << 20;
constexpr int kMostIterations = 1'000'000;
constexpr double kMostMicroseconds = 1e15;  // 30 years

absl::Status Missing(absl::string_view field) {
  constexpr char kAllowed[] = "a trace as simulate --trace writes it";
  return WithValue(
      FieldError(
          field,
          absl::StrCat("is missing or of the wrong type; allowed: ", kAllowed)),
      "", kAllowed);
}

std::optional<OpKind> FindOpKind(absl::string_view name) {
  for (int kind = 0; kind < kNumOpKinds; ++kind) {
    if (OpKindName(static_cast<OpKind>(kind)) == name) {
      return static_cast<OpKind>(kind);
    }
  }
  return {};
}

std::optional<PassKind> FindPassKind(absl::string_view name) {
  for (int kind = 0; kind < kNumPassKinds; ++kind) {
    if (PassKindName(static_cast<PassKind>(kind)) == name) {
      return static_cast<PassKind>(kind);
    }
  }
  return {};
}

class Reader {
 public:
  Reader(const std::string& source, TraceHeader* header) : header_(*header) {
    trace_.source = source;
  }

  absl::Status See(const TraceEvent& event) {
    if (!IsOwnTrace(header_)) {
      return absl::InvalidArgumentError(
          "the trace was not written by pipewright (otherData.wait_rule is "
          "missing)");
    }
    if (event.phase == "M") return SeeName(event);
    if (event.phase == "C") return SeeCounter(event);
    return event.phase == "X" ? SeeSlice(event) : absl::OkStatus();
  }

  absl::StatusOr<ReadTrace> Finish() {
    if (const std::string* name = header_.Other("schedule")) {
      trace_.schedule = *name;
    }
    if (const std::string* rule = header_.Other("wait_rule")) {
      bool known = false;
      for (const WaitRule each : {WaitRule::kBuffered, WaitRule::kRendezvous,
                                  WaitRule::kBatched, WaitRule::kStepped}) {
        if (WaitRuleName(each) != *rule) continue;
        trace_.wait_rule = each;
        known = true;
      }
      if (!known) {
        return InFile(trace_.source, 0,
                      BadValue("otherData.wait_rule", *rule,
                               "buffered, rendezvous, batched, stepped"));
      }
    }
    PW_RETURN_IF_ERROR(InFile(trace_.source, 0, ReadOrigin()));
    for (const auto& [key, value] : peaks_) {
      trace_.peaks.push_back(
          {std::get<0>(key), std::get<1>(key), std::get<2>(key), value});
    }
    if (trace_.ops.empty()) {
      return InFile(trace_.source, 0,
                    absl::InvalidArgumentError("holds no operations"));
    }
    return std::move(trace_);
  }

 private:
  struct Process {
    int replica = 0;
    int rank = 0;
  };

  // Not in traces of older versions.
  absl::Status ReadOrigin() {
    TraceOrigin& origin = trace_.origin;
    if (const std::string* clock = header_.Other("clock")) {
      const std::vector<std::string> clocks = {std::string(kSimulatedClock),
                                               "virtual", "paced", "real",
                                               std::string(kUnknownClock)};
      if (std::find(clocks.begin(), clocks.end(), *clock) == clocks.end()) {
        return BadValue("otherData.clock", *clock, absl::StrJoin(clocks, ", "));
      }
      origin.clock = *clock;
    }
    if (const std::string* given = header_.Other("given")) {
      origin.given = absl::StrSplit(*given, ' ', absl::SkipEmpty());
      const std::vector<absl::string_view> known = {
          kKernelTimes,          kTransferTimes,  kCopyTimes,
          kSynchronisationTimes, kOptimizerTimes, kGapTimes};
      for (const std::string& times : origin.given) {
        if (std::find(known.begin(), known.end(), times) != known.end()) {
          continue;
        }
        return BadValue("otherData.given", times, absl::StrJoin(known, ", "));
      }
    }
    const auto word = [this](const char* key) {
      const std::string* const found = header_.Other(key);
      return found == nullptr ? std::string() : *found;
    };
    origin.only_rank = word("only_rank");
    origin.dp_classes = word("dp_classes");
    origin.memory = word("memory");
    origin.activations = word("activations");
    origin.in_units = word("time_unit") == kUnitOfPass;
    return absl::OkStatus();
  }

  absl::Status SeeName(const TraceEvent& event) {
    if (event.name == "process_name") {
      Process process;
      PW_ASSIGN_OR_RETURN(process.rank, Whole(event, "rank", {}, kMostRanks));
      PW_ASSIGN_OR_RETURN(process.replica,
                          Whole(event, "replica", {}, kMostRanks));
      processes_[event.process] = process;
    }
    if (event.name == "thread_name") {
      const std::string* const name = event.Word("name");
      if (name == nullptr) return Missing("args.name");
      // "send 2" is a second track of stream "send".
      const std::string stream = name->substr(0, name->find(' '));
      for (int index = 0; index < kNumStreams; ++index) {
        if (StreamName(static_cast<Stream>(index)) == stream) {
          streams_[event.process + "/" + event.thread] =
              static_cast<Stream>(index);
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status SeeCounter(const TraceEvent& event) {
    const auto process = processes_.find(event.process);
    if (process == processes_.end() || event.numbers.empty()) {
      return absl::OkStatus();
    }
    double& peak =
        peaks_[{process->second.replica, process->second.rank, event.name}];
    peak = std::max(peak, event.numbers[0].second);
    return absl::OkStatus();
  }

  // A whole number of `args`; `missing` where it may be left out.
  static absl::StatusOr<int> Whole(const TraceEvent& event, const char* name,
                                   std::optional<int> missing = {},
                                   int most = 2147483647) {
    const double* const value = event.Number(name);
    if (value == nullptr && missing) return *missing;
    if (value == nullptr) return Missing(absl::StrCat("args.", name));
    if (!(*value >= 0 && *value <= most) || *value != std::floor(*value)) {
      return BadValue(absl::StrCat("args.", name), absl::StrCat(*value),
                      absl::StrCat("a whole number from 0 to ", most));
    }
    return static_cast<int>(*value);
  }

  absl::Status SeeSlice(const TraceEvent& event) {
    const std::optional<OpKind> kind = FindOpKind(event.category);
    if (!kind) return BadValue("cat", event.category, "an operation's kind");
    if (*kind == OpKind::kWait) return absl::OkStatus();
    const auto process = processes_.find(event.process);
    if (process == processes_.end()) {
      return BadValue("pid", event.process,
                      "a process that a process_name event has named");
    }
    const auto stream = streams_.find(event.process + "/" + event.thread);
    if (stream == streams_.end()) {
      return BadValue("tid", event.thread,
                      "a thread that a thread_name event has named");
    }
    if (!event.start_us) return Missing("ts");
    if (!event.duration_us) return Missing("dur");
    if (!(std::abs(*event.start_us) <= kMostMicroseconds)) {
      return BadValue("ts", absl::StrCat(*event.start_us),
                      "microseconds of at most 30 years");
    }
    if (!(*event.duration_us >= 0 && *event.duration_us <= kMostMicroseconds)) {
      return BadValue("dur", absl::StrCat(*event.duration_us),
                      "microseconds from 0 to 30 years");
    }
    ReadOp read;
    TraceOp& op = read.op;
    op.kind = *kind;
    op.replica = process->second.replica;
    op.rank = process->second.rank;
    op.stream = stream->second;
    op.start_s = *event.start_us * 1e-6;
    op.end_s = (*event.start_us + *event.duration_us) * 1e-6;
    PW_ASSIGN_OR_RETURN(op.iteration,
                        Whole(event, "iteration", {}, kMostIterations));
    if (const double* bytes = event.Number("bytes")) op.bytes = *bytes;
    const bool needs_pass = *kind == OpKind::kPass ||
                            *kind == OpKind::kOffload || *kind == OpKind::kLoad;
    if (needs_pass || event.Number("stage") != nullptr) {
      PW_RETURN_IF_ERROR(ReadPass(event, &op));
    }
    if (*kind == OpKind::kSend || *kind == OpKind::kReceive) {
      PW_ASSIGN_OR_RETURN(read.peer, Whole(event, "peer"));
    }
    if (const std::string* group = event.Word("group")) {
      const auto entry = groups_.try_emplace(
          *group, static_cast<int32_t>(trace_.groups.size()));
      if (entry.second) trace_.groups.push_back(*group);
      read.group = entry.first->second;
    }
    trace_.ops.push_back(read);
    return absl::OkStatus();
  }

  static absl::Status ReadPass(const TraceEvent& event, TraceOp* op) {
    const std::string* const name = event.Word("kind");
    if (name == nullptr) return Missing("args.kind");
    const std::optional<PassKind> kind = FindPassKind(*name);
    if (!kind) return BadValue("args.kind", *name, "F B W BW R O L SYNC FREE");
    PW_ASSIGN_OR_RETURN(op->stage, Whole(event, "stage"));
    PW_ASSIGN_OR_RETURN(const int microbatch, Whole(event, "microbatch"));
    PW_ASSIGN_OR_RETURN(const int chunk, Whole(event, "chunk", 0));
    PW_ASSIGN_OR_RETURN(const int slice, Whole(event, "slice", 0));
    PW_ASSIGN_OR_RETURN(const int direction, Whole(event, "direction", 0));
    PW_ASSIGN_OR_RETURN(const int joint, Whole(event, "joint", 0));
    if (chunk >= Pass::kMaxChunks || slice >= Pass::kMaxSlices ||
        direction > 1) {
      return absl::InvalidArgumentError(
          "args: chunk, slice or direction is too large");
    }
    op->joint = joint != 0;
    op->pass = Pass(*kind, microbatch, chunk, slice, direction);
    return absl::OkStatus();
  }

  TraceHeader& header_;
  ReadTrace trace_;
  std::map<std::string, Process> processes_;
  std::map<std::string, Stream> streams_;
  std::map<std::string, int32_t> groups_;
  std::map<std::tuple<int, int, std::string>, double> peaks_;
};

}  // namespace

bool IsOwnTrace(const TraceHeader& header) {
  return header.Other("wait_rule") != nullptr;
}

absl::StatusOr<bool> IsOwnTraceFile(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const auto in, InputFile::Open(path));
  TraceHeader header;
  bool ours = false;
  const absl::Status read = ReadTraceEvents(
      in->stream(), path,
      [&](const TraceEvent&) {
        ours = IsOwnTrace(header);
        // One event is enough.
        return absl::CancelledError("");
      },
      &header);
  PW_RETURN_IF_ERROR(in->status());
  if (!read.ok() && !absl::IsCancelled(read)) return read;
  return ours;
}

absl::StatusOr<ReadTrace> ReadChromeTrace(std::istream& in,
                                          const std::string& source) {
  TraceHeader header;
  Reader reader(source, &header);
  PW_RETURN_IF_ERROR(ReadTraceEvents(
      in, source, [&](const TraceEvent& event) { return reader.See(event); },
      &header));
  return reader.Finish();
}

std::string PassLabel(Pass pass) {
  std::string label =
      absl::StrCat(pass.direction() == 1 ? "b" : "", PassKindName(pass.kind()),
                   pass.microbatch());
  if (pass.chunk() > 0) absl::StrAppend(&label, ".", pass.chunk());
  if (pass.slice() > 0) absl::StrAppend(&label, "s", pass.slice());
  return label;
}

}  // namespace pipewright

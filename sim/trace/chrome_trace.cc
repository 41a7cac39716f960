#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/json.h"
#include "sim/program/program.h"
#include "sim/trace/export.h"
#include "sim/trace/timeline.h"

namespace pipewright {
namespace {

// Events of Chrome's Trace Event Format ("JSON Array Format" inside an
// object): X slices, s/t/f arrows, C counters, M names. Written as text, a
// line an event: a tree in memory would be many times the size of the trace.
class ChromeWriter {
 public:
  ChromeWriter(const Program& program, const Timeline& timeline)
      : program_(program), timeline_(timeline) {}

  void Metadata(absl::string_view what, int process, int thread,
                absl::string_view key, absl::string_view value) {
    Begin();
    absl::StrAppendFormat(
        &out_, R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"%s":%s}})",
        what, process, thread, key, value);
  }

  void Slice(const Timeline::Slice& slice, const std::string& name) {
    const TraceOp& op = *slice.op;
    Begin();
    absl::StrAppendFormat(
        &out_, R"({"ph":"X","name":%s,"cat":"%s",%s,"ts":%s,"dur":%s)",
        QuotedJson(name), OpKindName(op.kind), Place(slice.track),
        Microseconds(slice.start_ns),
        Microseconds(slice.end_ns - slice.start_ns));
    absl::StrAppendFormat(&out_, R"(,"args":{"iteration":%d)", op.iteration);
    if (op.stage >= 0) PassArgs(op);
    if (op.channel >= 0) {
      const Channel& channel =
          program_.OfReplica(op.replica).channels[op.channel];
      absl::StrAppendFormat(
          &out_, R"(,"peer":%d)",
          op.kind == OpKind::kSend ? channel.to_rank : channel.from_rank);
    }
    const std::string group = GroupName(op);
    if (!group.empty()) {
      absl::StrAppendFormat(&out_, R"(,"group":"%s")", group);
    }
    if (op.bytes > 0) {
      absl::StrAppendFormat(&out_, R"(,"bytes":%.17g)", op.bytes);
    }
    out_ += "}}";
  }

  // An arrow is bound to the slice around its time. Sender and receiver have
  // the same times: their points stand apart to keep the direction.
  void Flow(const Timeline::FlowPoint& point) {
    const Timeline::Slice& slice = timeline_.slices[point.slice];
    const int64_t length_ns = slice.end_ns - slice.start_ns;
    int64_t offset_ns = length_ns / 2;
    if (slice.op->kind == OpKind::kSend) offset_ns = length_ns / 4;
    if (slice.op->kind == OpKind::kReceive) offset_ns = length_ns * 3 / 4;
    Begin();
    absl::StrAppendFormat(
        &out_, R"({"ph":"%s","name":"transfer","cat":"flow","id":%d,%s)",
        point.first  ? "s"
        : point.last ? "f"
                     : "t",
        point.flow, Place(slice.track));
    absl::StrAppendFormat(&out_, R"(,"ts":%s%s})",
                          Microseconds(slice.start_ns + offset_ns),
                          point.last ? R"(,"bp":"e")" : "");
  }

  void Counter(const Timeline::Counter& counter,
               const Timeline::Sample& sample) {
    Begin();
    absl::StrAppendFormat(
        &out_, R"({"ph":"C","name":"%s","pid":%d,"ts":%s,"args":{"%s":%.17g}})",
        counter.name, timeline_.processes[counter.process].id,
        Microseconds(sample.time_ns), counter.in_bytes ? "bytes" : "value",
        sample.value);
  }

  std::string Finish(const TraceOrigin& origin) {
    std::string other =
        absl::StrCat("\"schedule\":", QuotedJson(program_.name));
    const auto add = [&other](absl::string_view key, absl::string_view value) {
      if (value.empty()) return;
      absl::StrAppend(&other, ",\"", key, "\":", QuotedJson(value));
    };
    add("wait_rule", WaitRuleName(program_.wait_rule));
    add("clock", origin.clock);
    if (program_.in_units) add("time_unit", kUnitOfPass);
    add("given", absl::StrJoin(origin.given, " "));
    add("only_rank", origin.only_rank);
    if (program_.num_classes() > 1) {
      add("dp_classes", absl::StrJoin(program_.class_of_replica, " "));
    }
    for (const Timeline::Counter& counter : timeline_.counters) {
      if (counter.name != "memory") continue;
      add("memory", origin.memory);
      break;
    }
    add("activations", kCountedFromOrder);
    return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"otherData\":{", other,
                        "},\n\"traceEvents\":[", out_, "\n]}\n");
  }

 private:
  // What the name says for people, field by field; parts that are 0 are left
  // out.
  void PassArgs(const TraceOp& op) {
    absl::StrAppendFormat(&out_, R"(,"stage":%d,"kind":"%s","microbatch":%d)",
                          op.stage, PassKindName(op.pass.kind()),
                          op.pass.microbatch());
    const auto add = [this](const char* key, int value) {
      if (value != 0) absl::StrAppendFormat(&out_, R"(,"%s":%d)", key, value);
    };
    add("chunk", op.pass.chunk());
    add("slice", op.pass.slice());
    add("direction", op.pass.direction());
    add("joint", op.joint ? 1 : 0);
  }

  // The same for all members of a collective: which group, and which of its
  // copies. "" for anything else.
  std::string GroupName(const TraceOp& op) const {
    if (op.side_op < 0) return "";
    const DpClass& own = program_.OfReplica(op.replica);
    const int group = own.ranks[op.rank].side_ops[op.side_op].group;
    if (group < 0) return "";
    switch (program_.groups[group].span) {
      case Group::Span::kReplicas:
        return absl::StrCat(group, " rank ", op.rank);
      case Group::Span::kRanks:
        return absl::StrCat(group, " replica ", op.replica);
      case Group::Span::kAll:
        break;
    }
    return absl::StrCat(group);
  }

  void Begin() { out_ += out_.empty() ? "\n" : ",\n"; }

  // Exact: whole nanoseconds are three decimals.
  static std::string Microseconds(int64_t time_ns) {
    return absl::StrFormat("%d.%03d", time_ns / 1000, time_ns % 1000);
  }

  std::string Place(int index) const {
    const Timeline::Track& track = timeline_.tracks[index];
    return absl::StrFormat(R"("pid":%d,"tid":%d)",
                           timeline_.processes[track.process].id, track.id);
  }

  const Program& program_;
  const Timeline& timeline_;
  std::string out_;
};

}  // namespace

std::string ChromeTraceJson(const Program& program,
                            const std::vector<TraceOp>& ops,
                            const ScheduleMemory* memory,
                            const MeasuredMemory* measured,
                            const TraceOrigin& origin) {
  const Timeline timeline = BuildTimeline(program, ops, memory, measured);
  ChromeWriter writer(program, timeline);
  for (const Timeline::Process& process : timeline.processes) {
    writer.Metadata("process_name", process.id, 0, "name",
                    absl::StrFormat(R"(%s,"replica":%d,"rank":%d)",
                                    QuotedJson(process.name), process.replica,
                                    process.rank));
    if (program.in_units) {
      writer.Metadata("process_labels", process.id, 0, "labels",
                      QuotedJson(kUnitOfPassLabel));
    }
    writer.Metadata("process_sort_index", process.id, 0, "sort_index",
                    absl::StrCat(process.id));
  }
  for (const Timeline::Track& track : timeline.tracks) {
    const int process = timeline.processes[track.process].id;
    writer.Metadata("thread_name", process, track.id, "name",
                    QuotedJson(track.name));
    writer.Metadata("thread_sort_index", process, track.id, "sort_index",
                    absl::StrCat(track.id));
  }
  size_t flow = 0;
  for (size_t slice = 0; slice < timeline.slices.size(); ++slice) {
    writer.Slice(timeline.slices[slice],
                 SliceName(program, *timeline.slices[slice].op));
    for (; flow < timeline.flows.size() &&
           timeline.flows[flow].slice == static_cast<int64_t>(slice);
         ++flow) {
      writer.Flow(timeline.flows[flow]);
    }
  }
  for (const Timeline::Counter& counter : timeline.counters) {
    for (const Timeline::Sample& sample : counter.samples) {
      writer.Counter(counter, sample);
    }
  }
  return writer.Finish(origin);
}

}  // namespace pipewright

#include <utility>

#include "sim/proto/perfetto.pb.h"
#include "sim/trace/export.h"
#include "sim/trace/timeline.h"

namespace pipewright {
namespace {

constexpr uint32_t kSequence = 1;

// A Trace is its packets one behind the other, so each packet is written on
// its own and only one of them is in memory as a message.
class Writer {
 public:
  perfetto::TrackDescriptor* Descriptor(uint64_t id, uint64_t parent = 0) {
    perfetto::TrackDescriptor* descriptor =
        Packet()->mutable_track_descriptor();
    descriptor->set_uuid(id);
    if (parent != 0) descriptor->set_parent_uuid(parent);
    return descriptor;
  }

  perfetto::TrackEvent* Event(int64_t time_ns, uint64_t track,
                              perfetto::TrackEvent::Type type) {
    perfetto::TracePacket* packet = Packet();
    packet->set_timestamp(static_cast<uint64_t>(time_ns));
    perfetto::TrackEvent* event = packet->mutable_track_event();
    event->set_type(type);
    event->set_track_uuid(track);
    return event;
  }

  std::string Finish() {
    Flush();
    return std::move(out_);
  }

 private:
  perfetto::TracePacket* Packet() {
    Flush();
    perfetto::TracePacket* packet = trace_.add_packet();
    packet->set_trusted_packet_sequence_id(kSequence);
    if (out_.empty()) {
      packet->set_sequence_flags(
          perfetto::TracePacket::SEQ_INCREMENTAL_STATE_CLEARED);
    }
    return packet;
  }

  void Flush() {
    trace_.AppendToString(&out_);
    trace_.Clear();
  }

  perfetto::Trace trace_;  // the packet being filled in
  std::string out_;
};

void WriteDescriptors(const Timeline& timeline, Writer* writer) {
  // Viewers that know process_ordering take the ranks from it, older ones
  // legacy_sort_index.
  writer->Descriptor(0)->set_process_ordering(
      perfetto::TrackDescriptor::PROCESS_ORDERING_EXPLICIT);
  for (const Timeline::Process& process : timeline.processes) {
    perfetto::TrackDescriptor* descriptor = writer->Descriptor(process.id);
    descriptor->set_name(process.name);
    descriptor->set_sibling_order_rank(process.id);
    descriptor->mutable_process()->set_pid(process.id);
    descriptor->mutable_process()->set_process_name(process.name);
    descriptor->mutable_process()->set_legacy_sort_index(process.id);
  }
  for (const Timeline::Track& track : timeline.tracks) {
    const int process = timeline.processes[track.process].id;
    perfetto::TrackDescriptor* descriptor =
        writer->Descriptor(track.id, process);
    descriptor->set_name(track.name);
    descriptor->mutable_thread()->set_pid(process);
    descriptor->mutable_thread()->set_tid(track.id);
    descriptor->mutable_thread()->set_thread_name(track.name);
    descriptor->mutable_thread()->set_legacy_sort_index(track.id);
  }
  for (const Timeline::Counter& counter : timeline.counters) {
    perfetto::TrackDescriptor* descriptor =
        writer->Descriptor(counter.id, timeline.processes[counter.process].id);
    descriptor->set_name(counter.name);
    descriptor->mutable_counter()->set_unit(
        counter.in_bytes ? perfetto::CounterDescriptor::UNIT_SIZE_BYTES
                         : perfetto::CounterDescriptor::UNIT_COUNT);
  }
}

void Annotate(const TraceOp& op, perfetto::TrackEvent* event) {
  perfetto::DebugAnnotation* iteration = event->add_debug_annotations();
  iteration->set_name("iteration");
  iteration->set_int_value(op.iteration);
  if (op.stage >= 0) {
    perfetto::DebugAnnotation* stage = event->add_debug_annotations();
    stage->set_name("stage");
    stage->set_int_value(op.stage);
  }
  if (op.bytes > 0) {
    perfetto::DebugAnnotation* bytes = event->add_debug_annotations();
    bytes->set_name("bytes");
    bytes->set_double_value(op.bytes);
  }
}

}  // namespace

std::string PerfettoTrace(const Program& program,
                          const std::vector<TraceOp>& ops,
                          const ScheduleMemory* memory,
                          const MeasuredMemory* measured) {
  const Timeline timeline = BuildTimeline(program, ops, memory, measured);
  Writer writer;
  WriteDescriptors(timeline, &writer);
  // Readers sort by time and keep the order of the file where times are
  // equal: the end of a slice stands before the begin of the next one of its
  // track, and the slices of an arrow in its direction.
  size_t flow = 0;
  for (size_t index = 0; index < timeline.slices.size(); ++index) {
    const Timeline::Slice& slice = timeline.slices[index];
    const int track = timeline.tracks[slice.track].id;
    perfetto::TrackEvent* event = writer.Event(
        slice.start_ns, track, perfetto::TrackEvent::TYPE_SLICE_BEGIN);
    event->set_name(SliceName(program, *slice.op));
    event->add_categories(std::string(OpKindName(slice.op->kind)));
    Annotate(*slice.op, event);
    for (; flow < timeline.flows.size() &&
           timeline.flows[flow].slice == static_cast<int64_t>(index);
         ++flow) {
      const Timeline::FlowPoint& point = timeline.flows[flow];
      if (point.last) {
        event->add_terminating_flow_ids(point.flow);
      } else {
        event->add_flow_ids(point.flow);
      }
    }
    writer.Event(slice.end_ns, track, perfetto::TrackEvent::TYPE_SLICE_END);
  }
  for (const Timeline::Counter& counter : timeline.counters) {
    for (const Timeline::Sample& sample : counter.samples) {
      writer
          .Event(sample.time_ns, counter.id, perfetto::TrackEvent::TYPE_COUNTER)
          ->set_double_counter_value(sample.value);
    }
  }
  return writer.Finish();
}

}  // namespace pipewright

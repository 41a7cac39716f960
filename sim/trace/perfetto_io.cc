#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "sim/program/program.h"
#include "sim/proto/perfetto.pb.h"
#include "sim/trace/export.h"
#include "sim/trace/timeline.h"
#include "sim/trace/trace_origin.h"

namespace pipewright {
namespace {

constexpr uint32_t kSequence = 1;

// The numbers of one list of InternedData.
class Texts {
 public:
  using List = google::protobuf::RepeatedPtrField<perfetto::InternedText>;
  explicit Texts(List* (perfetto::InternedData::*list)()) : list_(list) {}

  // The number of `text`, which `packet` brings along if it is new.
  uint64_t Intern(absl::string_view text, perfetto::TracePacket* packet) {
    const auto [found, is_new] =
        numbers_.try_emplace(text, numbers_.size() + 1);
    if (is_new) {
      perfetto::InternedText* added =
          (packet->mutable_interned_data()->*list_)()->Add();
      added->set_iid(found->second);
      added->set_name(found->first);
    }
    return found->second;
  }

 private:
  List* (perfetto::InternedData::*list_)();
  absl::flat_hash_map<std::string, uint64_t> numbers_;
};

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
    packet_ = Packet();
    packet_->set_timestamp(static_cast<uint64_t>(time_ns));
    perfetto::TrackEvent* event = packet_->mutable_track_event();
    event->set_type(type);
    event->set_track_uuid(track);
    return event;
  }

  // A slice begins: `op`, shown as `name`.
  perfetto::TrackEvent* Begin(int64_t time_ns, uint64_t track,
                              absl::string_view name, const TraceOp& op) {
    perfetto::TrackEvent* event =
        Event(time_ns, track, perfetto::TrackEvent::TYPE_SLICE_BEGIN);
    packet_->set_sequence_flags(
        perfetto::TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
    event->set_name_iid(names_.Intern(name, packet_));
    event->add_category_iids(categories_.Intern(OpKindName(op.kind), packet_));
    Annotate("iteration", event)->set_int_value(op.iteration);
    if (op.stage >= 0) Annotate("stage", event)->set_int_value(op.stage);
    if (op.bytes > 0) Annotate("bytes", event)->set_double_value(op.bytes);
    return event;
  }

  std::string Finish() {
    Flush();
    return std::move(out_);
  }

 private:
  perfetto::DebugAnnotation* Annotate(absl::string_view name,
                                      perfetto::TrackEvent* event) {
    perfetto::DebugAnnotation* annotation = event->add_debug_annotations();
    annotation->set_name_iid(annotations_.Intern(name, packet_));
    return annotation;
  }

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

  perfetto::Trace trace_;                    // the packet being filled in
  perfetto::TracePacket* packet_ = nullptr;  // the same, of an event
  Texts categories_{&perfetto::InternedData::mutable_event_categories};
  Texts names_{&perfetto::InternedData::mutable_event_names};
  Texts annotations_{&perfetto::InternedData::mutable_debug_annotation_names};
  std::string out_;
};

void WriteDescriptors(const Timeline& timeline, bool in_units, Writer* writer) {
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
    if (in_units) {
      descriptor->mutable_process()->add_process_labels(
          std::string(kUnitOfPassLabel));
    }
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

}  // namespace

std::string PerfettoTrace(const Program& program,
                          const std::vector<TraceOp>& ops,
                          const ScheduleMemory* memory,
                          const MeasuredMemory* measured) {
  const Timeline timeline = BuildTimeline(program, ops, memory, measured);
  Writer writer;
  WriteDescriptors(timeline, program.in_units, &writer);
  // Readers sort by time and keep the order of the file where times are
  // equal: the end of a slice stands before the begin of the next one of its
  // track, and the slices of an arrow in its direction.
  size_t flow = 0;
  for (size_t index = 0; index < timeline.slices.size(); ++index) {
    const Timeline::Slice& slice = timeline.slices[index];
    const int track = timeline.tracks[slice.track].id;
    perfetto::TrackEvent* event = writer.Begin(
        slice.start_ns, track, SliceName(program, *slice.op), *slice.op);
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
      perfetto::TrackEvent* event = writer.Event(
          sample.time_ns, counter.id, perfetto::TrackEvent::TYPE_COUNTER);
      // A whole number takes a byte in place of eight.
      if (std::abs(sample.value) < 0x1p53 &&
          std::trunc(sample.value) == sample.value) {
        event->set_counter_value(static_cast<int64_t>(sample.value));
      } else {
        event->set_double_counter_value(sample.value);
      }
    }
  }
  return writer.Finish();
}

}  // namespace pipewright

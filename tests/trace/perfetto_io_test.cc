#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/proto/perfetto.pb.h"
#include "sim/trace/export.h"
#include "tests/trace/example.h"

namespace pipewright::perfetto_io_test {
namespace {

using perfetto::TrackEvent;

perfetto::Trace ExampleTrace() {
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(
      PerfettoTrace(testing::ExampleProgram(), testing::ExampleOps())));
  return trace;
}

// The texts of a list of InternedData by their number.
using Texts = std::map<uint64_t, std::string>;
Texts NamesOf(const perfetto::Trace& trace) {
  Texts names;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    for (const auto& text : packet.interned_data().event_names()) {
      CHECK(names.emplace(text.iid(), text.name()).second);
    }
    // A text stands in the packet that first uses it, or before.
    const TrackEvent& event = packet.track_event();
    if (!event.has_name_iid()) continue;
    CHECK(names.count(event.name_iid()) == 1);
    CHECK(packet.sequence_flags() ==
          perfetto::TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  }
  return names;
}

// Events as Perfetto's trace processor orders them: by time, and in the order
// of the file where times are equal.
std::vector<perfetto::TracePacket> SortedEvents(const perfetto::Trace& trace) {
  std::vector<perfetto::TracePacket> packets;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    if (packet.has_track_event()) packets.push_back(packet);
  }
  std::stable_sort(packets.begin(), packets.end(),
                   [](const auto& a, const auto& b) {
                     return a.timestamp() < b.timestamp();
                   });
  return packets;
}

// Numbers as in google/perfetto, protos/perfetto/trace/: read here without
// sim/proto/perfetto.proto.
TEST_CASE("perfetto trace: fields have Perfetto's numbers", "[trace]") {
  using google::protobuf::UnknownField;
  using google::protobuf::UnknownFieldSet;
  // The fields `path` leads to, from message to message.
  const auto count = [](const std::string& bytes,
                        const std::vector<int>& path) {
    std::vector<std::string> level = {bytes};
    int found = 0;
    for (size_t depth = 0; depth < path.size(); ++depth) {
      std::vector<std::string> next;
      found = 0;
      for (const std::string& message : level) {
        UnknownFieldSet fields;
        if (!fields.ParseFromString(message)) continue;
        for (int index = 0; index < fields.field_count(); ++index) {
          const UnknownField& field = fields.field(index);
          if (field.number() != path[depth]) continue;
          ++found;
          if (field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
            next.push_back(field.length_delimited());
          }
        }
      }
      level = next;
    }
    return found;
  };
  const std::string bytes =
      PerfettoTrace(testing::ExampleProgram(), testing::ExampleOps());
  const int slices = 18;
  constexpr int kCategories = 4;  // pass, send, receive, all-reduce
  constexpr int kNames = 13;
  CHECK(count(bytes, {1, 60, 3, 1}) == 2);            // process.pid
  CHECK(count(bytes, {1, 60, 3, 6}) == 2);            // process.process_name
  CHECK(count(bytes, {1, 60, 4, 2}) == 8);            // thread.tid
  CHECK(count(bytes, {1, 60, 4, 5}) == 8);            // thread.thread_name
  CHECK(count(bytes, {1, 60, 8}) == 4);               // counter
  CHECK(count(bytes, {1, 60, 5}) == 8 + 4);           // parent_uuid
  CHECK(count(bytes, {1, 11, 10}) == slices);         // name_iid
  CHECK(count(bytes, {1, 11, 3}) == slices);          // category_iids
  CHECK(count(bytes, {1, 11, 4, 1}) == 18 + 16 + 8);  // annotation names
  CHECK(count(bytes, {1, 13}) == slices + 1);         // sequence_flags
  // iid and name of each text, once
  for (const auto& [list, texts] :
       std::map<int, int>{{1, kCategories}, {2, kNames}, {3, 3}}) {
    CHECK(count(bytes, {1, 12, list, 1}) == texts);
    CHECK(count(bytes, {1, 12, list, 2}) == texts);
  }
  CHECK(count(bytes, {1, 11, 47}) == 4 * 3);  // flow_ids
  CHECK(count(bytes, {1, 11, 48}) == 4);      // terminating_flow_ids
  CHECK(count(bytes, {1, 11, 30}) > 0);       // counter_value
  CHECK(count(bytes, {1, 11, 9}) == count(bytes, {1, 8}));   // type, timestamp
  CHECK(count(bytes, {1, 11, 11}) == count(bytes, {1, 8}));  // track_uuid
  CHECK(count(bytes, {1, 10}) == count(bytes, {1}));         // sequence id
}

TEST_CASE("perfetto trace: descriptors come first and name every track",
          "[trace]") {
  const perfetto::Trace trace = ExampleTrace();
  REQUIRE(trace.packet_size() > 0);
  CHECK(trace.packet(0).sequence_flags() ==
        perfetto::TracePacket::SEQ_INCREMENTAL_STATE_CLEARED);
  CHECK(trace.packet(0).track_descriptor().uuid() == 0);
  std::set<uint64_t> known;
  std::map<int, std::string> processes;
  std::set<std::string> threads;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    CHECK(packet.trusted_packet_sequence_id() == 1);
    if (packet.has_track_event()) {
      CHECK(known.count(packet.track_event().track_uuid()) == 1);
      continue;
    }
    const perfetto::TrackDescriptor& track = packet.track_descriptor();
    CHECK(known.insert(track.uuid()).second);
    if (track.has_parent_uuid()) CHECK(known.count(track.parent_uuid()) == 1);
    if (track.has_process()) {
      processes[track.process().pid()] = track.process().process_name();
      CHECK(track.sibling_order_rank() == track.process().pid());
    }
    if (track.has_thread()) {
      threads.insert(processes.at(track.thread().pid()) + "/" +
                     track.thread().thread_name());
    }
  }
  CHECK(processes == std::map<int, std::string>{{1, "rank 0"}, {2, "rank 1"}});
  CHECK(threads.count("rank 1/receive") == 1);
  CHECK(threads.size() == 8);
}

TEST_CASE("perfetto trace: slices open and close in turn", "[trace]") {
  std::map<uint64_t, int> open;
  std::map<std::string, uint64_t> length_ns;
  std::map<uint64_t, const perfetto::TracePacket*> begins;
  const perfetto::Trace trace = ExampleTrace();
  const Texts names = NamesOf(trace);
  const std::vector<perfetto::TracePacket> events = SortedEvents(trace);
  for (const perfetto::TracePacket& packet : events) {
    const TrackEvent& event = packet.track_event();
    if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) {
      CHECK(++open[event.track_uuid()] == 1);
      CHECK(event.category_iids_size() == 1);
      begins[event.track_uuid()] = &packet;
    } else if (event.type() == TrackEvent::TYPE_SLICE_END) {
      CHECK(--open[event.track_uuid()] == 0);
      const perfetto::TracePacket& begin = *begins.at(event.track_uuid());
      length_ns[names.at(begin.track_event().name_iid())] +=
          packet.timestamp() - begin.timestamp();
    }
  }
  for (const auto& track : open) CHECK(track.second == 0);
  CHECK(length_ns.at("F0") == 2000000);
  CHECK(length_ns.at("BW1") == 4000000);
  CHECK(length_ns.at("receive BW0") == 500000);
  CHECK(length_ns.at("all-reduce chunk 0") == 2000000);
}

TEST_CASE("perfetto trace: each arrow has one end", "[trace]") {
  std::map<uint64_t, std::vector<std::string>> paths;
  std::set<uint64_t> ended;
  const perfetto::Trace trace = ExampleTrace();
  const Texts names = NamesOf(trace);
  for (const perfetto::TracePacket& packet : SortedEvents(trace)) {
    const TrackEvent& event = packet.track_event();
    for (const uint64_t flow : event.flow_ids()) {
      CHECK(ended.count(flow) == 0);
      paths[flow].push_back(names.at(event.name_iid()));
    }
    for (const uint64_t flow : event.terminating_flow_ids()) {
      CHECK(ended.insert(flow).second);
      paths[flow].push_back(names.at(event.name_iid()));
    }
  }
  CHECK(paths.size() == 4);
  CHECK(ended.size() == 4);
  std::set<std::vector<std::string>> found;
  for (const auto& path : paths) found.insert(path.second);
  CHECK(found.count({"F0", "send F0", "receive F0", "F0"}) == 1);
  CHECK(found.count({"BW1", "send BW1", "receive BW1", "BW1"}) == 1);
}

TEST_CASE("perfetto trace: counters end at zero", "[trace]") {
  const perfetto::Trace trace = ExampleTrace();
  std::map<uint64_t, std::string> names;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    if (packet.track_descriptor().has_counter()) {
      names[packet.track_descriptor().uuid()] =
          packet.track_descriptor().name();
    }
  }
  CHECK(names.size() == 4);
  std::map<uint64_t, int64_t> last;
  for (const perfetto::TracePacket& packet : SortedEvents(trace)) {
    const TrackEvent& event = packet.track_event();
    if (event.type() != TrackEvent::TYPE_COUNTER) continue;
    CHECK(names.count(event.track_uuid()) == 1);
    CHECK(event.has_counter_value());
    CHECK(event.counter_value() >= 0);
    last[event.track_uuid()] = event.counter_value();
  }
  CHECK(last.size() == 4);
  for (const auto& counter : last) CHECK(counter.second == 0);
}

TEST_CASE("perfetto trace: halves of a microbatch", "[trace]") {
  Program program = testing::ExampleProgram();
  auto schedule = std::make_shared<Schedule>(*program.schedule);
  schedule->slices = 2;
  program.schedule = schedule;
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(PerfettoTrace(program, testing::ExampleOps())));
  std::set<double> halves;
  for (const perfetto::TracePacket& packet : SortedEvents(trace)) {
    const TrackEvent& event = packet.track_event();
    if (event.type() != TrackEvent::TYPE_COUNTER) continue;
    CHECK(event.has_counter_value() != event.has_double_counter_value());
    if (event.has_double_counter_value()) {
      halves.insert(event.double_counter_value());
    }
  }
  CHECK(halves == std::set<double>{0.5});
}

}  // namespace
}  // namespace pipewright::perfetto_io_test

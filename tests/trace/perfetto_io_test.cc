#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
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
  CHECK(count(bytes, {1, 60, 3, 1}) == 2);             // process.pid
  CHECK(count(bytes, {1, 60, 3, 6}) == 2);             // process.process_name
  CHECK(count(bytes, {1, 60, 4, 2}) == 8);             // thread.tid
  CHECK(count(bytes, {1, 60, 4, 5}) == 8);             // thread.thread_name
  CHECK(count(bytes, {1, 60, 8}) == 4);                // counter
  CHECK(count(bytes, {1, 60, 5}) == 8 + 4);            // parent_uuid
  CHECK(count(bytes, {1, 11, 23}) == slices);          // name
  CHECK(count(bytes, {1, 11, 22}) == slices);          // categories
  CHECK(count(bytes, {1, 11, 4, 10}) == 18 + 16 + 8);  // annotation names
  CHECK(count(bytes, {1, 11, 47}) == 4 * 3);           // flow_ids
  CHECK(count(bytes, {1, 11, 48}) == 4);               // terminating_flow_ids
  CHECK(count(bytes, {1, 11, 44}) > 0);                // double_counter_value
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
  const std::vector<perfetto::TracePacket> events = SortedEvents(trace);
  for (const perfetto::TracePacket& packet : events) {
    const TrackEvent& event = packet.track_event();
    if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) {
      CHECK(++open[event.track_uuid()] == 1);
      CHECK(event.categories_size() == 1);
      begins[event.track_uuid()] = &packet;
    } else if (event.type() == TrackEvent::TYPE_SLICE_END) {
      CHECK(--open[event.track_uuid()] == 0);
      const perfetto::TracePacket& begin = *begins.at(event.track_uuid());
      length_ns[begin.track_event().name()] +=
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
  for (const perfetto::TracePacket& packet : SortedEvents(ExampleTrace())) {
    const TrackEvent& event = packet.track_event();
    for (const uint64_t flow : event.flow_ids()) {
      CHECK(ended.count(flow) == 0);
      paths[flow].push_back(event.name());
    }
    for (const uint64_t flow : event.terminating_flow_ids()) {
      CHECK(ended.insert(flow).second);
      paths[flow].push_back(event.name());
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
  std::map<uint64_t, double> last;
  for (const perfetto::TracePacket& packet : SortedEvents(trace)) {
    const TrackEvent& event = packet.track_event();
    if (event.type() != TrackEvent::TYPE_COUNTER) continue;
    CHECK(names.count(event.track_uuid()) == 1);
    CHECK(event.double_counter_value() >= 0);
    last[event.track_uuid()] = event.double_counter_value();
  }
  CHECK(last.size() == 4);
  for (const auto& counter : last) CHECK(counter.second == 0);
}

}  // namespace
}  // namespace pipewright::perfetto_io_test

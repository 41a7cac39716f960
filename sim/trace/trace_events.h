// The events of a trace in Chrome's JSON form, ours or another program's, read
// as a stream: nothing is kept but the event at hand.
//
// Facts of the format: "Trace Event Format" (Google, 2016): "traceEvents" with
// "ph", "name", "cat", "pid", "tid", "ts" and "dur" in microseconds, "args".
// Of PyTorch's profiler: "distributedInfo" with "rank", "world_size" and
// "pg_config" (its "ranks" a list or, written by older ones, a text of one),
// "deviceProperties" with "id", "name", "numSms" and "totalGlobalMem" in bytes,
// "args.Input Dims" of an operator where shapes were recorded (pytorch/kineto,
// libkineto/src/output_json.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct TraceEvent {
  int64_t index = 0;  // in "traceEvents", from 0
  std::string phase;
  std::string category;
  std::string name;
  // Names of process and thread, as they are written: numbers or words.
  std::string process;
  std::string thread;
  std::optional<double> start_us;
  std::optional<double> duration_us;
  std::vector<std::pair<std::string, double>> numbers;     // in "args"
  std::vector<std::pair<std::string, std::string>> words;  // in "args"
  // "args.Input Dims", by input; empty for a number.
  std::vector<std::vector<int64_t>> input_dims;

  // The argument of that name, nullptr where there is none.
  const double* Number(absl::string_view key) const;
  const std::string* Word(absl::string_view key) const;
};

// One of "deviceProperties"; 0: not said.
struct TraceDevice {
  int64_t id = 0;
  std::string name;
  int64_t memory_bytes = 0;
  int64_t multiprocessors = 0;
};

// One of "distributedInfo.pg_config".
struct TraceGroup {
  std::string description;  // "mesh_pp", "TENSOR_MODEL_PARALLEL_GROUP"
  int64_t size = 0;
  std::vector<int64_t> ranks;  // fewer than `size` where they were cut off
};

// What stands beside the events; while these are read, what stood before them.
struct TraceHeader {
  std::vector<std::pair<std::string, std::string>> other_data;
  std::optional<int> rank;  // "distributedInfo.rank"
  int64_t world_size = 0;   // 0: not said
  std::vector<TraceGroup> groups;
  std::vector<TraceDevice> devices;
  // The first of "deviceProperties".
  std::string device;
  int64_t device_memory_bytes = 0;

  const std::string* Other(absl::string_view key) const;
};

// Calls `see` for every element of "traceEvents" in the file's order and stops
// at the first error, which it returns with the source and the event in front.
// kInvalidArgument with the byte for text that is no JSON, or that has no
// "traceEvents". A bare list of events is taken too.
absl::Status ReadTraceEvents(
    std::istream& in, const std::string& source,
    const std::function<absl::Status(const TraceEvent&)>& see,
    TraceHeader* header);

}  // namespace pipewright

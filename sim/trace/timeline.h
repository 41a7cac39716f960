// Operations of a run arranged for a viewer, whatever its file format: tracks
// on which slices never overlap, arrows between slices, counters. Times are
// integer nanoseconds from the start of the run, rounded once so that what
// touched still touches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/memory/schedule_memory.h"
#include "sim/trace/export.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

struct Timeline {
  // One rank of one data-parallel replica. Sorted by replica, then rank.
  struct Process {
    int id = 0;        // from 1
    std::string name;  // "rank 3", with replica and device where there are any
    int replica = 0;   // data-parallel
    int rank = 0;
  };
  // One stream; a second one ("send 2") where its operations overlap.
  struct Track {
    int process = 0;  // index
    int id = 0;       // unique among tracks and processes
    std::string name;
  };
  struct Slice {
    int track = 0;  // index
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    const TraceOp* op = nullptr;
  };
  // An arrow passes through its slices in the order of time: the pass that
  // produces, the sender's side, the receiver's side, the pass that consumes.
  struct FlowPoint {
    int64_t slice = 0;  // index
    int64_t flow = 0;   // from 1
    bool first = false;
    bool last = false;
  };
  struct Sample {
    int64_t time_ns = 0;
    double value = 0;
  };
  struct Counter {
    int process = 0;  // index
    int id = 0;       // unique among tracks, processes and counters
    std::string name;
    bool in_bytes = false;
    std::vector<Sample> samples;  // by time, one for each change
  };

  std::vector<Process> processes;
  std::vector<Track> tracks;     // by process, then stream
  std::vector<Slice> slices;     // by start; on one track by time
  std::vector<FlowPoint> flows;  // by slice
  // "activations in flight", in units of one microbatch through all the
  // rank's chunks: F adds its part at its start, BW or W takes it away at its
  // end, as an offload does at its end; a load adds it at its start. A split
  // B takes nothing away. "transfers in flight": sends and receives of the
  // rank, where there are any. "memory", where it is known: all that the rank
  // holds; a pass stands at its highest point from its start to its end.
  std::vector<Counter> counters;
};

// `ops` must outlive the result. Waits that take no time are left out.
// `memory` and `measured` may be null; at most one is not.
Timeline BuildTimeline(const Program& program, const std::vector<TraceOp>& ops,
                       const ScheduleMemory* memory = nullptr,
                       const MeasuredMemory* measured = nullptr);

// "F3.1", "send F3.1", "O2", "all-reduce chunk 0", "optimizer".
std::string SliceName(const Program& program, const TraceOp& op);

}  // namespace pipewright

// What the program and libpipewright_simgrid.so know of each other. SimGrid
// with all that it is linked with takes as long to load as the rest of the
// program takes to start, so the engine loads it when it runs.
//
// Plain functions and data: neither side has symbols of the other. Exceptions
// of SimGrid may come out of every function, through the program's own calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright {

// To be raised with every change of this file.
constexpr int32_t kSimgridModuleAbi = 4;

// What SimGrid's clock calls; `run` is handed back.
struct SimgridCalls {
  void* run = nullptr;
  // What was started with `code` is over.
  void (*on_end)(void* run, uint64_t code, double now_s) = nullptr;
};

struct SimgridLink {
  std::string name;
  double bytes_per_s = 0;  // latency is zero
};

struct SimgridLoad {
  int32_t link = 0;
  int64_t times = 0;  // a Comm crosses the link
};

struct SimgridPlatform {
  std::vector<std::string> hosts;
  int32_t cores = 1;  // of each host: Execs that do not slow each other down
  double speed = 1;   // of a core, flops a second
  std::vector<SimgridLink> links;
  std::vector<std::vector<SimgridLoad>> routes;  // [source]
  double largest_bytes = 0;                      // in a Comm
};

// Activities that SimGrid has run to their end.
struct SimgridCounts {
  int64_t execs = 0;
  int64_t comms = 0;
};

struct SimgridClock;

// Each `start` runs from now on, and returns a number for `cancel`.
struct SimgridModule {
  int32_t abi;
  // One in a process, ever.
  SimgridClock* (*open)(const SimgridCalls& calls,
                        const SimgridPlatform& platform);
  void (*close)(SimgridClock* clock);
  // An Exec, which alone takes `seconds`.
  uint32_t (*start_exec)(SimgridClock* clock, int32_t host, double seconds,
                         uint64_t code);
  // A Comm of `bytes` over the route of a source.
  uint32_t (*start_comm)(SimgridClock* clock, int32_t from, int32_t to,
                         int32_t source, double bytes, uint64_t code);
  // A Comm without bytes, which is latency alone and meets nothing.
  uint32_t (*start_delay)(SimgridClock* clock, int32_t from, int32_t to,
                          double seconds, uint64_t code);
  // It does not end: on_end is not called.
  void (*cancel)(SimgridClock* clock, uint32_t activity);
  // No activity: on_end is called at this date.
  void (*set_timer)(SimgridClock* clock, double date_s, uint64_t code);
  // Until there are no activities and timers.
  void (*run)(SimgridClock* clock);
  SimgridCounts (*ended)(const SimgridClock* clock);
};

// The module exports this one function under the name below.
using SimgridModuleFunction = const SimgridModule* (*)();
constexpr char kSimgridModuleFunction[] = "pipewright_simgrid";

}  // namespace pipewright

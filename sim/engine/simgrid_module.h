// What the program and libpipewright_simgrid.so know of each other. SimGrid
// with all that it is linked with takes as long to load as the rest of the
// program takes to start, so the engine loads it when it runs.
//
// Plain functions and data: neither side has symbols of the other. Exceptions
// of SimGrid may come out of every function, through the program's own calls.
#pragma once

#include <cstdint>
#include <vector>

namespace pipewright {

// To be raised with every change of this file.
constexpr int32_t kSimgridModuleAbi = 2;

// What SimGrid's clock calls; `run` is handed back.
struct SimgridCalls {
  void* run = nullptr;
  // A flow of the platform below has ended.
  void (*on_flow_end)(void* run, uint32_t transfer, double now_s) = nullptr;
  // The program's own events: its timers, and flows that it shares links among.
  // Asked when all of a date have been called, as SimGrid asks its own models.
  // When the next one is, infinite for never; then to call those until now.
  double (*next_event)(void* run, double now_s) = nullptr;
  void (*call_events)(void* run, double now_s) = nullptr;
};

struct SimgridLoad {
  int32_t link = 0;
  int64_t times = 0;  // a flow crosses the link
};

// For SimGrid's own network model. Links have latency zero.
struct SimgridPlatform {
  std::vector<double> bytes_per_s;               // [link]
  std::vector<std::vector<SimgridLoad>> routes;  // [source]; empty: no flows
  double largest_bytes = 0;                      // in a transfer
};

struct SimgridClock;

struct SimgridModule {
  int32_t abi;
  // One in a process, ever. `platform` null: flows are the program's alone.
  SimgridClock* (*open)(const SimgridCalls& calls,
                        const SimgridPlatform* platform);
  void (*close)(SimgridClock* clock);
  // From now on, of a source of the platform.
  void (*start_flow)(SimgridClock* clock, int32_t source, double bytes,
                     uint32_t transfer);
  // Until there are no events and flows.
  void (*run)(SimgridClock* clock);
};

// The module exports this one function under the name below.
using SimgridModuleFunction = const SimgridModule* (*)();
constexpr char kSimgridModuleFunction[] = "pipewright_simgrid";

}  // namespace pipewright

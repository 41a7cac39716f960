// What main.cc compares with docs/dev/benchmarks.md: how often as long as a loop by
// hand a benchmark takes, and how much work it does.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

namespace pipewright {

// 1F1B of 16 ranks as one would write it down for it alone, no orders, no
// lanes, no queues. Returns the span in seconds.
inline constexpr int kHandWrittenRanks = 16;
inline constexpr int kHandWrittenMicrobatches = 65536;
double HandWritten1f1b(int microbatches);

// CPU seconds of this process and of its children that have ended.
double CpuSeconds();

// Runs `body` once for each iteration of `state`. Sets the counters
//   cpu_ms  CPU time of a run, children included
//   ratio   of it and of HandWritten1f1b, both in this process
//   bytes   that a run allocates with `new`, children included
//   count   the sum of what a run's bodies return: events, flows, candidates
// With PIPEWRIGHT_PLANTED=N in the environment each body runs N times in a run,
// as if it had become that slow.
void Headline(benchmark::State& state, const std::function<double()>& body);

}  // namespace pipewright

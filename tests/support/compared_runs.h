// Two runs of one program, the simulated one by the engine and the measured one
// by the executor, each written as a trace and read back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "execute/run/faults.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/schedule.h"

namespace pipewright::testing {

inline constexpr int kComparedIterations = 3;

struct ComparedShape {
  const char* schedule = "1f1b";
  int pp = 4;
  int microbatches = 8;
  WaitRule wait_rule = WaitRule::kBuffered;
  OptimizerMode optimizer = OptimizerMode::kSynchronised;
  int replicas = 1;
  DataParallel data_parallel = DataParallel::kDdp;  // with several replicas
};

// Passes of about 10 ms, hops of 1 ms, copies of 30 ms. The shape's schedule,
// or `built` in its place.
Program ComparedProgram(const ComparedShape& shape);
Program ComparedProgram(const ComparedShape& shape, Schedule built);

ReadTrace ReadBack(const std::string& json, const std::string& name);
ReadTrace SimulatedTrace(const Program& program);
// `jitter`: each pass takes that part more or less, as one deviation.
ReadTrace MeasuredTrace(const Program& program, const Faults& faults,
                        double jitter = 0);

// `iteration` -1: the last.
TraceComparison CompareTraces(const ReadTrace& simulated,
                              const ReadTrace& measured, int iteration = -1);

// All findings and differences, for INFO.
std::string ComparisonTexts(const TraceComparison& comparison);

// `program` with passes of `kind` (none: all; O and L too) on `rank` (-1: all)
// that take `factor` times as long.
Program WithSlower(const Program& program, std::optional<PassKind> kind,
                   int rank, double factor);

}  // namespace pipewright::testing

// A small model on a toy run, for tests of what reports memory.
#pragma once

#include "sim/report/memory_report.h"
#include "tests/support/toy_ops.h"

namespace pipewright::testing {

struct MemoryRun {
  ToyRun toy;
  MemoryReport report;  // no limit
};

// 1F1B: two ranks, four microbatches, two layers each.
MemoryRun MemoryExample();

}  // namespace pipewright::testing

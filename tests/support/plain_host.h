// The update of an optimizer on the host as a list of activities with their
// predecessors, run by progressive filling from scratch: no streams, no
// channels, no Program. After the definition of the model in
// docs/dev/offload.md.
#pragma once

#include <array>
#include <vector>

namespace pipewright::testing {

struct PlainHost {
  double copy_bytes_per_s = 0;  // each way
  double memory_bytes_per_s = 0;
  double adam_bytes = 28;
  double cast_bytes = 8;
  double adam_rate = 1e300;
  double cast_rate = 1e300;
  double device_rate = 25e9;
};

struct PlainStep {
  double parameters = 0;
  int subgroups = 1;
  int stride = 0;   // 0: each subgroup is stepped, cast and copied in turn
  int on_host = 0;  // the first so many; the others stay on the device
  bool flush_last = false;
};

// Seconds of the step.
double PlainStepSeconds(const PlainHost& host, const PlainStep& step);

}  // namespace pipewright::testing

// A pass as an engine with shared links runs it where some of its exchanges can
// meet other traffic: computation and flows in turn.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/model/ops.h"

namespace pipewright {

// One flow of a pass, with what comes before it.
struct ExchangeStep {
  double before_s = 0;  // nothing is on the links
  int32_t source = -1;
  double bytes = 0;    // in each flow
  double least_s = 0;  // not over before: computation that the flow is beside
};

// The steps of one piece of a pass. All but `source` is for each second that
// the pass takes alone.
struct ExchangePlan {
  int pieces = 1;
  std::vector<ExchangeStep> steps;  // empty: the pass is computation alone
};

// What a device of the pipeline runs of them.
struct RunningSteps {
  std::vector<ExchangeStep> steps;
  size_t next = 0;
  double start_s = 0;  // when the flow of the one that runs starts
};

// Plans of a run.
struct ExchangePlans {
  // Exchanges of one device over the same links.
  using Key = std::tuple<CommGroup, int, bool>;
  struct Source {
    int source = -1;
    double parts = 1;  // parts of the bytes, of which a flow has one each
  };
  std::map<std::pair<int, Key>, Source> sources;    // by device
  std::vector<std::vector<ExchangePlan>> of_lanes;  // [device][lane's]
  std::vector<RunningSteps> running;                // [device]
  double largest_bytes = 0;
  bool any = false;  // some pass has steps
};

}  // namespace pipewright

#include <catch2/catch.hpp>

#include "sim/engine/engine.h"

namespace pipewright::run_summary_test {
namespace {

TEST_CASE("engine: a measured period is the median, a computed one the last",
          "[engine]") {
  RunSummary run;
  CHECK(run.iteration_s() == 0);
  // The first has the filling of the pipeline, the third a neighbour's burst.
  run.iteration_end_s = {5, 6, 9, 10.5, 11.5};
  CHECK(run.iteration_s() == 1);
  run.measured = true;
  CHECK(run.iteration_s() == 1.25);
  run.iteration_end_s.pop_back();
  CHECK(run.iteration_s() == 1.5);
  run.iteration_end_s = {5, 7};
  CHECK(run.iteration_s() == 2);
  run.iteration_end_s = {5};
  CHECK(run.iteration_s() == 5);
}

}  // namespace
}  // namespace pipewright::run_summary_test

// The highest point inside a pass, by hand: operations of invented round
// sizes, each term of another digit.
#include "sim/memory/stage_memory.h"

#include <catch2/catch.hpp>
#include <vector>

namespace pipewright::stage_walk_test {
namespace {

int64_t Activations(const PassMemory& pass) {
  return pass.peak[MemoryKind::kActivations];
}
int64_t Recomputed(const PassMemory& pass) {
  return pass.peak[MemoryKind::kRecomputed];
}
int64_t Workspace(const PassMemory& pass) {
  return pass.peak[MemoryKind::kWorkspace];
}

TEST_CASE("memory: a forward holds the input that the next op does not keep",
          "[memory]") {
  ModelOp norm = {.name = "norm"};
  ModelOp linear = {.name = "linear"};
  linear.forward_workspace = 3;
  // Five of the norm's 15 bytes are its output, which is made again for B: it
  // is there until the linear layer has read it.
  const StageWalk walk({{.op = &norm, .saved = 15, .kept = 10, .again = 5},
                        {.op = &linear, .saved = 70, .kept = 70}});
  const PassMemory forward = walk.Forward();
  CHECK(forward.op == "linear");
  CHECK(Activations(forward) == 10 + 70);
  CHECK(Workspace(forward) == 5 + 3);
  CHECK(walk.Kept() == 80);
  CHECK(walk.Recomputed() == 5);
}

TEST_CASE("memory: what B and W share is there once in a full backward",
          "[memory]") {
  ModelOp linear = {.name = "linear"};
  linear.has_weight_pass = true;
  linear.backward_workspace = 2000;
  linear.weight_workspace = 600;
  linear.shared_workspace = 500;
  linear.held_for_weight = 30;
  const StageWalk walk(
      {{.op = &linear, .saved = 40, .kept = 40, .linear = 40, .stream = 7}});
  // B: gradients of output and input, and of the residual stream.
  CHECK(Workspace(walk.Backward(/*splits=*/true, /*after=*/false)) == 2007);
  CHECK(Workspace(walk.Weight()) == 600);
  // Both as one: 2000 + 600, of which 500 are the same bytes. The input goes
  // before the op is over.
  const PassMemory full = walk.Backward(/*splits=*/false, /*after=*/false);
  CHECK(Workspace(full) == 2107);
  CHECK(Activations(full) == -40);
  // W reads the input and the gradient that B has left.
  CHECK(walk.WeightPart() == 40 + 30);
}

TEST_CASE("memory: a backward makes dropped outputs again unless an R has",
          "[memory]") {
  ModelOp norm = {.name = "norm"};
  ModelOp linear = {.name = "linear"};
  linear.backward_workspace = 3;
  const StageWalk walk({{.op = &norm, .saved = 15, .kept = 10, .again = 5},
                        {.op = &linear, .saved = 70, .kept = 70}});
  for (const bool splits : {true, false}) {
    // At the linear layer, whose input the norm makes.
    const PassMemory inside = walk.Backward(splits, /*after=*/false);
    CHECK(inside.op == "linear");
    CHECK(Recomputed(inside) == 5);
    CHECK(Activations(inside) == 0);
    CHECK(Workspace(inside) == 3);
    // It is in what the pass starts with.
    CHECK(Recomputed(walk.Backward(splits, /*after=*/true)) == 0);
  }
  CHECK(Recomputed(walk.Recompute()) == 5);
}

}  // namespace
}  // namespace pipewright::stage_walk_test

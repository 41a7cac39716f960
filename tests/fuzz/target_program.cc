#include <algorithm>
#include <cmath>

#include "sim/base/check.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "tests/fuzz/targets.h"
#include "tests/support/queue_transport.h"
#include "tests/support/random_program.h"
#include "tests/support/reference_engine.h"

namespace pipewright::testing {
namespace {

// Relative agreement of engines that compute the same thing.
constexpr double kSame = 1e-9;

bool Near(double a, double b) {
  return std::abs(a - b) <= kSame * std::max({1e-3, std::abs(a), std::abs(b)});
}

void CheckSame(const absl::StatusOr<RunSummary>& one,
               const absl::StatusOr<RunSummary>& other) {
  PW_CHECK(one.ok() == other.ok());
  if (!one.ok()) {
    PW_CHECK(one.status().code() == other.status().code());
    return;
  }
  PW_CHECK(one->iterations() == other->iterations());
  for (int iteration = 0; iteration < one->iterations(); ++iteration) {
    PW_CHECK(Near(one->iteration_end_s[iteration],
                  other->iteration_end_s[iteration]));
  }
  PW_CHECK(one->row_of_replica.size() == other->row_of_replica.size());
  for (size_t replica = 0; replica < one->row_of_replica.size(); ++replica) {
    const std::vector<RankTimes>& mine =
        one->times[one->row_of_replica[replica]];
    const std::vector<RankTimes>& theirs =
        other->times[other->row_of_replica[replica]];
    PW_CHECK(mine.size() == theirs.size());
    for (size_t rank = 0; rank < mine.size(); ++rank) {
      PW_CHECK(Near(mine[rank].first_start_s, theirs[rank].first_start_s));
      PW_CHECK(Near(mine[rank].last_end_s, theirs[rank].last_end_s));
      PW_CHECK(Near(mine[rank].busy_s, theirs[rank].busy_s));
    }
  }
}

}  // namespace

bool FuzzProgram(absl::string_view input) {
  if (input.empty()) return false;
  // Half of the programs have links that are shared, which `fast` leaves out.
  RandomOptions options;
  options.cluster = (input[0] & 1) != 0;
  // SimGrid runs in a child process, which costs more than all else.
  const bool with_simgrid = (input[0] & 0x3e) == 0;
  Random random(input.substr(1));
  const absl::StatusOr<RandomProgram> made = MakeRandomProgram(random, options);
  if (!made.ok()) {
    PW_CHECK(made.status().code() != absl::StatusCode::kInternal);
    return false;
  }
  const absl::StatusOr<RunSummary> fast = RunFast(made->program, {});
  CheckSame(fast, RunReference(made->program));
  const absl::StatusOr<RunSummary> queue = RunOnQueue(made->program);
  if (made->program.network.cluster == nullptr) CheckSame(queue, fast);
  if (with_simgrid) CheckSame(RunSimgrid(made->program, {}), queue);
  return fast.ok();
}

}  // namespace pipewright::testing

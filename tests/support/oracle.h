// What others' schedulers gave, in tests/oracle (see its README.md): orders,
// peaks, cost sets. A file that is missing or broken fails the test.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/registry.h"
#include "tests/support/json.h"

namespace pipewright::testing {

using OwnParams = std::map<std::string, std::string>;

// What a check has compared.
struct Compared {
  int cases = 0;
  int peaks = 0;  // a rank's, or the largest of all ranks

  Compared& operator+=(const Compared& other);
};

// Prints "oracle FAMILY: N cases compared, M peaks" and ", MORE" where there is
// more to say.
void SayCompared(absl::string_view family, const Compared& compared,
                 absl::string_view more = "");

// The text of tests/oracle/`file`, unpacked where it is a gzip file.
std::string ReadOracle(absl::string_view file);

// The content of tests/oracle/`name`.json.gz.
Json LoadOracle(absl::string_view name);

absl::StatusOr<Schedule> BuildOf(const std::string& name, int pp, int vpp,
                                 int microbatches, const OwnParams& own = {});

// One string a rank, tokens of family A.
std::vector<std::string> OrdersOf(const Schedule& schedule);

// The same with PyTorch's letters and the stage in front: "3B7".
std::vector<std::vector<std::string>> TorchOrdersOf(const Schedule& schedule);

// Peaks as the oracle prints them, with four decimals. How many there are.
int CheckPeaks(const Schedule& schedule, const Json& peaks, double held);

// The peaks of one cost set of a case of family A.
int CheckCostSetPeaks(const Schedule& schedule, const Json& peak,
                      const std::string& cost_set);

// M_W / M of a cost set of family A: 32h / (34h + 5as) with s = 1024; eq0 has
// 1/2.
double HeldUntilWeightOf(const std::string& cost_set);

// Times of a cost set of family A, in its unit (microseconds for gpt).
PlanCosts CostsOfSet(const std::string& cost_set);

// All cases of a file of family A, orders and peaks.
Compared CheckFamilyA(const std::string& file, const std::string& name,
                      const OwnParams& own = {});

// The rows of edge_small_m with schedule `row_name`, against ours.
Compared CheckSmallMicrobatches(const std::string& row_name,
                                const std::string& name, int vpp,
                                const OwnParams& own = {});

// All runs of a file of family B: orders and peaks. `name_of` gives our name
// for a run, "" to leave it out.
Compared CheckFamilyB(
    const std::string& file,
    const std::function<std::pair<std::string, OwnParams>(const Json&)>&
        name_of);

}  // namespace pipewright::testing

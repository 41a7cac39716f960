// Packers and their parts against tests/oracle, against a plain version written
// from the rules, and against exhaustive search.
#include "sim/model/packer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "sim/model/minibatch_time.h"
#include "tests/support/json.h"
#include "tests/support/oracle.h"

namespace pipewright::packer_test {
namespace {

using testing::Json;

Packer PackerOf(const std::string& method) {
  if (method == "LB-Mini-BFD") return Packer::kLbMiniBfd;
  for (const PackerTraits& traits : kPackers) {
    if (method == traits.other) return traits.packer;
  }
  FAIL("no packer " << method);
  return Packer::kNone;
}

// The model of the cases with FLOPs: 28 layers of width 1536.
SampleCost CostNamed(const std::string& name) {
  if (name == "fit") return {.kind = PackerCost::kFit};
  if (name == "linear") return {};
  REQUIRE(name == "flops1536");
  return {.kind = PackerCost::kFlops,
          .weights_over_queries = 1.3109e9 / (28 * 1536)};
}

PackRequest RequestOf(const Json& each, const std::string& method) {
  PackRequest request;
  request.lengths = each.at("lengths").get<std::vector<int64_t>>();
  request.devices = each.at("D");
  request.max_token_len = each.at("max_token_len");
  request.packer = PackerOf(method);
  request.cost = CostNamed(each.at("cost_model"));
  return request;
}

void CheckTimes(const Json& expected, const Packing& packing,
                const std::vector<int64_t>& lengths, const TokenFit& fit) {
  const MinibatchTime time = TimeOf(TimesOf(packing, lengths, fit));
  const auto near = [](double value) {
    return Approx(value).epsilon(1e-9).margin(1e-9);
  };
  CHECK(time.lockstep_s == near(expected.at("T_lockstep")));
  CHECK(time.one_sided_s == near(expected.at("T_odc")));
  CHECK(time.BubbleLockstep() == near(expected.at("bubble_lockstep")));
  CHECK(time.BubbleOneSided() == near(expected.at("bubble_odc")));
}

TEST_CASE("packer: every minibatch as the packing program of ODC has it",
          "[sequences]") {
  const Json oracle = testing::LoadOracle("odc_packing_cases");
  int packings = 0;
  int refusals = 0;
  for (const Json& each : oracle.at("cases")) {
    for (const auto& [method, expected] : each.at("methods").items()) {
      INFO(each.at("name") << " " << method);
      const PackRequest request = RequestOf(each, method);
      const absl::StatusOr<Packing> packing = Pack(request);
      if (expected.contains("error")) {
        CHECK(packing.status().code() == absl::StatusCode::kInvalidArgument);
        ++refusals;
        continue;
      }
      REQUIRE(packing.ok());
      CHECK(*packing == expected.at("assign"));
      CheckTimes(expected.at("fit7B"), *packing, request.lengths, kFit7B);
      CheckTimes(expected.at("fit1_5B"), *packing, request.lengths, kFit1B);
      ++packings;
    }
  }
  CHECK(packings == 404);
  CHECK(refusals == 6);
}

std::vector<double> CostsOf(const std::vector<int64_t>& lengths,
                            const std::string& name) {
  std::vector<double> costs;
  for (const int64_t length : lengths) {
    costs.push_back(CostNamed(name).At(length));
  }
  return costs;
}

TEST_CASE("packer: parts and bins as the packing program of ODC has them",
          "[sequences]") {
  int lists = 0;
  for (const Json& each : testing::LoadOracle("odc_packing_primitives")) {
    const auto lengths = each.at("lengths").get<std::vector<int64_t>>();
    const int count = each.at("k");
    for (const std::string cost : {"linear", "fit"}) {
      const std::vector<double> costs = CostsOf(lengths, cost);
      const Parts free = PartsByDifferencing(costs, count, false);
      CHECK(free == each.at("kk_free_" + cost));
      CHECK(Balance(free, costs) == each.at("balanced_" + cost));
      CHECK(*Divide(costs, count, false) == each.at("get_partitions_" + cost));
      const bool equal = lengths.size() % count == 0;
      REQUIRE(each.contains("kk_equal_" + cost) == equal);
      if (!equal) continue;
      CHECK(PartsByDifferencing(costs, count, true) ==
            each.at("kk_equal_" + cost));
      CHECK(*Divide(costs, count, true) ==
            each.at("get_partitions_equal_" + cost));
      lists += 1;
    }
    const int64_t capacity = each.at("capacity");
    CHECK(FillBins(lengths, capacity, BinChoice::kFirst) == each.at("ffd"));
    CHECK(FillBins(lengths, capacity, BinChoice::kBest) == each.at("bfd"));
  }
  CHECK(lists > 0);
}

// The differencing method with every set there, empty ones too, and a search
// for the next state in place of a heap.
struct PlainSet {
  double sum = 0;
  std::vector<std::pair<int, double>> items;
  auto Key() const { return std::make_tuple(sum, items.size(), items); }
};
using PlainState = std::vector<PlainSet>;

void SortPlain(PlainState* state) {
  std::sort(state->begin(), state->end(),
            [](const auto& a, const auto& b) { return a.Key() > b.Key(); });
}

Parts PlainDifference(const std::vector<double>& costs, int count) {
  std::vector<PlainState> states;
  for (size_t item = 0; item < costs.size(); ++item) {
    PlainState state(count);
    state[0] = {costs[item], {{static_cast<int>(item), costs[item]}}};
    states.push_back(state);
  }
  const auto key = [](const PlainState& state) {
    return std::make_tuple(state.front().sum - state.back().sum,
                           state.front().Key());
  };
  while (states.size() > 1) {
    std::sort(states.begin(), states.end(),
              [&](const auto& a, const auto& b) { return key(a) > key(b); });
    for (int place = 0; place < count; ++place) {
      for (const auto& item : states[1][count - 1 - place].items) {
        states[0][place].items.push_back(item);
        states[0][place].sum += item.second;
      }
    }
    SortPlain(&states[0]);
    states.erase(states.begin() + 1);
  }
  Parts parts;
  for (const PlainSet& set : states[0]) {
    SampleSet part;
    for (const auto& item : set.items) part.push_back(item.first);
    parts.push_back(part);
  }
  return parts;
}

double MostOf(const Parts& parts, const std::vector<double>& costs) {
  double most = 0;
  for (const SampleSet& part : parts) most = std::max(most, SumOf(part, costs));
  return most;
}

// Least largest sum of all ways to deal out the items.
double BestMost(const std::vector<double>& costs, size_t item,
                std::vector<double>* sums) {
  if (item == costs.size())
    return *std::max_element(sums->begin(), sums->end());
  double best = INFINITY;
  for (double& sum : *sums) {
    sum += costs[item];
    best = std::min(best, BestMost(costs, item + 1, sums));
    sum -= costs[item];
  }
  return best;
}

// One exchange of an item of parts[own] with the first item that fits, in the
// order of items and parts.
template <typename Fits>
bool SwapPlain(size_t own, const std::vector<double>& costs, Parts* parts,
               const Fits& fits) {
  for (int& mine : (*parts)[own]) {
    for (size_t other = 0; other < parts->size(); ++other) {
      if (other == own) continue;
      const double sum = SumOf((*parts)[other], costs);
      for (int& theirs : (*parts)[other]) {
        if (!fits(costs[mine], costs[theirs], sum)) continue;
        std::swap(mine, theirs);
        return true;
      }
    }
  }
  return false;
}

// Exchanges with nothing kept from one to the next.
Parts PlainBalance(Parts parts, const std::vector<double>& costs) {
  constexpr double kEpsilon = 1e-6;
  while (true) {
    SortParts(costs, &parts);
    const double most = SumOf(parts.front(), costs);
    const double least = SumOf(parts.back(), costs);
    const auto lowers = [&](double own, double its, double sum) {
      return own - its > kEpsilon && sum - its + own + kEpsilon < most &&
             most - own + its > least + kEpsilon;
    };
    const auto raises = [&](double own, double its, double sum) {
      return its - own > kEpsilon && sum - its + own > least + kEpsilon &&
             least - own + its + kEpsilon < most;
    };
    if (!SwapPlain(0, costs, &parts, lowers) &&
        !SwapPlain(parts.size() - 1, costs, &parts, raises)) {
      return parts;
    }
  }
}

TEST_CASE("packer: exchanges equal a plain version", "[sequences]") {
  std::mt19937 random(17);
  for (int trial = 0; trial < 300; ++trial) {
    const int items = 1 + static_cast<int>(random() % 60);
    const int count = 1 + static_cast<int>(random() % 9);
    // Ties, costs that differ by about the epsilon of the program, and lengths.
    const double units[] = {1, 3e-7, 0.37};
    const unsigned values[] = {5, 1000, 65536};
    std::vector<double> costs;
    Parts parts(count);
    for (int item = 0; item < items; ++item) {
      costs.push_back(1 + units[trial % 3] * (random() % values[trial % 3]));
      // Parts that nobody has balanced, so that there is much to exchange.
      parts[random() % count].push_back(item);
    }
    INFO("trial " << trial);
    CHECK(Balance(parts, costs) == PlainBalance(parts, costs));
    parts = PartsByDifferencing(costs, count, false);
    CHECK(Balance(parts, costs) == PlainBalance(parts, costs));
  }
}

TEST_CASE("packer: the differencing method equals a plain version",
          "[sequences]") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const int items = 1 + static_cast<int>(random() % 24);
    const int count = 1 + static_cast<int>(random() % 8);
    std::vector<double> costs;
    // Few values, so that there are ties.
    for (int item = 0; item < items; ++item) {
      costs.push_back(1 +
                      static_cast<double>(random() % (trial % 2 ? 5 : 999)));
    }
    INFO("trial " << trial);
    const Parts parts = PartsByDifferencing(costs, count, false);
    CHECK(parts == PlainDifference(costs, count));
    if (items < count) continue;
    const Parts balanced = Balance(parts, costs);
    CHECK(MostOf(balanced, costs) <= MostOf(parts, costs));
    // Both are good, and neither is better than the best.
    if (items > 8 || count > 3) continue;
    std::vector<double> sums(count);
    const double best = BestMost(costs, 0, &sums);
    CHECK(MostOf(balanced, costs) >= best);
    CHECK(MostOf(balanced, costs) <= 4.0 / 3 * best);
  }
}

std::vector<int64_t> RandomLengths(std::mt19937* random, int samples) {
  std::vector<int64_t> lengths;
  for (int sample = 0; sample < samples; ++sample) {
    lengths.push_back(1 + static_cast<int64_t>((*random)() % 4096));
  }
  return lengths;
}

TEST_CASE("packer: every sample once, tokens within the limit", "[sequences]") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 200; ++trial) {
    PackRequest request;
    request.devices = 1 + static_cast<int>(random() % 6);
    const int each = 1 + static_cast<int>(random() % 5);
    request.lengths = RandomLengths(&random, request.devices * each);
    request.max_token_len = 4096 * (1 + static_cast<int64_t>(random() % 2));
    request.cost.kind = trial % 2 ? PackerCost::kFit : PackerCost::kLinear;
    for (const PackerTraits& traits : kPackers) {
      request.packer = traits.packer;
      INFO("trial " << trial << " " << traits.name);
      const absl::StatusOr<Packing> packing = Pack(request);
      REQUIRE(packing.ok());
      REQUIRE(static_cast<int>(packing->size()) == request.devices);
      std::multiset<int> seen;
      std::set<size_t> counts;
      for (const Parts& microbatches : *packing) {
        REQUIRE(!microbatches.empty());
        counts.insert(microbatches.size());
        for (const SampleSet& samples : microbatches) {
          REQUIRE(!samples.empty());
          int64_t tokens = 0;
          for (const int sample : samples) {
            tokens += request.lengths[sample];
            seen.insert(sample);
          }
          CHECK(tokens <= request.max_token_len);
        }
      }
      CHECK(seen.size() == request.lengths.size());
      CHECK(std::set<int>(seen.begin(), seen.end()).size() == seen.size());
      if (traits.same_microbatches) CHECK(counts.size() == 1);
    }
  }
}

TEST_CASE("packer: least microbatches are kept", "[sequences]") {
  PackRequest request = {.lengths = {5, 4, 3, 2, 1, 6, 7, 8},
                         .devices = 2,
                         .max_token_len = 100,
                         .packer = Packer::kLbMini};
  CHECK(Pack(request)->at(0).size() == 1);
  request.least_microbatches = 3;
  for (const Packer packer : {Packer::kLbMini, Packer::kLbMicro}) {
    request.packer = packer;
    const absl::StatusOr<Packing> packing = Pack(request);
    REQUIRE(packing.ok());
    for (const Parts& microbatches : *packing) CHECK(microbatches.size() == 3);
  }
}

TEST_CASE("packer: what cannot be packed is named", "[sequences]") {
  struct Bad {
    const char* what;
    PackRequest request;
    std::vector<std::string> words;
  };
  const PackRequest base = {.lengths = {10, 20, 30, 40},
                            .devices = 2,
                            .max_token_len = 64,
                            .packer = Packer::kLbMicro};
  std::vector<Bad> all;
  const auto add = [&](const char* what, const auto& change,
                       std::vector<std::string> words) {
    PackRequest request = base;
    change(&request);
    all.push_back({what, request, std::move(words)});
  };
  add("an empty device", [](PackRequest* r) { r->devices = 5; },
      {"sequences.minibatch", "device 4 of 5", "without any"});
  add("an empty device of none",
      [](PackRequest* r) {
        r->devices = 5;
        r->packer = Packer::kNone;
      },
      {"sequences.minibatch", "without any"});
  add("a sample above the limit", [](PackRequest* r) { r->max_token_len = 35; },
      {"sequences.max_token_len", "sample 3", "40 tokens", "35"});
  add("unequal samples", [](PackRequest* r) { r->devices = 3; },
      {"sequences.packer", "lb-micro", "multiple of 3", "lb-mini"});
  add("more microbatches than samples",
      [](PackRequest* r) { r->least_microbatches = 3; },
      {"strategy.microbatches", "3 microbatches", "2 samples of device 0"});
  add("more microbatches than bins",
      [](PackRequest* r) {
        r->least_microbatches = 2;
        r->packer = Packer::kFfd;
      },
      {"strategy.microbatches", "packer ffd", "device 0"});
  for (const Bad& bad : all) {
    INFO(bad.what);
    const absl::Status status = Pack(bad.request).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    for (const std::string& word : bad.words) {
      INFO(status.message());
      CHECK(absl::StrContains(status.message(), word));
    }
  }
  PackRequest good = base;
  CHECK(Pack(good).ok());
}

}  // namespace
}  // namespace pipewright::packer_test

// Where post-validation and the transfers around it stand, against the node
// lists of the zero-bubble paper's released code (runtime_passes_small of
// tests/oracle).
#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/program.h"
#include "sim/trace/trace.h"
#include "tests/support/json.h"
#include "tests/support/lowering.h"
#include "tests/support/oracle.h"

namespace pipewright::oracle_validation_test {
namespace {

using testing::Json;

// A line of the oracle's list: a pass, a transfer's side, a validation.
struct Node {
  std::string name;
  double start_s = 0;
  double end_s = 0;
  int consumer_rank = -1;  // for a send
  std::string consumer;    // what it is for
  bool validation = false;
};
using NodeLists = std::vector<std::vector<Node>>;

std::string Name(const Schedule& schedule, Pass pass) {
  std::string name = PassToString(schedule, pass);
  if (!absl::StrContains(name, '.')) name += ".0";  // the oracle's way
  return name;
}

// Tokens without times; transfers and validation left out on demand.
std::vector<std::string> Tokens(const std::string& line, bool only_passes) {
  std::vector<std::string> names;
  for (const absl::string_view token : absl::StrSplit(line, ' ')) {
    std::string name(token.substr(0, token.find('@')));
    const bool pass = absl::StrContains("FBW", name[0]);
    if (only_passes && !pass) continue;
    if (name[0] == 'R')
      name.erase(std::remove(name.begin(), name.end(), 'r'), name.end());
    names.push_back(name);
  }
  return names;
}

std::shared_ptr<const Schedule> ScheduleOf(const Json& test) {
  const bool v = !absl::StartsWith(test["schedule"].get<std::string>(), "zb_");
  std::string text = absl::StrCat(
      "pp ", test["p"].get<int>(), " vpp ", v ? 2 : 1, " microbatches ",
      test["m"].get<int>(), " placement ", v ? "v" : "plain");
  for (size_t rank = 0; rank < test["list"].size(); ++rank) {
    absl::StrAppend(&text, "\n", rank, ":");
    for (std::string name : Tokens(test["list"][rank], true)) {
      if (!v) name = name.substr(0, name.find('.'));
      absl::StrAppend(&text, " ", name);
    }
  }
  return Parsed(text);
}

LowerOptions OptionsOf(const Schedule& schedule) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule,
      {.forward = 1000, .backward_input = 1000, .backward_weight = 1000});
  options.network.hop_s = 1;
  options.iterations = 1;
  return options;
}

// Passes as the engine times them, and a send behind each that needs one.
NodeLists PassesAndSends(const Program& program) {
  FullTrace trace;
  REQUIRE(RunFast(program, {.trace = &trace}).ok());
  NodeLists lists(program.pp());
  const Schedule& schedule = *program.schedule;
  for (const TraceOp& op : trace.ops()) {
    if (op.kind != OpKind::kPass) continue;
    lists[op.rank].push_back(
        {Name(schedule, op.pass), op.start_s, op.end_s, -1, "", false});
  }
  return lists;
}

// The program's validation positions as nodes; the check and, directly before
// it, its message to the rank below.
void AddValidation(const Program& program, NodeLists* lists) {
  double checked_s = 0;
  for (int rank = program.pp() - 1; rank >= 0; --rank) {
    const RankProgram& rank_program = program.ranks[rank];
    for (size_t index = 0; index < rank_program.attachments.size(); ++index) {
      const Attachment& at = rank_program.attachments[index];
      const SideOp& op = rank_program.side_ops[at.side_op];
      if (op.kind != OpKind::kValidate) continue;
      std::vector<Node>& list = (*lists)[rank];
      const auto position = list.begin() + at.position;
      checked_s =
          std::max(checked_s, at.position > 0 ? std::prev(position)->end_s
                                              : position->start_s);
      std::vector<Node> nodes;
      if (rank > 0) {
        // It stands directly before the check and feeds the rank below.
        const SideOp& pass_on =
            rank_program.side_ops[rank_program.attachments[index - 1].side_op];
        REQUIRE(pass_on.outputs.size() == 1);
        REQUIRE(program.channels[pass_on.outputs[0]].to_rank == rank - 1);
        nodes.push_back({"SPV", checked_s, checked_s, rank - 1, "PV", true});
      }
      nodes.push_back({"PV", checked_s, checked_s, -1, "", true});
      list.insert(position, nodes.begin(), nodes.end());
    }
  }
}

void AddSends(const Program& program, NodeLists* lists) {
  const Schedule& schedule = *program.schedule;
  for (int rank = 0; rank < program.pp(); ++rank) {
    std::vector<Node>& list = (*lists)[rank];
    for (const Pass pass : schedule.order(rank)) {
      const Lane& lane = program.ranks[rank].lanes[pass.lane()];
      if (lane.output < 0) continue;
      const Channel& channel = program.channels[lane.output];
      const int stage =
          channel.stage + (channel.kind == ChannelKind::kActivation ? 1 : -1);
      const Pass consumer(pass.kind(), pass.microbatch(),
                          schedule.placement.ChunkOf(stage));
      auto at = std::find_if(list.begin(), list.end(), [&](const Node& node) {
        return node.name == Name(schedule, pass);
      });
      const double sent_s = at->end_s;
      // Before the first node from then on, behind a check at that very time.
      for (++at;
           at != list.end() && (at->start_s < sent_s ||
                                (at->validation && at->start_s == sent_s));) {
        ++at;
      }
      list.insert(at, {absl::StrCat("S", Name(schedule, pass)), sent_s, sent_s,
                       channel.to_rank, Name(schedule, consumer), false});
    }
  }
}

// By time of the send; each behind the one before, before the first node that
// ends at or after the send, at the latest before its consumer.
void AddReceives(NodeLists* lists) {
  struct Pair {
    double sent_s;
    bool of_pass;
    int rank;
    int64_t consumer;
    std::string name;
  };
  std::vector<Pair> pairs;
  for (const std::vector<Node>& list : *lists) {
    for (const Node& node : list) {
      if (node.consumer_rank < 0) continue;
      const std::vector<Node>& other = (*lists)[node.consumer_rank];
      const auto consumer = std::find_if(
          other.begin(), other.end(),
          [&](const Node& each) { return each.name == node.consumer; });
      pairs.push_back({node.start_s, !node.validation, node.consumer_rank,
                       consumer - other.begin(), node.consumer});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) {
                     return std::tie(a.sent_s, a.of_pass, a.rank, a.consumer) <
                            std::tie(b.sent_s, b.of_pass, b.rank, b.consumer);
                   });
  std::vector<int64_t> behind(lists->size(), 0);
  for (const Pair& pair : pairs) {
    std::vector<Node>& list = (*lists)[pair.rank];
    auto at = list.begin() + behind[pair.rank];
    while (at->end_s < pair.sent_s && at->name != pair.name) ++at;
    behind[pair.rank] = at - list.begin() + 1;
    list.insert(at, {absl::StrCat("R", pair.name), pair.sent_s, pair.sent_s, -1,
                     "", false});
  }
}

std::string Line(const std::vector<Node>& list) {
  return absl::StrJoin(list, " ", [](std::string* out, const Node& node) {
    absl::StrAppend(out, node.name);
  });
}

TEST_CASE("oracle: post-validation and transfers stand as released",
          "[program][oracle]") {
  int cases = 0;
  int validated = 0;
  int same_place = 0;   // the default place is the released one
  int same_period = 0;  // and costs nothing less
  const Json data = testing::LoadOracle("runtime_passes_small");
  for (const Json& test : data["cases"]) {
    const bool checks = test["post_validation"].get<bool>();
    INFO(test["schedule"] << " p " << test["p"] << " m " << test["m"]);
    const auto schedule = ScheduleOf(test);
    LowerOptions options = OptionsOf(*schedule);
    NodeLists lists = PassesAndSends(Lowered(schedule, options));
    if (checks) options.optimizer = OptimizerMode::kPostValidated;
    options.validation = ValidationPlace::kReleased;
    const Program released = Lowered(schedule, options);
    if (checks) AddValidation(released, &lists);
    AddSends(released, &lists);
    AddReceives(&lists);
    for (int rank = 0; rank < schedule->pp(); ++rank) {
      CHECK(Line(lists[rank]) ==
            absl::StrJoin(Tokens(test["list"][rank], false), " "));
    }
    ++cases;
    if (!checks) continue;
    ++validated;
    options.validation = ValidationPlace::kNoWait;
    const Program early = Lowered(schedule, options);
    same_place += ToString(early) == ToString(released);
    // The default never costs a bubble that the released place does not.
    const auto period_s = [&](ValidationPlace place) {
      options.validation = place;
      options.iterations = 0;
      const absl::StatusOr<RunSummary> run =
          RunFast(Lowered(schedule, options), {});
      REQUIRE(run.ok());
      return run->iteration_s();
    };
    const double early_s = period_s(ValidationPlace::kNoWait);
    const double released_s = period_s(ValidationPlace::kReleased);
    CHECK(early_s <= released_s * (1 + 1e-9));
    same_period += released_s <= early_s * (1 + 1e-9);
  }
  CHECK(cases == 15);
  CHECK(validated == 7);
  testing::SayCompared(
      "post-validation", {.cases = cases},
      absl::StrCat(validated,
                   " with post-validation; the default place is the released "
                   "one in ",
                   same_place, ", its period the released one's in ",
                   same_period));
}

}  // namespace
}  // namespace pipewright::oracle_validation_test

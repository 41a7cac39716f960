#include "sim/program/posted_steps.h"

#include <utility>

#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/program/compute_stream.h"
#include "sim/program/lower.h"

namespace pipewright {
namespace {

void Take(HoldingSteps* posts, StepList* list) {
  for (const std::vector<Handshake>& together : *posts) {
    for (const Handshake& post : together) {
      list->push_back(post.send ? SendOf(post.pass) : ReceiveOf(post.pass));
    }
  }
  posts->clear();
}

StepList PostsOf(const RankProgram& rank, WaitRule rule) {
  const RankOrder& order = *rank.order;
  SideSequence sequence(rank);
  sequence.Begin({});
  StepList list;
  HoldingSteps posts;
  bool received = false;
  for (auto position = sequence.begin(); position < sequence.end();) {
    const Pass* const block = order.data() + position;
    if (EntryOf(block->kind()) != Entry::kBlock) {
      list.push_back({StepKind::kPass, *block});
      ++position;
      continue;
    }
    if (!received) PostBefore(rank, rule, block, &posts);
    Take(&posts, &list);
    for (int part = 0; part < PartsOf(*block); ++part) {
      list.push_back({StepKind::kPass, block[part]});
    }
    position += PartsOf(*block);
    PostBehind(rank, rule, block, position, sequence, &received, &posts);
    Take(&posts, &list);
  }
  return list;
}

}  // namespace

absl::StatusOr<std::vector<StepList>> PostedSteps(
    std::shared_ptr<const Schedule> schedule, WaitRule rule) {
  PW_CHECK(rule != WaitRule::kBuffered);
  LowerOptions options;
  options.costs =
      PassCosts::Uniform(schedule->pp(), schedule->vpp(), {1, 1, 1});
  options.wait_rule = rule;
  options.optimizer = OptimizerMode::kNone;
  options.iterations = 1;
  PW_ASSIGN_OR_RETURN(const Program program,
                      Lower(std::move(schedule), options));
  std::vector<StepList> lists;
  for (const RankProgram& rank : program.ranks) {
    lists.push_back(PostsOf(rank, program.wait_rule));
  }
  return lists;
}

}  // namespace pipewright

#include "sim/program/compute_stream.h"

#include <algorithm>

namespace pipewright {
namespace {

void Add(const RankProgram& rank, const Pass* block, bool send,
         std::vector<Handshake>* posts) {
  for (int part = 0; part < PartsOf(*block); ++part) {
    const Lane& lane = rank.lanes[block[part].lane()];
    const int32_t channel = send ? lane.output : lane.input;
    if (channel < 0) continue;
    posts->push_back({.channel = channel, .send = send, .pass = block[part]});
  }
}

// A batch is one step, else each is one.
HoldingSteps StepsOf(WaitRule rule, std::vector<Handshake> posts) {
  HoldingSteps steps;
  if (posts.empty()) return steps;
  if (rule == WaitRule::kBatched) {
    steps.push_back(std::move(posts));
    return steps;
  }
  for (const Handshake& post : posts) steps.push_back({post});
  return steps;
}

using Receives = std::vector<StepReceive>::const_iterator;

// The first receive at `position` or behind it, of empty steps or not.
Receives FirstAt(const RankProgram& rank, int64_t position, bool empty) {
  return std::partition_point(
      rank.step_receives.begin(), rank.step_receives.end(),
      [&](const StepReceive& receive) {
        return receive.position < position ||
               (receive.position == position && receive.empty == 0 && empty);
      });
}

// Of the empty steps in front of the block at `position`.
HoldingSteps EmptySteps(const RankProgram& rank, int64_t position) {
  HoldingSteps steps;
  int64_t last = 0;
  for (auto each = FirstAt(rank, position, /*empty=*/true);
       each != rank.step_receives.end() && each->position == position; ++each) {
    if (each->empty != last) steps.emplace_back();
    last = each->empty;
    steps.back().push_back({.channel = each->channel, .pass = each->pass});
  }
  return steps;
}

// A step's sends, with what it receives.
HoldingSteps EndOfStep(const RankProgram& rank, int64_t position,
                       std::vector<Handshake> posts) {
  for (auto each = FirstAt(rank, position, /*empty=*/false);
       each != rank.step_receives.end() && each->position == position &&
       each->empty == 0;
       ++each) {
    posts.push_back({.channel = each->channel, .pass = each->pass});
  }
  if (posts.empty()) return {};
  return {std::move(posts)};
}

}  // namespace

HoldingSteps PostsBefore(const RankProgram& rank, WaitRule rule,
                         const Pass* block) {
  if (rule == WaitRule::kStepped) {
    return EmptySteps(rank, block - rank.order->data());
  }
  std::vector<Handshake> posts;
  Add(rank, block, /*send=*/false, &posts);
  return StepsOf(rule, std::move(posts));
}

HoldingSteps PostsBehind(const RankProgram& rank, WaitRule rule,
                         const Pass* block, int64_t position,
                         const SideSequence& sequence, bool* received) {
  std::vector<Handshake> posts;
  Add(rank, block, /*send=*/true, &posts);
  *received = false;
  if (rule == WaitRule::kStepped) {
    return EndOfStep(rank, position, std::move(posts));
  }
  if (rule != WaitRule::kBatched || posts.empty() ||
      position == sequence.end() || sequence.AttachedAt(position)) {
    return StepsOf(rule, std::move(posts));
  }
  const Pass* const next = rank.order->data() + position;
  if (EntryOf(next->kind()) != Entry::kBlock) {
    return StepsOf(rule, std::move(posts));
  }
  Add(rank, next, /*send=*/false, &posts);
  *received = true;
  return StepsOf(rule, std::move(posts));
}

}  // namespace pipewright

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
void Append(WaitRule rule, std::vector<Handshake>&& posts,
            HoldingSteps* steps) {
  if (posts.empty()) return;
  if (rule == WaitRule::kBatched) {
    steps->push_back(std::move(posts));
    return;
  }
  for (const Handshake& post : posts) steps->push_back({post});
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

// Appends the empty steps in front of the block at `position`.
void AppendEmptySteps(const RankProgram& rank, int64_t position,
                      HoldingSteps* steps) {
  int64_t last = 0;
  for (auto each = FirstAt(rank, position, /*empty=*/true);
       each != rank.step_receives.end() && each->position == position; ++each) {
    if (each->empty != last) steps->emplace_back();
    last = each->empty;
    steps->back().push_back({.channel = each->channel, .pass = each->pass});
  }
}

// A step's sends, with what it receives.
void AppendEndOfStep(const RankProgram& rank, int64_t position,
                     std::vector<Handshake>&& posts, HoldingSteps* steps) {
  for (auto each = FirstAt(rank, position, /*empty=*/false);
       each != rank.step_receives.end() && each->position == position &&
       each->empty == 0;
       ++each) {
    posts.push_back({.channel = each->channel, .pass = each->pass});
  }
  if (!posts.empty()) steps->push_back(std::move(posts));
}

}  // namespace

void PostBefore(const RankProgram& rank, WaitRule rule, const Pass* block,
                HoldingSteps* steps) {
  if (rule == WaitRule::kStepped) {
    return AppendEmptySteps(rank, block - rank.order->data(), steps);
  }
  std::vector<Handshake> posts;
  Add(rank, block, /*send=*/false, &posts);
  Append(rule, std::move(posts), steps);
}

void PostBehind(const RankProgram& rank, WaitRule rule, const Pass* block,
                int64_t position, const SideSequence& sequence, bool* received,
                HoldingSteps* steps) {
  std::vector<Handshake> posts;
  posts.reserve(2);  // most have one output and one input
  Add(rank, block, /*send=*/true, &posts);
  *received = false;
  if (rule == WaitRule::kStepped) {
    return AppendEndOfStep(rank, position, std::move(posts), steps);
  }
  if (rule == WaitRule::kBatched && !posts.empty() &&
      position != sequence.end() && !sequence.AttachedAt(position)) {
    const Pass* const next = rank.order->data() + position;
    *received = EntryOf(next->kind()) == Entry::kBlock;
    if (*received) Add(rank, next, /*send=*/false, &posts);
  }
  Append(rule, std::move(posts), steps);
}

}  // namespace pipewright

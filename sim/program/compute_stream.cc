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

// Appends what the steps at `position` post: the empty ones in front of the
// block that begins there, or the one whose passes end there.
void AppendSteps(const RankProgram& rank, int64_t position, bool empty,
                 HoldingSteps* steps) {
  const std::vector<StepPost>& posts = rank.step_posts;
  int64_t last = -1;
  for (auto each = std::partition_point(posts.begin(), posts.end(),
                                        [&](const StepPost& post) {
                                          return post.position < position ||
                                                 (post.position == position &&
                                                  empty && post.empty == 0);
                                        });
       each != posts.end() && each->position == position &&
       (each->empty > 0) == empty;
       ++each) {
    if (each->empty != last) steps->emplace_back();
    last = each->empty;
    steps->back().push_back(each->post);
  }
}

}  // namespace

void PostBefore(const RankProgram& rank, WaitRule rule, const Pass* block,
                HoldingSteps* steps) {
  if (!rank.step_posts.empty()) {
    return AppendSteps(rank, block - rank.order->data(), /*empty=*/true, steps);
  }
  std::vector<Handshake> posts;
  Add(rank, block, /*send=*/false, &posts);
  Append(rule, std::move(posts), steps);
}

void PostBehind(const RankProgram& rank, WaitRule rule, const Pass* block,
                int64_t position, const SideSequence& sequence, bool* received,
                HoldingSteps* steps) {
  *received = false;
  if (!rank.step_posts.empty()) {
    return AppendSteps(rank, position, /*empty=*/false, steps);
  }
  std::vector<Handshake> posts;
  posts.reserve(2);  // most have one output and one input
  Add(rank, block, /*send=*/true, &posts);
  if (rule == WaitRule::kBatched && !posts.empty() &&
      position != sequence.end() && !sequence.AttachedAt(position)) {
    const Pass* const next = rank.order->data() + position;
    *received = EntryOf(next->kind()) == Entry::kBlock;
    if (*received) Add(rank, next, /*send=*/false, &posts);
  }
  Append(rule, std::move(posts), steps);
}

}  // namespace pipewright

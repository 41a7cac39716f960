#include "sim/program/compute_stream.h"

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

}  // namespace

std::vector<Handshake> ReceivesOf(const RankProgram& rank, const Pass* block) {
  std::vector<Handshake> posts;
  Add(rank, block, /*send=*/false, &posts);
  return posts;
}

std::vector<Handshake> PostsBehind(const RankProgram& rank, WaitRule rule,
                                   const Pass* block, int64_t position,
                                   const SideSequence& sequence,
                                   bool* received) {
  std::vector<Handshake> posts;
  Add(rank, block, /*send=*/true, &posts);
  *received = false;
  if (rule != WaitRule::kBatched || posts.empty() ||
      position == sequence.end() || sequence.AttachedAt(position)) {
    return posts;
  }
  const Pass* const next = rank.order->data() + position;
  if (EntryOf(next->kind()) != Entry::kBlock) return posts;
  Add(rank, next, /*send=*/false, &posts);
  *received = true;
  return posts;
}

}  // namespace pipewright

// What comes with the passes of a rank, again and again. Rules are those of
// docs/architecture.md, Rules of time.
#pragma once

#include <cstdint>
#include <vector>

namespace pipewright {

// Side operations that come with the passes of some lanes (rule 7), stored
// once however many passes there are.
struct LaneHook {
  enum class Place : uint8_t { kBefore, kAfter };
  // kUnlessKept: at a pass whose operation's result no pass before it has kept.
  enum class Fires : uint8_t { kEveryPass, kEveryRun, kUnlessKept };
  Place place = Place::kBefore;
  Fires fires = Fires::kEveryPass;
  int64_t every = 1;  // for kEveryPass: passes of one lane
  int window = 0;
  // [Pass::lane()]: index in RankProgram::side_ops, -1: none. All of one
  // stream, so that they end in order. Their own channels, if any, come with
  // every pass.
  std::vector<int32_t> side_ops;
  // Lanes of kBefore, [lane] 1: never issued ahead of its own pass. Empty:
  // nowhere.
  std::vector<char> in_time;
  // Lanes of kUnlessKept, [lane] 1: a pass keeps the result for the next pass
  // with the same operation; 0: it gives it up.
  std::vector<char> keeps;
  // A channel that the last one of an iteration feeds; -1: none. False starts
  // feed nothing.
  int32_t output = -1;
};

}  // namespace pipewright

// Which rank and chunk holds which stage. Stages count in forward order,
// 0..pp*vpp-1; chunks count per rank and direction in the order of the stages
// that the rank holds. Direction a (0) follows the table; direction b (1) of a
// bidirectional schedule is its mirror: rank r of a is rank pp-1-r of b.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

class Placement {
 public:
  enum class Shape { kPlain, kLoop, kV, kWave, kList };

  // plain: vpp 1, stage s on rank s. loop: stage s on rank s mod pp.
  // v: vpp 2, stages pp..2pp-1 walk back. wave: any even vpp, walks to and
  // fro. Sizes must be at least 1.
  static Placement Plain(int pp);
  static Placement Loop(int pp, int vpp);
  static Placement V(int pp);
  static Placement Wave(int pp, int vpp);
  // rank_of_stage[s] for all pp*vpp stages; every rank must hold vpp of them.
  // Error: kInvalidArgument naming the rank that holds another number.
  static absl::StatusOr<Placement> FromList(int pp,
                                            std::vector<int> rank_of_stage);

  int pp() const { return pp_; }
  int vpp() const { return vpp_; }
  int stages() const { return pp_ * vpp_; }
  Shape shape() const { return shape_; }

  int RankOf(int stage, int direction = 0) const {
    const int rank = rank_of_stage_[stage];
    return direction == 0 ? rank : pp_ - 1 - rank;
  }
  int ChunkOf(int stage) const { return chunk_of_stage_[stage]; }
  int StageOf(int rank, int chunk, int direction = 0) const {
    const int row = direction == 0 ? rank : pp_ - 1 - rank;
    return stage_of_chunk_[row * vpp_ + chunk];
  }

  // "plain", "loop", "v", "wave", or the rank of each stage: "0 1 1 0".
  std::string ToString() const;

 private:
  Placement(Shape shape, int pp, int vpp, std::vector<int> rank_of_stage);

  Shape shape_;
  int pp_;
  int vpp_;
  std::vector<int> rank_of_stage_;
  std::vector<int> chunk_of_stage_;
  std::vector<int> stage_of_chunk_;  // [rank * vpp + chunk]
};

}  // namespace pipewright

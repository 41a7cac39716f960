#include "sim/schedule/placement.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Chunk 0 of every rank in ascending order, chunk 1 in descending order, ...
std::vector<int> WaveRanks(int pp, int vpp) {
  std::vector<int> rank_of_stage;
  rank_of_stage.reserve(static_cast<size_t>(pp) * vpp);
  for (int chunk = 0; chunk < vpp; ++chunk) {
    for (int step = 0; step < pp; ++step) {
      rank_of_stage.push_back(chunk % 2 == 0 ? step : pp - 1 - step);
    }
  }
  return rank_of_stage;
}

}  // namespace

Placement::Placement(Shape shape, int pp, int vpp,
                     std::vector<int> rank_of_stage)
    : shape_(shape),
      pp_(pp),
      vpp_(vpp),
      rank_of_stage_(std::move(rank_of_stage)),
      chunk_of_stage_(rank_of_stage_.size()),
      stage_of_chunk_(rank_of_stage_.size()) {
  std::vector<int> held(pp_, 0);
  for (int stage = 0; stage < stages(); ++stage) {
    const int rank = rank_of_stage_[stage];
    chunk_of_stage_[stage] = held[rank]++;
    stage_of_chunk_[rank * vpp_ + chunk_of_stage_[stage]] = stage;
  }
}

Placement Placement::Plain(int pp) {
  PW_CHECK(pp >= 1);
  return Placement(Shape::kPlain, pp, 1, WaveRanks(pp, 1));
}

Placement Placement::Loop(int pp, int vpp) {
  PW_CHECK(pp >= 1 && vpp >= 1);
  std::vector<int> rank_of_stage(static_cast<size_t>(pp) * vpp);
  for (size_t stage = 0; stage < rank_of_stage.size(); ++stage) {
    rank_of_stage[stage] = static_cast<int>(stage % pp);
  }
  return Placement(Shape::kLoop, pp, vpp, std::move(rank_of_stage));
}

Placement Placement::V(int pp) {
  PW_CHECK(pp >= 1);
  return Placement(Shape::kV, pp, 2, WaveRanks(pp, 2));
}

Placement Placement::Wave(int pp, int vpp) {
  PW_CHECK(pp >= 1 && vpp >= 2 && vpp % 2 == 0);
  return Placement(Shape::kWave, pp, vpp, WaveRanks(pp, vpp));
}

absl::StatusOr<Placement> Placement::FromList(int pp,
                                              std::vector<int> rank_of_stage) {
  PW_CHECK(pp >= 1);
  if (rank_of_stage.empty() || rank_of_stage.size() % pp != 0) {
    return BadValue("placement", absl::StrCat(rank_of_stage.size(), " stages"),
                    absl::StrCat("a multiple of pp ", pp));
  }
  const int vpp = static_cast<int>(rank_of_stage.size() / pp);
  std::vector<int> held(pp, 0);
  for (size_t stage = 0; stage < rank_of_stage.size(); ++stage) {
    const int rank = rank_of_stage[stage];
    if (rank < 0 || rank >= pp) {
      return BadValue("placement",
                      absl::StrCat("rank ", rank, " of stage ", stage),
                      absl::StrCat("0..", pp - 1));
    }
    ++held[rank];
  }
  for (int rank = 0; rank < pp; ++rank) {
    if (held[rank] != vpp) {
      return BadValue("placement",
                      absl::StrCat(held[rank], " stages on rank ", rank),
                      absl::StrCat(vpp, " on every rank"));
    }
  }
  return Placement(Shape::kList, pp, vpp, std::move(rank_of_stage));
}

std::string Placement::ToString() const {
  switch (shape_) {
    case Shape::kPlain:
      return "plain";
    case Shape::kLoop:
      return "loop";
    case Shape::kV:
      return "v";
    case Shape::kWave:
      return "wave";
    case Shape::kList:
      break;
  }
  return absl::StrJoin(rank_of_stage_, " ");
}

}  // namespace pipewright

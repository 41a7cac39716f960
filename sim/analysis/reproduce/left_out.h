// How often measured steps lie in a 90 % interval that runs like them did not
// shape: the width is scaled so that nine of ten steps of all other families
// lie inside, and then the family that was left out is looked at. Families are
// those of one architecture in all its sizes, of one chip on all its boards,
// and of one framework.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/analysis/reproduce/paper.h"

namespace pipewright {

enum class StepFamily : uint8_t { kModel, kDevice, kFramework };
inline constexpr int kNumStepFamilies = 3;
inline constexpr std::array<const char*, kNumStepFamilies> kStepFamilies = {
    "model", "device", "framework"};

// Steps of one kind that have an interval.
struct LeftOutSummary {
  std::string kind;
  int rows = 0;
  // As many lie inside of an honest 90 % interval in 97.5 % of all draws.
  int least = 0;
  int inside = 0;         // of the interval as estimates have it
  double half_width = 0;  // of that, as a part of the estimate, in the mean
  struct Scaled {
    int inside = 0;
    double half_width = 0;
  };
  std::array<Scaled, kNumStepFamilies> left_out;  // [StepFamily]
};

// How far outside a step lies, in half-widths of its interval on the side where
// it is, as logarithms: 1 on the edge.
double HalfWidthsAway(const Comparison& row);

// The scale that has nine of ten of the rows inside, with one more to come: the
// ceil(0.9 (n + 1))-th of their distances (split conformal prediction; Vovk et
// al., Algorithmic Learning in a Random World, 2005). `away` may not be empty.
double ScaleOf(std::vector<double> away);

// The 2.5 % point of a binomial law with so many draws of 0.9.
int LeastInside(int rows);

// By kind in the order of `kinds`, and last all of them ("all"). `rows`: steps
// that count; those without an interval are left out.
std::vector<LeftOutSummary> SummarizeLeftOut(
    const std::vector<const Comparison*>& rows,
    const std::vector<std::string>& kinds);

}  // namespace pipewright

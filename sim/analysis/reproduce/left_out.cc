#include "sim/analysis/reproduce/left_out.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

namespace pipewright {
namespace {

constexpr double kInside = 0.9;
// Part of honest intervals that have fewer rows inside. [numerics]
constexpr double kRarely = 0.025;

const std::string& FamilyOf(const Comparison& row, StepFamily family) {
  switch (family) {
    case StepFamily::kModel:
      return row.step->model;
    case StepFamily::kDevice:
      return row.step->device;
    case StepFamily::kFramework:
      return row.step->framework;
  }
  return row.step->model;
}

bool IsInside(const Comparison& row) {
  const double measured = NumberOf(row.published);
  return measured >= row.step->low && measured <= row.step->high;
}

double HalfWidth(const Comparison& row, double scale) {
  const double up = std::log(row.step->high / row.simulated);
  const double down = std::log(row.simulated / row.step->low);
  return (std::exp(scale * up) - std::exp(-scale * down)) / 2;
}

// [family] the scale that all rows outside of it give; 1 where there are none.
std::map<std::string, double> ScalesWithout(
    const std::vector<const Comparison*>& rows, StepFamily family) {
  std::map<std::string, double> scales;
  for (const Comparison* row : rows) scales[FamilyOf(*row, family)] = 1;
  for (auto& [name, scale] : scales) {
    std::vector<double> away;
    for (const Comparison* row : rows) {
      if (FamilyOf(*row, family) != name) away.push_back(HalfWidthsAway(*row));
    }
    if (!away.empty()) scale = ScaleOf(std::move(away));
  }
  return scales;
}

}  // namespace

double HalfWidthsAway(const Comparison& row) {
  const double error = std::log(NumberOf(row.published) / row.simulated);
  const double half = error > 0 ? std::log(row.step->high / row.simulated)
                                : std::log(row.simulated / row.step->low);
  return std::abs(error) / half;
}

double ScaleOf(std::vector<double> away) {
  const auto rank = static_cast<size_t>(
      std::ceil(kInside * static_cast<double>(away.size() + 1)));
  const size_t index = std::min(rank, away.size()) - 1;
  std::nth_element(away.begin(),
                   away.begin() + static_cast<std::ptrdiff_t>(index),
                   away.end());
  return away[index];
}

int LeastInside(int rows) {
  // Logarithms of the probability that so many are inside.
  double logarithm = rows * std::log(1 - kInside);
  double sum = 0;
  for (int inside = 0; inside < rows; ++inside) {
    sum += std::exp(logarithm);
    if (sum > kRarely) return inside;
    logarithm +=
        std::log((rows - inside) * kInside / ((inside + 1) * (1 - kInside)));
  }
  return rows;
}

std::vector<LeftOutSummary> SummarizeLeftOut(
    const std::vector<const Comparison*>& rows,
    const std::vector<std::string>& kinds) {
  std::vector<const Comparison*> with;
  for (const Comparison* row : rows) {
    if (row->step->high > 0) with.push_back(row);
  }
  std::array<std::map<std::string, double>, kNumStepFamilies> scales;
  for (int family = 0; family < kNumStepFamilies; ++family) {
    scales[family] = ScalesWithout(with, static_cast<StepFamily>(family));
  }
  std::vector<LeftOutSummary> out;
  for (const std::string& kind : kinds) out.push_back({.kind = kind});
  out.push_back({.kind = "all"});
  const auto add = [&](const Comparison& row, LeftOutSummary* sum) {
    ++sum->rows;
    sum->inside += IsInside(row) ? 1 : 0;
    sum->half_width += HalfWidth(row, 1);
    for (int family = 0; family < kNumStepFamilies; ++family) {
      const double scale =
          scales[family].at(FamilyOf(row, static_cast<StepFamily>(family)));
      sum->left_out[family].inside += HalfWidthsAway(row) <= scale ? 1 : 0;
      sum->left_out[family].half_width += HalfWidth(row, scale);
    }
  };
  for (const Comparison* row : with) {
    for (LeftOutSummary& sum : out) {
      if (sum.kind == row->step->kind) add(*row, &sum);
    }
    add(*row, &out.back());
  }
  for (LeftOutSummary& sum : out) {
    sum.least = LeastInside(sum.rows);
    if (sum.rows == 0) continue;
    sum.half_width /= sum.rows;
    for (LeftOutSummary::Scaled& scaled : sum.left_out) {
      scaled.half_width /= sum.rows;
    }
  }
  return out;
}

}  // namespace pipewright

// HeatMapSvg (figure.h).
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/plot/figure.h"
#include "sim/report/palette.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

constexpr double kHeatLeft = 100;
constexpr double kHeatTop = 56;
constexpr double kHeatWidth = 960;  // of all cells
constexpr double kMostCell = 64;
constexpr double kCellHeight = 26;
constexpr double kRoomForText = 40;
constexpr double kRoomForName = 18;
constexpr double kHeatLegend = 200;
constexpr double kHeatFont = 12;
constexpr double kHeatTitle = 15;
constexpr double kHeatBold = 1.2;  // bold letters are wider
constexpr Colour kCold = {247, 247, 247};
constexpr Colour kHot = {140, 45, 4};
constexpr double kGammaOfHeat = 0.8;

Colour Heat(double share) {
  const double at = std::pow(std::clamp(share, 0.0, 1.0), kGammaOfHeat);
  const auto mix = [at](uint8_t cold, uint8_t hot) {
    return static_cast<uint8_t>(std::lround(cold + at * (hot - cold)));
  };
  return {mix(kCold.red, kHot.red), mix(kCold.green, kHot.green),
          mix(kCold.blue, kHot.blue)};
}

class HeatWriter {
 public:
  explicit HeatWriter(const HeatMap& map)
      : map_(map), rows_(map.values.size() / map.columns) {
    // The longer side lies, where there is room.
    lies_ = rows_ > map.columns;
    across_ = lies_ ? rows_ : map.columns;
    down_ = lies_ ? map.columns : rows_;
    cell_ = std::min(kMostCell, kHeatWidth / static_cast<double>(across_));
    most_ = *std::max_element(map.values.begin(), map.values.end());
  }

  std::string Write() {
    svg_.Heading(kHeatLeft, 20, map_.title);
    Names();
    for (size_t down = 0; down < down_; ++down) {
      for (size_t across = 0; across < across_; ++across) Cell(down, across);
    }
    const double bottom = kHeatTop + static_cast<double>(down_) * kCellHeight;
    Legend(bottom + 14);
    const double legend =
        kHeatLegend + 10 + TextWidth(map_.value_name, kHeatFont);
    const double title = kHeatBold * TextWidth(map_.title, kHeatTitle);
    const double width =
        kHeatLeft +
        std::max({static_cast<double>(across_) * cell_, legend, title}) + 20;
    return svg_.Finish(width, bottom + 60, map_.title);
  }

 private:
  double Share(double value) const {
    return most_ > map_.from ? (value - map_.from) / (most_ - map_.from) : 0;
  }

  void Names() {
    const std::string& top = lies_ ? map_.row_name : map_.column_name;
    const std::string& side = lies_ ? map_.column_name : map_.row_name;
    svg_.Text(kHeatLeft, kHeatTop - 20, top);
    const auto every =
        static_cast<size_t>(std::max(1.0, std::ceil(kRoomForName / cell_)));
    for (size_t across = 0; across < across_; across += every) {
      svg_.Text(kHeatLeft + (static_cast<double>(across) + 0.5) * cell_,
                kHeatTop - 5, absl::StrCat(across), {.anchor = "middle"});
    }
    for (size_t down = 0; down < down_; ++down) {
      svg_.Text(kHeatLeft - 8,
                kHeatTop + static_cast<double>(down) * kCellHeight + 17,
                absl::StrCat(side, " ", down), {.anchor = "end"});
    }
  }

  void Cell(size_t down, size_t across) {
    const size_t row = lies_ ? across : down;
    const size_t column = lies_ ? down : across;
    const double value = map_.values[row * map_.columns + column];
    const Colour colour = Heat(Share(value));
    const double x = kHeatLeft + static_cast<double>(across) * cell_;
    const double y = kHeatTop + static_cast<double>(down) * kCellHeight;
    svg_.Rect(x, y, cell_, kCellHeight,
              {.css = "cell",
               .fill = Hex(colour),
               .title = absl::StrFormat("%s %d, %s %d: %.4f", map_.row_name,
                                        row, map_.column_name, column, value)});
    if (cell_ < kRoomForText) return;
    svg_.Text(x + cell_ / 2, y + 17, absl::StrFormat("%.2f", value),
              {.anchor = "middle", .fill = Hex(TextOn(colour))});
  }

  void Legend(double top) {
    constexpr int kParts = 20;
    for (int part = 0; part < kParts; ++part) {
      svg_.Rect(kHeatLeft + kHeatLegend * part / kParts, top,
                kHeatLegend / kParts, 12,
                {.fill = Hex(Heat((part + 0.5) / kParts))});
    }
    svg_.Text(kHeatLeft, top + 27, absl::StrFormat("%.3f", map_.from));
    svg_.Text(kHeatLeft + kHeatLegend, top + 27, absl::StrFormat("%.3f", most_),
              {.anchor = "end"});
    svg_.Text(kHeatLeft + kHeatLegend + 10, top + 11, map_.value_name);
  }

  const HeatMap& map_;
  Svg svg_;
  const size_t rows_;
  bool lies_ = false;
  size_t across_ = 0;
  size_t down_ = 0;
  double cell_ = 0;
  double most_ = 0;
};

}  // namespace

std::string HeatMapSvg(const HeatMap& map) {
  if (map.columns == 0 || map.values.size() < map.columns) return "";
  return HeatWriter(map).Write();
}

}  // namespace pipewright

#include "sim/analysis/plot/heat_map.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/report/format.h"
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
constexpr double kHeatTitle = 14;
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

std::string HeatText(double x, double y, const char* anchor,
                     const std::string& text, const std::string& more) {
  return absl::StrCat("<text x=\"", Px(x), "\" y=\"", Px(y),
                      "\" text-anchor=\"", anchor, "\"", more, ">",
                      EscapeXml(text), "</text>\n");
}

constexpr char kInk[] = " class=\"ink\" fill=\"#1A1A1A\"";

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
    std::string body =
        HeatText(kHeatLeft, 20, "start", map_.title,
                 absl::StrCat(kInk, " font-size=\"14\" font-weight=\"bold\""));
    body += Names();
    for (size_t down = 0; down < down_; ++down) {
      for (size_t across = 0; across < across_; ++across) {
        body += Cell(down, across);
      }
    }
    const double bottom = kHeatTop + static_cast<double>(down_) * kCellHeight;
    body += Legend(bottom + 14);
    const double legend =
        kHeatLegend + 10 + TextWidth(map_.value_name, kHeatFont);
    const double title = kHeatBold * TextWidth(map_.title, kHeatTitle);
    const double width =
        kHeatLeft +
        std::max({static_cast<double>(across_) * cell_, legend, title}) + 20;
    const double height = bottom + 60;
    return absl::StrCat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", Px(width),
        "\" height=\"", Px(height), "\" viewBox=\"0 0 ", Px(width), " ",
        Px(height),
        "\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" "
        "role=\"img\" aria-label=\"",
        EscapeXml(map_.title),
        "\">\n<rect class=\"paper\" width=\"100%\" height=\"100%\" "
        "fill=\"#FFFFFF\"/>\n",
        body, "</svg>\n");
  }

 private:
  double Share(double value) const {
    return most_ > map_.from ? (value - map_.from) / (most_ - map_.from) : 0;
  }

  std::string Names() const {
    const std::string& top = lies_ ? map_.row_name : map_.column_name;
    const std::string& side = lies_ ? map_.column_name : map_.row_name;
    std::string out = HeatText(kHeatLeft, kHeatTop - 20, "start", top, kInk);
    const auto every =
        static_cast<size_t>(std::max(1.0, std::ceil(kRoomForName / cell_)));
    for (size_t across = 0; across < across_; across += every) {
      out += HeatText(kHeatLeft + (static_cast<double>(across) + 0.5) * cell_,
                      kHeatTop - 5, "middle", absl::StrCat(across), kInk);
    }
    for (size_t down = 0; down < down_; ++down) {
      out += HeatText(kHeatLeft - 8,
                      kHeatTop + static_cast<double>(down) * kCellHeight + 17,
                      "end", absl::StrCat(side, " ", down), kInk);
    }
    return out;
  }

  std::string Cell(size_t down, size_t across) const {
    const size_t row = lies_ ? across : down;
    const size_t column = lies_ ? down : across;
    const double value = map_.values[row * map_.columns + column];
    const Colour colour = Heat(Share(value));
    const double x = kHeatLeft + static_cast<double>(across) * cell_;
    const double y = kHeatTop + static_cast<double>(down) * kCellHeight;
    std::string out = absl::StrCat(
        "<rect class=\"cell\"", RectShape(x, y, cell_, kCellHeight), " fill=\"",
        Hex(colour), "\"><title>",
        EscapeXml(absl::StrFormat("%s %d, %s %d: %.4f", map_.row_name, row,
                                  map_.column_name, column, value)),
        "</title></rect>\n");
    if (cell_ >= kRoomForText) {
      out += HeatText(x + cell_ / 2, y + 17, "middle",
                      absl::StrFormat("%.2f", value),
                      absl::StrCat(" fill=\"", Hex(TextOn(colour)), "\""));
    }
    return out;
  }

  std::string Legend(double top) const {
    constexpr int kParts = 20;
    std::string out;
    for (int part = 0; part < kParts; ++part) {
      absl::StrAppend(&out, "<rect",
                      RectShape(kHeatLeft + kHeatLegend * part / kParts, top,
                                kHeatLegend / kParts, 12),
                      " fill=\"", Hex(Heat((part + 0.5) / kParts)), "\"/>\n");
    }
    out += HeatText(kHeatLeft, top + 27, "start",
                    absl::StrFormat("%.3f", map_.from), kInk);
    out += HeatText(kHeatLeft + kHeatLegend, top + 27, "end",
                    absl::StrFormat("%.3f", most_), kInk);
    out += HeatText(kHeatLeft + kHeatLegend + 10, top + 11, "start",
                    map_.value_name, kInk);
    return out;
  }

  const HeatMap& map_;
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

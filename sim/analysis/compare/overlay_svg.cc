#include "sim/analysis/compare/overlay_svg.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/palette.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

// Pixels.
constexpr double kLeft = 130;
constexpr double kRight = 18;
constexpr double kFont = 12;
constexpr double kSmallestFont = 8;
// A digit in em, of DejaVu Sans.
constexpr double kDigitEm = 0.64;
constexpr double kTallest = 3200;
// Narrower boxes are not told apart from the next; a wider box hides them.
constexpr double kNarrowest = 0.25;
constexpr size_t kMaxTooltips = 4000;

class Overlay {
 public:
  Overlay(const PairedRun& run, const OverlayOptions& options)
      : run_(run), options_(options) {
    begin_.fill(std::numeric_limits<double>::infinity());
    ranks_.resize(run.pp);
    for (const PairedOp& paired : run.ops) {
      if (paired.op.replica != options.replica ||
          paired.op.iteration != options.iteration ||
          paired.op.stream != Stream::kCompute) {
        continue;
      }
      ranks_[paired.op.rank].push_back(&paired);
      ++boxes_;
      vpp_ = std::max(vpp_, paired.op.pass.chunk() + 1);
      present_[static_cast<size_t>(StyleOf(paired.op))] = true;
      for (const int side : {kSimulated, kMeasured}) {
        begin_[side] = std::min(begin_[side], paired.start_s[side]);
      }
    }
    for (const auto& rank : ranks_) {
      for (const PairedOp* paired : rank) {
        for (const int side : {kSimulated, kMeasured}) {
          end_s_[side] =
              std::max(end_s_[side], paired->end_s[side] - begin_[side]);
        }
      }
    }
    const double longest_s = std::max(end_s_[0], end_s_[1]);
    if (longest_s > 0) scale_ = options.width_px / longest_s;
    lane_ = std::clamp(kTallest / std::max<double>(1, 2.0 * ranks_.size()) - 3,
                       3.0, std::max(3.0, options.lane_px));
  }

  std::string Write() {
    double top = 0;
    const std::string legend =
        LegendSvg(Legend(), kLeft, 36, options_.width_px, &top);
    top += 6;
    const double pitch = 2 * lane_ + (lane_ >= 8 ? 8 : 2);
    std::string body;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      WriteRank(rank, top + pitch * static_cast<double>(rank), &body);
    }
    const double axis_y = top + pitch * static_cast<double>(ranks_.size()) + 2;
    if (scale_ > 0) {
      body += TimeAxisSvg(0, options_.width_px / scale_, kLeft,
                          options_.width_px, axis_y);
    }
    const double width = kLeft + options_.width_px + kRight;
    const double height = axis_y + 42;
    return absl::StrCat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", Px(width),
        " ", Px(height), "\" width=\"", Px(width), "\" height=\"", Px(height),
        "\" font-family=\"sans-serif\" font-size=\"", kFont,
        "\" role=\"img\">\n<title>", EscapeXml(options_.title),
        "</title>\n<rect class=\"paper\" width=\"", Px(width), "\" height=\"",
        Px(height), "\" fill=\"#FFFFFF\"/>\n<text class=\"ink\" x=\"",
        Px(kLeft),
        "\" y=\"22\" font-size=\"15\" font-weight=\"bold\" "
        "fill=\"#1A1A1A\">",
        EscapeXml(options_.title), "</text>\n", legend, body, "</svg>\n");
  }

 private:
  std::vector<LegendItem> Legend() const {
    std::vector<LegendItem> items;
    for (int index = 0; index < kNumStyles; ++index) {
      if (!present_[index]) continue;
      const Style style = static_cast<Style>(index);
      items.push_back(
          {absl::StrCat("<rect", RectShape(0, 0, 14, 14), " fill=\"",
                        Hex(ColourOf(style, 0, 1)), "\"/>"),
           14, std::string(StyleLabel(style))});
    }
    items.push_back(
        {absl::StrCat("<rect class=\"idle\"", RectShape(0, 0, 14, 14),
                      " fill=\"#E4E4E4\"/>"),
         14, "idle"});
    items.push_back({"", 0, "(upper lane: simulated, lower: measured)"});
    return items;
  }

  void Label(double y, absl::string_view text, std::string* out) const {
    absl::StrAppend(out, "<text class=\"ink\" x=\"", Px(kLeft - 8), "\" y=\"",
                    Px(y), "\" text-anchor=\"end\" fill=\"#1A1A1A\">", text,
                    "</text>\n");
  }

  void WriteRank(size_t rank, double top, std::string* out) const {
    if (lane_ >= 11) {
      Label(top + lane_ / 2 + 4, absl::StrCat("rank ", rank, " simulated"),
            out);
      Label(top + lane_ * 1.5 + 5, "measured", out);
    } else {
      size_t every = 1;
      while (static_cast<double>(every) * 2 * lane_ < kFont) every *= 2;
      if (rank % every == 0) {
        Label(top + lane_ + 4, absl::StrCat("rank ", rank), out);
      }
    }
    for (const Side side : {kSimulated, kMeasured}) {
      const double lane_top = top + (side == kMeasured ? lane_ + 1 : 0);
      absl::StrAppend(out, "<rect class=\"idle\"",
                      RectShape(kLeft, lane_top, end_s_[side] * scale_, lane_),
                      " fill=\"#E4E4E4\"/>\n");
      std::string labels;
      for (const PairedOp* paired : ranks_[rank]) {
        WriteBox(*paired, side, lane_top, out, &labels);
      }
      if (labels.empty()) continue;
      absl::StrAppend(out,
                      "<g text-anchor=\"middle\" pointer-events=\"none\">\n",
                      labels, "</g>\n");
    }
  }

  void WriteBox(const PairedOp& paired, Side side, double top, std::string* out,
                std::string* labels) const {
    const double width = paired.seconds(side) * scale_;
    if (width < kNarrowest || !paired.present[side]) return;
    const double x = kLeft + (paired.start_s[side] - begin_[side]) * scale_;
    const Colour colour =
        ColourOf(StyleOf(paired.op), paired.op.pass.chunk(), vpp_);
    const double inset = width >= 3 ? 0.4 : 0;
    absl::StrAppend(out, "<rect",
                    RectShape(x + inset, top, width - 2 * inset, lane_),
                    " fill=\"", Hex(colour), "\"");
    if (2 * boxes_ <= kMaxTooltips) {
      absl::StrAppend(out, "><title>", EscapeXml(OpLabel(paired)),
                      side == kSimulated ? ", simulated: " : ", measured: ",
                      FormatSeconds(paired.seconds(side)), " (",
                      side == kSimulated ? "measured: " : "simulated: ",
                      FormatSeconds(paired.seconds(
                          side == kSimulated ? kMeasured : kSimulated)),
                      ")</title></rect>\n");
    } else {
      absl::StrAppend(out, "/>\n");
    }
    if (paired.op.kind != OpKind::kPass) return;
    const std::string number = absl::StrCat(paired.op.pass.microbatch());
    const double font = std::min(
        {kFont, lane_ - 2,
         (width - 2) / (kDigitEm * static_cast<double>(number.size()))});
    if (font < kSmallestFont) return;
    absl::StrAppend(labels, "<text x=\"", Px(x + width / 2), "\" y=\"",
                    Px(top + lane_ / 2 + font * 0.36), "\" font-size=\"",
                    Px(font), "\" fill=\"", Hex(TextOn(colour)), "\">", number,
                    "</text>\n");
  }

  const PairedRun& run_;
  const OverlayOptions& options_;
  std::vector<std::vector<const PairedOp*>> ranks_;
  std::array<double, kNumSides> begin_{};
  std::array<double, kNumSides> end_s_{};
  std::array<bool, kNumStyles> present_{};
  size_t boxes_ = 0;
  int vpp_ = 1;
  double scale_ = 0;  // pixels a second
  double lane_ = 0;
};

}  // namespace

std::string OverlaySvg(const PairedRun& run, const OverlayOptions& options) {
  return Overlay(run, options).Write();
}

}  // namespace pipewright

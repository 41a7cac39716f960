// OverlaySvg (comparison.h).
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/base/quantity.h"
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
    svg_.Heading(kLeft, 22, options_.title);
    const double top = svg_.Legend(Legend(), kLeft, 36, options_.width_px) + 6;
    const double pitch = 2 * lane_ + (lane_ >= 8 ? 8 : 2);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      WriteRank(rank, top + pitch * static_cast<double>(rank));
    }
    const double axis_y = top + pitch * static_cast<double>(ranks_.size()) + 2;
    if (scale_ > 0) {
      svg_.TimeAxis(0, options_.width_px / scale_, kLeft, options_.width_px,
                    axis_y);
    }
    return svg_.Finish(kLeft + options_.width_px + kRight, axis_y + 42,
                       options_.title);
  }

 private:
  std::vector<LegendItem> Legend() const {
    std::vector<LegendItem> items;
    for (int index = 0; index < kNumStyles; ++index) {
      if (!present_[index]) continue;
      const Style style = static_cast<Style>(index);
      items.push_back(LegendItem::Box(std::string(StyleLabel(style)),
                                      {.fill = Hex(ColourOf(style, 0, 1))}));
    }
    items.push_back(LegendItem::Box("idle", {.css = "idle", .fill = kIdle}));
    items.push_back({"(upper lane: simulated, lower: measured)"});
    return items;
  }

  void Label(double y, absl::string_view text) {
    svg_.Text(kLeft - 8, y, text, {.anchor = "end"});
  }

  void WriteRank(size_t rank, double top) {
    if (lane_ >= 11) {
      Label(top + lane_ / 2 + 4, absl::StrCat("rank ", rank, " simulated"));
      Label(top + lane_ * 1.5 + 5, "measured");
    } else {
      size_t every = 1;
      while (static_cast<double>(every) * 2 * lane_ < kFont) every *= 2;
      if (rank % every == 0)
        Label(top + lane_ + 4, absl::StrCat("rank ", rank));
    }
    for (const Side side : {kSimulated, kMeasured}) {
      const double lane_top = top + (side == kMeasured ? lane_ + 1 : 0);
      svg_.Rect(kLeft, lane_top, end_s_[side] * scale_, lane_,
                {.css = "idle", .fill = kIdle});
      Svg labels;
      for (const PairedOp* paired : ranks_[rank]) {
        WriteBox(*paired, side, lane_top, &labels);
      }
      if (labels.empty()) continue;
      svg_.Open("text-anchor=\"middle\" pointer-events=\"none\"");
      svg_.Add(labels);
      svg_.Close();
    }
  }

  void WriteBox(const PairedOp& paired, Side side, double top, Svg* labels) {
    const double width = paired.seconds(side) * scale_;
    if (width < kNarrowest || !paired.present[side]) return;
    const double x = kLeft + (paired.start_s[side] - begin_[side]) * scale_;
    const Colour colour =
        ColourOf(StyleOf(paired.op), paired.op.pass.chunk(), vpp_);
    const double inset = width >= 3 ? 0.4 : 0;
    std::string title;
    if (2 * boxes_ <= kMaxTooltips) {
      const bool simulated = side == kSimulated;
      title = absl::StrCat(
          OpLabel(paired), simulated ? ", simulated: " : ", measured: ",
          FormatSeconds(paired.seconds(side)), " (",
          simulated ? "measured: " : "simulated: ",
          FormatSeconds(paired.seconds(simulated ? kMeasured : kSimulated)),
          ")");
    }
    svg_.Rect(x + inset, top, width - 2 * inset, lane_,
              {.fill = Hex(colour), .title = title});
    if (paired.op.kind != OpKind::kPass) return;
    const std::string number = absl::StrCat(paired.op.pass.microbatch());
    const double font = std::min(
        {kFont, lane_ - 2,
         (width - 2) / (kDigitEm * static_cast<double>(number.size()))});
    if (font < kSmallestFont) return;
    labels->Text(x + width / 2, top + lane_ / 2 + font * 0.36, number,
                 {.size = font, .fill = Hex(TextOn(colour))});
  }

  const PairedRun& run_;
  const OverlayOptions& options_;
  Svg svg_;
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

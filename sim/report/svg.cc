#include "sim/report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/quantity.h"
#include "sim/program/program.h"
#include "sim/report/format.h"
#include "sim/report/palette.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

// Contents of the grid, before it is drawn: operations of one replica and
// iteration, sorted into rows and lanes.

enum class Part : uint8_t { kWhole, kUpper, kLower };

struct Box {
  const TraceOp* op = nullptr;
  Style style = Style::kOther;
  // An overlapped pair (X&Y) that an engine gives one time shares the height.
  Part part = Part::kWhole;
  double joint_end_s = 0;  // end of an overlapped pair, on its first box
};

using GridRow = std::vector<Box>;  // by start

struct GridRows {
  std::vector<GridRow> compute;  // [rank]
  // Collectives, D2H, H2D, CPU, as far as there are any: [lane][rank].
  std::vector<std::vector<GridRow>> lanes;
  std::array<bool, kNumStyles> present{};
  bool has_replica_b = false;
  bool has_pairs = false;
  size_t boxes = 0;
  size_t longest_label = 1;  // letters
  double start_s = 0;
  double end_s = 0;
};

constexpr std::array<Stream, 10> kLaneStreams = {
    Stream::kCollective,   Stream::kD2H,          Stream::kH2D,
    Stream::kGradientCopy, Stream::kMomentumCopy, Stream::kVarianceCopy,
    Stream::kMasterCopy,   Stream::kWeightCopy,   Stream::kCast,
    Stream::kCpu};

// The two passes of an (X&Y) block follow each other in the order. Returns
// whether there are any.
bool FindPairs(GridRow* row) {
  bool found = false;
  for (size_t index = 0; index + 1 < row->size(); ++index) {
    Box& first = (*row)[index];
    Box& second = (*row)[index + 1];
    const double tolerance = 1e-9 * std::abs(first.op->end_s);
    if (!first.op->joint || !second.op->joint ||
        second.op->start_s > first.op->end_s + tolerance) {
      continue;
    }
    found = true;
    first.joint_end_s = std::max(first.op->end_s, second.op->end_s);
    if (second.op->start_s < first.op->end_s - tolerance) {
      first.part = Part::kUpper;
      second.part = Part::kLower;
    }
    ++index;
  }
  return found;
}

// True for the second replica of a bidirectional schedule.
bool IsReplicaB(const TraceOp& op) {
  return op.kind == OpKind::kPass && op.pass.direction() == 1;
}

// "3", or "3s1" with several slices; "" for what is no pass.
std::string BoxLabel(const Program& program, const TraceOp& op) {
  if (op.kind != OpKind::kPass) return "";
  if (program.schedule != nullptr && program.schedule->slices > 1) {
    return absl::StrCat(op.pass.microbatch(), "s", op.pass.slice());
  }
  return absl::StrCat(op.pass.microbatch());
}

// Operations that take no time are left out.
GridRows CollectRows(const Program& program, const std::vector<TraceOp>& ops,
                     int replica, int iteration) {
  GridRows out;
  const size_t ranks = program.ranks.size();
  out.compute.resize(ranks);
  std::array<std::vector<GridRow>, kLaneStreams.size()> lanes;
  for (std::vector<GridRow>& lane : lanes) lane.resize(ranks);
  for (const TraceOp& op : ops) {
    if (op.iteration != iteration || op.replica != replica ||
        op.end_s <= op.start_s || op.rank < 0 ||
        static_cast<size_t>(op.rank) >= ranks) {
      continue;
    }
    GridRow* row = nullptr;
    if (op.stream == Stream::kCompute) row = &out.compute[op.rank];
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (op.stream == kLaneStreams[lane]) row = &lanes[lane][op.rank];
    }
    if (row == nullptr) continue;
    row->push_back({&op, StyleOf(op), Part::kWhole, 0});
    out.present[static_cast<size_t>(row->back().style)] = true;
    out.has_replica_b |= IsReplicaB(op);
    out.longest_label =
        std::max(out.longest_label, BoxLabel(program, op).size());
    out.start_s =
        out.boxes == 0 ? op.start_s : std::min(out.start_s, op.start_s);
    out.end_s = out.boxes == 0 ? op.end_s : std::max(out.end_s, op.end_s);
    ++out.boxes;
  }
  for (GridRow& row : out.compute) {
    std::stable_sort(row.begin(), row.end(),
                     [](const Box& one, const Box& other) {
                       return one.op->start_s < other.op->start_s;
                     });
    out.has_pairs |= FindPairs(&row);
  }
  for (std::vector<GridRow>& lane : lanes) {
    const auto used = [](const GridRow& row) { return !row.empty(); };
    if (std::any_of(lane.begin(), lane.end(), used)) {
      out.lanes.push_back(std::move(lane));
    }
  }
  return out;
}

// Pixels. A digit's width is that of DejaVu Sans (0.636 em), the widest of
// the usual sans-serif fonts.
constexpr double kLeft = 66;
constexpr double kRight = 18;
constexpr double kFont = 12;
constexpr double kSmallestFont = 8;
constexpr double kDigitEm = 0.64;
constexpr double kLane = 6;
constexpr double kTallest = 3200;  // rows become thinner beyond this

// Boxes narrower than this are drawn together; with many rows the limit grows
// so that a row gets no more than its part of kMaxBoxes.
constexpr double kNarrowest = 0.3;
constexpr double kMaxBoxes = 200'000;
// What is drawn together becomes columns, at most so many in all.
constexpr double kMaxColumns = 16'000;
// Elements of their own, with tooltips, only where they do not make the file
// large; else the boxes of a row that have one colour are one shape.
constexpr size_t kMaxTooltips = 4000;

int Chunk(const TraceOp& op) {
  return op.kind == OpKind::kPass ? op.pass.chunk() : 0;
}

class Grid {
 public:
  Grid(const Program& program, const std::vector<TraceOp>& ops,
       const GridOptions& options)
      : program_(program),
        options_(options),
        vpp_(program.schedule == nullptr ? 1 : program.schedule->vpp()),
        rows_(CollectRows(program, ops, options.replica, options.iteration)) {
    Measure();
  }

  std::string Write() {
    std::string body;
    for (size_t rank = 0; rank < rows_.compute.size(); ++rank)
      WriteRank(rank, &body);
    body += Axis();
    const double height = axis_y_ + 42;
    const double width = kLeft + options_.width_px + kRight;
    std::string out = absl::StrCat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", Px(width),
        " ", Px(height), "\" width=\"", Px(width), "\" height=\"", Px(height),
        "\" font-family=\"sans-serif\" font-size=\"", kFont,
        "\" role=\"img\">\n<title>", EscapeXml(Title()), "</title>\n");
    if (rows_.has_replica_b) {
      absl::StrAppend(
          &out, "<defs><pattern id=\"replica-b", options_.suffix,
          "\" width=\"6\" height=\"6\" "
          "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
          "<rect width=\"1.6\" height=\"6\" fill=\"#000\" "
          "fill-opacity=\".5\"/></pattern></defs>\n");
    }
    absl::StrAppend(&out, "<rect class=\"paper\" width=\"", Px(width),
                    "\" height=\"", Px(height), "\" fill=\"#FFFFFF\"/>\n");
    absl::StrAppend(&out, "<text class=\"ink\" x=\"", Px(kLeft),
                    "\" y=\"22\" font-size=\"15\" font-weight=\"bold\" "
                    "fill=\"#1A1A1A\">",
                    EscapeXml(Title()), "</text>\n");
    return absl::StrCat(out, legend_, body, "</svg>\n");
  }

 private:
  std::string Title() const {
    return options_.title.empty() ? program_.name : options_.title;
  }

  std::string ReplicaB() const {
    return absl::StrCat("url(#replica-b", options_.suffix, ")");
  }
  double X(double time_s) const {
    return kLeft + (time_s - rows_.start_s) * scale_;
  }
  double Width(const TraceOp& op) const {
    return (op.end_s - op.start_s) * scale_;
  }

  void Measure();
  void WriteLegend();
  void WriteRank(size_t rank, std::string* out);
  void WriteRow(const GridRow& row, double top, double height, bool numbers,
                std::string* out) const;
  void WriteTogether(const GridRow& row, double top, double height,
                     std::string* out) const;
  void WriteBox(const Box& box, double top, double height,
                std::string* out) const;
  void WriteLabel(const Box& box, double top, double height,
                  std::string* out) const;
  std::string Axis() const;

  const Program& program_;
  const GridOptions& options_;
  const int vpp_;
  const GridRows rows_;
  bool has_narrow_ = false;
  double end_s_ = 0;  // of the axis
  double scale_ = 0;  // pixels a second
  double narrowest_ = kNarrowest;
  double column_ = kNarrowest;  // of what is drawn together; never narrower
  double top_ = 0;
  double row_height_ = 0;
  double pitch_ = 0;
  double axis_y_ = 0;
  std::string legend_;
};

void Grid::Measure() {
  const double ranks = std::max<double>(1, rows_.compute.size());
  const double lanes = kLane * rows_.lanes.size();
  double gap = lanes > 0 ? 6 : 4;
  row_height_ = std::clamp(std::floor(kTallest / ranks - lanes - gap), 4.0,
                           std::max(4.0, options_.row_px));
  if (row_height_ < 8) gap = 0;
  pitch_ = row_height_ + lanes + gap;
  end_s_ = std::max(rows_.end_s, options_.end_s);
  if (end_s_ > rows_.start_s) {
    scale_ = options_.width_px / (end_s_ - rows_.start_s);
  }
  narrowest_ = std::max(kNarrowest, options_.width_px * ranks *
                                        (1 + rows_.lanes.size()) / kMaxBoxes);
  column_ = std::max(narrowest_, options_.width_px * ranks *
                                     (1 + rows_.lanes.size()) / kMaxColumns);
  const auto narrow = [this](const Box& box) {
    return Width(*box.op) < narrowest_;
  };
  for (const GridRow& row : rows_.compute) {
    has_narrow_ |= std::any_of(row.begin(), row.end(), narrow);
  }
  WriteLegend();
  axis_y_ = top_ + pitch_ * rows_.compute.size() + 2;
}

void Grid::WriteLegend() {
  std::vector<LegendItem> items;
  const auto swatch = [](double left, double width, absl::string_view paint) {
    return absl::StrCat("<rect", RectShape(left, 0, width, 14), " ", paint,
                        "/>");
  };
  for (int index = 0; index < kNumStyles; ++index) {
    if (!rows_.present[index]) continue;
    const Style style = static_cast<Style>(index);
    const int count = style <= Style::kRecompute ? std::min(vpp_, 4) : 1;
    std::string shades;
    for (int shade = 0; shade < count; ++shade) {
      const int chunk = count == 1 ? 0 : shade * (vpp_ - 1) / (count - 1);
      const std::string colour = Hex(ColourOf(style, chunk, vpp_));
      shades += swatch(15 * shade, 14, absl::StrCat("fill=\"", colour, "\""));
    }
    items.push_back({shades, 15.0 * count - 1, std::string(StyleLabel(style))});
  }
  if (rows_.boxes > 0) {
    items.push_back(
        {swatch(0, 14, "class=\"idle\" fill=\"#E4E4E4\""), 14, "idle"});
  }
  if (rows_.has_replica_b) {
    items.push_back(
        {swatch(0, 14, "fill=\"#C8C8C8\"") +
             swatch(0, 14, absl::StrCat("fill=\"", ReplicaB(), "\"")),
         14, "replica b"});
  }
  if (rows_.has_pairs) {
    items.push_back({swatch(1, 20,
                            "class=\"pair\" fill=\"none\" "
                            "stroke=\"#1A1A1A\" stroke-width=\"1.6\""),
                     22, "overlapped pair"});
  }
  if (vpp_ > 1) items.push_back({"", 0, "(lighter: later chunk)"});
  if (has_narrow_) {
    items.push_back({"", 0, "(stacked: many passes, by share of time)"});
  }
  legend_ = LegendSvg(items, kLeft, 36, options_.width_px, &top_);
  top_ += 6;
}

void Grid::WriteRank(size_t rank, std::string* out) {
  const double top = top_ + pitch_ * rank;
  size_t label_every = 1;
  while (label_every * pitch_ < kFont) label_every *= 2;
  if (rank % label_every == 0) {
    absl::StrAppend(out, "<text class=\"ink\" x=\"", Px(kLeft - 8), "\" y=\"",
                    Px(top + row_height_ / 2 + 4),
                    "\" text-anchor=\"end\" fill=\"#1A1A1A\">rank ", rank,
                    "</text>\n");
  }
  // Idle is what lies before the last operation of the picture.
  const double width =
      rows_.boxes > 0 ? X(rows_.end_s) - kLeft : options_.width_px;
  const auto background = [&](double y, double height, absl::string_view fill) {
    absl::StrAppend(out, "<rect class=\"idle\"",
                    RectShape(kLeft, y, width, height), " fill=\"", fill,
                    "\"/>\n");
  };
  background(top, row_height_, "#E4E4E4");
  WriteRow(rows_.compute[rank], top, row_height_, row_height_ >= 9, out);
  double lane_top = top + row_height_ + 1;
  for (const std::vector<GridRow>& lane : rows_.lanes) {
    background(lane_top, kLane - 1, "#F2F2F2");
    WriteRow(lane[rank], lane_top, kLane - 1, false, out);
    lane_top += kLane;
  }
}

void Grid::WriteRow(const GridRow& row, double top, double height, bool numbers,
                    std::string* out) const {
  WriteTogether(row, top, height, out);
  std::string outlines;
  std::string labels;
  std::map<std::string, std::string> shapes;  // by colour
  for (const Box& box : row) {
    if (Width(*box.op) >= narrowest_) {
      const double half = height / 2;
      const double box_top = box.part == Part::kLower ? top + half : top;
      const double box_height = box.part == Part::kWhole ? height : half;
      if (rows_.boxes <= kMaxTooltips || IsReplicaB(*box.op)) {
        WriteBox(box, box_top, box_height, out);
      } else {
        const std::string width = Px(Width(*box.op));
        absl::StrAppend(&shapes[Hex(ColourOf(box.style, Chunk(*box.op), vpp_))],
                        "M", Px(X(box.op->start_s)), " ", Px(box_top), "h",
                        width, "v", Px(box_height), "h-", width, "z");
      }
      if (numbers) WriteLabel(box, box_top, box_height, &labels);
    }
    const double x = X(box.op->start_s);
    const double width = X(box.joint_end_s) - x;
    if (box.joint_end_s > 0 && width >= 4) {
      absl::StrAppend(&outlines, "<rect class=\"pair\"",
                      RectShape(x + 0.8, top + 0.8, width - 1.6, height - 1.6),
                      " fill=\"none\" stroke=\"#1A1A1A\" "
                      "stroke-width=\"1.6\"/>\n");
    }
  }
  for (const auto& [colour, shape] : shapes) {
    absl::StrAppend(out, "<path class=\"ops\" fill=\"", colour, "\" d=\"",
                    shape, "\"/>\n");
  }
  if (outlines.empty() && labels.empty()) return;
  absl::StrAppend(out, "<g text-anchor=\"middle\" pointer-events=\"none\">\n",
                  outlines, labels, "</g>\n");
}

// What is too narrow for a box of its own: columns, each with a stack that
// shows the share of time of every kind. Neighbours filled by one kind alone
// become one rectangle.
void Grid::WriteTogether(const GridRow& row, double top, double height,
                         std::string* out) const {
  const double count = std::max(1.0, std::floor(options_.width_px / column_));
  const double column_width = options_.width_px / count;
  std::vector<std::array<float, kNumStyles>> columns;
  for (const Box& box : row) {
    if (Width(*box.op) >= narrowest_) continue;
    if (columns.empty()) columns.resize(static_cast<size_t>(count) + 1);
    const double weight = box.part == Part::kWhole ? 1 : 0.5;
    const double left = (X(box.op->start_s) - kLeft) / column_width;
    const double right = left + Width(*box.op) / column_width;
    // Narrower than a column, so it touches at most two.
    const size_t column = static_cast<size_t>(left);
    const double border = std::min(right, std::floor(left) + 1);
    const size_t style = static_cast<size_t>(box.style);
    columns[column][style] += static_cast<float>(weight * (border - left));
    columns[column + 1 < columns.size() ? column + 1 : column][style] +=
        static_cast<float>(weight * (right - border));
  }
  constexpr float kFull = 0.999F;
  std::array<std::string, kNumStyles> paths;
  for (size_t column = 0; column < columns.size(); ++column) {
    double y = top + height;
    for (int index = kNumStyles - 1; index >= 0; --index) {
      const float share = columns[column][index];
      if (share < 0.005F) continue;
      // A full column has no other kind; it takes the full ones behind it.
      size_t end = column + 1;
      while (share >= kFull && end < columns.size() &&
             columns[end][index] >= kFull) {
        ++end;
      }
      const double part = height * std::min(share, 1.0F);
      y -= part;
      const std::string width = Px((end - column) * column_width);
      absl::StrAppend(&paths[index], "M", Px(kLeft + column * column_width),
                      " ", Px(y), "h", width, "v", Px(part), "h-", width, "z");
      if (share >= kFull) {
        column = end - 1;
        break;
      }
    }
  }
  for (int index = 0; index < kNumStyles; ++index) {
    if (paths[index].empty()) continue;
    absl::StrAppend(out, "<path shape-rendering=\"crispEdges\" fill=\"",
                    Hex(ColourOf(static_cast<Style>(index), 0, vpp_)),
                    "\" d=\"", paths[index], "\"/>\n");
  }
}

void Grid::WriteBox(const Box& box, double top, double height,
                    std::string* out) const {
  const TraceOp& op = *box.op;
  const double width = Width(op);
  // A gap between neighbours where there is room for one.
  const double inset = width >= 3 ? 0.4 : 0;
  const std::string shape =
      RectShape(X(op.start_s) + inset, top, width - 2 * inset, height);
  std::string tooltip;
  if (rows_.boxes <= kMaxTooltips) {
    const std::string name =
        op.kind == OpKind::kPass && program_.schedule != nullptr
            ? PassToString(*program_.OfReplica(op.replica).schedule, op.pass)
            : std::string(OpKindName(op.kind));
    tooltip = absl::StrCat("<title>", EscapeXml(name), " on rank ", op.rank,
                           ": ", FormatSeconds(op.start_s), " to ",
                           FormatSeconds(op.end_s), "</title>");
  }
  const std::string end =
      tooltip.empty() ? "/>\n" : absl::StrCat(">", tooltip, "</rect>\n");
  const bool hatched = IsReplicaB(op);
  absl::StrAppend(out, "<rect class=\"op\"", shape, " fill=\"",
                  Hex(ColourOf(box.style, Chunk(op), vpp_)), "\"",
                  hatched ? "/>\n" : end);
  if (hatched) {
    absl::StrAppend(out, "<rect", shape, " fill=\"", ReplicaB(), "\"", end);
  }
}

void Grid::WriteLabel(const Box& box, double top, double height,
                      std::string* out) const {
  const TraceOp& op = *box.op;
  const std::string label = BoxLabel(program_, op);
  // Boxes of one width have one size of text, or all go without.
  const double font =
      std::min({kFont, 0.62 * height,
                (Width(op) - 3) / (kDigitEm * rows_.longest_label)});
  if (label.empty() || font < kSmallestFont) return;
  const Colour colour = ColourOf(box.style, Chunk(op), vpp_);
  const double middle = X(op.start_s) + Width(op) / 2;
  if (IsReplicaB(op)) {
    // No hatch through the number: a patch in the colour of the box.
    const double width =
        std::min(Width(op) - 2, kDigitEm * font * label.size() + 3);
    absl::StrAppend(
        out, "<rect class=\"patch\"",
        RectShape(middle - width / 2, top + (height - font) / 2, width, font),
        " fill=\"", Hex(colour), "\"/>\n");
  }
  absl::StrAppend(out, "<text x=\"", Px(middle), "\" y=\"",
                  Px(top + height / 2 + 0.36 * font), "\" font-size=\"",
                  Px(font), "\" fill=\"", Hex(TextOn(colour)), "\">", label,
                  "</text>\n");
}

std::string Grid::Axis() const {
  if (rows_.boxes > 0) {
    return TimeAxisSvg(rows_.start_s, end_s_, kLeft, options_.width_px,
                       axis_y_);
  }
  return absl::StrCat("<text class=\"ink\" x=\"", Px(kLeft), "\" y=\"",
                      Px(axis_y_ + 16),
                      "\" fill=\"#1A1A1A\">nothing ran in this iteration"
                      "</text>\n");
}

}  // namespace

std::string ScheduleGridSvg(const Program& program,
                            const std::vector<TraceOp>& ops,
                            const GridOptions& options) {
  return Grid(program, ops, options).Write();
}

}  // namespace pipewright

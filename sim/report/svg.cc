#include "sim/report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/quantity.h"
#include "sim/program/program.h"
#include "sim/report/palette.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

// The contents of the grid, before it is drawn: operations of one replica and
// iteration sorted into rows and lanes.

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
constexpr double kLeft = kGridLeft;
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

// Outline of an overlapped pair.
Paint PairOutline() { return {.css = "pair", .stroke = kInk, .width = 1.6}; }

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

  // Draws; once.
  Svg Draw(double* height) {
    for (size_t rank = 0; rank < rows_.compute.size(); ++rank) WriteRank(rank);
    if (rows_.boxes > 0) {
      svg_.TimeAxis(rows_.start_s, end_s_, kLeft, options_.width_px, axis_y_);
    } else {
      svg_.Text(kLeft, axis_y_ + 16, "nothing ran in this iteration");
    }
    *height = axis_y_ + 42;
    return std::move(svg_);
  }
  std::string Title() const {
    return options_.title.empty() ? program_.name : options_.title;
  }

 private:
  std::string ReplicaB() const {
    return absl::StrCat("url(#replica-b", options_.suffix, ")");
  }
  double X(double time_s) const {
    return kLeft + (time_s - rows_.start_s) * scale_;
  }
  double Width(const TraceOp& op) const {
    return (op.end_s - op.start_s) * scale_;
  }
  Colour ColourOfBox(const Box& box) const {
    return ColourOf(box.style, Chunk(*box.op), vpp_);
  }

  void Measure();
  void WriteHead();
  void WriteRank(size_t rank);
  void WriteRow(const GridRow& row, double top, double height, bool numbers);
  void WriteTogether(const GridRow& row, double top, double height);
  void WriteBox(const Box& box, double top, double height);
  void WriteLabel(const Box& box, double top, double height, Svg* labels) const;

  const Program& program_;
  const GridOptions& options_;
  const int vpp_;
  const GridRows rows_;
  Svg svg_;
  bool has_narrow_ = false;
  double end_s_ = 0;  // of the axis
  double scale_ = 0;  // pixels a second
  double narrowest_ = kNarrowest;
  double column_ = kNarrowest;  // of what is drawn together; never narrower
  double top_ = 0;
  double row_height_ = 0;
  double pitch_ = 0;
  double axis_y_ = 0;
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
  WriteHead();
  axis_y_ = top_ + pitch_ * rows_.compute.size() + 2;
}

void Grid::WriteHead() {
  if (rows_.has_replica_b) {
    svg_.Add(absl::StrCat(
        "<defs><pattern id=\"replica-b", options_.suffix,
        "\" width=\"6\" height=\"6\" "
        "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
        "<rect width=\"1.6\" height=\"6\" fill=\"#000\" "
        "fill-opacity=\".5\"/></pattern></defs>\n"));
  }
  svg_.Heading(kLeft, 22, Title());
  std::vector<LegendItem> items;
  for (int index = 0; index < kNumStyles; ++index) {
    if (!rows_.present[index]) continue;
    const Style style = static_cast<Style>(index);
    const int count = style <= Style::kRecompute ? std::min(vpp_, 4) : 1;
    LegendItem& item = items.emplace_back();
    item.label = std::string(StyleLabel(style));
    item.width = 15.0 * count - 1;
    for (int shade = 0; shade < count; ++shade) {
      const int chunk = count == 1 ? 0 : shade * (vpp_ - 1) / (count - 1);
      item.swatch.Rect(15 * shade, 0, 14, 14,
                       {.fill = Hex(ColourOf(style, chunk, vpp_))});
    }
  }
  if (rows_.boxes > 0) {
    items.push_back(LegendItem::Box("idle", {.css = "idle", .fill = kIdle}));
  }
  if (rows_.has_replica_b) {
    items.push_back(LegendItem::Box("replica b", {.fill = "#C8C8C8"}));
    items.back().swatch.Rect(0, 0, 14, 14, {.fill = ReplicaB()});
  }
  if (rows_.has_pairs) {
    LegendItem& item = items.emplace_back();
    item.label = "overlapped pair";
    item.width = 22;
    item.swatch.Rect(1, 0, 20, 14, PairOutline());
  }
  if (vpp_ > 1) items.push_back({"(lighter: later chunk)"});
  if (has_narrow_) {
    items.push_back({"(stacked: many passes, by share of time)"});
  }
  top_ = svg_.Legend(items, kLeft, 36, options_.width_px) + 6;
}

void Grid::WriteRank(size_t rank) {
  const double top = top_ + pitch_ * rank;
  size_t label_every = 1;
  while (label_every * pitch_ < kFont) label_every *= 2;
  if (rank % label_every == 0) {
    svg_.Text(kLeft - 8, top + row_height_ / 2 + 4, absl::StrCat("rank ", rank),
              {.anchor = "end"});
  }
  // Idle is what lies before the last operation of the picture.
  const double width =
      rows_.boxes > 0 ? X(rows_.end_s) - kLeft : options_.width_px;
  svg_.Rect(kLeft, top, width, row_height_, {.css = "idle", .fill = kIdle});
  WriteRow(rows_.compute[rank], top, row_height_, row_height_ >= 9);
  double lane_top = top + row_height_ + 1;
  for (const std::vector<GridRow>& lane : rows_.lanes) {
    svg_.Rect(kLeft, lane_top, width, kLane - 1,
              {.css = "idle", .fill = "#F2F2F2"});
    WriteRow(lane[rank], lane_top, kLane - 1, false);
    lane_top += kLane;
  }
}

void Grid::WriteRow(const GridRow& row, double top, double height,
                    bool numbers) {
  WriteTogether(row, top, height);
  Svg outlines;
  Svg labels;
  std::map<std::string, std::string> shapes;  // by colour
  for (const Box& box : row) {
    const double x = X(box.op->start_s);
    const double box_width = Width(*box.op);
    if (box_width >= narrowest_) {
      const double half = height / 2;
      const double box_top = box.part == Part::kLower ? top + half : top;
      const double box_height = box.part == Part::kWhole ? height : half;
      if (rows_.boxes <= kMaxTooltips || IsReplicaB(*box.op)) {
        WriteBox(box, box_top, box_height);
      } else {
        shapes[Hex(ColourOfBox(box))] +=
            PathOf({"M", x, box_top, "h", box_width, "v", box_height, "h",
                    -box_width, "z"});
      }
      if (numbers) WriteLabel(box, box_top, box_height, &labels);
    }
    const double width = X(box.joint_end_s) - x;
    if (box.joint_end_s > 0 && width >= 4) {
      outlines.Rect(x + 0.8, top + 0.8, width - 1.6, height - 1.6,
                    PairOutline());
    }
  }
  for (const auto& [colour, shape] : shapes) {
    svg_.Path(shape, {.css = "ops", .fill = colour});
  }
  if (outlines.empty() && labels.empty()) return;
  svg_.Open("text-anchor=\"middle\" pointer-events=\"none\"");
  svg_.Add(outlines);
  svg_.Add(labels);
  svg_.Close();
}

// What is too narrow for a box of its own: columns, each with a stack that
// shows the share of time of every kind. Neighbours filled by one kind alone
// become one rectangle.
void Grid::WriteTogether(const GridRow& row, double top, double height) {
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
      const double width = (end - column) * column_width;
      paths[index] += PathOf({"M", kLeft + column * column_width, y, "h", width,
                              "v", part, "h", -width, "z"});
      if (share >= kFull) {
        column = end - 1;
        break;
      }
    }
  }
  for (int index = 0; index < kNumStyles; ++index) {
    if (paths[index].empty()) continue;
    svg_.Path(paths[index],
              {.fill = Hex(ColourOf(static_cast<Style>(index), 0, vpp_)),
               .more = " shape-rendering=\"crispEdges\""});
  }
}

void Grid::WriteBox(const Box& box, double top, double height) {
  const TraceOp& op = *box.op;
  const double width = Width(op);
  // A gap between neighbours where there is room for one.
  const double inset = width >= 3 ? 0.4 : 0;
  Paint paint = {.css = "op", .fill = Hex(ColourOfBox(box))};
  const auto draw = [&] {
    svg_.Rect(X(op.start_s) + inset, top, width - 2 * inset, height, paint);
  };
  if (IsReplicaB(op)) {
    draw();
    paint = {.fill = ReplicaB()};
  }
  if (rows_.boxes <= kMaxTooltips) {
    const std::string name =
        op.kind == OpKind::kPass && program_.schedule != nullptr
            ? PassToString(*program_.OfReplica(op.replica).schedule, op.pass)
            : std::string(OpKindName(op.kind));
    paint.title = absl::StrCat(name, " on rank ", op.rank, ": ",
                               FormatSeconds(op.start_s), " to ",
                               FormatSeconds(op.end_s));
  }
  draw();
}

void Grid::WriteLabel(const Box& box, double top, double height,
                      Svg* labels) const {
  const TraceOp& op = *box.op;
  const std::string label = BoxLabel(program_, op);
  // Boxes of one width have one size of text, or all go without.
  const double font =
      std::min({kFont, 0.62 * height,
                (Width(op) - 3) / (kDigitEm * rows_.longest_label)});
  if (label.empty() || font < kSmallestFont) return;
  const Colour colour = ColourOfBox(box);
  const double middle = X(op.start_s) + Width(op) / 2;
  if (IsReplicaB(op)) {
    // No hatch through the number: a patch in the colour of the box.
    const double width =
        std::min(Width(op) - 2, kDigitEm * font * label.size() + 3);
    labels->Rect(middle - width / 2, top + (height - font) / 2, width, font,
                 {.css = "patch", .fill = Hex(colour)});
  }
  labels->Text(middle, top + height / 2 + 0.36 * font, label,
               {.size = font, .fill = Hex(TextOn(colour))});
}

}  // namespace

Svg ScheduleGrid(const Program& program, const std::vector<TraceOp>& ops,
                 const GridOptions& options, double* height) {
  const TimesInUnits units(program.in_units);
  return Grid(program, ops, options).Draw(height);
}

std::string ScheduleGridSvg(const Program& program,
                            const std::vector<TraceOp>& ops,
                            const GridOptions& options) {
  const TimesInUnits units(program.in_units);
  Grid grid(program, ops, options);
  double height = 0;
  const Svg svg = grid.Draw(&height);
  return svg.Finish(kLeft + options.width_px + kRight, height, grid.Title());
}

}  // namespace pipewright

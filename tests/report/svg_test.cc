#include "sim/report/svg.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/report/palette.h"
#include "sim/report/svg_parts.h"
#include "tests/support/toy_ops.h"
#include "tests/support/xml_check.h"

namespace pipewright::svg_test {
namespace {

using testing::Count;
using testing::Replay;
using testing::ToyOneForwardOneBackward;
using testing::ToyRun;
using testing::ToySplitBackward;
using testing::XmlProblem;

TraceOp PassOp(int rank, Pass pass, double start_s, double end_s) {
  TraceOp op;
  op.rank = rank;
  op.pass = pass;
  op.start_s = start_s;
  op.end_s = end_s;
  return op;
}

Program BareProgram(int pp) {
  Program program;
  program.name = "by-hand";
  program.ranks.resize(pp);
  return program;
}

TEST_CASE("svg: the checker finds what is not well formed", "[svg]") {
  CHECK(XmlProblem("<a b=\"1\"><c/>x &amp; y</a>") == "");
  for (const char* broken :
       {"<a>", "<a></b>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "<a>&</a>",
        "<a b=\"<\"/>", "<a/><b/>", "", "<a b=\"1\"c=\"2\"/>", "<a>></a>"}) {
    CHECK(XmlProblem(broken) != "");
  }
}

TEST_CASE("svg: a box for each pass, with its number", "[svg]") {
  const ToyRun toy = Replay(ToyOneForwardOneBackward(4, 8), {});
  const std::string svg = ScheduleGridSvg(toy.program, toy.ops, {});
  CHECK(XmlProblem(svg) == "");
  CHECK(absl::StartsWith(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" "));
  CHECK(absl::StrContains(svg, "viewBox="));
  CHECK(Count(svg, "class=\"op\"") == 64);
  for (int microbatch = 0; microbatch < 8; ++microbatch) {
    // Once as F and once as BW on each of four ranks; the axis has labels 0
    // and 5 too.
    const int axis = microbatch % 5 == 0 ? 1 : 0;
    CHECK(Count(svg, absl::StrCat(">", microbatch, "</text>")) == 8 + axis);
  }
  CHECK(Count(svg, ">rank ") == 4);
  CHECK(absl::StrContains(svg, "time (s)"));
  CHECK(Count(svg, "F forward") == 1);
  CHECK(Count(svg, "BW full backward") == 1);
  CHECK(!absl::StrContains(svg, "W gradient of weights"));
  CHECK(!absl::StrContains(svg, "replica-b"));
}

TEST_CASE("svg: boxes are to scale", "[svg]") {
  const std::vector<TraceOp> ops = {
      PassOp(0, Pass(PassKind::kForward, 0), 1, 2),
      PassOp(0, Pass(PassKind::kBackwardFull, 0), 3, 5)};
  GridOptions options;
  options.width_px = 400;
  const std::string svg = ScheduleGridSvg(BareProgram(1), ops, options);
  // 100 pixels a second from x = 66, less a gap of 0.4 on each side.
  CHECK(absl::StrContains(svg, "class=\"op\" x=\"66.4\""));
  CHECK(absl::StrContains(svg, "width=\"99.2\""));
  CHECK(absl::StrContains(svg, "class=\"op\" x=\"266.4\""));
  CHECK(absl::StrContains(svg, "width=\"199.2\""));
}

TEST_CASE("svg: numbers only where they fit", "[svg]") {
  const ToyRun toy = Replay(ToyOneForwardOneBackward(2, 20), {});
  GridOptions options;
  options.width_px = 300;  // 5 pixels an F
  const std::string narrow = ScheduleGridSvg(toy.program, toy.ops, options);
  CHECK(Count(narrow, "class=\"op\"") == 80);
  CHECK(Count(narrow, ">7</text>") == 0);
  options.width_px = 3000;
  const std::string wide = ScheduleGridSvg(toy.program, toy.ops, options);
  CHECK(Count(wide, ">7</text>") == 4);
}

TEST_CASE("svg: only the iteration and replica asked for", "[svg]") {
  std::vector<TraceOp> ops(4, PassOp(0, Pass(PassKind::kForward, 0), 0, 1));
  ops[1].iteration = 1;
  ops[2].replica = 1;
  ops[3].stream = Stream::kSend;
  CHECK(Count(ScheduleGridSvg(BareProgram(1), ops, {}), "class=\"op\"") == 1);
  GridOptions second;
  second.iteration = 1;
  CHECK(Count(ScheduleGridSvg(BareProgram(1), ops, second), "class=\"op\"") ==
        1);
  second.replica = 1;
  const std::string nothing = ScheduleGridSvg(BareProgram(1), ops, second);
  CHECK(Count(nothing, "class=\"op\"") == 0);
  CHECK(XmlProblem(nothing) == "");
  CHECK(absl::StrContains(nothing, "nothing ran"));
}

TEST_CASE("svg: chunks are shades, the second replica is hatched", "[svg]") {
  Program program = BareProgram(4);
  auto schedule = std::make_shared<Schedule>();
  schedule->placement = Placement::V(4);
  schedule->directions = 2;
  program.schedule = schedule;
  const std::vector<TraceOp> ops = {
      PassOp(0, Pass(PassKind::kForward, 0, 0), 0, 1),
      PassOp(0, Pass(PassKind::kForward, 0, 1), 1, 2),
      PassOp(0, Pass(PassKind::kForward, 1, 0, 0, 1), 2, 3)};
  const std::string svg = ScheduleGridSvg(program, ops, {});
  CHECK(XmlProblem(svg) == "");
  CHECK(Count(svg, "class=\"op\"") == 3);
  const std::string dark = Hex(ColourOf(Style::kForward, 0, 2));
  const std::string light = Hex(ColourOf(Style::kForward, 1, 2));
  CHECK(dark != light);
  // Two boxes, the patch behind a number, and the legend.
  CHECK(Count(svg, dark) == 4);
  CHECK(Count(svg, "class=\"patch\"") == 1);
  // The patch is drawn over the hatch.
  CHECK(svg.find("class=\"patch\"") > svg.rfind("url(#replica-b)"));
  CHECK(Count(svg, light) == 2);
  // A box and the legend.
  CHECK(Count(svg, "fill=\"url(#replica-b)\"") == 2);
  CHECK(Count(svg, "id=\"replica-b\"") == 1);
}

TEST_CASE("svg: an overlapped pair shares an outline", "[svg]") {
  std::vector<TraceOp> ops = {
      PassOp(0, Pass(PassKind::kForward, 1).WithJoint(true), 0, 3),
      PassOp(0, Pass(PassKind::kBackwardFull, 0), 0, 3),
      PassOp(0, Pass(PassKind::kForward, 2), 3, 4)};
  ops[0].joint = ops[1].joint = true;
  const std::string svg = ScheduleGridSvg(BareProgram(1), ops, {});
  CHECK(Count(svg, "class=\"op\"") == 3);
  CHECK(Count(svg, "class=\"pair\"") == 2);  // and the legend
  // Each of the two has half of the 28 pixels.
  CHECK(Count(svg, "height=\"14\" fill=\"#0072B2\"><title>") == 1);
  CHECK(Count(svg, "height=\"14\" fill=\"#F0E442\"><title>") == 1);
  // One after the other they keep the full height.
  ops[0].end_s = ops[1].start_s = 1;
  const std::string after = ScheduleGridSvg(BareProgram(1), ops, {});
  CHECK(Count(after, "class=\"pair\"") == 2);
  CHECK(Count(after, "height=\"28\" fill=\"#F0E442\"><title>") == 1);
}

TEST_CASE("svg: collectives and copies have lanes where present", "[svg]") {
  std::vector<TraceOp> ops = {PassOp(0, Pass(PassKind::kForward, 0), 0, 1),
                              PassOp(1, Pass(PassKind::kForward, 0), 1, 2)};
  CHECK(Count(ScheduleGridSvg(BareProgram(2), ops, {}), "class=\"idle\"") ==
        3);  // two rows and the legend
  TraceOp reduce = ops[0];
  reduce.kind = OpKind::kAllReduce;
  reduce.stream = Stream::kCollective;
  TraceOp offload = ops[1];
  offload.kind = OpKind::kOffload;
  offload.stream = Stream::kD2H;
  ops.push_back(reduce);
  ops.push_back(offload);
  const std::string svg = ScheduleGridSvg(BareProgram(2), ops, {});
  CHECK(Count(svg, "class=\"idle\"") == 7);
  CHECK(Count(svg, "class=\"op\"") == 4);
  CHECK(Count(svg, ">collective</text>") == 1);
  CHECK(Count(svg, ">offload</text>") == 1);
}

TEST_CASE("svg: names are escaped", "[svg]") {
  Program program = BareProgram(1);
  program.name = "<b> & \"quoted\"";
  const std::string svg = ScheduleGridSvg(program, {}, {});
  CHECK(XmlProblem(svg) == "");
  CHECK(absl::StrContains(svg, "&lt;b&gt; &amp; &quot;quoted&quot;"));
}

TEST_CASE("svg: a large schedule stays small", "[svg]") {
  // 32 ranks of 8000 passes, too narrow for a box each.
  const ToyRun large = Replay(ToyOneForwardOneBackward(32, 4000), {});
  const std::string svg = ScheduleGridSvg(large.program, large.ops, {});
  CHECK(XmlProblem(svg) == "");
  CHECK(svg.size() < 3'000'000);
  CHECK(Count(svg, "by share of time") == 1);
  // As many boxes as the limit lets through, the worst case.
  const ToyRun dense = Replay(ToySplitBackward(128, 40), {});
  const std::string boxes = ScheduleGridSvg(dense.program, dense.ops, {});
  CHECK(boxes.size() < 3'000'000);
}

// Each row its own picture: where the first forwards and the last backwards
// are.
TEST_CASE("svg: 64 ranks of 1024 passes are no 64 equal stripes", "[svg]") {
  const ToyRun toy = Replay(ToyOneForwardOneBackward(64, 512), {});
  for (const double width : {1060.0, 1600.0}) {
    const std::string svg =
        ScheduleGridSvg(toy.program, toy.ops, {.width_px = width});
    CHECK(XmlProblem(svg) == "");
    CHECK(svg.size() < 4'000'000);
    CHECK(Count(svg, "by share of time") == 0);
    // Two colours a row, each one shape.
    CHECK(Count(svg, "<path class=\"ops\"") == 128);
  }
}

TEST_CASE("svg: narrow neighbours of one kind are one shape", "[svg]") {
  std::vector<TraceOp> ops;
  for (int index = 0; index < 10000; ++index) {
    ops.push_back(PassOp(0, Pass(PassKind::kForward, index), index, index + 1));
  }
  const std::string svg = ScheduleGridSvg(BareProgram(1), ops, {});
  CHECK(Count(svg, "class=\"op\"") == 0);
  CHECK(Count(svg, "fill=\"#0072B2\" d=\"M66 ") == 1);
  CHECK(Count(svg, "h1600v28h-1600z\"") == 1);
}

TEST_CASE("svg: text on every colour has contrast", "[svg]") {
  std::set<std::string> seen;
  for (int index = 0; index < kNumStyles; ++index) {
    for (const int vpp : {1, 2, 8}) {
      for (int chunk = 0; chunk < vpp; ++chunk) {
        const Colour colour = ColourOf(static_cast<Style>(index), chunk, vpp);
        // WCAG 2.1, success criterion 1.4.3: at least 4.5 to 1.
        CHECK(Contrast(colour, TextOn(colour)) >= 4.5);
        seen.insert(Hex(colour));
      }
    }
  }
  // Chunk 0 is the same colour for each vpp, all others differ.
  CHECK(seen.size() == kNumStyles * (1 + 7));
  // The four common kinds differ in print without colour.
  const Style kinds[] = {Style::kForward, Style::kBackwardWeight,
                         Style::kBackwardInput, Style::kBackwardFull};
  for (int index = 0; index < 3; ++index) {
    const Colour darker = ColourOf(kinds[index], 0, 1);
    const Colour lighter = ColourOf(kinds[index + 1], 0, 1);
    const Colour black = {0, 0, 0};
    CHECK(Contrast(lighter, black) > 1.25 * Contrast(darker, black));
  }
}

TEST_CASE("svg: ticks are whole multiples of 1, 2 or 5", "[svg]") {
  CHECK(TickStep(0.3) == Approx(0.5));
  CHECK(TickStep(1) == 1);
  CHECK(TickStep(1.1) == 2);
  CHECK(TickStep(6e-7) == Approx(1e-6));
  std::vector<std::string> labels;
  for (const AxisTick& tick : TicksOf(-3, 4.5, 2)) labels.push_back(tick.label);
  CHECK(labels == std::vector<std::string>{"-2", "0", "2", "4"});
  // Rounding neither adds nor takes a tick at an end.
  CHECK(TicksOf(0, 0.3, 0.1).size() == 4);
  CHECK(PathOf({"M", 1.0, -0.001, "h", 2.346}) == "M1 0h2.35");
}

TEST_CASE("svg: every text of a picture is escaped", "[svg]") {
  const std::string odd = "a<b & \"c\"";
  Svg svg;
  svg.Text(1, 2, odd, {.anchor = "end", .size = 9, .bold = true});
  svg.Rect(0, 0, 10, 10, {.fill = "#FFFFFF", .title = odd});
  svg.Open("class=\"group\"", odd);
  svg.Circle(5, 5, 1, {.stroke = kInk, .dashes = "4 3"});
  svg.Close();
  svg.XAxis({.ticks = {{0.5, odd}}, .title = odd}, 0, 100, 50);
  svg.YAxis({.ticks = {{0.5, odd}}}, 0, 50, 40);
  svg.Legend({LegendItem::Box(odd, {.fill = kIdle}),
              LegendItem::Line(odd, {.stroke = kHues[0]})},
             0, 0, 500);
  const std::string picture = svg.Finish(200, 100, odd);
  CHECK(XmlProblem(picture) == "");
  CHECK(Count(picture, "a&lt;b &amp; &quot;c&quot;") == 9);
  CHECK(absl::StrContains(picture, "viewBox=\"0 0 200 100\""));
}

TEST_CASE("svg: a legend goes on below if a line is full", "[svg]") {
  const auto bottom = [](double width) {
    Svg svg;
    return svg.Legend({LegendItem::Box("first", {.fill = kIdle}),
                       LegendItem::Box("second", {.fill = kIdle}),
                       LegendItem::Box("third", {.fill = kIdle})},
                      10, 30, width);
  };
  CHECK(bottom(1000) == Approx(50));
  CHECK(bottom(160) == Approx(70));
  CHECK(bottom(1) == Approx(90));
}

}  // namespace
}  // namespace pipewright::svg_test

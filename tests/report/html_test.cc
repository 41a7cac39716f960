#include "sim/report/html.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/base/version.h"
#include "sim/report/html_parts.h"
#include "tests/support/memory_example.h"
#include "tests/support/toy_ops.h"
#include "tests/support/xml_check.h"

namespace pipewright::html_test {
namespace {

using testing::Count;
using testing::Replay;
using testing::ToyOneForwardOneBackward;
using testing::ToyRun;
using testing::ToySplitBackward;
using testing::XmlProblem;

ToyRun ZbRun(int pp, int microbatches) {
  return Replay(ToySplitBackward(pp, microbatches),
                {18.522e-3, 18.086e-3, 9.337e-3, 0.601e-3, 32e6});
}

std::string Html(const ToyRun& toy, Report* report = nullptr) {
  Report own = Summarize(toy.program, toy.run,
                         std::vector<double>(toy.program.pp(), 2.5));
  own.engine = "fast";
  own.network = "hop 0.601 ms";
  own.warnings = {"a <warning> & more"};
  if (report != nullptr) *report = own;
  return ReportHtml(own, toy.program, toy.ops);
}

// Occurrences of http(s):// other than the name of SVG's namespace.
int Links(absl::string_view html) {
  return Count(html, "http://") + Count(html, "https://") -
         Count(html, "http://www.w3.org/2000/svg");
}

TEST_CASE("html: the page is well formed and needs nothing else", "[html]") {
  const std::string html = Html(ZbRun(8, 24));
  CHECK(absl::StartsWith(html, "<!DOCTYPE html>"));
  CHECK(XmlProblem(html) == "");
  CHECK(Links(html) == 0);
  for (const char* part : {"<script src", "<iframe", "<img", "@import",
                           "src=", "url(http", "<link rel=\"stylesheet\""}) {
    CHECK(!absl::StrContains(html, part));
  }
}

TEST_CASE("html: every section is there with the report's numbers", "[html]") {
  const ToyRun toy = Replay(ToyOneForwardOneBackward(2, 2), {});
  const std::string html = Html(toy);
  for (const char* id : {"headline", "warnings", "timeline", "grid", "memory",
                         "ranks", "how-to-read", "pw-data", "pw-block"}) {
    CHECK(Count(html, absl::StrCat("id=\"", id, "\"")) == 1);
  }
  // Hops that move nothing in no time are not listed.
  CHECK(Count(html, "id=\"transfers\"") == 0);
  CHECK(absl::StrContains(html, "33.33 %"));  // 3 of 9
  CHECK(absl::StrContains(html, "50.00 %"));  // 3 over 6
  CHECK(absl::StrContains(html, "(span − busy) / span"));
  CHECK(absl::StrContains(html, "(span − busy) / busy"));
  CHECK(absl::StrContains(html, "a &lt;warning&gt; &amp; more"));
  CHECK(Count(html, "class=\"op\"") == 8);
  CHECK(Count(html, "class=\"bar\"") == 2);
  CHECK(absl::StrContains(html, "kernel launch gaps"));
  CHECK(absl::StrContains(html, absl::StrCat("Pipewright ", kVersion)));
}

TEST_CASE("html: transfers are summed by pair of ranks", "[html]") {
  const std::string html = Html(ZbRun(3, 5));
  CHECK(Count(html, "id=\"transfers\"") == 1);
  const auto row = [](absl::string_view what, int from, int to) {
    return absl::StrCat("<td class=\"word\">", what,
                        "</td><td class=\"word\">rank ", from,
                        "</td><td class=\"word\">rank ", to,
                        "</td><td>5</td><td>152.6 MiB</td><td>601 us</td>");
  };
  CHECK(Count(html, row("activation", 0, 1)) == 1);
  CHECK(Count(html, row("activation", 1, 2)) == 1);
  CHECK(Count(html, row("gradient", 2, 1)) == 1);
  CHECK(Count(html, row("gradient", 1, 0)) == 1);
  // 2 ways, 2 hops, 5 microbatches, 32 MB each.
  CHECK(absl::StrContains(html, "Sent between ranks: 610.4 MiB"));
}

TEST_CASE("html: without grid the page is small even for many ranks",
          "[html]") {
  Report report;
  ToyRun toy = ZbRun(600, 2);
  Html(toy, &report);
  const std::string html = ReportHtml(report, toy.program, {});
  CHECK(XmlProblem(html) == "");
  // The empty grid still has its rows' labels and backgrounds.
  CHECK(Count(html, "id=\"timeline\"") == 0);
  const size_t start = html.find("<section id=\"grid\"");
  const size_t end = html.find("<section id=\"memory\">");
  REQUIRE(start < end);
  REQUIRE(end != std::string::npos);
  // Nor do style and script count, which are the same on every page.
  const size_t shared = html.size() - html.find("<script>") +
                        html.find("</style>") - html.find("<style>");
  CHECK(html.size() - (end - start) - shared < 110'000);
  CHECK(absl::StrContains(html, "… 344 more"));
  CHECK(Count(html, "class=\"bar\"") == 300);  // by two ranks
}

TEST_CASE("html: the earliest iteration in the trace is drawn", "[html]") {
  ToyRun toy = ZbRun(2, 2);
  for (TraceOp& op : toy.ops) {
    op.iteration = 3;
    op.replica = 1;
  }
  CHECK(absl::StrContains(Html(toy), "zb-h1, iteration 3"));
  CHECK(Count(Html(toy), "class=\"op\"") == 12);
}

TEST_CASE("html: a bar chart of zeros has no NaN", "[html]") {
  const std::string svg = BarChartSvg({0, 0}, "name", "rank");
  CHECK(XmlProblem(svg) == "");
  CHECK(!absl::StrContains(svg, "nan"));
  CHECK(Count(svg, "height=\"0\"") == 2);
}

// Hidden: writes the pages that tests/browser opens.
TEST_CASE("html: pages for the browser test", "[.browser-pages]") {
  const char* folder = std::getenv("PIPEWRIGHT_BROWSER_PAGES");
  REQUIRE(folder != nullptr);
  const auto write = [folder](const char* name, const ToyRun& toy) {
    REQUIRE(
        WriteFile(absl::StrCat(folder, "/", name, ".html"), Html(toy)).ok());
  };
  write("1f1b", Replay(ToyOneForwardOneBackward(4, 8), {}));
  write("zb-h1", ZbRun(8, 24));
  testing::MemoryRun run = testing::MemoryExample();
  Report report = Summarize(run.toy.program, run.toy.run, {2, 1});
  run.report.limit_bytes = 2e6;
  run.report.limit_source = "system.memory";
  run.report.changes = {{"strategy.recompute full", 1e6, 1e6, true}};
  report.memory = run.report;
  REQUIRE(WriteFile(absl::StrCat(folder, "/memory.html"),
                    ReportHtml(report, run.toy.program, run.toy.ops))
              .ok());
}

TEST_CASE("html: model FLOPs are explained once", "[html]") {
  const ToyRun toy = ZbRun(2, 4);
  Report report;
  Html(toy, &report);
  report.throughput = Throughput{.tokens_per_s = 2000,
                                 .devices = 4,
                                 .flops = TokenFlops{.model = 6e11},
                                 .peak = {},
                                 .price_per_device_hour = {}};
  const std::string html = ReportHtml(report, toy.program, toy.ops);
  CHECK(Count(html, report.throughput->FlopsFormula()) == 1);
}

TEST_CASE("html: memory has its picture, table and verdict", "[html]") {
  testing::MemoryRun run = testing::MemoryExample();
  Report report = Summarize(run.toy.program, run.toy.run, {2, 1});
  CHECK(Count(ReportHtml(report, run.toy.program, run.toy.ops),
              "id=\"memory-bytes\"") == 0);
  run.report.limit_bytes = 1;
  run.report.limit_source = "system.memory";
  run.report.changes = {{"strategy.recompute full", 1e6, 1e6, true}};
  report.memory = run.report;
  const std::string html = ReportHtml(report, run.toy.program, run.toy.ops);
  CHECK(XmlProblem(html) == "");
  CHECK(Count(html, "id=\"memory-bytes\"") == 1);
  CHECK(Count(html, "class=\"memory\"") == 1);
  CHECK(absl::StrContains(html, "does not fit"));
  CHECK(absl::StrContains(html, "strategy.recompute full"));
  CHECK(absl::StrContains(html, "activations</th>"));
}

TEST_CASE("html: parts of pages escape and leave out what is empty", "[html]") {
  const std::string odd = "a<b & \"c\"";
  const std::string body = absl::StrCat(
      HeaderHtml(odd, odd), WarningsHtml({odd, odd}), WordsHtml({{odd, odd}}),
      CardHtml({.heading = odd,
                .figure = odd,
                .values = {{odd, odd}},
                .notes = {odd, odd}}),
      PlainHtml(odd));
  CHECK(XmlProblem(absl::StrCat("<body>", body, "</body>")) == "");
  CHECK(Count(body, "a&lt;b &amp; &quot;c&quot;") == 13);
  CHECK(WarningsHtml({}).empty());
  CHECK(!absl::StrContains(HeaderHtml("title"), "<p"));
  const std::string bare = CardHtml({.heading = "heading"});
  CHECK(!absl::StrContains(bare, "<p"));
  CHECK(!absl::StrContains(bare, "<dl"));
}

}  // namespace
}  // namespace pipewright::html_test

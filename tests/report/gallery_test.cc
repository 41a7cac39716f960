#include "sim/report/gallery.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/cli/verbs.h"
#include "sim/schedule/registry.h"
#include "tests/support/xml_check.h"

namespace pipewright::gallery_test {
namespace {

using testing::Count;
using testing::XmlProblem;

// Every registered schedule, costs F=3 B=5 W=7, hop 2.
Gallery Collected(int pp, int microbatches) {
  RunConfig config;
  config.strategy.pp = pp;
  config.strategy.microbatches = microbatches;
  config.costs.forward_s = 3e-3;
  config.costs.backward_input_s = 5e-3;
  config.costs.backward_weight_s = 7e-3;
  config.costs.p2p_s = 2e-3;
  auto gallery = CollectGallery(config);
  INFO(gallery.status().message());
  REQUIRE(gallery.ok());
  return *std::move(gallery);
}

TEST_CASE(
    "gallery: every registered schedule is drawn or refused with a "
    "reason",
    "[html]") {
  for (const int pp : {4, 3}) {
    const Gallery gallery = Collected(pp, 8);
    REQUIRE(gallery.entries.size() == AllSchedules().size());
    const std::string html = GalleryHtml(gallery);
    CHECK(XmlProblem(html) == "");
    int drawn = 0;
    for (const GalleryEntry& entry : gallery.entries) {
      INFO(entry.name << ": " << entry.refusal);
      const bool refused = !entry.refusal.empty();
      CHECK(entry.ops.empty() == refused);
      CHECK(Count(html, absl::StrCat("<section id=\"schedule-", entry.name,
                                     "\">")) == (refused ? 0 : 1));
      drawn += refused ? 0 : 1;
    }
    CHECK(drawn > 3);
    // And two figures, for where no charts are.
    CHECK(Count(html, "<svg ") == drawn + 2);
    CHECK(Count(html, "href=\"#") == drawn);
  }
}

TEST_CASE("gallery: equal lengths are equal times in all pictures", "[html]") {
  Gallery gallery = Collected(4, 8);
  gallery.figures.clear();  // they have axes of their own
  const std::string html = GalleryHtml(gallery);
  // "28 ms" would be a label of one axis only.
  const int pictures = Count(html, "<svg ");
  CHECK(Count(html, "time (ms)") == pictures);
  const size_t first = html.find("viewBox=\"0 0 ");
  const size_t blank = html.find(' ', first + 13);
  const std::string width = html.substr(first, blank - first + 1);
  CHECK(Count(html, width) == pictures);
}

TEST_CASE("gallery: figures stand where charts cannot be drawn", "[html]") {
  const Gallery gallery = Collected(4, 8);
  int drawn = 0;
  for (const GalleryEntry& entry : gallery.entries) {
    drawn += entry.refusal.empty();
  }
  REQUIRE(gallery.figures.size() == std::size(kGalleryCharts));
  for (size_t index = 0; index < gallery.figures.size(); ++index) {
    const std::string& svg = gallery.figures[index];
    const char* const words[] = {"Bubble fraction per rank", "Iteration time"};
    CHECK(absl::StrContains(svg,
                            absl::StrCat("aria-label=\"", words[index], ", ")));
    CHECK(absl::StrContains(svg, " against Peak activations, microbatches\""));
    // Each schedule has its mark.
    CHECK(Count(svg, "<circle ") == drawn);
    CHECK(absl::StrContains(svg, "<title>1f1b: "));
  }
  const std::string html = GalleryHtml(gallery);
  CHECK(Count(html, "<section id=\"trade\" class=\"live-only\">") == 1);
  CHECK(Count(html,
              "<section id=\"trade-figure\" "
              "class=\"static no-charts\">") == 1);
}

TEST_CASE("gallery: schedules that cut a sequence cut it alike", "[html]") {
  const Gallery gallery = Collected(4, 8);
  int sliced = 0;
  for (const GalleryEntry& entry : gallery.entries) {
    if (!entry.refusal.empty()) continue;
    INFO(entry.name);
    const bool cuts = FindSchedule(entry.name)->info->slice_factor != nullptr;
    CHECK(entry.report.slices == (cuts ? 4 : 1));
    sliced += cuts;
  }
  CHECK(sliced >= 3);
  const std::string html = GalleryHtml(gallery);
  CHECK(absl::StrContains(html, "Never flushed: "));
}

TEST_CASE("gallery: what a schedule refuses is said, not drawn", "[html]") {
  Gallery gallery;
  gallery.facts = {"pp 3"};
  gallery.warnings = {"a <warning>"};
  gallery.entries.push_back({"odd", "summary", "source", "pp: 3 & more"});
  const std::string html = GalleryHtml(gallery);
  CHECK(XmlProblem(html) == "");
  CHECK(absl::StrContains(html, "pp: 3 &amp; more"));
  CHECK(absl::StrContains(html, "a &lt;warning&gt;"));
  CHECK(Count(html, "<svg ") == 0);
}

TEST_CASE("gallery: nothing that could be drawn is an error", "[html]") {
  RunConfig config;
  config.strategy.pp = 0;
  CHECK(CollectGallery(config).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

// Hidden: writes the page that tests/browser opens.
TEST_CASE("gallery: page for the browser test", "[.browser-pages]") {
  const char* folder = std::getenv("PIPEWRIGHT_BROWSER_PAGES");
  REQUIRE(folder != nullptr);
  REQUIRE(WriteFile(absl::StrCat(folder, "/gallery.html"),
                    GalleryHtml(Collected(4, 8)))
              .ok());
}

}  // namespace
}  // namespace pipewright::gallery_test

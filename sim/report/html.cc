#include "sim/report/html.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/quantity.h"
#include "sim/program/program.h"
#include "sim/report/facts.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"
#include "sim/report/limits.h"
#include "sim/report/memory_svg.h"
#include "sim/report/page_data.h"
#include "sim/report/run_data.h"
#include "sim/report/svg.h"

namespace pipewright {
namespace {

constexpr size_t kMaxRankRows = 256;
constexpr size_t kMaxTransferRows = 64;
constexpr size_t kMaxOpRows = 200;
// More bars than this would be thinner than two pixels.
constexpr size_t kMaxBars = 480;

// What every section sees; `replica` and `iteration` are those drawn.
struct Page {
  const Report& report;
  const Program& program;
  const std::vector<TraceOp>& ops;
  absl::string_view more;
  const PageExtras* extras = nullptr;
  int replica = 0;
  int iteration = 0;

  bool Shows(const TraceOp& op) const {
    return op.replica == replica && op.iteration == iteration;
  }
  // "1f1b, iteration 0, data-parallel replica 1".
  std::string PictureTitle() const;
  // Whose bytes are drawn: of the class that they are of, which need not be
  // the slowest.
  int MemoryReplica() const;
};

constexpr size_t kMostMemoryRows = 256;
constexpr size_t kMostChangeRows = 64;
// Fits a landscape page of paper with numbers that can be read.
constexpr double kStaticWidth = 1060;

std::string Page::PictureTitle() const {
  std::string title =
      absl::StrFormat("%s, iteration %d", report.schedule, iteration);
  if (report.dp > 1) {
    absl::StrAppend(&title, ", data-parallel replica ", replica);
    if (report.dp_classes) {
      absl::StrAppend(&title, " of class ", program.ClassOf(replica),
                      ", the slowest");
    }
  }
  return title;
}

int Page::MemoryReplica() const {
  return report.dp_classes
             ? program.FirstReplicas()[report.dp_classes->hungriest]
             : replica;
}

// The timeline that the script draws, with its sliders and memory.
std::string TimelineSection(const Page& page) {
  if (page.ops.empty()) return "";
  std::string sliders;
  if (page.extras != nullptr && page.extras->replay) {
    sliders =
        "<details id=\"what-if\"><summary>Other times</summary>\n<div "
        "id=\"what-if-panel\"></div></details>\n";
  } else if (page.extras != nullptr && !page.extras->no_replay.empty()) {
    sliders = absl::StrCat(
        "<p class=\"quiet\" id=\"no-sliders\">No sliders "
        "for other times: ",
        EscapeXml(page.extras->no_replay), ".</p>\n");
  }
  return SectionHtml(
      "timeline", "Timeline",
      absl::StrCat("<p class=\"quiet\">", EscapeXml(page.PictureTitle()),
                   "</p>\n<div id=\"timeline-tools\"></div>\n<div "
                   "id=\"timeline-0\"></div>\n<div "
                   "id=\"memory-chart\"></div>\n",
                   sliders),
      kShownLive);
}

// "" where nothing is drawn.
std::string TimelineData(const Page& page) {
  if (page.ops.empty()) return "";
  PageData data;
  AddPageWords(&data);
  data.json()["runs"] = Json::array();
  data.json()["runs"].push_back(
      RunJson(page.report, page.program, page.ops,
              {.name = page.report.schedule,
               .replica = page.replica,
               .iteration = page.iteration,
               .memory_replica = page.MemoryReplica()},
              page.extras, &data));
  return data.Elements();
}

// The static picture in its place.
std::string GridSection(const Page& page) {
  GridOptions options;
  options.replica = page.replica;
  options.iteration = page.iteration;
  options.width_px = kStaticWidth;
  options.title = page.PictureTitle();
  return SectionHtml(
      "grid", "Schedule",
      PictureHtml(ScheduleGridSvg(page.program, page.ops, options)),
      kShownStatic);
}

std::string MemoryBytesSection(const Page& page) {
  if (!page.report.memory) return "";
  const MemoryReport& report = *page.report.memory;
  std::string body;
  const std::string verdict = MemoryVerdictLine(report);
  if (!verdict.empty()) {
    absl::StrAppend(&body, "<p", report.fits() ? "" : " class=\"bad\"", ">",
                    EscapeXml(verdict), ".</p>\n");
  }
  absl::StrAppend(
      &body, "<p class=\"quiet\">Beyond the allocator's figures: ",
      BeyondAllocator(report.memory->ranks[report.memory->WorstRank()]),
      ".</p>\n");
  if (!report.changes.empty()) {
    HtmlTable changes;
    changes.header = {"what would help most", "saves", "then needs",
                      "enough alone"};
    for (const MemoryChange& change : report.changes) {
      changes.rows.push_back({change.change, FormatBytes(change.saved_bytes),
                              FormatBytes(change.needed_bytes),
                              change.fits ? "yes" : "no"});
    }
    body += TableHtml(changes, kMostChangeRows);
  }
  if (page.program.schedule != nullptr && !page.ops.empty()) {
    MemoryPicture picture;
    picture.replica = page.MemoryReplica();
    picture.iteration = page.iteration;
    picture.limit_bytes = report.allocator_limit();
    absl::StrAppend(
        &body,
        "<div class=\"static\">\n<p class=\"quiet\">Over the time of the "
        "iteration that "
        "is drawn; a pass stands at its highest point",
        picture.limit_bytes ? ", the dashed line at what is left "
                              "of the device's memory"
                            : "",
        ".</p>\n",
        PictureHtml(
            MemoryOverTimeSvg(page.program, *report.memory, page.ops, picture)),
        "</div>\n");
  }
  const MemoryTable table = MemoryTableOf(report);
  HtmlTable html;
  html.header = table.header;
  html.rows = table.rows;
  // Where the peak is stands next to the rank.
  html.text_columns = 2;
  const auto reorder = [](std::vector<std::string>& cells) {
    std::rotate(cells.begin() + 1, cells.end() - 1, cells.end());
  };
  reorder(html.header);
  for (std::vector<std::string>& row : html.rows) reorder(row);
  absl::StrAppend(&body,
                  "<p class=\"quiet\">At the peak of each rank, in "
                  "GiB.</p>\n",
                  TableHtml(html, kMostMemoryRows));
  return SectionHtml("memory-bytes", "Memory", body);
}

std::string Heading(const Page& page) {
  const Report& report = page.report;
  std::vector<std::string> facts;
  for (const ReportFact& fact : FactsOf(report)) {
    facts.push_back(FactText(fact));
  }
  return HeaderHtml(report.schedule, absl::StrJoin(facts, " · "));
}

// Values of both spans; what is the same stands once.
std::string BothText(std::string (*format)(double),
                     const GlobalAndPerRank& value) {
  const std::string global = format(value.global);
  const std::string per_rank = format(value.per_rank);
  return global == per_rank
             ? global
             : absl::StrCat(global, " global, ", per_rank, " per rank");
}

// A card with times or shares of both spans.
std::string SpanCard(absl::string_view name, std::string (*format)(double),
                     const GlobalAndPerRank& value,
                     std::vector<std::string> notes) {
  HtmlCard card = {.heading = std::string(name), .notes = std::move(notes)};
  if (format(value.global) == format(value.per_rank)) {
    card.figure = format(value.global);
    card.notes.emplace_back("global and per rank alike");
  } else {
    card.values = {{"global", format(value.global)},
                   {"per rank", format(value.per_rank)}};
  }
  return CardHtml(card);
}

std::string OffloadCard(const OffloadReport& report) {
  const RankOffloadReport all = report.Total();
  return CardHtml(
      {.heading = "Offload",
       .values = {{"on the host",
                   absl::StrCat(all.offloaded, " of ", all.activations)},
                  {"k", absl::StrFormat("%.2f", report.most_ratio)},
                  {"exposed", FormatSeconds(all.exposed_s)},
                  {"held back", FormatSeconds(all.held_back_s)}},
       .notes = {"activations of an iteration; k: O and L over F, B and W of a "
                 "chunk; exposed: passes wait for a load alone; held back: "
                 "until an O has given memory back, on the rank that waits "
                 "longest"}});
}

// Fits, step, what limits it, how sure, and where the times are from.
std::string Verdict(const Page& page) {
  const Report& report = page.report;
  HtmlWords words;
  const auto add = [&words](const char* name, std::string text) {
    if (!text.empty()) words.emplace_back(name, std::move(text));
  };
  if (report.memory) add("Memory", MemoryVerdictLine(*report.memory));
  std::string step = FormatSeconds(report.iteration_s);
  if (report.throughput) {
    absl::StrAppend(&step, ", ",
                    WithSeparators(report.throughput->tokens_per_s),
                    " tokens/s");
    if (const auto mfu = report.throughput->mfu()) {
      absl::StrAppend(&step, ", MFU ", FormatPercent(*mfu));
    }
  }
  add("Step", std::move(step));
  add("What limits it", LimitsText(report));
  add("How sure",
      report.interval
          ? absl::StrCat("90 % of steps: ",
                         IntervalText(*report.interval, report.iteration_s))
          : "no interval is known for these times");
  add("Times", report.costs
                   ? absl::StrCat("estimated for ", report.costs->device.name)
               : report.profile
                   ? absl::StrCat("measured, profile ", report.profile->name)
               : report.in_units ? "units of a pass"
                                 : "given");
  return SectionHtml(
      "verdict", "Verdict",
      absl::StrCat(WordsHtml(words),
                   "<p class=\"quiet\"><a href=\"#how-to-read\">What these "
                   "numbers mean</a></p>\n"));
}

std::string Headline(const Page& page) {
  const Report& report = page.report;
  return absl::StrCat(
      "<section class=\"cards\" id=\"headline\">\n",
      CardHtml({.heading = "Iteration time",
                .figure = FormatSeconds(report.iteration_s),
                .notes = {PeriodNote(report)}}),
      SpanCard("Bubble", FormatPercent, report.bubble_fraction,
               {absl::StrCat("fraction, (span − busy) / span; of busy: ",
                             BothText(FormatPercent, report.bubble_overhead))}),
      SpanCard("Span", FormatSeconds, report.span_s,
               {absl::StrCat("busy: ", FormatSeconds(report.busy_s),
                             " on the busiest rank")}),
      report.throughput ? ThroughputCard(*report.throughput) : "",
      report.offload ? OffloadCard(*report.offload) : "", "</section>\n",
      report.slow ? SlowToHtml(*report.slow) : "",
      report.reliability ? ReliabilityToHtml(*report.reliability) : "",
      report.dp_classes ? ClassesToHtml(*report.dp_classes) : "");
}

std::string More(const Page& page) { return std::string(page.more); }

std::string Costs(const Page& page) {
  return page.report.costs ? CostSection(*page.report.costs) : "";
}

std::string Warnings(const Page& page) {
  return WarningsHtml(page.report.warnings);
}

std::string Memory(const Page& page) {
  const std::vector<double>& peaks = page.report.peak_activations;
  if (peaks.empty()) return "";
  // Groups of ranks, each shown by its largest.
  const size_t group = (peaks.size() + kMaxBars - 1) / kMaxBars;
  std::vector<double> bars((peaks.size() + group - 1) / group);
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    bars[rank / group] = std::max(bars[rank / group], peaks[rank]);
  }
  const std::string bar_name =
      group == 1 ? "rank" : absl::StrCat("group of ", group, " ranks");
  return SectionHtml(
      "memory", "Peak activations",
      absl::StrCat("<p class=\"quiet\">By ", bar_name,
                   ", in microbatches through all the rank's stages of one "
                   "replica.</p>\n",
                   BarChartSvg(bars, "peak activations", bar_name)));
}

std::string RankTable(const Page& page) {
  const Report& report = page.report;
  double largest = 0;
  for (const RankReport& rank : report.ranks) {
    largest = std::max({largest, rank.span_s, rank.busy_s});
  }
  const TimeUnit unit = UnitFor(largest / 10);
  HtmlTable table;
  table.header = {"rank"};
  for (const absl::string_view name :
       {"busy", "span", "idle", "first start", "last end"}) {
    table.header.push_back(absl::StrFormat("%s (%s)", name, unit.name));
  }
  table.header.push_back("idle / span");
  table.header.push_back("peak activations");
  for (const RankReport& rank : report.ranks) {
    std::vector<std::string> row = {absl::StrCat(rank.rank)};
    for (const double seconds : {rank.busy_s, rank.span_s, rank.idle_s,
                                 rank.first_start_s, rank.last_end_s}) {
      row.push_back(absl::StrFormat("%.3f", seconds / unit.seconds));
    }
    row.push_back(
        FormatPercent(rank.span_s > 0 ? rank.idle_s / rank.span_s : 0));
    row.push_back(absl::StrFormat("%.4g", rank.peak_activations));
    table.rows.push_back(std::move(row));
  }
  return SectionHtml("ranks", "Ranks", TableHtml(table, kMaxRankRows));
}

std::string Transfers(const Page& page) {
  struct Sum {
    int64_t count = 0;
    double bytes = 0;
    double seconds = 0;
  };
  constexpr std::array<absl::string_view, 4> kChannelNames = {
      "activation", "gradient", "message", "event"};
  // (what, from, to); -1 stands for the host or for a whole group.
  std::map<std::tuple<std::string, int, int>, Sum> sums;
  for (const TraceOp& op : page.ops) {
    if (!page.Shows(op)) continue;
    std::tuple<std::string, int, int> key = {std::string(OpKindName(op.kind)),
                                             op.rank, -1};
    if (op.kind == OpKind::kSend && op.channel >= 0) {
      const Channel& channel =
          page.program.OfReplica(op.replica).channels[op.channel];
      key = {std::string(kChannelNames[static_cast<size_t>(channel.kind)]),
             channel.from_rank, channel.to_rank};
    } else if (op.kind != OpKind::kOffload && op.kind != OpKind::kLoad &&
               !IsCollective(op.kind) && !IsOneSided(op.kind) &&
               !IsHostCopy(op.kind)) {
      continue;
    }
    if (op.bytes == 0 && op.end_s <= op.start_s) continue;
    Sum& sum = sums[key];
    ++sum.count;
    sum.bytes += op.bytes;
    sum.seconds += op.end_s - op.start_s;
  }
  if (sums.empty()) return "";
  HtmlTable table;
  table.text_columns = 3;
  table.header = {"what", "from", "to", "count", "bytes", "mean time"};
  for (const auto& [key, sum] : sums) {
    const auto& [what, from, to] = key;
    std::string target = to >= 0 ? absl::StrCat("rank ", to) : "group";
    if (what == OpKindName(OpKind::kOffload) ||
        what == OpKindName(OpKind::kLoad) ||
        what == OpKindName(OpKind::kCopyOut) ||
        what == OpKindName(OpKind::kCopyIn)) {
      target = "host";
    }
    table.rows.push_back({what, absl::StrCat("rank ", from), target,
                          absl::StrCat(sum.count), FormatBytes(sum.bytes),
                          FormatSeconds(sum.seconds / sum.count)});
  }
  return SectionHtml(
      "transfers", "Transfers",
      absl::StrCat(
          "<p>Sent between ranks: ", FormatBytes(page.report.bytes_sent),
          " in one iteration, all replicas. The table is of the "
          "iteration that is drawn.</p>\n",
          TableHtml(table, kMaxTransferRows)));
}

std::string Devices(const Page& page) {
  if (page.report.mapping.empty()) return "";
  return SectionHtml("devices", "Ranks on devices",
                     absl::StrCat("<p>A column a data-parallel replica.</p>\n",
                                  PlainHtml(page.report.mapping)));
}

std::string HowToRead(const Page& page) {
  HtmlWords words = {
      {"busy", "Pass time (F, B, W, BW, R) of the busiest rank."},
      {"span, global",
       "First start on any rank to last end on any rank; passes only, first "
       "iteration."},
      {"span, per rank",
       "The longest of the ranks' own spans, own first start to own last "
       "end."},
      {"bubble fraction", "(span − busy) / span, for either span."},
      {"bubble overhead", "(span − busy) / busy, for either span."},
      {"iteration time",
       "Last end of an iteration minus that of the one before, once "
       "constant. The slowest replica counts."},
      {"peak activations",
       "In units of one microbatch through all the rank's stages of one "
       "replica. F allocates at its start, BW or W frees at its end."},
      {"grid",
       "A row is a rank, a box a pass, the number its microbatch. Thin lanes "
       "below a row, from the top, as far as present: transfers, collectives, "
       "copies to the host, copies from it, work of the host. Where passes are "
       "narrower than a pixel, its colour is the mean of theirs. Point at a "
       "box for its times."}};
  if (page.report.throughput && page.report.throughput->flops) {
    words.emplace_back("model FLOPs, MFU",
                       page.report.throughput->FlopsFormula() + ".");
  }
  if (!page.report.not_modelled.empty()) {
    words.emplace_back(
        "not modelled",
        absl::StrCat(absl::StrJoin(page.report.not_modelled, "; "), "."));
  }
  return SectionHtml("how-to-read", "How to read this", WordsHtml(words));
}

// In the order of the page. A section with nothing to say returns "".
constexpr std::array kSections = {
    Heading,  Verdict,         Headline,    More,
    Warnings, TimelineSection, GridSection, MemoryBytesSection,
    Memory,   RankTable,       Costs,       Transfers,
    Devices,  HowToRead};

}  // namespace

std::string ThroughputCard(const Throughput& throughput) {
  HtmlCard card = {.heading = "Throughput"};
  const auto add = [&card](const char* name, std::string value) {
    card.values.emplace_back(name, std::move(value));
  };
  add("tokens per s", WithSeparators(throughput.tokens_per_s));
  if (const auto tflops = throughput.tflops_per_device()) {
    add("TFLOP/s a device", absl::StrFormat("%.1f", *tflops));
  }
  if (const auto mfu = throughput.mfu()) add("MFU", FormatPercent(*mfu));
  if (const auto hfu = throughput.hfu()) {
    add("with what is recomputed", FormatPercent(*hfu));
  }
  if (const auto cost = throughput.cost_per_1e9_tokens()) {
    add("cost of 1e9 tokens", absl::StrFormat("%.2f", *cost));
  }
  if (const auto& energy = throughput.energy) {
    add("kJ a step", absl::StrFormat("%.3g", energy->joules / 1e3));
    add("W a device", absl::StrFormat("%.0f", energy->watts_per_device));
    add("tokens a joule", absl::StrFormat("%.3g", energy->tokens_per_joule));
  }
  if (throughput.flops) {
    if (throughput.peak) {
      card.notes.push_back(absl::StrCat("of ", throughput.peak->name));
    }
  }
  return CardHtml(card);
}

std::string CostSection(const CostReport& report) {
  std::vector<OpCost> ops = report.ops;
  std::stable_sort(ops.begin(), ops.end(),
                   [](const OpCost& one, const OpCost& other) {
                     return one.share > other.share;
                   });
  HtmlTable table;
  table.text_columns = 3;
  table.header = {"operation", "block",   "pass",          "GFLOP", "HBM bytes",
                  "computing", "TFLOP/s", "communication", "share"};
  for (const OpCost& row : ops) {
    table.rows.push_back(
        {row.op, absl::StrCat(row.block, " × ", row.blocks), row.pass,
         absl::StrFormat("%.1f", row.flops / 1e9), FormatBytes(row.bytes),
         FormatSeconds(row.seconds),
         row.seconds > 0
             ? absl::StrFormat("%.1f", row.flops / row.seconds / 1e12)
             : "",
         FormatSeconds(row.comm_seconds), FormatPercent(row.share)});
  }
  return SectionHtml(
      "costs", "Estimated times of operations",
      absl::StrCat("<p class=\"quiet\">One slice of a microbatch on one ",
                   EscapeXml(report.device.name),
                   ". Share: of F, B and W of all blocks of the model, "
                   "nothing recomputed. Optimizer step: ",
                   FormatSeconds(report.optimizer_s), ".</p>\n",
                   TableHtml(table, kMaxOpRows)));
}

std::string ReportHtml(const Report& report, const Program& program,
                       const std::vector<TraceOp>& ops, absl::string_view more,
                       const PageExtras* extras) {
  const TimesInUnits units(report.in_units);
  Page page{report, program, ops, more, extras};
  if (!ops.empty()) {
    const auto earlier = [](const TraceOp& one, const TraceOp& other) {
      return std::tie(one.iteration, one.replica) <
             std::tie(other.iteration, other.replica);
    };
    const TraceOp& first = *std::min_element(ops.begin(), ops.end(), earlier);
    page.replica = report.dp_classes
                       ? program.FirstReplicas()[report.dp_classes->slowest]
                       : first.replica;
    page.iteration = first.iteration;
  }
  std::string body;
  for (const auto section : kSections) body += section(page);
  return PageHtml(report.schedule, body, TimelineData(page));
}

}  // namespace pipewright

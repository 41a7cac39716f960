#include "sim/report/memory_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/svg_parts.h"
#include "sim/trace/memory_timeline.h"

namespace pipewright {
namespace {

constexpr double kMemoryLeft = 112;
constexpr double kTickRoom = 44;  // left of the axis, for its numbers
constexpr double kRow = 84;
constexpr double kGap = 14;
constexpr double kMargin = 12;

// Okabe-Ito, from dark to light upwards; placeholders in grey.
constexpr std::array<absl::string_view, kNumMemoryKinds> kColours = {
    "#0072B2", "#56B4E9", "#007A5A", "#4CC9A6", "#8C8C8C",
    "#E69F00", "#D55E00", "#CC79A7", "#F0E442"};

struct ByteUnit {
  const char* name;
  double bytes;
};
ByteUnit UnitOfBytes(double largest) {
  for (const ByteUnit unit :
       {ByteUnit{"GiB", 1073741824.0}, ByteUnit{"MiB", 1048576.0},
        ByteUnit{"KiB", 1024.0}}) {
    if (largest >= unit.bytes) return unit;
  }
  return {"B", 1};
}

// The highest sample of each column of the picture.
using Columns = std::vector<MemoryBytes>;

Columns HighestOf(const std::vector<MemorySample>& samples,
                  const MemoryBytes& fixed, double start_s, double end_s,
                  size_t count) {
  Columns columns(count, fixed);
  std::vector<bool> seen(count);
  const double scale = static_cast<double>(count) / (end_s - start_s);
  const auto column_of = [&](double time_s) {
    const double column = std::floor((time_s - start_s) * scale);
    return static_cast<size_t>(
        std::clamp(column, 0.0, static_cast<double>(count - 1)));
  };
  for (size_t index = 0; index < samples.size(); ++index) {
    const MemorySample& sample = samples[index];
    const double until =
        index + 1 < samples.size() ? samples[index + 1].time_s : end_s;
    for (size_t column = column_of(sample.time_s); column <= column_of(until);
         ++column) {
      // A sample that ends where a column begins is not in it.
      if (column > column_of(sample.time_s) &&
          start_s + static_cast<double>(column) / scale >= until) {
        break;
      }
      if (seen[column] && sample.bytes.total() <= columns[column].total()) {
        continue;
      }
      seen[column] = true;
      columns[column] = sample.bytes;
    }
  }
  return columns;
}

std::vector<int> RowsOf(const ScheduleMemory& memory, size_t most) {
  const int ranks = static_cast<int>(memory.ranks.size());
  if (static_cast<size_t>(ranks) <= most) {
    std::vector<int> all(ranks);
    for (int rank = 0; rank < ranks; ++rank) all[rank] = rank;
    return all;
  }
  std::set<int> chosen = {0, ranks - 1, memory.WorstRank()};
  for (int row = 1; chosen.size() < most; ++row) {
    chosen.insert(
        static_cast<int>(int64_t{row} * ranks / static_cast<int64_t>(most)));
    if (row > static_cast<int>(most)) break;
  }
  return {chosen.begin(), chosen.end()};
}

class Picture {
 public:
  Picture(const ScheduleMemory& memory, const MemoryPicture& picture,
          std::vector<std::vector<MemorySample>> samples)
      : memory_(memory), picture_(picture), samples_(std::move(samples)) {
    bool any = false;
    for (const auto& rank : samples_) {
      if (rank.empty()) continue;
      start_s_ =
          any ? std::min(start_s_, rank.front().time_s) : rank.front().time_s;
      end_s_ = any ? std::max(end_s_, rank.back().time_s) : rank.back().time_s;
      any = true;
    }
    for (const RankMemory& rank : memory.ranks) {
      highest_ = std::max(highest_, static_cast<double>(rank.peak()));
      for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
        used_[kind] |= rank.at_peak.of[kind] != 0 || rank.fixed.of[kind] != 0;
      }
    }
    if (picture.limit_bytes) {
      highest_ = std::max(highest_, *picture.limit_bytes);
    }
  }

  std::string Write() {
    if (!(end_s_ > start_s_) || highest_ <= 0) return "";
    std::string body;
    double top = 0;
    body += Heading();
    body += Legend(&top);
    for (const int rank : RowsOf(memory_, picture_.most_rows)) {
      WriteRow(rank, top, &body);
      top += kRow + kGap;
    }
    body += TimeAxisSvg(start_s_, end_s_, kMemoryLeft, picture_.width_px, top);
    const double width = kMemoryLeft + picture_.width_px + kMargin + 56;
    const double height = top + 42;
    return absl::StrCat(
        "<svg class=\"memory\" xmlns=\"http://www.w3.org/2000/svg\" width=\"",
        Px(width), "\" height=\"", Px(height), "\" viewBox=\"0 0 ", Px(width),
        " ", Px(height),
        "\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" "
        "role=\"img\" aria-label=\"memory of ranks over time, by use\">\n"
        "<rect class=\"paper\" width=\"100%\" height=\"100%\" "
        "fill=\"#FFFFFF\"/>\n",
        body, "</svg>\n");
  }

 private:
  std::string Heading() const {
    if (picture_.title.empty()) return "";
    return absl::StrCat("<text class=\"ink\" x=\"", Px(kMemoryLeft),
                        "\" y=\"22\" font-size=\"15\" font-weight=\"bold\" "
                        "fill=\"#1A1A1A\">",
                        EscapeXml(picture_.title), "</text>\n");
  }

  // Axis of one row: a line, two or three ticks and their numbers.
  std::string Axis(double top) const {
    const ByteUnit unit = UnitOfBytes(highest_);
    const double step = TickStep(highest_ / unit.bytes / 2.5) * unit.bytes;
    std::string line =
        absl::StrCat("M", Px(kMemoryLeft), " ", Px(top), "v", Px(kRow));
    std::string labels;
    for (double tick = 0; tick <= highest_ * (1 + 1e-9); tick += step) {
      const double y = top + kRow - Height(tick);
      absl::StrAppend(&line, "M", Px(kMemoryLeft), " ", Px(y), "h-4");
      absl::StrAppend(&labels, "<text class=\"ink tick\" x=\"",
                      Px(kMemoryLeft - 7), "\" y=\"", Px(y + 4),
                      "\" text-anchor=\"end\" font-size=\"11\" "
                      "fill=\"#1A1A1A\">",
                      absl::StrFormat("%.6g", tick / unit.bytes), "</text>\n");
    }
    return absl::StrCat("<path class=\"line\" d=\"", line,
                        "\" fill=\"none\" stroke=\"#1A1A1A\"/>\n", labels);
  }

  std::string Legend(double* bottom) const {
    std::vector<LegendItem> items;
    for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
      if (!used_[kind]) continue;
      items.push_back(
          {absl::StrCat("<rect", RectShape(0, 0, 14, 14), " fill=\"",
                        kColours[kind], "\"/>"),
           14, std::string(MemoryKindName(static_cast<MemoryKind>(kind)))});
    }
    std::string out = LegendSvg(items, kMemoryLeft,
                                picture_.title.empty() ? kMargin : kMargin + 24,
                                picture_.width_px, bottom);
    *bottom += 22;
    absl::StrAppend(&out, "<text class=\"ink\" x=\"", Px(kMemoryLeft - 7),
                    "\" y=\"", Px(*bottom - 9),
                    "\" text-anchor=\"end\" fill=\"#1A1A1A\">memory (",
                    UnitOfBytes(highest_).name, ")</text>\n");
    return out;
  }

  double Height(double bytes) const { return kRow * bytes / highest_; }

  void WriteRow(int rank, double top, std::string* out) const {
    const size_t count = static_cast<size_t>(std::max(2.0, picture_.width_px));
    const Columns columns = HighestOf(samples_[rank], memory_.ranks[rank].fixed,
                                      start_s_, end_s_, count);
    absl::StrAppend(
        out, "<g><title>rank ", rank, ": peak ",
        FormatBytes(static_cast<double>(memory_.ranks[rank].peak())),
        "</title>\n<rect class=\"idle\"",
        RectShape(kMemoryLeft, top, picture_.width_px, kRow),
        " fill=\"#F2F2F2\"/>\n");
    // Each area reaches down to the ground and is painted over by the next.
    for (int kind = kNumMemoryKinds - 1; kind >= 0; --kind) {
      WriteArea(columns, kind, top + kRow, out);
    }
    const auto text = [&](double x, double y, absl::string_view anchor,
                          absl::string_view label) {
      absl::StrAppend(out, "<text class=\"ink\" x=\"", Px(x), "\" y=\"", Px(y),
                      "\" text-anchor=\"", anchor, "\" fill=\"#1A1A1A\">",
                      label, "</text>\n");
    };
    text(kMemoryLeft - kTickRoom, top + kRow / 2 + 4, "end",
         absl::StrCat("rank ", rank));
    *out += Axis(top);
    const double peak = static_cast<double>(memory_.ranks[rank].peak());
    text(kMemoryLeft + picture_.width_px + 4,
         std::min(top + kRow - Height(peak) + 10, top + kRow), "start",
         FormatBytes(peak));
    if (picture_.limit_bytes && *picture_.limit_bytes >= 0) {
      const double y = top + kRow - Height(*picture_.limit_bytes);
      absl::StrAppend(out, "<path class=\"limit\" d=\"M", Px(kMemoryLeft), " ",
                      Px(y), "h", Px(picture_.width_px),
                      "\" stroke=\"#B00020\" stroke-width=\"1.5\" "
                      "stroke-dasharray=\"6 4\" fill=\"none\"/>\n");
    }
    absl::StrAppend(out, "</g>\n");
  }

  void WriteArea(const Columns& columns, int kind, double ground,
                 std::string* out) const {
    const auto height = [&](const MemoryBytes& bytes) {
      double sum = 0;
      for (int below = 0; below <= kind; ++below) {
        sum += static_cast<double>(bytes.of[below]);
      }
      return Height(std::max(sum, 0.0));
    };
    bool has = false;
    for (const MemoryBytes& bytes : columns) has |= bytes.of[kind] != 0;
    if (!has) return;
    const double width =
        picture_.width_px / static_cast<double>(columns.size());
    std::string path = absl::StrCat("M", Px(kMemoryLeft), " ", Px(ground));
    for (size_t column = 0; column < columns.size();) {
      const double level = height(columns[column]);
      size_t end = column + 1;
      while (end < columns.size() &&
             std::abs(height(columns[end]) - level) < 0.01) {
        ++end;
      }
      absl::StrAppend(&path, "V", Px(ground - level), "H",
                      Px(kMemoryLeft + width * static_cast<double>(end)));
      column = end;
    }
    absl::StrAppend(out, "<path d=\"", path, "V", Px(ground), "z\" fill=\"",
                    kColours[kind], "\"/>\n");
  }

  const ScheduleMemory& memory_;
  const MemoryPicture& picture_;
  std::vector<std::vector<MemorySample>> samples_;
  double start_s_ = 0;
  double end_s_ = 0;
  double highest_ = 0;
  std::array<bool, kNumMemoryKinds> used_{};
};

}  // namespace

absl::string_view MemoryKindColour(int kind) { return kColours[kind]; }

std::string MemoryOverTimeSvg(const Program& program,
                              const ScheduleMemory& memory,
                              const std::vector<TraceOp>& ops,
                              const MemoryPicture& picture) {
  return Picture(memory, picture,
                 MemoryOverTime(program, memory, ops, picture.replica,
                                picture.iteration))
      .Write();
}

}  // namespace pipewright

#include "sim/report/memory_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/quantity.h"
#include "sim/program/program.h"
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
    double top = WriteHead();
    for (const int rank : RowsOf(memory_, picture_.most_rows)) {
      WriteRow(rank, top);
      top += kRow + kGap;
    }
    svg_.TimeAxis(start_s_, end_s_, kMemoryLeft, picture_.width_px, top);
    return svg_.FinishWith(
        absl::StrCat("class=\"memory\" width=\"", Px(Width()), "\" height=\"",
                     Px(top + 42), "\""),
        Width(), top + 42, "memory of ranks over time, by use");
  }

 private:
  double Width() const {
    return kMemoryLeft + picture_.width_px + kMargin + 56;
  }

  // Returns where the rows begin.
  double WriteHead() {
    if (!picture_.title.empty()) {
      svg_.Heading(kMemoryLeft, 22, picture_.title);
    }
    std::vector<LegendItem> items;
    for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
      if (!used_[kind]) continue;
      items.push_back(LegendItem::Box(
          std::string(MemoryKindName(static_cast<MemoryKind>(kind))),
          {.fill = std::string(kColours[kind])}));
    }
    const double bottom =
        22 + svg_.Legend(items, kMemoryLeft,
                         picture_.title.empty() ? kMargin : kMargin + 24,
                         picture_.width_px);
    svg_.Text(kMemoryLeft - 7, bottom - 9,
              absl::StrCat("memory (", ByteUnitFor(highest_).name, ")"),
              {.anchor = "end"});
    return bottom;
  }

  // Two or three ticks and their numbers.
  Axis RowAxis() const {
    const double high = highest_ / ByteUnitFor(highest_).bytes;
    return {.high = high, .ticks = TicksOf(0, high, high / 2.5)};
  }

  double Height(double bytes) const { return kRow * bytes / highest_; }

  void WriteRow(int rank, double top) {
    const size_t count = static_cast<size_t>(std::max(2.0, picture_.width_px));
    const Columns columns = HighestOf(samples_[rank], memory_.ranks[rank].fixed,
                                      start_s_, end_s_, count);
    const double peak = static_cast<double>(memory_.ranks[rank].peak());
    const double ground = top + kRow;
    svg_.Open("", absl::StrCat("rank ", rank, ": peak ", FormatBytes(peak)));
    svg_.Rect(kMemoryLeft, top, picture_.width_px, kRow,
              {.css = "idle", .fill = "#F2F2F2"});
    // Each area reaches down to the ground and is painted over by the next.
    for (int kind = kNumMemoryKinds - 1; kind >= 0; --kind) {
      WriteArea(columns, kind, ground);
    }
    svg_.Text(kMemoryLeft - kTickRoom, top + kRow / 2 + 4,
              absl::StrCat("rank ", rank), {.anchor = "end"});
    svg_.YAxis(RowAxis(), kMemoryLeft, ground, kRow);
    svg_.Text(kMemoryLeft + picture_.width_px + 4,
              std::min(ground - Height(peak) + 10, ground), FormatBytes(peak));
    if (picture_.limit_bytes && *picture_.limit_bytes >= 0) {
      svg_.Path(
          PathOf({"M", kMemoryLeft, ground - Height(*picture_.limit_bytes), "h",
                  picture_.width_px}),
          {.css = "limit", .stroke = "#B00020", .width = 1.5, .dashes = "6 4"});
    }
    svg_.Close();
  }

  void WriteArea(const Columns& columns, int kind, double ground) {
    const auto height = [&](const MemoryBytes& bytes) {
      double sum = 0;
      for (int below = 0; below <= kind; ++below) {
        sum += static_cast<double>(bytes.of[below]);
      }
      return Height(std::max(sum, 0.0));
    };
    if (std::none_of(
            columns.begin(), columns.end(),
            [kind](const MemoryBytes& bytes) { return bytes.of[kind] != 0; })) {
      return;
    }
    const double width =
        picture_.width_px / static_cast<double>(columns.size());
    std::string path = PathOf({"M", kMemoryLeft, ground});
    for (size_t column = 0; column < columns.size();) {
      const double level = height(columns[column]);
      size_t end = column + 1;
      while (end < columns.size() &&
             std::abs(height(columns[end]) - level) < 0.01) {
        ++end;
      }
      path += PathOf({"V", ground - level, "H",
                      kMemoryLeft + width * static_cast<double>(end)});
      column = end;
    }
    svg_.Path(path + PathOf({"V", ground, "z"}),
              {.fill = std::string(kColours[kind])});
  }

  const ScheduleMemory& memory_;
  const MemoryPicture& picture_;
  std::vector<std::vector<MemorySample>> samples_;
  Svg svg_;
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
  const TimesInUnits units(program.in_units);
  return Picture(memory, picture,
                 MemoryOverTime(program, memory, ops, picture.replica,
                                picture.iteration))
      .Write();
}

}  // namespace pipewright

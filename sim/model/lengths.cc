#include "sim/model/lengths.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/input.h"
#include "sim/base/names.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// What a draw is for, so that two of one seed do not meet.
constexpr uint64_t kLengthDraw = 0x6c656e67746873;
constexpr uint64_t kBinDraw = 0x62696e73;
constexpr uint64_t kChoiceDraw = 0x63686f696365;
// More of a law below its least length is a slip of the pen.
constexpr double kMostCutOff = 0.999999;

constexpr absl::string_view kConstant = "constant:";
constexpr absl::string_view kUniform = "uniform:";
constexpr absl::string_view kLognormal = "lognormal:";

bool ParseLength(absl::string_view text, int64_t* length) {
  return absl::SimpleAtoi(text, length) && *length >= 1 &&
         *length <= kMostLength;
}

// "1000-16384", or one length that is both ends.
bool ParseRange(absl::string_view text, int64_t* least, int64_t* most) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  if (!absl::StrContains(text, '-')) {
    if (!ParseLength(text, least)) return false;
    *most = *least;
    return true;
  }
  return ParseLength(ends.first, least) && ParseLength(ends.second, most) &&
         *least <= *most;
}

int64_t Between(int64_t least, int64_t most, double probability) {
  const auto lengths = static_cast<double>(most - least + 1);
  return std::min(most, least + static_cast<int64_t>(probability * lengths));
}

std::string LawForms() {
  std::vector<std::string> names;
  for (const LengthLaw& law : LengthLaws()) names.push_back(law.name);
  return absl::StrCat(absl::StrJoin(names, ", "),
                      ", constant:TOKENS, uniform:LOW-HIGH, "
                      "lognormal:MEDIAN,SIGMA,LEAST,MOST (lengths from 1 to ",
                      kMostLength, ")");
}

absl::Status BadLaw(absl::string_view text) {
  const std::string allowed = LawForms();
  return WithValue(
      absl::InvalidArgumentError(absl::StrCat(
          "'", text, "' is no law of lengths; allowed: ", allowed)),
      text, allowed);
}

absl::Status BadLine(absl::string_view file, int64_t line,
                     absl::string_view value, absl::string_view allowed) {
  return InFile(file, line, BadValue("length", value, allowed));
}

// Which column of a CSV; -1: every number counts.
absl::StatusOr<int> ColumnOf(const std::vector<std::string>& header,
                             absl::string_view file, int64_t line) {
  for (const char* name : {"length", "lengths", "tokens"}) {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found != header.end()) return static_cast<int>(found - header.begin());
  }
  return BadLine(file, line, absl::StrJoin(header, ","),
                 "a number, or a header with a column length or tokens");
}

std::vector<std::string> CellsOf(absl::string_view line) {
  std::vector<std::string> cells;
  for (absl::string_view cell : absl::StrSplit(line, ',')) {
    cells.emplace_back(absl::StripAsciiWhitespace(cell));
  }
  return cells;
}

}  // namespace

int64_t LengthLaw::At(double probability) const {
  if (sigma < 0) return Between(least, most, probability);
  if (sigma == 0) return std::min(most, static_cast<int64_t>(median));
  // Redrawing below the least length leaves the part of the law above it.
  const double below =
      NormalBelow(std::log(static_cast<double>(least) / median) / sigma);
  const double place = below + probability * (1 - below);
  if (place >= 1) return most;
  const double drawn = median * std::exp(sigma * NormalQuantile(place));
  if (drawn >= static_cast<double>(most)) return most;
  return std::clamp(static_cast<int64_t>(drawn), least, most);
}

const std::vector<LengthLaw>& LengthLaws() {
  static const std::vector<LengthLaw> laws = {
      {"longalign", 11000, 0.75, 8000, 65536,
       "LongAlign-10k: the first law that the published speed-ups of ODC agree "
       "with (packing alone gives +14 % and +31 %); mean 19.0K"},
      {"longalign-mean", 12300, 0.77, 500, 65536,
       "LongAlign-10k: the law with the published mean, 16.2K"},
      {"swe-smith", 31000, 0.45, 4000, 131072,
       "SWE-smith trajectories: published mean 34.7K"},
      {"aime", 8000, 0.5, 500, 16384,
       "AIME prompts, GRPO: published mean about 9K"},
  };
  return laws;
}

bool IsLengthLaw(absl::string_view text) {
  for (const LengthLaw& law : LengthLaws()) {
    if (law.name == text) return true;
  }
  return absl::StartsWith(text, kConstant) ||
         absl::StartsWith(text, kUniform) || absl::StartsWith(text, kLognormal);
}

absl::StatusOr<LengthLaw> ParseLengthLaw(absl::string_view text) {
  for (const LengthLaw& law : LengthLaws()) {
    if (law.name == text) return law;
  }
  LengthLaw law;
  law.name = std::string(text);
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, kConstant)) {
    if (!ParseLength(rest, &law.least)) return BadLaw(text);
    law.most = law.least;
    return law;
  }
  if (absl::ConsumePrefix(&rest, kUniform)) {
    if (!ParseRange(rest, &law.least, &law.most)) return BadLaw(text);
    return law;
  }
  if (!absl::ConsumePrefix(&rest, kLognormal)) return BadLaw(text);
  const std::vector<std::string> parts = absl::StrSplit(rest, ',');
  if (parts.size() != 4 || !absl::SimpleAtod(parts[0], &law.median) ||
      !absl::SimpleAtod(parts[1], &law.sigma) ||
      !ParseLength(parts[2], &law.least) || !ParseLength(parts[3], &law.most) ||
      !(law.median >= 1 && law.median <= static_cast<double>(kMostLength)) ||
      !(law.sigma >= 0 && law.sigma <= 10) || law.least > law.most) {
    return BadLaw(text);
  }
  const bool none_left =
      law.sigma == 0
          ? law.median < static_cast<double>(law.least)
          : NormalBelow(std::log(static_cast<double>(law.least) / law.median) /
                        law.sigma) > kMostCutOff;
  if (none_left) return BadLaw(text);
  return law;
}

absl::StatusOr<std::vector<LengthBin>> ParseHistogram(
    const std::vector<std::string>& entries) {
  constexpr char kForm[] =
      "LENGTH:WEIGHT or LOW-HIGH:WEIGHT, weights above 0 up to 1e12";
  constexpr double kMostWeight = 1e12;
  std::vector<LengthBin> bins;
  for (const std::string& entry : entries) {
    const std::vector<std::string> parts = absl::StrSplit(entry, ':');
    LengthBin bin;
    if (parts.size() != 2 || !ParseRange(parts[0], &bin.least, &bin.most) ||
        !absl::SimpleAtod(parts[1], &bin.weight) || !(bin.weight > 0) ||
        !(bin.weight <= kMostWeight)) {
      return WithValue(
          absl::InvalidArgumentError(absl::StrCat(
              "'", entry, "' is no bin of a histogram; allowed: ", kForm)),
          entry, kForm);
    }
    bins.push_back(bin);
  }
  return bins;
}

absl::StatusOr<std::vector<int64_t>> ParseLengths(absl::string_view text,
                                                  absl::string_view file) {
  const std::string allowed =
      absl::StrCat("an integer from 1 to ", kMostLength);
  std::vector<int64_t> lengths;
  int column = -1;
  bool begun = false;
  bool is_list = false;  // all on one line
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> cells = CellsOf(line);
    double as_number = 0;
    if (!begun && !absl::SimpleAtod(cells[0], &as_number)) {
      begun = true;
      PW_ASSIGN_OR_RETURN(column, ColumnOf(cells, file, number));
      continue;
    }
    begun = true;
    if (column >= static_cast<int>(cells.size())) {
      return BadLine(file, number, line,
                     absl::StrCat(column + 1, " columns or more"));
    }
    // All on one line, or a table whose columns nobody has named.
    if (column < 0 && (is_list || (cells.size() > 1 && !lengths.empty()))) {
      return BadLine(file, number, line,
                     "one length a line, all on one line, or a first line that "
                     "names a column length or tokens");
    }
    is_list = column < 0 && cells.size() > 1;
    const size_t first = column < 0 ? 0 : static_cast<size_t>(column);
    const size_t end = column < 0 ? cells.size() : first + 1;
    for (size_t cell = first; cell < end; ++cell) {
      int64_t length = 0;
      if (!ParseLength(cells[cell], &length)) {
        return BadLine(file, number, cells[cell], allowed);
      }
      if (static_cast<int64_t>(lengths.size()) == kMostLengths) {
        return BadLine(file, number, cells[cell],
                       absl::StrCat(kMostLengths, " lengths at most"));
      }
      lengths.push_back(length);
    }
  }
  if (lengths.empty()) {
    return InFile(file, 0, BadValue("length", "no length", "one or more"));
  }
  return lengths;
}

absl::StatusOr<std::vector<int64_t>> ReadLengths(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseLengths(text, path);
}

LengthSource LengthSource::OfLaw(LengthLaw law) {
  LengthSource source;
  source.name = law.name;
  source.law = std::move(law);
  return source;
}

LengthSource LengthSource::OfHistogram(std::vector<LengthBin> bins) {
  PW_CHECK(!bins.empty());
  LengthSource source;
  source.name = std::string("histogram");
  source.histogram = std::move(bins);
  return source;
}

LengthSource LengthSource::OfSamples(std::vector<int64_t> samples,
                                     std::string name) {
  PW_CHECK(!samples.empty());
  LengthSource source;
  source.name = std::move(name);
  source.samples = std::move(samples);
  return source;
}

int64_t LengthSource::longest() const {
  if (is_list()) return *std::max_element(samples.begin(), samples.end());
  if (histogram.empty()) return law.most;
  int64_t longest = 1;
  for (const LengthBin& bin : histogram) longest = std::max(longest, bin.most);
  return longest;
}

std::vector<int64_t> LengthSource::Draw(uint64_t seed, int64_t count,
                                        bool drawn) const {
  std::vector<int64_t> lengths;
  if (is_list()) {
    PW_CHECK(count <= static_cast<int64_t>(samples.size()));
    lengths = samples;
    const auto size = static_cast<int64_t>(samples.size());
    for (int64_t index = 0; drawn && index < count; ++index) {
      const double probability =
          UniformDraw(seed, kChoiceDraw, static_cast<uint64_t>(index), 0);
      std::swap(lengths[index], lengths[Between(index, size - 1, probability)]);
    }
    lengths.resize(count);
    return lengths;
  }
  double weight = 0;
  for (const LengthBin& bin : histogram) weight += bin.weight;
  lengths.reserve(count);
  for (int64_t index = 0; index < count; ++index) {
    const auto word = static_cast<uint64_t>(index);
    const double probability = UniformDraw(seed, kLengthDraw, word, 0);
    if (histogram.empty()) {
      lengths.push_back(law.At(probability));
      continue;
    }
    double left = UniformDraw(seed, kBinDraw, word, 0) * weight;
    size_t bin = 0;
    while (bin + 1 < histogram.size() && left >= histogram[bin].weight) {
      left -= histogram[bin++].weight;
    }
    lengths.push_back(
        Between(histogram[bin].least, histogram[bin].most, probability));
  }
  return lengths;
}

}  // namespace pipewright

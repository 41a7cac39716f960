// Where the lengths of training samples come from: a law, a histogram, or the
// lengths of a data set. No model here and no times.
//
// Lengths are tokens of one sample. Draws count (sim/base/statistics.h): a seed
// gives the same lengths on every machine and in every thread.
//
// Source of the named laws: statistics of the data sets in the ODC paper (arXiv
// 2601.19362) and notes on it; they approximate the data sets (docs/
// sequences.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

inline constexpr int64_t kMostLength = int64_t{1} << 30;
// Lengths in one file, and samples in one minibatch of all devices.
inline constexpr int64_t kMostLengths = int64_t{1} << 22;
inline constexpr int64_t kMostSamples = int64_t{1} << 17;

// A lognormal law, redrawn below `least`, capped at `most` and then cut to an
// integer; or, with sigma < 0, every integer from `least` to `most` alike.
struct LengthLaw {
  std::string name;
  double median = 0;  // exp of the mean of the logarithm
  double sigma = -1;  // deviation of the logarithm
  int64_t least = 1;
  int64_t most = 1;
  std::string source;

  // Its quantile.
  int64_t At(double probability) const;
};

// The named ones: longalign, longalign-mean, swe-smith, aime.
const std::vector<LengthLaw>& LengthLaws();

// Is `text` meant as a law? A name, or a form of ParseLengthLaw.
bool IsLengthLaw(absl::string_view text);
// A name, "constant:8192", "uniform:1000-16384", or
// "lognormal:MEDIAN,SIGMA,LEAST,MOST". Errors: kInvalidArgument with what is
// allowed.
absl::StatusOr<LengthLaw> ParseLengthLaw(absl::string_view text);

struct LengthBin {
  int64_t least = 1;
  int64_t most = 1;
  double weight = 0;
};
// Bins of entries "LENGTH:WEIGHT" and "LOW-HIGH:WEIGHT"; inside a bin all
// lengths are alike. Errors: as ParseLengthLaw.
absl::StatusOr<std::vector<LengthBin>> ParseHistogram(
    const std::vector<std::string>& entries);

// The lengths of a file: one a line, or a CSV with a column "length" or
// "tokens"; blank lines and those that begin with # do not count. Errors:
// kInvalidArgument with file, line, value and what is allowed; those of
// ReadFile.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const std::string& path);
absl::StatusOr<std::vector<int64_t>> ParseLengths(absl::string_view text,
                                                  absl::string_view file);

// One of the three.
struct LengthSource {
  std::string name;  // for reports: "longalign", "lengths.csv", "histogram"
  std::vector<int64_t> samples;
  std::vector<LengthBin> histogram;
  LengthLaw law;

  static LengthSource OfLaw(LengthLaw law);
  static LengthSource OfHistogram(std::vector<LengthBin> bins);
  static LengthSource OfSamples(std::vector<int64_t> samples, std::string name);

  bool is_list() const { return !samples.empty(); }
  // The longest that it can give.
  int64_t longest() const;
  // `count` of them. A list gives the first ones as they stand where `drawn` is
  // false, else a random choice without repeats. `count` is at most the size of
  // a list.
  std::vector<int64_t> Draw(uint64_t seed, int64_t count, bool drawn) const;
};

}  // namespace pipewright

#include "sim/model/lengths.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "sim/base/error_parts.h"

namespace pipewright::lengths_test {
namespace {

double MeanOf(const std::vector<int64_t>& lengths) {
  double sum = 0;
  for (const int64_t length : lengths) sum += static_cast<double>(length);
  return sum / static_cast<double>(lengths.size());
}

TEST_CASE("lengths: the named laws have the means and ends of their source",
          "[sequences]") {
  // Means of the reference; that of swe-smith and of aime is what the law
  // itself gives, computed by numeric integration elsewhere.
  const std::map<std::string, double> means = {{"longalign", 19000},
                                               {"longalign-mean", 16200}};
  constexpr int64_t kDraws = 40000;
  for (const LengthLaw& law : LengthLaws()) {
    const auto lengths = LengthSource::OfLaw(law).Draw(3, kDraws, true);
    const auto [least, most] =
        std::minmax_element(lengths.begin(), lengths.end());
    INFO(law.name << " mean " << MeanOf(lengths));
    CHECK(*least >= law.least);
    CHECK(*most == law.most);
    CHECK(!law.source.empty());
    const auto mean = means.find(law.name);
    if (mean == means.end()) continue;
    CHECK(MeanOf(lengths) == Approx(mean->second).epsilon(0.02));
  }
}

// Redrawing as the reference says it, with another generator.
TEST_CASE("lengths: a quantile of the law is that of redrawn numbers",
          "[sequences]") {
  const LengthLaw law = *ParseLengthLaw("lognormal:11000,0.75,8000,65536");
  std::vector<int64_t> redrawn;
  uint64_t state = 5;
  const auto uniform = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state >> 11) + 0.5) * 0x1p-53;
  };
  while (redrawn.size() < 40000) {
    // Box and Muller.
    const double normal = std::sqrt(-2 * std::log(uniform())) *
                          std::cos(2 * 3.14159265358979 * uniform());
    const double length = 11000 * std::exp(0.75 * normal);
    if (length < 8000) continue;
    redrawn.push_back(static_cast<int64_t>(std::min(length, 65536.0)));
  }
  std::sort(redrawn.begin(), redrawn.end());
  for (const double place : {0.05, 0.25, 0.5, 0.75, 0.9}) {
    const auto index = static_cast<size_t>(place * 40000);
    CHECK(static_cast<double>(law.At(place)) ==
          Approx(static_cast<double>(redrawn[index])).epsilon(0.03));
  }
}

TEST_CASE("lengths: a seed gives the same, another seed others",
          "[sequences]") {
  const LengthSource law = LengthSource::OfLaw(LengthLaws()[0]);
  CHECK(law.Draw(1, 20, true) == law.Draw(1, 20, true));
  CHECK(law.Draw(1, 20, true) != law.Draw(2, 20, true));
  // The first of many are those of few.
  std::vector<int64_t> many = law.Draw(1, 50, true);
  many.resize(20);
  CHECK(many == law.Draw(1, 20, true));
}

TEST_CASE("lengths: a list gives its first ones, or a choice without repeats",
          "[sequences]") {
  std::vector<int64_t> samples;
  for (int64_t length = 1; length <= 30; ++length) samples.push_back(length);
  const LengthSource list = LengthSource::OfSamples(samples, "a.csv");
  CHECK(list.longest() == 30);
  CHECK(list.Draw(9, 3, false) == std::vector<int64_t>{1, 2, 3});
  std::map<int64_t, int> firsts;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const std::vector<int64_t> drawn = list.Draw(seed, 10, true);
    CHECK(std::set<int64_t>(drawn.begin(), drawn.end()).size() == 10);
    ++firsts[drawn[0]];
  }
  // 20 of each expected.
  CHECK(firsts.size() == 30);
  for (const auto& [length, count] : firsts) CHECK(count < 45);
  const std::vector<int64_t> all = list.Draw(4, 30, true);
  CHECK(std::set<int64_t>(all.begin(), all.end()).size() == 30);
}

TEST_CASE("lengths: bins of a histogram come by their weights", "[sequences]") {
  const auto bins = ParseHistogram({"100-199:1", "500:3"});
  REQUIRE(bins.ok());
  const LengthSource source = LengthSource::OfHistogram(*bins);
  CHECK(source.longest() == 500);
  int short_ones = 0;
  for (const int64_t length : source.Draw(0, 4000, true)) {
    const bool is_short = length >= 100 && length <= 199;
    CHECK((is_short || length == 500));
    short_ones += is_short ? 1 : 0;
  }
  CHECK(short_ones == Approx(1000).epsilon(0.1));
}

TEST_CASE("lengths: forms of files", "[sequences]") {
  const std::vector<int64_t> expected = {12, 7, 4096};
  for (const char* text :
       {"12\n7\n4096\n", "12\r\n7\r\n4096", "12,7,4096\n",
        "# made up\n\n12\n7\n4096\n", "length\n12\n7\n4096\n",
        "id,length,note\n0,12,a\n1,7,\n2,4096,b\n",
        "tokens , id\n 12 , 0\n7,1\n4096,2\n"}) {
    INFO(text);
    const auto lengths = ParseLengths(text, "a.csv");
    REQUIRE(lengths.ok());
    CHECK(*lengths == expected);
  }
}

TEST_CASE("lengths: bad files are refused with file, line and value",
          "[sequences]") {
  struct Bad {
    const char* text;
    int line;
    const char* word;
  };
  for (const Bad& bad :
       {Bad{"", 0, "no length"}, Bad{"# nothing\n", 0, "no length"},
        Bad{"12\n0\n", 2, "0 is not allowed"}, Bad{"12\n-5\n", 2, "-5"},
        Bad{"12\n3.5\n", 2, "3.5"}, Bad{"12\nabc\n", 2, "abc"},
        Bad{"1073741825\n", 1, "1073741825"},
        Bad{"99999999999999999999\n", 1, "99999999999999999999"},
        Bad{"id,size\n1,2\n", 1, "column length or tokens"},
        Bad{"1,512\n2,1024\n", 2, "one length a line"},
        Bad{"7\n1,512\n", 2, "one length a line"},
        Bad{"id,length\n1\n", 2, "2 columns"},
        Bad{"12,\n", 1, "is not allowed"}}) {
    INFO(bad.text);
    const absl::Status status = ParseLengths(bad.text, "a.csv").status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), bad.word));
    CHECK(PartsOf(status).file == "a.csv");
    if (bad.line > 0) CHECK(PartsOf(status).line == bad.line);
  }
  CHECK(ReadLengths("/nowhere/a.csv").status().code() ==
        absl::StatusCode::kNotFound);
}

TEST_CASE("lengths: bad laws and bins are refused with what is allowed",
          "[sequences]") {
  for (const char* law :
       {"constant:", "constant:0", "constant:x", "uniform:5", "uniform:9-5x",
        "uniform:9-5", "lognormal:1,2,3", "lognormal:0,1,1,9",
        "lognormal:10,-1,1,9", "lognormal:10,11,1,9", "lognormal:10,1,9,1",
        "lognormal:10,0,20,30", "lognormal:10,0.1,1000,2000", "gauss"}) {
    if (std::string(law) == "uniform:5") continue;  // one length
    INFO(law);
    const absl::Status status = ParseLengthLaw(law).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), "longalign"));
  }
  CHECK(ParseLengthLaw("lognormal:10,0,1,30")->At(0.7) == 10);
  CHECK(ParseLengthLaw("uniform:1-4")->At(0.9) == 4);
  CHECK(IsLengthLaw("uniform:1-4"));
  CHECK(!IsLengthLaw("lengths.csv"));
  for (const char* bin : {"5", "5:0", "5:-1", "0:1", "9-5:1", "5:1:2", ":1"}) {
    INFO(bin);
    CHECK(ParseHistogram({bin}).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pipewright::lengths_test

#include "sim/base/quantity.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pipewright::quantity_test {
namespace {

void CheckParses(absl::string_view text, Unit unit, double expected) {
  INFO(text);
  const absl::StatusOr<double> value = ParseQuantity(text, unit);
  REQUIRE(value.ok());
  CHECK(*value == Approx(expected).epsilon(1e-15));
}

// The message quotes the text and carries every one of `parts`.
void CheckFails(absl::string_view text, Unit unit,
                const std::vector<std::string>& parts) {
  INFO(text);
  const absl::StatusOr<double> value = ParseQuantity(text, unit);
  REQUIRE(value.status().code() == absl::StatusCode::kInvalidArgument);
  INFO(value.status());
  CHECK(absl::StrContains(value.status().message(),
                          absl::StrCat("'", text, "'")));
  CHECK(absl::StrContains(value.status().message(), "allowed: "));
  for (const std::string& part : parts) {
    CHECK(absl::StrContains(value.status().message(), part));
  }
}

TEST_CASE("quantity: every unit has its factor", "[base]") {
  CheckParses("3ns", Unit::kTime, 3e-9);
  CheckParses("2us", Unit::kTime, 2e-6);
  CheckParses("18.522ms", Unit::kTime, 0.018522);
  CheckParses("1e-3s", Unit::kTime, 1e-3);
  CheckParses("5min", Unit::kTime, 300);
  CheckParses("1.5h", Unit::kTime, 5400);
  CheckParses("2d", Unit::kTime, 172800);
  CheckParses("7B", Unit::kBytes, 7);
  CheckParses("1KB", Unit::kBytes, 1e3);
  CheckParses("1MB", Unit::kBytes, 1e6);
  CheckParses("1GB", Unit::kBytes, 1e9);
  CheckParses("1TB", Unit::kBytes, 1e12);
  CheckParses("1KiB", Unit::kBytes, 1024);
  CheckParses("1MiB", Unit::kBytes, 1048576);
  CheckParses("80GiB", Unit::kBytes, 80.0 * 1073741824);
  CheckParses("1TiB", Unit::kBytes, 1099511627776.0);
  CheckParses("5KBps", Unit::kBandwidth, 5e3);
  CheckParses("5MBps", Unit::kBandwidth, 5e6);
  CheckParses("450GBps", Unit::kBandwidth, 450e9);
  CheckParses("3.35TBps", Unit::kBandwidth, 3.35e12);
  CheckParses("1MiBps", Unit::kBandwidth, 1048576);
  CheckParses("1GiBps", Unit::kBandwidth, 1073741824);
  CheckParses("8Mbps", Unit::kBandwidth, 1e6);
  // As reports of a configuration write it.
  CheckParses("50000000000 B/s", Unit::kBandwidth, 50e9);
  CheckParses("400Gbps", Unit::kBandwidth, 50e9);
  CheckParses("1Tbps", Unit::kBandwidth, 125e9);
  CheckParses("0.37", Unit::kNone, 0.37);
}

TEST_CASE("quantity: blanks and number forms", "[base]") {
  CheckParses(" 2 us ", Unit::kTime, 2e-6);
  CheckParses(".5ms", Unit::kTime, 5e-4);
  CheckParses("1.5e3ms", Unit::kTime, 1.5);
  CheckParses("0s", Unit::kTime, 0);
  CheckParses(" 3 ", Unit::kNone, 3);
  // Micro as a sign and as a Greek letter.
  CheckParses("1\u00b5s", Unit::kTime, 1e-6);
  CheckParses("2.5 \u03bcs", Unit::kTime, 2.5e-6);
  CheckFails("1\u00b5", Unit::kTime, {"unknown unit"});
}

TEST_CASE("quantity: a unit is required, or forbidden", "[base]") {
  CheckFails("18.5", Unit::kTime, {"no unit", "ns, us, ms, s"});
  CheckFails("80", Unit::kBytes, {"no unit", "GiB"});
  CheckFails("80ms", Unit::kNone, {"'ms'", "a bare number"});
  CheckFails("80GB", Unit::kBandwidth, {"'GB'", "did you mean 'GBps'?"});
}

TEST_CASE("quantity: case is exact, with a hint", "[base]") {
  CheckFails("5gbps", Unit::kBandwidth, {"did you mean 'GBps' or 'Gbps'?"});
  CheckFails("5gb", Unit::kBytes, {"did you mean 'GB'?"});
  CheckFails("5MS", Unit::kTime, {"did you mean 'ms'?"});
  CheckFails("5Gb", Unit::kBytes, {"did you mean 'GB'?"});
}

TEST_CASE("quantity: what is no quantity", "[base]") {
  CheckFails("", Unit::kTime, {"empty"});
  CheckFails("   ", Unit::kTime, {"empty"});
  CheckFails("-1ms", Unit::kTime, {"negative"});
  CheckFails("-0.5", Unit::kNone, {"negative"});
  CheckFails("nan", Unit::kNone, {"does not begin"});
  CheckFails("infs", Unit::kTime, {"does not begin"});
  CheckFails("ms", Unit::kTime, {"does not begin"});
  CheckFails("+1ms", Unit::kTime, {"does not begin"});
  CheckFails("1e999s", Unit::kTime, {"range"});
  CheckFails("1e999", Unit::kNone, {"range"});
  CheckFails("1e308TB", Unit::kBytes, {"range"});
  CheckFails("1ms2", Unit::kTime, {"'ms2'"});
  CheckFails("1 ms x", Unit::kTime, {"'ms x'"});
  CheckFails("1..2ms", Unit::kTime, {"'.2ms'"});
  CheckFails("0x10", Unit::kNone, {"decimal"});
  CheckFails(".", Unit::kNone, {"not a number"});
}

TEST_CASE("quantity: units in the names of keys", "[base]") {
  const std::vector<std::pair<std::string, double>> times = {
      {"_ns", 1e-9}, {"_us", 1e-6}, {"_ms", 1e-3}, {"_s", 1}};
  for (const auto& [suffix, scale] : times) {
    CHECK(ScaleOfSuffix(suffix, Unit::kTime).value() == scale);
  }
  CHECK(ScaleOfSuffix("_GiB", Unit::kBytes).value() == 1073741824.0);
  CHECK(ScaleOfSuffix("_MiB", Unit::kBytes).value() == 1048576.0);
  CHECK(ScaleOfSuffix("_GB", Unit::kBytes).value() == 1e9);
  CHECK(ScaleOfSuffix("_MB", Unit::kBytes).value() == 1e6);
  CHECK(ScaleOfSuffix("_GBps", Unit::kBandwidth).value() == 1e9);
  CHECK(ScaleOfSuffix("_Gbps", Unit::kBandwidth).value() == 1.25e8);
  CHECK(ScaleOfSuffix("ms", Unit::kTime).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(!ScaleOfSuffix("_ms", Unit::kBytes).ok());
  CHECK(!ScaleOfSuffix("", Unit::kTime).ok());
  CHECK(absl::StrContains(ScaleOfSuffix("_Ms", Unit::kTime).status().message(),
                          "did you mean '_ms'?"));
}

TEST_CASE("quantity: printed for people", "[base]") {
  CHECK(FormatSeconds(0) == "0 s");
  CHECK(FormatSeconds(0.0185224) == "18.52 ms");
  CHECK(FormatSeconds(2e-6) == "2 us");
  CHECK(FormatSeconds(3e-10) == "0.3 ns");
  CHECK(FormatSeconds(86400) == "86400 s");
  CHECK(FormatSeconds(-0.5) == "-500 ms");
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(80.0 * 1073741824) == "80 GiB");
  CHECK(FormatBytes(1536) == "1.5 KiB");
  CHECK(FormatBandwidth(450e9) == "450 GBps");
  CHECK(FormatBandwidth(12.5e6) == "12.5 MBps");
}

}  // namespace
}  // namespace pipewright::quantity_test

// What nccl-tests and nvbandwidth print, in the shapes that launchers and
// versions give it. The independent side is the JSON of the same run, and
// numbers that are read by eye.
#include "calibrate/import_text.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "calibrate/import_benchmarks.h"

namespace pipewright::import_text_test {
namespace {

constexpr char kHead[] =
    "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809\n"
    "# Collective test starting: all_gather_perf\n";
constexpr char kRanks[] =
    "# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup "
    "iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
    "#\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid  29443 on    worker1 device  0 [0000:31:00] "
    "NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid  12020 on    worker2 device  0 [0x31] NVIDIA H100 "
    "80GB HBM3\n"
    "worker1:29443:29443 [0] NCCL INFO Bootstrap: Using eth0\n"
    "#\n";
constexpr char kTitles[] =
    "#                                    out-of-place               in-place\n"
    "#       size         count      type   redop    root     time   algbw   "
    "busbw  #wrong     time   algbw   busbw  #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  "
    "(GB/s)             (us)  (GB/s)  (GB/s)\n";
constexpr char kRows[] =
    "  1024   128   float   none   -1   21.5  0.05  0.05  0   20.0  0.05  0.05 "
    " 0\n"
    "  2048   256   float   none   -1   30.5  0.07  0.07  0   29.0  0.07  0.07 "
    " N/A\n";
constexpr char kFoot[] =
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 0.06\n"
    "#\n"
    "# Collective test concluded: all_gather_perf\n";

std::string Table() {
  return absl::StrCat(kHead, kRanks, kTitles, kRows, kFoot);
}

absl::StatusOr<Profile> Nccl(const std::string& text,
                             const std::string& name = "n.txt") {
  return ImportNcclTests(text, name);
}

Profile Good(const absl::StatusOr<Profile>& profile) {
  INFO(profile.status());
  REQUIRE(profile.ok());
  return *profile;
}

template <class Result>
std::string ErrorOf(const Result& result) {
  CHECK_FALSE(result.ok());
  return std::string(result.status().message());
}

std::string Warnings(const Profile& profile) {
  std::vector<std::string> all;
  for (const ProfileSource& source : profile.sources) {
    all.insert(all.end(), source.warnings.begin(), source.warnings.end());
  }
  return absl::StrJoin(all, "\n");
}

// `mark` in front of every line.
std::string Marked(const std::string& text, const std::string& mark) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) line.insert(0, mark);
  return absl::StrJoin(lines, "\n");
}

TEST_CASE("import text: a table is its JSON", "[calibrate]") {
  const Profile text = Good(Nccl(Table()));
  const Profile json = Good(ImportNcclTests(
      R"({"args": ["all_gather_perf"], "nccl_version": 22809,
          "config": {"iterations": 20, "devices": [
           {"hostname": "worker1", "device_info": "NVIDIA H100 80GB HBM3"},
           {"hostname": "worker2", "device_info": "NVIDIA H100 80GB HBM3"}]},
          "results": [{"size": 1024, "out_of_place": {"time": 21.5}},
                      {"size": 2048, "out_of_place": {"time": 30.5}}]})",
      "n.txt"));
  CHECK(WriteProfile(text) == WriteProfile(json));
  REQUIRE(text.transfers.size() == 2);
  CHECK(text.transfers[1].operation == "all_gather");
  CHECK(text.transfers[1].ranks == 2);
  CHECK(text.transfers[1].nodes == 2);
  CHECK(text.transfers[1].time.median_s == Approx(30.5e-6));
  CHECK(text.transfers[1].time.count == 20);
}

TEST_CASE("import text: what launchers and terminals add", "[calibrate]") {
  const std::string expected = WriteProfile(Good(Nccl(Table())));
  for (const std::string& text :
       {Marked(Table(), "[1,0]<stdout>:"), Marked(Table(), "   [1,0]<stdout>:"),
        Marked(Table(), "0: "), Marked(Table(), "\x1b[32m"),
        absl::StrReplaceAll(Table(), {{"\n", "\r\n"}}),
        absl::StrCat("\xef\xbb\xbf", Table()),
        absl::StrReplaceAll(
            Table(), {{"#\n", "#\n[1,1]<stderr>: 7 8 float none -1\n"}})}) {
    INFO(text);
    // The last has a row that no header explains.
    if (absl::StrContains(text, "stderr")) {
      CHECK(absl::StrContains(ErrorOf(Nccl(text)),
                              "n.txt:5: a row without a header above it"));
      continue;
    }
    CHECK(WriteProfile(Good(Nccl(text))) == expected);
  }
}

TEST_CASE("import text: columns are those of the header", "[calibrate]") {
  const std::string swapped =
      absl::StrReplaceAll(Table(), {{"out-of-place               in-place",
                                     "in-place               out-of-place"}});
  CHECK(Good(Nccl(swapped)).transfers[0].time.median_s == Approx(20e-6));
  // Another order, and columns of RCCL behind the known ones.
  const std::string other = absl::StrCat(
      kHead, kRanks,
      "#  size  type  count  redop  time  algbw  busbw  #wrong  algo\n"
      "  1024  float  128  none  21.5  0.05  0.05  0  Direct\n",
      kFoot);
  CHECK(Good(Nccl(other)).transfers[0].time.median_s == Approx(21.5e-6));
  const std::string cut = absl::StrCat(kHead, kRanks, kTitles,
                                       "  1024   128   float   none   -1   2");
  const std::string error = ErrorOf(Nccl(cut));
  INFO(error);
  CHECK(absl::StrContains(error,
                          "n.txt:13: 6 columns; allowed: the 13 of the header "
                          "in line 11: size count type"));
}

TEST_CASE("import text: values that cannot be are named by line",
          "[calibrate]") {
  const auto with = [](const std::string& from, const std::string& to) {
    return Nccl(absl::StrReplaceAll(Table(), {{from, to}}));
  };
  CHECK(absl::StrContains(ErrorOf(with("30.5", "-3.5")), "n.txt:14: row of "));
  CHECK(absl::StrContains(ErrorOf(with("30.5", "inf")), "n.txt:14: row of "));
  CHECK(absl::StrContains(ErrorOf(with("  2048   256", "  -1   256")),
                          "n.txt:14: row of line 14.size is -1"));
  CHECK(absl::StrContains(ErrorOf(with("0.07  0   29", "0.07  4   29")),
                          "out_of_place.nwrong is 4"));
  CHECK(absl::StrContains(ErrorOf(with("values : 0 OK", "values : 3 FAILED")),
                          "out_of_bounds is not okay"));
  CHECK(absl::StrContains(ErrorOf(with("#  Rank  1", "#  Rank  0")),
                          "n.txt:7: rank 0; allowed: rank 1"));
  CHECK(absl::StrContains(ErrorOf(with("#  Rank", "#  Rang")),
                          "no line lists the ranks above it"));
  CHECK(absl::StrContains(ErrorOf(Nccl("hello\nworld\n")),
                          "n.txt: holds no table of nccl-tests; allowed: what "
                          "nccl-tests print"));
  const std::string unfinished =
      Warnings(Good(Nccl(absl::StrCat(kHead, kRanks, kTitles, kRows))));
  CHECK(absl::StrContains(unfinished, "line 11 ends without"));
  CHECK(absl::StrContains(Warnings(Good(with("21.5", "N/A "))),
                          "row of line 13: has no time out of place"));
}

TEST_CASE("import text: the test is named or told by its columns",
          "[calibrate]") {
  const auto old = [](const std::string& count, const std::string& redop) {
    return absl::StrCat(kRanks, kTitles, "  1024  ", count, "  float  ", redop,
                        "  -1  21.5 0 0 0 20.0 0 0 0\n",
                        "# Out of bounds values : 0 OK\n");
  };
  // 256 floats are all of 1024 bytes; 128 are the share of one of two ranks.
  const Profile all_reduce = Good(Nccl(old("256", "sum")));
  CHECK(all_reduce.transfers[0].operation == "all_reduce");
  CHECK(absl::StrContains(Warnings(all_reduce), "taken as all_reduce"));
  CHECK(Good(Nccl(old("128", "sum"))).transfers[0].operation ==
        "reduce_scatter");
  CHECK(absl::StrContains(ErrorOf(Nccl(old("64", "sum"))),
                          "nothing names the test"));
  // All-gather and all-to-all have the same columns.
  CHECK(absl::StrContains(ErrorOf(Nccl(old("128", "none"))),
                          "nothing names the test of this table; allowed: a "
                          "line with the command"));
  CHECK(Good(Nccl(absl::StrCat("$ ./build/all_gather_perf -b 1K\n",
                               old("128", "none"))))
            .transfers[0]
            .operation == "all_gather");
  CHECK(Good(Nccl(old("128", "none"), "all_gather_perf.txt"))
            .transfers[0]
            .operation == "all_gather");
  CHECK(absl::StrContains(
      ErrorOf(Nccl(absl::StrReplaceAll(Table(), {{"all_gather", "alltoall"}}))),
      "'alltoall_perf'"));
}

TEST_CASE("import text: several runs of one text", "[calibrate]") {
  const std::string two = absl::StrCat(
      Table(), absl::StrReplaceAll(Table(), {{"all_gather", "all_reduce"}}));
  const Profile both = Good(Nccl(two));
  REQUIRE(both.transfers.size() == 4);
  CHECK(both.transfers[0].operation == "all_gather");
  CHECK(both.transfers[3].operation == "all_reduce");
  const Profile again = Good(Nccl(
      absl::StrCat(Table(), absl::StrReplaceAll(Table(), {{"30.5", "33.5"}}))));
  REQUIRE(again.transfers.size() == 2);
  CHECK(again.transfers[1].time.median_s == Approx(33.5e-6));
  CHECK(absl::StrContains(Warnings(again), "2 rows are there twice"));
}

constexpr char kBandwidth[] =
    "nvbandwidth Version: v0.8\n"
    "Driver Version: 580.65.06\n"
    "\n"
    "Device 0: NVIDIA H100 80GB HBM3 (00000000:05:00)\n"
    "\n"
    "Running host_to_device_memcpy_ce.\n"
    "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
    "           0         1\n"
    " 0     50.00     40.00\n"
    "\n"
    "SUM host_to_device_memcpy_ce 90.00\n"
    "\n"
    "Running device_to_host_memcpy_ce.\n"
    "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)\n"
    "           0         1\n"
    " 0     25.00       N/A\n"
    "\n"
    "SUM device_to_host_memcpy_ce 25.00\n"
    "\n";

absl::StatusOr<Profile> Bandwidth(const std::string& text) {
  return ImportNvbandwidth(text, "v.txt", 1000000000);
}

TEST_CASE("import text: nvbandwidth's matrices", "[calibrate]") {
  const Profile profile = Good(Bandwidth(kBandwidth));
  REQUIRE(profile.copies.size() == 2);
  CHECK(profile.copies[0].direction == CopyDirection::kHostToDevice);
  CHECK(profile.copies[0].time.count == 2);
  CHECK(profile.copies[0].time.min_s == Approx(1.0 / 50));
  CHECK(profile.copies[0].time.max_s == Approx(1.0 / 40));
  CHECK(profile.copies[1].direction == CopyDirection::kDeviceToHost);
  CHECK(profile.copies[1].time.count == 1);
  CHECK(profile.copies[1].time.median_s == Approx(1.0 / 25));
  CHECK(profile.sources[0].device == "NVIDIA H100 80GB HBM3");
  CHECK(profile.sources[0].driver == "580.65.06");
  CHECK(Warnings(profile).empty());
  CHECK(WriteProfile(Good(Bandwidth(Marked(kBandwidth, "[1,0]<stdout>:")))) ==
        WriteProfile(profile));
  CHECK(WriteProfile(Good(Bandwidth(absl::StrReplaceAll(
            kBandwidth, {{"\n", "\r\n"}})))) == WriteProfile(profile));
}

TEST_CASE("import text: every status of nvbandwidth is named", "[calibrate]") {
  for (const char* status :
       {"Waived", "WAIVED", "Error", "ERROR", "Failed", "Not Found"}) {
    const std::string warnings = Warnings(Good(Bandwidth(absl::StrCat(
        kBandwidth, "Running device_to_host_bidirectional_memcpy_ce.\n", status,
        ": no peer\n"))));
    INFO(warnings);
    CHECK(absl::StrContains(absl::AsciiStrToLower(warnings),
                            absl::AsciiStrToLower(absl::StrCat(
                                "device_to_host_bidirectional_memcpy_ce is "
                                "left out, since its status is \"",
                                status, "\""))));
  }
  // The program ended inside a test, or before its first line.
  CHECK(absl::StrContains(
      Warnings(Good(Bandwidth(absl::StrCat(
          kBandwidth, "Running device_to_host_bidirectional_memcpy_ce.\n")))),
      "its status is \"Running\""));
  CHECK(absl::StrContains(
      Warnings(Good(Bandwidth(absl::StrCat("Waived:\n", kBandwidth)))),
      "line 1: Waived:, of a test without a name"));
  const auto with = [](const std::string& from, const std::string& to) {
    return Bandwidth(absl::StrReplaceAll(kBandwidth, {{from, to}}));
  };
  CHECK(absl::StrContains(Warnings(Good(with("SUM device_to_host", "X"))),
                          "ends without its SUM"));
  CHECK(absl::StrContains(ErrorOf(with("50.00     40.00", "50.00")),
                          "v.txt:9: 1 bandwidths; allowed: one for each of the "
                          "2 columns of host_to_device_memcpy_ce"));
  for (const char* value : {"-50.0", "inf", "nan", "0.00", "x"}) {
    CHECK(absl::StrContains(
        ErrorOf(with("50.00", value)),
        "v.txt:6: host_to_device_memcpy_ce.bandwidth_matrix[0][0] is "));
  }
  CHECK(absl::StrContains(ErrorOf(Bandwidth("hello\n")),
                          "v.txt: holds no test of nvbandwidth; allowed: "));
}

TEST_CASE("import text: what the JSON files say beside their results",
          "[calibrate]") {
  const Profile profile = Good(Bandwidth(R"({"nvbandwidth": {
      "warning": "old driver", "error": "one test stopped", "testcases": [
      {"name": "host_to_device_memcpy_ce", "status": "Passed",
       "bandwidth_matrix": [["50"]]},
      {"name": "device_to_host_memcpy_ce", "status": "Error",
       "error": "out of memory"}]}})"));
  for (const char* part :
       {"old driver", "one test stopped", "out of memory", "\"Error\""}) {
    CHECK(absl::StrContains(Warnings(profile), part));
  }
  const Profile nccl = Good(ImportNcclTests(
      R"({"args": ["all_reduce_perf"], "config": {"ngpus": 2},
          "errors": ["unhandled system error"],
          "results": [{"size": 8, "out_of_place": {"time": 21.5}}]})",
      "n.json"));
  CHECK(absl::StrContains(Warnings(nccl), "unhandled system error"));
}

}  // namespace
}  // namespace pipewright::import_text_test

#include "sim/schedule/torch_csv.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/verify.h"
#include "tests/support/naive_order.h"
#include "tests/support/paths.h"

namespace pipewright::torch_csv_test {
namespace {

std::string Error(absl::string_view content) {
  const auto file = ParseScheduleFile(content, "f.csv");
  if (!file.ok()) {
    CHECK(file.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(file.status().message());
  }
  const absl::Status status = VerifyScheduleFile(*file);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

ScheduleFile Parse(absl::string_view content) {
  auto file = ParseScheduleFile(content, "f.csv");
  INFO(file.status().message());
  REQUIRE(file.ok());
  const absl::Status status = VerifyScheduleFile(*file);
  INFO(status.message());
  REQUIRE(status.ok());
  return *std::move(file);
}

std::string Write(const Schedule& schedule, TorchFlavour flavour,
                  std::vector<std::string>* warnings = nullptr) {
  std::vector<std::string> own;
  const auto csv = ScheduleToTorchCsv(schedule, flavour,
                                      warnings == nullptr ? &own : warnings);
  INFO(csv.status().message());
  REQUIRE(csv.ok());
  return *csv;
}

// The text form without its header line.
std::string Orders(const Schedule& schedule) {
  const std::string text = ScheduleToText(schedule);
  return text.substr(text.find("\npp ") + 1);
}

// The file without its idle slots, which no exporter needs.
std::string WithoutEmptyCells(const std::string& csv) {
  std::string out;
  for (const absl::string_view row : absl::StrSplit(csv, "\r\n")) {
    std::vector<absl::string_view> cells;
    for (const absl::string_view cell : absl::StrSplit(row, ',')) {
      if (!cell.empty()) cells.push_back(cell);
    }
    if (!cells.empty())
      absl::StrAppend(&out, absl::StrJoin(cells, ","), "\r\n");
  }
  return out;
}

constexpr char kSmall[] = "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n";
constexpr char kSmallComms[] =
    "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,"
    "0REDUCE_GRAD,0RESHARD\r\n"
    "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,"
    "1REDUCE_GRAD,1RESHARD\r\n";

TEST_CASE("torch-csv: letters are translated at the edge", "[schedule]") {
  const ScheduleFile full = Parse(kSmall);
  CHECK(full.steps.empty());
  CHECK(full.notes.empty());
  CHECK(Orders(full.schedule) ==
        "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
        "0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1\n");
  CHECK(Orders(Parse("0F0,0I0,0F1,0W0,0B1\n").schedule) ==
        "pp 1 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
        "0: F0 B0 F1 W0 BW1\n");
  CHECK(Write(full.schedule, TorchFlavour::kComputeOnly) == kSmall);
  CHECK(Write(full.schedule, TorchFlavour::kComputeComms) == kSmallComms);
}

TEST_CASE("torch-csv: both flavours are read, CRLF or LF, blanks or none",
          "[schedule]") {
  const std::string orders = Orders(Parse(kSmall).schedule);
  const ScheduleFile comms = Parse(kSmallComms);
  CHECK(Orders(comms.schedule) == orders);
  REQUIRE(comms.steps.size() == 2);
  CHECK(comms.steps[0].size() == 11);
  CHECK(comms.steps == LowerForTorch(comms.schedule));
  for (const char* same : {"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
                           "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1",
                           " 0F0 ,0F1,\t0B0,0B1\r\n1F0,1B0,1F1,1B1",
                           ",0F0,,0F1,0B0,0B1,\n1F0,1B0,1F1,1B1,,\n"}) {
    INFO(same);
    CHECK(Orders(Parse(same).schedule) == orders);
  }
  CHECK(
      Orders(Parse(absl::StrReplaceAll(kSmallComms, {{"\r", ""}})).schedule) ==
      orders);
}

TEST_CASE("torch-csv: overlapped pairs are joint blocks", "[schedule]") {
  const std::string csv =
      "0F0,0F1,3F0,(3F1;3B0)OVERLAP_F_B,0B0,3B1,0B1\r\n"
      "1F0,1F1,2F0,2F1,2B0,1B0,2B1,1B1\r\n";
  const Schedule schedule = Parse(csv).schedule;
  CHECK(schedule.placement.ToString() == "v");
  CHECK(schedule.order(0)[3].joint_with_next());
  CHECK(absl::StrContains(ScheduleToText(schedule), "(F1.1&BW0.1)"));
  CHECK(Write(schedule, TorchFlavour::kComputeOnly) == csv);
  // As PyTorch 2.14.1 lowers it.
  CHECK(absl::StartsWith(
      Write(schedule, TorchFlavour::kComputeComms),
      "0UNSHARD,3UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,3F0,3RECV_F1,"
      "(3F1;3B0)OVERLAP_F_B,3SEND_B0,0RECV_B0,0B0,3B1,3SEND_B1,3REDUCE_GRAD,"
      "3RESHARD,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\r\n"));
}

TEST_CASE("torch-csv: any placement is inferred from the rows", "[schedule]") {
  CHECK(Parse("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")
            .schedule.placement.ToString() == "v");
  CHECK(Parse("2F0,3F0,3B0,2B0\n0F0,1F0,1B0,0B0\n")
            .schedule.placement.ToString() == "1 1 0 0");
  CHECK(Parse("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n")
            .schedule.placement.ToString() == "loop");
}

TEST_CASE("torch-csv: older dialects are read and named", "[schedule]") {
  const std::string orders = Orders(Parse("0F0,0I0,0W0,0F1,0B1\n").schedule);
  const ScheduleFile letters = Parse("0F0,0B0,0W0,0F1,0BW1\n");
  CHECK(Orders(letters.schedule) == orders);
  REQUIRE(letters.notes.size() == 1);
  CHECK(absl::StrContains(letters.notes[0], "f.csv: PyTorch's letters before"));
  // W without I: B can only be the gradient of the input.
  const ScheduleFile split = Parse("0F0,0B0,0W0\n");
  CHECK(split.schedule.order(0)[1].kind() == PassKind::kBackwardInput);
  CHECK(split.notes.size() == 1);
  // Kind, microbatch, stage.
  const ScheduleFile cells =
      Parse("F0_s0,F1_s0,B0_s0,B1_s0\nF0_1,B0_1,F1_1,B1_1\n");
  CHECK(Orders(cells.schedule) == Orders(Parse(kSmall).schedule));
  CHECK(cells.notes.size() == 1);
  // PyTorch 2.6: no REDUCE_GRAD.
  Parse(absl::StrReplaceAll(kSmallComms,
                            {{"0REDUCE_GRAD,", ""}, {"1REDUCE_GRAD,", ""}}));
  CHECK_THAT(Error("0F0,0I0,0W0,0BW1\n"), Catch::Contains("I and BW"));
}

TEST_CASE("torch-csv: cells are matched whole", "[schedule]") {
  CHECK(Error("0F0,2F0xyz,0B0\n") ==
        "f.csv:1: cell 2 '2F0xyz': trailing 'xyz'; allowed: nothing after the "
        "microbatch");
  CHECK_THAT(Error("0F0,0B0\n1F\n"),
             Catch::Contains("f.csv:2: cell 1 '1F': microbatch is missing"));
  for (const char* cell : {"1F",
                           "0B",
                           "0BW",
                           "0F 1",
                           "0f0",
                           "0 F0",
                           "-1F0",
                           "1.5F0",
                           "0F-1",
                           "0FF1",
                           "0F0_1",
                           "0OVERLAP_F_B1",
                           "(0F1;3B0)",
                           "()OVERLAP_F_B",
                           "(0F1)OVERLAP_F_B",
                           "(0F1;0B0;0F2)OVERLAP_F_B",
                           "(0F1;0B0)OVERLAP_F_B1",
                           "(0F1,0B0)OVERLAP_F_B",
                           "(0F1;0UNSHARD)OVERLAP_F_B",
                           "3RESHARD0",
                           "0UNSHARD1",
                           "0REDUCE_GRAD0",
                           "0SEND_F",
                           "0SEND_W0",
                           "\"0F1\"",
                           "0F1;",
                           "0F99999999999999999999",
                           "99999999999999999999F0"}) {
    INFO(cell);
    const std::string error = Error(absl::StrCat("0F0,", cell, ",0B0\n"));
    CHECK(absl::StrContains(error, "f.csv:1: cell 2 '"));
    CHECK(absl::StrContains(error, "allowed: "));
  }
}

TEST_CASE("torch-csv: what the rows say together is checked", "[schedule]") {
  CHECK_THAT(Error("0F0,0B0\n\n1F0,1B0\n"),
             Catch::Contains("f.csv:2: a blank line"));
  CHECK_THAT(Error("0F0,0B0\n1F0,1B0\n\n"),
             Catch::Contains("f.csv:3: a blank line"));
  CHECK_THAT(
      Error("0F0,1F0,1B0,0B0\n1F0,0F0,0B0,1B0\n"),
      Catch::Contains("f.csv:2: stage 1 stands on rank 0 and on rank 1"));
  CHECK_THAT(Error("0F0,0B0\n2F0,2B0\n"),
             Catch::Contains("stage 1 has no pass"));
  CHECK_THAT(Error("1000000F0\n"), Catch::Contains("stage 999999 has no pass"));
  CHECK_THAT(Error("0F0,0B0,1F0,1B0\n2F0,2B0\n"),
             Catch::Contains("placement: 3 stages is not allowed"));
  CHECK_THAT(Error("0F0,0SEND_F0,0B0,\n1RECV_F0,1F0,1B0\n"),
             Catch::Contains("f.csv:1: cell 4 is empty"));
  CHECK_THAT(Error("0F0,0B0,1SEND_F0\n1F0,1B0\n"),
             Catch::Contains("f.csv:1: 1SEND_F0 on rank 0, which has no pass"));
  CHECK_THAT(Error("0F0,0SEND_F1,0B0\n1F0,1B0\n"),
             Catch::Contains("0SEND_F1: no pass has that microbatch"));
  // What PyTorch accepts: a doubled pass, a microbatch too many.
  CHECK(Error("0F0,0F0,0B0\n") ==
        "f.csv:1: rank 0, position 1: F0 stands twice (stage 0, microbatch 0)");
  CHECK_THAT(Error("0F0,0F2,0B0,0B2\n"), Catch::Contains("F1 is missing"));
  CHECK_THAT(Error("0F0,0W0,0I0\n"), Catch::Contains("W0 stands before B0"));
  CHECK_THAT(Error("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
             Catch::Contains("f.csv:1: deadlock: 2 ranks wait in a cycle"));
  CHECK_THAT(Error(""), Catch::Contains("f.csv:1: no schedule"));
}

TEST_CASE("torch-csv: refuses what the file cannot hold", "[schedule]") {
  using testing::PlainSchedule;
  std::vector<std::string> warnings;
  const auto refused = [&](const Schedule& schedule) {
    const auto csv =
        ScheduleToTorchCsv(schedule, TorchFlavour::kComputeOnly, &warnings);
    CHECK(csv.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(csv.status().message());
  };
  CHECK_THAT(refused(PlainSchedule(Placement::Plain(2), 4, 1, 2)),
             Catch::Contains("replicas 2 is not allowed"));
  CHECK_THAT(refused(PlainSchedule(Placement::Plain(2), 4, 3)),
             Catch::Contains("slices 3 is not allowed"));
  Schedule local = PlainSchedule(Placement::Plain(2), 4);
  local.backward = BackwardRule::kLocal;
  CHECK_THAT(refused(local), Catch::Contains("backward local"));
  const auto some = ParseSchedule(
      "pipewright-schedule 1\npp 1 vpp 1 microbatches 2\n"
      "0: F0 F1 R0 B0 W0 B1 W1\n",
      "f");
  CHECK_THAT(refused(*some),
             Catch::Contains("R of 1 of 2 microbatches on stage 0"));
}

TEST_CASE("torch-csv: what PyTorch can do without is left out with a warning",
          "[schedule]") {
  const auto schedule = ParseSchedule(
      "pipewright-schedule 1\npp 1 vpp 1 microbatches 2\n"
      "0: F0 O0 L0 R0 B0 (F1&BW1) W0 R1 SYNC0\n",
      "f");
  // F1 and its own backward are no legal pair; only the writing is of interest.
  std::vector<std::string> warnings;
  CHECK(Write(*schedule, TorchFlavour::kComputeOnly, &warnings) ==
        "0F0,0I0,(0F1;0B1)OVERLAP_F_B,0W0\r\n");
  REQUIRE(warnings.size() == 4);
  CHECK(warnings[0] == "left out: 2 R, for which PyTorch's CSV has no cell");
}

TEST_CASE("torch-csv: lowers as PyTorch 2.14.1 does, six stages a rank",
          "[schedule]") {
  // Both files are its own: a random order, and what _add_unshard_reshard,
  // _add_reduce_grad and _add_send_recv made of it. With more stages than may
  // be active, stages are freed in the order of a CPython set.
  const std::string folder = testing::SourcePath("tests/golden/");
  const auto compute = ReadFile(folder + "torch_lowering_compute_only.csv");
  const auto comms = ReadFile(folder + "torch_lowering_compute_comms.csv");
  REQUIRE(compute.ok());
  REQUIRE(comms.ok());
  CHECK(Write(Parse(*compute).schedule, TorchFlavour::kComputeOnly) ==
        *compute);
  CHECK(Write(Parse(*compute).schedule, TorchFlavour::kComputeComms) == *comms);
  CHECK(Write(Parse(*comms).schedule, TorchFlavour::kComputeComms) == *comms);
}

TEST_CASE("torch-csv: every schedule that fits survives both flavours",
          "[schedule]") {
  int compared = 0;
  for (const ScheduleInfo* info : AllSchedules()) {
    INFO(info->name);
    ScheduleParams params;
    params.pp = 4;
    params.vpp = info->default_vpp;
    params.microbatches = 8;
    const auto schedule = BuildSchedule(info->name, params);
    if (!schedule.ok()) continue;
    std::vector<std::string> warnings;
    for (const TorchFlavour flavour :
         {TorchFlavour::kComputeOnly, TorchFlavour::kComputeComms}) {
      const auto csv = ScheduleToTorchCsv(*schedule, flavour, &warnings);
      if (!csv.ok() || !warnings.empty()) continue;
      const ScheduleFile again = Parse(*csv);
      CHECK(Write(again.schedule, flavour) == *csv);
      ++compared;
      for (int rank = 0; rank < schedule->pp(); ++rank) {
        CHECK(again.schedule.order(rank) == schedule->order(rank));
      }
    }
  }
  CHECK(compared >= 12);
}

TEST_CASE("torch-csv: round trip with the oracle's files", "[schedule]") {
  for (const char* name :
       {"DualPipeV", "Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS",
        "ZBVZeroBubble"}) {
    INFO(name);
    const std::string path =
        testing::SourcePath(absl::StrCat("tests/oracle/torch_csv/", name));
    const auto compute = ReadFile(path + "_p2_m4_v2_compute_only.csv");
    const auto comms = ReadFile(path + "_p2_m4_v2_compute_comms.csv");
    REQUIRE(compute.ok());
    REQUIRE(comms.ok());
    CHECK(Write(Parse(*comms).schedule, TorchFlavour::kComputeComms) == *comms);
    const Schedule schedule = Parse(*compute).schedule;
    CHECK(Write(schedule, TorchFlavour::kComputeOnly) ==
          WithoutEmptyCells(*compute));
    // The order alone gives PyTorch's own lowering.
    CHECK(Write(schedule, TorchFlavour::kComputeComms) == *comms);
  }
}

}  // namespace
}  // namespace pipewright::torch_csv_test

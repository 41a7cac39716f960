#include "sim/schedule/text.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "sim/schedule/registry.h"
#include "tests/support/naive_order.h"

namespace pipewright::text_test {
namespace {

void CheckSame(const Schedule& left, const Schedule& right) {
  CHECK(left.placement.ToString() == right.placement.ToString());
  CHECK(left.vpp() == right.vpp());
  CHECK(left.microbatches == right.microbatches);
  CHECK(left.slices == right.slices);
  CHECK(left.directions == right.directions);
  REQUIRE(left.orders.size() == right.orders.size());
  for (int rank = 0; rank < left.pp(); ++rank) {
    CHECK(left.order(rank) == right.order(rank));
  }
}

void CheckRoundTrip(const Schedule& schedule) {
  for (const std::string& form :
       {ScheduleToText(schedule), ScheduleToJson(schedule)}) {
    INFO(form);
    const auto parsed = ParseSchedule(form, "file");
    REQUIRE(parsed.ok());
    CheckSame(schedule, *parsed);
    CHECK(ScheduleToText(*parsed) == ScheduleToText(schedule));
    CHECK(ScheduleToJson(*parsed) == ScheduleToJson(schedule));
  }
}

Schedule Small() {
  ScheduleParams params;
  params.pp = 2;
  params.microbatches = 2;
  return *BuildSchedule("1f1b", params);
}

std::string Error(absl::string_view content) {
  const auto parsed = ParseSchedule(content, "f.pws");
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

// A file whose header or first order is `header` or `order`.
std::string File(absl::string_view header, absl::string_view order = "F0 BW0") {
  return absl::StrCat("pipewright-schedule 1\n", header, "\n0: ", order, "\n");
}

TEST_CASE("text: the form of the contract", "[schedule]") {
  CHECK(ScheduleToText(Small()) ==
        "pipewright-schedule 1\n"
        "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
        "0: F0 F1 BW0 BW1\n"
        "1: F0 BW0 F1 BW1\n");
  CHECK(ScheduleToCsv(Small()) == "F0,F1,BW0,BW1\nF0,BW0,F1,BW1\n");
  CHECK(ScheduleToJson(Small()) == R"({
  "format": "pipewright-schedule",
  "version": 1,
  "pp": 2,
  "vpp": 1,
  "microbatches": 2,
  "slices": 1,
  "replicas": 1,
  "placement": "plain",
  "orders": [
    "F0 F1 BW0 BW1",
    "F0 BW0 F1 BW1"
  ]
}
)");
}

TEST_CASE("text: every part of a token survives", "[schedule]") {
  using testing::PlainSchedule;
  CheckRoundTrip(Small());
  CheckRoundTrip(PlainSchedule(Placement::Loop(2, 3), 3));
  CheckRoundTrip(PlainSchedule(Placement::V(2), 4, 3, 2, true));
  CheckRoundTrip(PlainSchedule(Placement::Wave(2, 4), 1, 2));
  CheckRoundTrip(PlainSchedule(*Placement::FromList(2, {1, 0, 0, 1}), 2));
  const auto all_kinds = ParseSchedule(
      "pipewright-schedule 1\npp 1 vpp 1 microbatches 2\n"
      "0: F0 O0 L0 R0 B0 (F1&BW1) W0 SYNC0\n",
      "f");
  REQUIRE(all_kinds.ok());
  CHECK(all_kinds->order(0)[5].joint_with_next());
  CHECK_FALSE(all_kinds->order(0)[6].joint_with_next());
  CheckRoundTrip(*all_kinds);
  CHECK(ScheduleToCsv(*all_kinds) == "F0,O0,L0,R0,B0,(F1&BW1),W0,SYNC0\n");
}

TEST_CASE("text: the backward rule survives and is left out where usual",
          "[schedule]") {
  for (const BackwardRule rule : {BackwardRule::kLocal, BackwardRule::kNone}) {
    Schedule schedule = Small();
    schedule.backward = rule;
    CheckRoundTrip(schedule);
    CHECK(ParseSchedule(ScheduleToText(schedule), "f")->backward == rule);
  }
  CHECK(ParseSchedule(ScheduleToText(Small()), "f")->backward ==
        BackwardRule::kChain);
  CHECK_THAT(Error(File("pp 1 vpp 1 microbatches 1 backward both")),
             Catch::Contains("f.pws:2: backward: 'both' is not allowed; "
                             "allowed: chain, local, none"));
  CHECK_THAT(Error(File("backward none backward none")),
             Catch::Contains("backward stands twice"));
}

TEST_CASE("text: comments, blank lines, free order of fields, defaults",
          "[schedule]") {
  const auto parsed = ParseSchedule(
      "# a schedule\n\npipewright-schedule 1 # form\r\n"
      "microbatches 2 pp 2\tvpp 1\n\n"
      "1: F0 BW0 F1 BW1\n"
      "  0:F0   F1 BW0 BW1   # first rank\n",
      "f");
  REQUIRE(parsed.ok());
  CheckSame(*parsed, Small());
  const auto loop = ParseSchedule(
      "pipewright-schedule 1\npp 1 vpp 2 microbatches 1\n0: F0.0\n", "f");
  REQUIRE(loop.ok());
  CHECK(loop->placement.shape() == Placement::Shape::kLoop);
}

TEST_CASE("text: errors of the header name line, field and what is allowed",
          "[schedule]") {
  CHECK(Error("") ==
        "f.pws:1: no schedule; the first line must be \"pipewright-schedule "
        "1\" (or the file JSON, or PyTorch's CSV)");
  CHECK_THAT(Error("pipewright-schedule 2\n"), Catch::Contains("f.pws:1: no"));
  CHECK(Error(File("pp 1 vpp 1")) ==
        "f.pws:2: microbatches is missing; needed: pp, vpp, microbatches");
  CHECK_THAT(Error(File("pp 1 vpp 1 microbatch 1")),
             Catch::Contains("f.pws:2: unknown field 'microbatch'; did you "
                             "mean 'microbatches'?"));
  CHECK(Error(File("pp 1 pp 1")) == "f.pws:2: pp stands twice");
  CHECK(Error(File("pp 0 vpp 1 microbatches 1")) ==
        "f.pws:2: pp: '0' is not allowed; allowed: an integer in 1..65536");
  for (const char* number :
       {"-1", "1.5", "x", "", "2147483648", "9223372036854775808",
        "99999999999999999999999999"}) {
    INFO(number);
    CHECK_THAT(Error(File(absl::StrCat("pp 1 vpp 1 microbatches ", number))),
               Catch::Contains(absl::StrCat("f.pws:2: microbatches: '", number,
                                            "' is not allowed; allowed: an "
                                            "integer in 1..2147483647")));
  }
  CHECK_THAT(Error(File("pp 65536 vpp 2048 microbatches 1")),
             Catch::Contains("vpp: 2048 is not allowed"));
  CHECK_THAT(Error(File("pp 1 vpp 1 microbatches 3 replicas 2")),
             Catch::Contains("microbatches: 3 is not allowed; allowed: an "
                             "even number"));
  CHECK_THAT(Error(File("pp 1 vpp 1 microbatches 1 placement ring")),
             Catch::Contains("placement: 'ring' is not allowed; allowed: "
                             "plain, loop, v, wave"));
  CHECK_THAT(Error(File("pp 1 vpp 2 microbatches 1 placement plain")),
             Catch::Contains("allowed: vpp 1, not 2"));
  CHECK_THAT(Error(File("pp 1 vpp 3 microbatches 1 placement v")),
             Catch::Contains("allowed: vpp 2, not 3"));
  CHECK_THAT(Error(File("pp 1 vpp 3 microbatches 1 placement wave")),
             Catch::Contains("allowed: an even vpp, not 3"));
  CHECK_THAT(Error(File("placement 0 0 pp 1 vpp 1 microbatches 1")),
             Catch::Contains("a list of 2 is not allowed"));
  CHECK_THAT(Error(File("pp 1 vpp 1 microbatches 1 placement 0x")),
             Catch::Contains("'0x' is not allowed"));
}

TEST_CASE("text: ranks of a placement are separated by blanks or commas",
          "[schedule]") {
  const std::string orders = "F0 BW0\n1: F0 BW0\n2: F0 BW0";
  const std::string sizes = "pp 3 vpp 1 microbatches 1 placement ";
  const auto blanks = ParseSchedule(File(sizes + "2 0 1", orders), "f.pws");
  REQUIRE(blanks.ok());
  for (const char* list : {"2,0,1", "2, 0, 1"}) {
    const auto commas = ParseSchedule(File(sizes + list, orders), "f.pws");
    REQUIRE(commas.ok());
    CHECK(commas->placement.ToString() == blanks->placement.ToString());
  }
  CHECK_THAT(Error(File(sizes + "2,,1")), Catch::Contains("'2,,1'"));
}

TEST_CASE("text: errors of the orders name line, rank and token",
          "[schedule]") {
  const std::string one = "pp 1 vpp 1 microbatches 2";
  CHECK_THAT(Error(File(one, "F0 X1")),
             Catch::Contains("f.pws:3: rank 0: token 'X1': unknown kind; "
                             "allowed: F B W BW R O L SYNC FREE"));
  CHECK(Error(File(one, "F2")) ==
        "f.pws:3: rank 0: token 'F2': microbatch is missing or out of range; "
        "allowed: 0..1");
  for (const char* token : {"F", "F-1", "F99999999999999999999", "f0"}) {
    CHECK_THAT(Error(File(one, token)),
               Catch::Contains(absl::StrCat("token '", token, "'")));
  }
  CHECK_THAT(Error(File(one, "BX0")),
             Catch::Contains("'BX0': unknown kind; allowed: F B W BW"));
  CHECK_THAT(Error(File(one, "F00")),
             Catch::Contains("microbatch has a leading zero"));
  CHECK_THAT(Error(File(one, "F0.0")), Catch::Contains("trailing '.0'"));
  CHECK_THAT(Error(File(one, "F0s0")), Catch::Contains("trailing 's0'"));
  CHECK_THAT(Error(File(one, "aF0")), Catch::Contains("unknown kind"));
  CHECK_THAT(Error(File(one, "(F0&BW1")), Catch::Contains("no joint pair"));
  CHECK_THAT(Error(File(one, "(F0)")), Catch::Contains("no joint pair"));
  CHECK_THAT(Error(File(one, "(F0&BW0&F1)")), Catch::Contains("trailing"));
  CHECK_THAT(Error(File("pp 1 vpp 2 microbatches 1", "F0")),
             Catch::Contains("the chunk is missing; allowed: .CHUNK, 0..1"));
  CHECK_THAT(Error(File("pp 1 vpp 2 microbatches 1", "F0.2")),
             Catch::Contains("chunk is missing or out of range"));
  CHECK_THAT(Error(File("pp 1 vpp 1 microbatches 1 slices 2", "F0")),
             Catch::Contains("the slice is missing"));
  CHECK_THAT(Error(File("pp 1 vpp 1 microbatches 2 replicas 2", "F0")),
             Catch::Contains("the replica is missing"));
  CHECK_THAT(Error(File(one, "F0\n0: F1")),
             Catch::Contains("f.pws:4: rank 0 stands twice"));
  CHECK_THAT(Error(File(one, "F0\n1: F1")), Catch::Contains("rank 0..0"));
  CHECK(Error(File("pp 2 vpp 1 microbatches 1")) ==
        "f.pws:3: the line of rank 1 is missing; pp is 2");
}

TEST_CASE("text: errors of the JSON form", "[schedule]") {
  const std::string good = ScheduleToJson(Small());
  const auto with = [&](absl::string_view from, absl::string_view to) {
    std::string json = good;
    const size_t at = json.find(std::string(from));
    REQUIRE(at != std::string::npos);
    return json.replace(at, from.size(), std::string(to));
  };
  CHECK_THAT(Error(with("\"vpp\": 1,", "\"vpp\" 1,")),
             Catch::Contains("f.pws:5: no JSON"));
  CHECK(Error(with("\"vpp\": 1", "\"vpp\": 1.0")) ==
        "f.pws:5: vpp: '1.0' is not allowed; allowed: an integer in 1..2048");
  CHECK_THAT(Error(with("\"pp\": 2", "\"pp\": 18446744073709551616")),
             Catch::Contains("f.pws:4: pp"));
  CHECK_THAT(Error(with("\"pp\": 2", "\"pp\": 1e999")),
             Catch::Contains("f.pws:"));
  CHECK_THAT(Error(with("\"pp\": 2", "\"pp\": \"2\"")),
             Catch::Contains("f.pws:4: pp"));
  CHECK_THAT(Error(with("\"pp\": 2", "\"pp\": 3")),
             Catch::Contains("orders: a list of 2 is not allowed; allowed: a "
                             "list of 3 strings"));
  CHECK_THAT(Error(with("\"slices\"", "\"slice\"")),
             Catch::Contains("f.pws:7: unknown field 'slice'; did you mean "
                             "'slices'?"));
  CHECK_THAT(Error(with("\"slices\"", "\"pp\"")),
             Catch::Contains("'pp' stands twice"));
  CHECK_THAT(Error(with("\"version\": 1", "\"version\": 2")),
             Catch::Contains("f.pws:3: version: '2'"));
  CHECK_THAT(Error(with("F0 BW0 F1", "F0 XX0 F1")),
             Catch::Contains("f.pws:12: rank 1: token 'XX0'"));
  CHECK_THAT(Error(with("\"plain\"", "[0, -1]")),
             Catch::Contains("f.pws:9: placement"));
  CHECK_THAT(Error("{\"a\":[[[[[[[[[[[[[[[[[["), Catch::Contains("f.pws:1"));
  CHECK_THAT(Error("{}"), Catch::Contains("f.pws:1: format is missing"));
}

}  // namespace
}  // namespace pipewright::text_test

#include <catch2/catch.hpp>
#include <random>

#include "sim/schedule/text.h"
#include "tests/support/naive_order.h"
#include "tests/support/schedule_fuzz_target.h"

namespace pipewright {
namespace {

TEST_CASE("fuzz: mutated schedule files never break a promise", "[fuzz]") {
  using testing::PlainSchedule;
  std::vector<std::string> corpus;
  for (const Schedule& schedule :
       {PlainSchedule(Placement::Plain(2), 2),
        PlainSchedule(Placement::V(2), 4, 2, 2, true),
        PlainSchedule(*Placement::FromList(2, {0, 0, 1, 1}), 2)}) {
    corpus.push_back(ScheduleToText(schedule));
    corpus.push_back(ScheduleToJson(schedule));
  }
  corpus.push_back(
      "pipewright-schedule 1\npp 1 vpp 1 microbatches 2\n"
      "0: F0 O0 L0 R0 B0 (F1&BW1) W0 SYNC0\n");
  const std::string pieces[] = {"999999999999",
                                "0",
                                "-1",
                                "F",
                                "BW1",
                                "(",
                                "&",
                                ")",
                                "\n",
                                ":",
                                "[",
                                "{",
                                "\"",
                                "\xff",
                                "1",
                                " ",
                                "s",
                                "."};
  std::mt19937 random(20240117);
  int parsed = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string content = corpus[random() % corpus.size()];
    for (unsigned edit = random() % 4; edit > 0; --edit) {
      const size_t at = random() % content.size();
      switch (random() % 4) {
        case 0:
          content.erase(at, 1 + random() % 4);
          break;
        case 1:
          content.insert(at, pieces[random() % std::size(pieces)]);
          break;
        case 2:
          content[at] = static_cast<char>(random() % 256);
          break;
        default:
          content.insert(at, content.substr(random() % content.size(), 8));
      }
      if (content.empty()) content.push_back(' ');
    }
    parsed += ParseSchedule(content, "f").ok();
    testing::FuzzSchedule(content);
  }
  // Some of each, or the corpus says nothing.
  CHECK(parsed > 500);
  CHECK(parsed < 5500);
}

}  // namespace
}  // namespace pipewright

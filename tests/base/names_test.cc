#include "sim/base/names.h"

#include <catch2/catch.hpp>

namespace pipewright::names_test {
namespace {

TEST_CASE("base: the nearest name is found", "[base]") {
  const std::vector<std::string> known = {"1f1b", "gpipe", "zb-h1", "zb-h2"};
  CHECK(NearestName("gpip", known) == "gpipe");
  CHECK(NearestName("--schedules", {"--dp-schedules", "--schedule"}) ==
        "--schedule");
  CHECK(NearestName("ZB-H2", known) == "zb-h2");
  CHECK(NearestName("zbh1", known) == "zb-h1");
  CHECK(NearestName("something-else", known).empty());
  CHECK(NearestName("1fb1", known) == "1f1b");
  CHECK(NearestName("", known).empty());
  CHECK(NearestName("--", known).empty());
}

TEST_CASE("base: a part of a name is nearer than a word of other letters",
          "[base]") {
  const std::vector<std::string> systems = {"gh200", "two-site-h100",
                                            "dgx-h100", "gb200-nvl72"};
  CHECK(NearestName("H100", systems) == "dgx-h100");
  CHECK(NearestName("GB200", systems) == "gb200-nvl72");
  CHECK(NearestName("dgx-h100-80gb", systems) == "dgx-h100");
  CHECK(NearestName("b200", systems).empty());
  CHECK(NearestName("msec", {"ns", "us", "ms", "s"}) == "ms");
  // Not the words of others: a number is no slip of the fingers.
  CHECK(NearestName("fp32", {"bf16", "fp8", "nvfp4"}).empty());
  CHECK(NearestName("fp16", {"bf16", "fp8", "nvfp4"}).empty());
}

TEST_CASE("base: what others call a field is known, however it is spelled",
          "[base]") {
  const std::vector<std::string> flags = {"--global-batch", "--microbatch-size",
                                          "--sequence", "--vpp", "--tp"};
  CHECK(NearestName("--gbs", flags) == "--global-batch");
  CHECK(NearestName("--GBS", flags) == "--global-batch");
  CHECK(NearestName("--global-batch-size", flags) == "--global-batch");
  CHECK(NearestName("--mbs", flags) == "--microbatch-size");
  CHECK(NearestName("--seq-length", flags) == "--sequence");
  CHECK(NearestName("--tensor-model-parallel-size", flags) == "--tp");
  CHECK(NearestName("seq_len", {"sequence", "slices"}) == "sequence");
  CHECK(NearestName("strategy.gbs", {"strategy.tp", "strategy.global_batch"}) ==
        "strategy.global_batch");
  CHECK(NearestName("--gbs", {"--pp", "--tp"}).empty());
}

}  // namespace
}  // namespace pipewright::names_test

#include "sim/base/names.h"

#include <catch2/catch.hpp>

namespace pipewright::names_test {
namespace {

TEST_CASE("base: the nearest name is found", "[base]") {
  const std::vector<std::string> known = {"1f1b", "gpipe", "zb-h1", "zb-h2"};
  CHECK(NearestName("gpip", known) == "gpipe");
  CHECK(NearestName("ZB-H2", known) == "zb-h2");
  CHECK(NearestName("zbh1", known) == "zb-h1");
  CHECK(NearestName("something-else", known).empty());
}

}  // namespace
}  // namespace pipewright::names_test

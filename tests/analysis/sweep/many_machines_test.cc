// A sweep under mpirun has the rows of a local one.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/reader.h"
#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::many_machines_test {
namespace {

using testing::BinaryResult;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

std::vector<std::string> SortedRows(const std::string& path) {
  std::vector<std::string> rows;
  const auto reader = SweepReader::Open(path);
  INFO(reader.status());
  REQUIRE(reader.ok());
  REQUIRE((*reader)
              ->Visit({}, false,
                      [&](const SweepRow& row) {
                        rows.push_back(absl::StrCat(row.hash, " ", row.status,
                                                    " ", row.reason, " ",
                                                    row.report().dump()));
                        return absl::OkStatus();
                      })
              .ok());
  std::sort(rows.begin(), rows.end());
  return rows;
}

Words MpiSweep(const std::string& path) {
  return {"sweep",
          "--schedule",
          "1f1b",
          "--pp",
          "4",
          "--forward",
          "1ms",
          "--backward",
          "2ms",
          "--sweep",
          "costs.p2p=0us..190us+10us",
          "--sweep",
          "strategy.microbatches=1..10",
          "-j",
          "1",
          "-o",
          path};
}

TEST_CASE("sweep: four processes of mpirun give the local table",
          "[sweep][mpi]") {
  if (!testing::HaveMpirun()) return;
  const TemporaryFolder folder;
  const std::string local = folder.Path("local.sqlite");
  const std::string many = folder.Path("many.sqlite");
  REQUIRE(testing::RunBinary(MpiSweep(local)).exit_code == 0);
  const BinaryResult run = testing::RunBinaryUnderMpirun(4, MpiSweep(many));
  INFO(run.out << run.err);
  REQUIRE(run.exit_code == 0);
  const auto rows = SortedRows(local);
  CHECK(rows.size() == 200);
  CHECK(SortedRows(many) == rows);
}

TEST_CASE("sweep: the program is not linked with MPI", "[sweep]") {
  const BinaryResult run =
      testing::RunProgram({"readelf", "-d", testing::BinaryPath()});
  REQUIRE(run.exit_code == 0);
  CHECK(absl::StrContains(run.out, "libsqlite3"));
  CHECK_FALSE(absl::StrContains(run.out, "libmpi"));
}

}  // namespace
}  // namespace pipewright::many_machines_test

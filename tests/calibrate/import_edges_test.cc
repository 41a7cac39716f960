// What files of nccl-tests and of kernel times say besides the times: threads,
// hosts, rings, results that are wrong, rows that are of something else.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "calibrate/import_benchmarks.h"
#include "calibrate/import_silicon.h"

namespace pipewright::import_edges_test {
namespace {

std::string Devices(const std::vector<std::string>& hosts) {
  std::string devices;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    absl::StrAppend(&devices, rank == 0 ? "" : ", ", "{\"rank\": ", rank,
                    hosts[rank].empty()
                        ? ""
                        : absl::StrCat(", \"hostname\": \"", hosts[rank], "\""),
                    "}");
  }
  return devices;
}

std::string Nccl(const std::string& program, const std::string& config,
                 const std::vector<std::string>& hosts,
                 const std::string& wrong = "0.0",
                 const std::string& more = "") {
  return absl::StrCat(
      "{\"args\": [\"/opt/", program, "\"], \"config\": {", config,
      "\"iterations\": 20, \"devices\": [", Devices(hosts),
      "]}, \"results\": [{\"size\": 1048576, \"out_of_place\": {\"time\": 40, "
      "\"nwrong\": 0.0}, \"in_place\": {\"time\": 30, \"nwrong\": ",
      wrong, "}}]", more, "}");
}

TransferEntry TransferOf(const std::string& text) {
  const absl::StatusOr<Profile> profile = ImportNcclTests(text, "n.json");
  INFO(profile.status());
  REQUIRE(profile.ok());
  REQUIRE(profile->transfers.size() == 1);
  return profile->transfers[0];
}

TEST_CASE("import edges: ranks are processes times threads times devices",
          "[calibrate]") {
  const auto ranks = [](const std::string& config,
                        const std::vector<std::string>& hosts) {
    return TransferOf(Nccl("all_reduce_perf", config, hosts)).ranks;
  };
  CHECK(ranks("", {"a", "a"}) == 2);
  CHECK(ranks("\"nthreads\": 1, \"ngpus\": 4, ", {"a", "b"}) == 8);
  CHECK(ranks("\"nthreads\": 2, \"ngpus\": 1, ", {"a", "b"}) == 4);
  CHECK(ranks("\"nthreads\": 2, \"ngpus\": 4, ", {"a", "b", "b"}) == 24);
  CHECK(ranks("\"nthreads\": 3, ", {"a"}) == 3);
}

TEST_CASE("import edges: nodes are hosts of different names", "[calibrate]") {
  const auto nodes = [](const std::vector<std::string>& hosts) {
    return TransferOf(Nccl("all_gather_perf", "", hosts)).nodes;
  };
  CHECK(nodes({"a", "a"}) == 1);
  CHECK(nodes({"a", "b", "a", "b"}) == 2);
  CHECK(nodes({"a", "b", "c"}) == 3);
  // One without a name could be any.
  CHECK(nodes({"a", ""}) == 0);
}

TEST_CASE("import edges: sends are between two, also in a ring",
          "[calibrate]") {
  const auto warnings = [](size_t devices) {
    const absl::StatusOr<Profile> profile = ImportNcclTests(
        Nccl("sendrecv_perf", "", std::vector<std::string>(devices, "a")),
        "n.json");
    INFO(profile.status());
    REQUIRE(profile.ok());
    CHECK(profile->transfers[0].operation == "send_recv");
    CHECK(profile->transfers[0].ranks == 2);
    return profile->sources[0].warnings;
  };
  CHECK(warnings(2).empty());
  CHECK(warnings(4) ==
        std::vector<std::string>{"sendrecv ran in a ring of 4 devices"});
  const TransferEntry all = TransferOf(
      Nccl("reduce_scatter_perf", "", std::vector<std::string>(4, "a")));
  CHECK(all.ranks == 4);
}

TEST_CASE("import edges: a run with one wrong result is refused",
          "[calibrate]") {
  const auto refusal = [](const std::string& wrong, const std::string& more) {
    return std::string(
        ImportNcclTests(Nccl("all_reduce_perf", "", {"a", "a"}, wrong, more),
                        "n.json")
            .status()
            .message());
  };
  const std::string kOkay = ", \"out_of_bounds\": {\"count\": 0, \"okay\": ";
  CHECK(refusal("0.0", "").empty());
  CHECK(refusal("0.0", kOkay + "true}").empty());
  CHECK(refusal("0.0", kOkay + "\"true\"}").empty());
  // The check has not run.
  CHECK(refusal("\"N/A\"", "").empty());
  CHECK_THAT(refusal("1.0", ""), Catch::Contains("in_place.nwrong is 1"));
  CHECK_THAT(refusal("0.0", ", \"out_of_bounds\": {\"count\": 1}"),
             Catch::Contains("out_of_bounds is not okay"));
  for (const char* okay : {"false}", "\"false\"}"}) {
    CHECK_THAT(refusal("0.0", kOkay + okay),
               Catch::Contains("out_of_bounds is not okay"));
  }
}

std::vector<SiliconTable> Tables(const std::string& text) {
  SiliconImporter importer;
  const absl::Status added = importer.Add(text, "own.csv");
  INFO(added);
  REQUIRE(added.ok());
  auto tables = std::move(importer).Finish();
  INFO(tables.status());
  REQUIRE(tables.ok());
  return *std::move(tables);
}

TEST_CASE("import edges: names of the same type are one table", "[calibrate]") {
  for (const char* type : {"bf16", "half", "float16", "bfloat16"}) {
    INFO(type);
    CHECK(FindTable(Tables(absl::StrCat("dtype,m,n,k,latency_ms\n", type,
                                        ",8,8,8,1\n")),
                    {"gemm", "bfloat16", "TN"}) != nullptr);
  }
  CHECK(FindTable(Tables("dtype,m,n,k,latency_ms\nfp8,8,8,8,1\n"),
                  {"gemm", "bfloat16", "TN"}) == nullptr);
}

TEST_CASE("import edges: attention that no table holds is left out",
          "[calibrate]") {
  const std::string columns =
      "dtype,mask,batch,q_len,kv_len,heads,head_dim_qk,head_dim_v,pass,time_ms,"
      "window,deterministic\n";
  const std::string plain = "bf16,causal,1,64,64,4,192,128,fwd,1,,0\n";
  const auto rows = [&](const std::string& more) {
    const auto tables = Tables(absl::StrCat(columns, plain, more));
    // Wide keys and narrow values are as wide as their mean.
    const SiliconTable* const table =
        FindTable(tables, {"attention", "bfloat16", "fwd", "causal", "160"});
    REQUIRE(table != nullptr);
    CHECK(tables.size() == 1);
    return table->rows();
  };
  CHECK(rows("") == 1);
  CHECK(rows("bf16,causal,1,128,128,4,192,128,fwd,1,,0\n") == 2);
  CHECK(rows("bf16,causal,1,128,256,4,192,128,fwd,1,,0\n") == 1);
  CHECK(rows("bf16,causal,1,128,128,4,192,128,fwd,1,64,0\n") == 1);
  CHECK(rows("bf16,causal,1,128,128,4,192,128,fwd,1,,1\n") == 1);
  const auto casts =
      Tables("what,m,k,latency_ms\ncast,8,8,1\ntranspose,16,16,1\n");
  REQUIRE(casts.size() == 1);
  CHECK(casts[0].rows() == 1);
}

// Rows of one size that differ in key-value heads are different kernels.
TEST_CASE("import edges: kernels of one size are samples of it",
          "[calibrate]") {
  const auto tables = Tables(
      "batch,isl,heads,kv_heads,head_dim,latency_ms\n"
      "2,64,32,32,128,1\n2,64,32,8,128,4\n");
  REQUIRE(tables.size() == 1);
  REQUIRE(tables[0].rows() == 1);
  CHECK(tables[0].seconds(0) == Approx(2e-3));
}

TEST_CASE("import edges: errors follow from the spread of campaigns",
          "[calibrate]") {
  // One campaign: 5 % are taken for its spread, of the kernel and of the next
  // one.
  const auto one = Tables("dtype,m,n,k,latency_ms\nbf16,8,8,8,1\n");
  CHECK(one[0].error(0) == Approx(1.6449 * 0.05 * std::sqrt(2.0)));
  // Spreads of 10, 20 and 40 %: the middle one is typical, also where there is
  // a single campaign.
  const auto three = Tables(
      "campaign,dtype,m,n,k,latency_ms\n"
      "a,bf16,8,8,8,1\nb,bf16,8,8,8,1.1\n"
      "a,bf16,16,8,8,1\nb,bf16,16,8,8,1.2\n"
      "a,bf16,32,8,8,1\nb,bf16,32,8,8,1.4\n"
      "a,bf16,64,8,8,1\n");
  REQUIRE(three[0].rows() == 4);
  const double typical = std::log(1.2) / (0.6745 * std::sqrt(2.0));
  CHECK(three[0].error(3) == Approx(1.6449 * typical * std::sqrt(2.0)));
  CHECK(three[0].error(0) == Approx(1.6449 * typical * std::sqrt(1.5)));
  CHECK(three[0].error(2) > three[0].error(1));
}

}  // namespace
}  // namespace pipewright::import_edges_test

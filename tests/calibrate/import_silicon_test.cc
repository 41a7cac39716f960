#include "calibrate/import_silicon.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "sim/base/error_parts.h"

namespace pipewright::import_silicon_test {
namespace {

absl::StatusOr<std::vector<SiliconTable>> Imported(const std::string& text) {
  SiliconImporter importer;
  const absl::Status status = importer.Add(text, "own.csv");
  if (!status.ok()) return status;
  return std::move(importer).Finish();
}

TEST_CASE("import: kernel times of several kinds become tables",
          "[calibrate]") {
  SiliconImporter importer;
  REQUIRE(importer
              .Add("campaign,kernel,dtype,m,n,k,latency_ms,flag\n"
                   "a,x,bfloat16,128,256,512,0.010,\n"
                   "b,x,bfloat16,128,256,512,0.040,\n"
                   "a,x,fp8,128,256,512,0.008,\n",
                   "gemm.csv")
              .ok());
  REQUIRE(importer
              .Add("dtype,m,n,k,latency_ms,layout\n"
                   "bf16,128,256,512,0.012,NT\r\n",
                   "weights.csv")
              .ok());
  REQUIRE(importer
              .Add("campaign,op,dtype,gpus,bytes,latency_ms\n"
                   "nccl-2.29,all_gather,half,8,1048576,0.05\n",
                   "nccl.csv")
              .ok());
  REQUIRE(importer
              .Add("batch,isl,heads,kv_heads,head_dim,latency_ms\n"
                   "2,4096,32,8,128,1.5\n",
                   "attn.csv")
              .ok());
  REQUIRE(importer
              .Add("norm,backend,rows,cols,pass,time_ms\n"
                   "rms_norm,cudnn,4096,4096,bwd,0.05\n",
                   "norms.csv")
              .ok());
  const auto tables = std::move(importer).Finish();
  INFO(tables.status());
  REQUIRE(tables.ok());
  const SiliconTable* products = FindTable(*tables, {"gemm", "bfloat16", "TN"});
  REQUIRE(products != nullptr);
  // The geometric mean of both campaigns; they are far apart.
  CHECK(products->seconds(0) == Approx(20e-6));
  CHECK(products->error(0) > 0.5);
  CHECK(FindTable(*tables, {"gemm", "fp8", "TN"})->seconds(0) == Approx(8e-6));
  CHECK(FindTable(*tables, {"gemm", "bfloat16", "NT"}) != nullptr);
  CHECK(FindTable(*tables, {"nccl", "all_gather", "bfloat16"}) != nullptr);
  const SiliconTable* attention =
      FindTable(*tables, {"attention", "bfloat16", "fwd", "causal", "128"});
  REQUIRE(attention != nullptr);
  CHECK(attention->row(0)[0] == 64);
  CHECK(FindTable(*tables, {"norm", "rms_norm", "bwd"}) != nullptr);
  // What is written can be read.
  CHECK(ReadSiliconTables(SiliconToText(*tables, {}), "o").ok());
}

TEST_CASE("import: bad kernel times are refused with file, line and field",
          "[calibrate]") {
  const struct {
    const char* text;
    int line;
    const char* field;
  } cases[] = {
      {"m,n,latency_ms\n1,2,3\n", 1, "columns"},
      {"dtype,m,n,k,latency_ms\nbf16,1,2,3\n", 2, "row"},
      {"dtype,m,n,k,latency_ms\nbf16,1,2,3,nan\n", 2, "latency_ms"},
      {"dtype,m,n,k,latency_ms\nbf16,1,2,3,-4\n", 2, "latency_ms"},
      {"dtype,m,n,k,latency_ms\nbf16,1,0,3,4\n", 2, "n"},
      {"dtype,m,n,k,latency_ms\nbf16,1,2,x,4\n", 2, "k"},
      {"dtype,m,n,k,latency_ms,layout\nbf16,1,2,3,4,TT\n", 2, "layout"},
      {"dtype,m,n,k,latency_ms\nbf16,1,2,3,4\n\nbf16,1,2,3,4\n", 4, "shape"},
      {"norm,rows,cols,pass,time_ms\nrms_norm,4,4,sideways,1\n", 2, "pass"},
  };
  for (const auto& bad : cases) {
    INFO(bad.text);
    const auto tables = Imported(bad.text);
    REQUIRE_FALSE(tables.ok());
    INFO(tables.status());
    const ErrorParts parts = PartsOf(tables.status());
    CHECK(parts.file == "own.csv");
    CHECK(parts.line == bad.line);
    CHECK(parts.field == bad.field);
  }
  CHECK_FALSE(Imported("").ok());
  CHECK_FALSE(Imported("dtype,m,n,k,latency_ms\n").ok());
}

}  // namespace
}  // namespace pipewright::import_silicon_test

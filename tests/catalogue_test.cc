// Numbers of the catalogues once more, from the sources that the files name,
// for what no other test would miss: docs/dev/constants.md is made from the files.
#include <catch2/catch.hpp>
#include <iterator>
#include <string>

#include "sim/cost/device.h"
#include "sim/model/model.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"

namespace pipewright::catalogue_test {
namespace {

constexpr double kGib = 1 << 30;
constexpr double kTera = 1e12;

// Dense rates of one device. A sheet of a rack or a DGX is divided by its
// devices, and by two where it states the sparse rate.
TEST_CASE("catalogue: devices have the peaks of their sheets", "[cost]") {
  const struct {
    const char* name;
    double bf16, fp8, fp4;  // TFLOP/s
    double memory_rate;     // TB/s
    double bytes;
    int multiprocessors;
    double watts;  // 0: none is given
  } rows[] = {
      {"a100-40gb", 312, 0, 0, 1.555, 40 * kGib, 108, 400},
      {"a100-80gb", 312, 0, 0, 2.039, 80 * kGib, 108, 400},
      {"a100-pcie", 312, 0, 0, 1.935, 80 * kGib, 108, 300},
      {"b200", 36e3 / 16, 72e3 / 16, 144e3 / 16, 64. / 8, 1440e9 / 8, 148,
       1000},
      {"b300", 36e3 / 16, 72e3 / 16, 105e3 / 8, 64. / 8, 288e9, 148, 1100},
      {"gb200", 360e3 / 144, 720e3 / 144, 1440e3 / 144, 576. / 72, 186e9, 152,
       1200},
      {"gb300", 360e3 / 144, 720e3 / 144, 1080e3 / 72, 576. / 72, 279e9, 152,
       1400},
      {"gh200", 989.4, 1978.9, 0, 4.0, 96e9, 132, 700},
      {"h100", 989.4, 1978.9, 0, 3.35, 80 * kGib, 132, 700},
      {"h100-96gb", 989.4, 1978.9, 0, 2.4, 96 * kGib, 132, 500},
      {"h100-nvl", 1671. / 2, 3341. / 2, 0, 3.9, 94e9, 132, 400},
      {"h20", 148, 296, 0, 4.0, 96e9, 78, 400},
      {"h200", 989.4, 1978.9, 0, 4.8, 141e9, 132, 700},
      {"h800", 989.4, 1978.9, 0, 3.35, 80 * kGib, 132, 700},
      {"l40s", 362.05, 733, 0, 0.864, 48e9, 142, 0},
      {"rtx4090", 165.2, 330.3, 0, 1.008, 24 * kGib, 128, 0},
      {"mi300x", 1307.4, 2614.9, 0, 5.3, 192 * kGib, 304, 0},
  };
  CHECK(AllDevices().size() == std::size(rows));
  for (const auto& row : rows) {
    INFO(row.name);
    const DeviceSpec device = FindDevice(row.name).value();
    CHECK(device.bf16_flops == Approx(row.bf16 * kTera));
    CHECK(device.fp8_flops == Approx(row.fp8 * kTera));
    CHECK(device.fp4_flops == Approx(row.fp4 * kTera));
    CHECK(device.hbm_bytes_per_s == Approx(row.memory_rate * kTera));
    CHECK(device.memory_bytes == Approx(row.bytes));
    CHECK(device.multiprocessors == row.multiprocessors);
    CHECK(device.board_watts == row.watts);
  }
}

// One direction of one link. NVLink: half of what a sheet states for both.
// PCIe: 16 lanes of 16 or 32 GT/s in 128 of 130 bits.
TEST_CASE("catalogue: systems have the links of their sheets", "[topology]") {
  const double pcie4 = 16 * 16 * 128. / 130 / 8;
  const double pcie5 = 2 * pcie4;
  const struct {
    const char* name;
    double nvlink;    // GB/s
    int nics;         // on a node
    double nic;       // Gb/s
    double pcie;      // GB/s
    int pcie_switch;  // devices that share one
    const char* device;
  } rows[] = {
      {"a100-roce", 600 / 2, 8, 200, pcie4, 2, "a100-80gb"},
      {"dgx-a100", 600 / 2, 8, 200, pcie4, 2, "a100-80gb"},
      {"dgx-b200", 1800 / 2, 8, 400, pcie5, 1, "b200"},
      {"dgx-b300", 1800 / 2, 8, 800, pcie5, 1, "b300"},
      {"dgx-h100", 900 / 2, 8, 400, pcie5, 1, "h100"},
      {"dgx-h200", 900 / 2, 8, 400, pcie5, 1, "h200"},
      // Chip to chip: 900 GB/s of both directions, of one or of two devices.
      {"gb200-nvl72", 1800 / 2, 72, 400, 900 / 2 / 2, 1, "gb200"},
      {"gb300-nvl72", 1800 / 2, 72, 800, 900 / 2 / 2, 1, "gb300"},
      {"gh200", 0, 1, 400, 900 / 2, 1, "gh200"},
      {"mi300x-node", 7 * 64, 8, 400, pcie5, 1, "mi300x"},
      {"rtx4090-pcie", 0, 1, 100, pcie4, 1, "rtx4090"},
      // Six links of 800 Gb/s both ways each, from which the torus is made.
      {"tpu-v5p", 0, 1, 800, 16, 1, nullptr},
      {"two-site-h100", 900 / 2, 8, 400, pcie5, 1, "h100"},
  };
  CHECK(SystemNames().size() == std::size(rows));
  for (const auto& row : rows) {
    INFO(row.name);
    const ShapeParams system = FindSystem(row.name).value();
    CHECK(system.nvlink.bytes_per_s == Approx(row.nvlink * 1e9));
    CHECK(system.nics_per_node == row.nics);
    CHECK(system.nic.bytes_per_s == Approx(row.nic * 1e9 / 8));
    CHECK(system.pcie.bytes_per_s == Approx(row.pcie * 1e9).epsilon(2e-3));
    CHECK(system.pcie_per_switch == row.pcie_switch);
    if (row.device == nullptr) continue;  // no estimates
    CHECK(FindDevice(system.device_name).value().name == row.device);
    CHECK(system.memory_bytes ==
          Approx(FindDevice(row.device)->memory_bytes).epsilon(5e-3));
  }
}

// Totals of parameters (tests/model/presets_test.cc) know no number of heads
// and no length of a sample.
TEST_CASE("catalogue: models have their published heads", "[model]") {
  const struct {
    const char* name;
    int layers, hidden, heads, groups, width, sequence;
  } rows[] = {
      {"bert-large", 24, 1024, 16, 16, 64, 512},
      {"deepseek-v2", 60, 5120, 128, 128, 192, 4096},
      {"deepseek-v3", 61, 7168, 128, 128, 192, 4096},
      {"gpt-1.7b", 24, 2304, 24, 24, 96, 2048},
      {"gpt-175b", 96, 12288, 96, 96, 128, 2048},
      {"gpt-1t", 128, 25600, 160, 160, 160, 2048},
      {"gpt-22b", 48, 6144, 64, 64, 96, 2048},
      {"gpt-530b", 105, 20480, 128, 128, 160, 2048},
      {"gpt2-xl", 48, 1600, 25, 25, 64, 1024},
      {"gpt3-175b", 96, 12288, 96, 96, 128, 2048},
      {"llama2-7b", 32, 4096, 32, 32, 128, 4096},
      {"llama2-70b", 80, 8192, 64, 8, 128, 4096},
      {"llama3-8b", 32, 4096, 32, 8, 128, 8192},
      {"llama3-70b", 80, 8192, 64, 8, 128, 8192},
      {"llama3-405b", 126, 16384, 128, 8, 128, 8192},
      {"mistral-7b", 32, 4096, 32, 8, 128, 8192},
      {"mixtral-8x7b", 32, 4096, 32, 8, 128, 32768},
      {"qwen2.5-72b", 80, 8192, 64, 8, 128, 4096},
      {"qwen3-8b", 36, 4096, 32, 8, 128, 4096},
      {"qwen3-30b-a3b", 48, 2048, 32, 4, 128, 4096},
      {"qwen3-235b-a22b", 94, 4096, 64, 4, 128, 4096},
  };
  for (const auto& row : rows) {
    INFO(row.name);
    const ModelSpec model = FindModel(row.name).value();
    CHECK(model.layers == row.layers);
    CHECK(model.hidden == row.hidden);
    CHECK(model.heads == row.heads);
    CHECK(model.kv_heads == row.groups);
    CHECK(model.QueryDim() == row.width);
    CHECK(model.sequence == row.sequence);
  }
}

}  // namespace
}  // namespace pipewright::catalogue_test

#include <catch2/catch.hpp>
#include <iterator>
#include <random>
#include <string>

#include "tests/support/config_fuzz_target.h"

namespace pipewright {
namespace {

constexpr const char* kCorpus[] = {
    "model: {preset: gpt-tiny, gated: true, lora_rank: 4}\n"
    "strategy:\n  pp: 4\n  vpp: 2\n  mapping: [3, 2, 1, 0]\n"
    "  layers: [4, 4, 4, 4]\n  recompute: full\n"
    "schedule: {name: zb-v, params: {a: 1, b: x}}\n"
    "costs: {uniform: {forward_ms: 18.5}, p2p: 1ms, analytic: {},\n"
    "  per_stage: {backward_input: [1ms, 2ms]}, held_until_weight: 0.4}\n",
    "{\"system\": {\"preset\": \"dgx-h100\", \"nodes\": 2,\n"
    "\"nvlink\": {\"bandwidth_GBps\": 450, \"latency\": \"1us\"}},\n"
    "\"costs\": {\"microbatch_factor\": [1, 0.5], \"hop_bytes\": 1e6}}\n",
    "strategy { pp: 4 max_activations: 2.5 mapping: [\"0\", \"1\"] }\n"
    "schedule { name: \"x\" params { key: \"a\" value: \"1\" } }\n"
    "costs { p2p: \"1ms\" microbatch_factor: [1, 2] }\n",
};

constexpr const char* kPieces[] = {
    "999999999999999999999",
    "-1",
    "1e999",
    "nan",
    "inf",
    "0x1p9",
    "null",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "'",
    "\n",
    "\t",
    "- ",
    "? ",
    "&a ",
    "*a",
    "!!int ",
    "---\n",
    "...",
    "|\n",
    ">\n",
    "#",
    "%YAML 9.9\n",
    "\\u",
    "\xff",
    "\xef\xbb\xbf",
    "_ms",
    "_GiB",
    "pp",
    "p2p",
    "<",
    ">",
    "[x.y]",
};

TEST_CASE("fuzz: mutated configurations never break a promise", "[fuzz]") {
  std::mt19937 random(20240118);
  int taken = 0;
  for (int round = 0; round < 8000; ++round) {
    std::string text = kCorpus[random() % std::size(kCorpus)];
    for (unsigned edit = random() % 5; edit > 0 && !text.empty(); --edit) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text.erase(at, 1 + random() % 4);
          break;
        case 1:
          text.insert(at, kPieces[random() % std::size(kPieces)]);
          break;
        case 2:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 3:
          text.resize(at);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), 12));
      }
    }
    taken += testing::FuzzConfig(text);
  }
  // The mutations must leave enough that is still read.
  CHECK(taken > 1000);
  CHECK(taken < 8000 * 4);
}

}  // namespace
}  // namespace pipewright

#include <catch2/catch.hpp>
#include <iterator>
#include <random>
#include <string>

#include "tests/support/torch_csv_fuzz_target.h"

namespace pipewright {
namespace {

constexpr const char* kCorpus[] = {
    "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n",
    "0F0,3F0,3I0,3W0,(0F1;0B0)OVERLAP_F_B,3F1,3B1,0B1\n"
    "1F0,2F0,2B0,1B0,1F1,2F1,2B1,1B1\n",
    "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
    "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n",
    "F0_s0,,F1_0,B0_0,BW1_s0,W0_0\n",
};

constexpr const char* kPieces[] = {
    ",",        "\n",          "\r\n",
    ";",        "(",           ")OVERLAP_F_B",
    "0F0",      "1B1",         "0I0,0W0",
    "BW",       "0SEND_F0",    "1RECV_F0",
    "SEND_",    "_s",          "0",
    "9999999",  "-1",          "99999999999999999999",
    " ",        "\"0F0\"",     "\xff",
    "0UNSHARD", "0REDUCE_GRAD"};

TEST_CASE("fuzz: mutated PyTorch schedule files never break a promise",
          "[fuzz]") {
  std::mt19937 random(20240119);
  int taken = 0;
  constexpr int kRounds = 8000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = kCorpus[random() % std::size(kCorpus)];
    for (unsigned edit = random() % 4; edit > 0 && !text.empty(); --edit) {
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
          std::swap(text[at], text[random() % text.size()]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), 8));
      }
    }
    taken += testing::FuzzTorchCsv(text);
  }
  // Some of each, or the corpus says nothing.
  CHECK(taken > 1000);
  CHECK(taken < kRounds - 1000);
}

}  // namespace
}  // namespace pipewright

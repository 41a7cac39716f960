#include "tests/support/page_block.h"

#include <zlib.h>

#include <catch2/catch.hpp>

#include "absl/strings/escaping.h"
#include "tests/support/json.h"

namespace pipewright::testing {
namespace {

std::string Between(const std::string& text, const std::string& from,
                    const std::string& to) {
  const size_t start = text.find(from);
  REQUIRE(start != std::string::npos);
  const size_t begin = start + from.size();
  return text.substr(begin, text.find(to, begin) - begin);
}

// As data.js does it.
std::string Unpacked(const std::string& html) {
  std::string packed;
  REQUIRE(absl::Base64Unescape(Between(html, "id=\"pw-block\">", "</script>"),
                               &packed));
  if (packed.empty()) return "";  // no columns
  z_stream zlib = {};
  REQUIRE(inflateInit2(&zlib, 15 + 16) == Z_OK);
  std::string out(1 << 20, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(packed.data());
  zlib.avail_in = static_cast<uInt>(packed.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  CHECK(inflate(&zlib, Z_FINISH) == Z_STREAM_END);
  out.resize(zlib.total_out);
  inflateEnd(&zlib);
  return out;
}

}  // namespace

PageBlock::PageBlock(const std::string& html)
    : json_(Json::parse(Between(html, "id=\"pw-data\">", "</script>"))),
      block_(Unpacked(html)) {}

}  // namespace pipewright::testing

// Streams of bytes cut into frames.
#include "execute/transport/socket_peer.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "execute/transport/wire.h"

namespace pipewright::frame_reader_test {
namespace {

std::string Frame(int32_t tag, uint64_t claimed, const std::string& body) {
  WireWriter writer;
  writer.Put(FrameReader::HeadOf(tag, claimed));
  return writer.bytes() + body;
}

TEST_CASE("frames: a stream is cut alike in whatever pieces it comes",
          "[execute][sockets]") {
  const std::string stream = Frame(0, 5, "first") + Frame(3, 0, "") +
                             Frame(0, 6, "second") + Frame(-1, 3, "bye");
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameReader reader;
    for (size_t at = 0; at < stream.size(); at += piece) {
      CHECK(reader.Take(stream.substr(at, piece)));
    }
    REQUIRE(reader.frames(0).size() == 2);
    CHECK(reader.frames(0)[0] == "first");
    CHECK(reader.frames(0)[1] == "second");
    CHECK(reader.frames(1).empty());
    CHECK(reader.frames(3).size() == 1);
    REQUIRE(reader.frames(-1).size() == 1);
    CHECK(reader.frames(-1)[0] == "bye");
  }
}

TEST_CASE("frames: what no process sends ends the stream",
          "[execute][sockets]") {
  FrameReader::Head other = FrameReader::HeadOf(0, 4);
  other.magic ^= 1;
  WireWriter strange;
  strange.Put(other);
  const uint64_t most = FrameReader::kMostBytes;
  for (const std::string& bad :
       {Frame(0, most + 1, "much"), Frame(0, ~uint64_t{0}, "much"),
        Frame(-2, 4, "tag."), Frame(4, 4, "tag."), Frame(1 << 30, 4, "tag."),
        strange.bytes() + "text"}) {
    FrameReader reader;
    CHECK(reader.Take(Frame(0, 4, "good")));
    // Before anything of it is taken.
    CHECK_FALSE(reader.Take(bad.substr(0, sizeof(FrameReader::Head))));
    CHECK_FALSE(reader.Take(bad.substr(sizeof(FrameReader::Head))));
    CHECK_FALSE(reader.Take(Frame(0, 5, "later")));
    CHECK(reader.broken());
    REQUIRE(reader.frames(0).size() == 1);
    CHECK(reader.frames(0)[0] == "good");
  }
  // The most that a message may have, and no more of it has come.
  FrameReader reader;
  CHECK(reader.Take(Frame(0, most, "begin")));
  CHECK(reader.frames(0).empty());
}

}  // namespace
}  // namespace pipewright::frame_reader_test

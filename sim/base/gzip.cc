#include "sim/base/gzip.h"

#include <zlib.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/quantity.h"

namespace pipewright {
namespace {

constexpr size_t kPiece = 1 << 16;
// RFC 1952, section 2.3.1: ID1, ID2.
constexpr int kFirst = 0x1f;
constexpr int kSecond = 0x8b;

}  // namespace

// The stream's buffer: expands a piece whenever one is wanted.
class InputFile::Expander : public std::streambuf {
 public:
  Expander(std::istream* file, std::string path, int64_t most_bytes)
      : file_(*file), path_(std::move(path)), left_(most_bytes) {
    // 15 bits, the largest window; 16: a gzip header.
    const int code = inflateInit2(&zlib_, 15 + 16);
    if (code != Z_OK) Fail("zlib cannot be set up");
  }
  ~Expander() override { inflateEnd(&zlib_); }

  const absl::Status& status() const { return status_; }

 protected:
  int_type underflow() override {
    while (status_.ok() && !ended_) {
      const size_t size = Expand();
      if (size == 0) continue;
      if (static_cast<int64_t>(size) > left_) {
        Fail("expands to more than is read of a trace");
        break;
      }
      left_ -= static_cast<int64_t>(size);
      setg(out_.data(), out_.data(), out_.data() + size);
      return traits_type::to_int_type(out_[0]);
    }
    return traits_type::eof();
  }

 private:
  void Fail(absl::string_view what) {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        path_, ": ", what,
        "; allowed: a whole gzip file of at "
        "most ",
        FormatBytes(static_cast<double>(most_)), ", or plain text"));
  }

  // How many bytes are in out_ now.
  size_t Expand() {
    if (zlib_.avail_in == 0) {
      file_.read(in_.data(), kPiece);
      zlib_.next_in = reinterpret_cast<Bytef*>(in_.data());
      zlib_.avail_in = static_cast<uInt>(file_.gcount());
    }
    if (zlib_.avail_in == 0) {
      if (in_member_) Fail("the gzip file ends in the middle");
      ended_ = true;
      return 0;
    }
    zlib_.next_out = reinterpret_cast<Bytef*>(out_.data());
    zlib_.avail_out = kPiece;
    in_member_ = true;
    const int code = inflate(&zlib_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      // Another member may follow: RFC 1952, section 2.2.
      in_member_ = false;
      inflateReset(&zlib_);
    } else if (code != Z_OK) {
      Fail(absl::StrCat("the gzip file is broken (",
                        zlib_.msg != nullptr ? zlib_.msg : "no message", ")"));
      return 0;
    }
    return kPiece - zlib_.avail_out;
  }

  std::istream& file_;
  const std::string path_;
  int64_t left_;
  const int64_t most_ = left_;
  z_stream zlib_ = {};
  bool in_member_ = false;
  bool ended_ = false;
  absl::Status status_;
  std::array<char, kPiece> in_;
  std::array<char, kPiece> out_;
};

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::Open(
    const std::string& path, int64_t most_bytes) {
  auto input = std::unique_ptr<InputFile>(new InputFile());
  std::ifstream& file = input->file_;
  file.open(path, std::ios::binary);
  // A folder opens, and then cannot be read.
  if (!file || file.peek() == std::ifstream::traits_type::eof()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": is not there, empty or cannot be read"));
  }
  const int first = file.get();
  const int second = file.peek();
  file.clear();
  file.unget();
  input->stream_ = &file;
  if (first == kFirst && second == kSecond) {
    input->expander_ = std::make_unique<Expander>(&file, path, most_bytes);
    input->expanded_ = std::make_unique<std::istream>(input->expander_.get());
    input->stream_ = input->expanded_.get();
  }
  return input;
}

InputFile::~InputFile() = default;

absl::Status InputFile::status() const {
  return expander_ == nullptr ? absl::OkStatus() : expander_->status();
}

}  // namespace pipewright

#include "sim/base/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <streambuf>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/input.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int64_t kGzipPiece = 1 << 16;
// RFC 1952, section 2.3.1: ID1, ID2.
constexpr unsigned char kFirst = 0x1f;
constexpr unsigned char kSecond = 0x8b;

// Size of the mark that these, the first bytes of a text, begin with.
int MarkSize(const char* data, int64_t size) {
  return static_cast<int>(ByteOrderMarkSize({data, static_cast<size_t>(size)}));
}

}  // namespace

std::string Gzip(absl::string_view text) {
  z_stream zlib = {};
  // Level 1 packs a trace to a quarter; 6 takes four times as long for a tenth
  // less. 16: with the header of gzip.
  PW_CHECK(deflateInit2(&zlib, 1, Z_DEFLATED, MAX_WBITS + 16, MAX_MEM_LEVEL,
                        Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed;
  std::array<Bytef, kGzipPiece> piece;
  // zlib counts in 32 bits.
  constexpr size_t kTaken = size_t{1} << 30;
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    const size_t taken = std::min(text.size(), kTaken);
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    zlib.avail_in = static_cast<uInt>(taken);
    text.remove_prefix(taken);
    do {
      zlib.next_out = piece.data();
      zlib.avail_out = kGzipPiece;
      result = deflate(&zlib, text.empty() ? Z_FINISH : Z_NO_FLUSH);
      packed.append(reinterpret_cast<const char*>(piece.data()),
                    kGzipPiece - zlib.avail_out);
    } while (zlib.avail_out == 0);
  }
  deflateEnd(&zlib);
  return packed;
}

// The bytes of the file, a piece at a time.
class InputFile::Source {
 public:
  Source(OpenInput input, std::string path)
      : path_(std::move(path)), input_(std::move(input)) {}

  // False at the end and after an error.
  bool Next() {
    if (!status_.ok()) return false;
    const absl::StatusOr<int64_t> count =
        input_.Read(piece_.data(), kGzipPiece);
    status_.Update(count.status());
    size_ = count.value_or(0);
    read_ += size_;
    return size_ > 0;
  }
  // Until there are three bytes, which a pipe may give one by one.
  bool Begin() {
    if (!Next()) return false;
    while (size_ < 3) {
      const absl::StatusOr<int64_t> more =
          input_.Read(piece_.data() + size_, kGzipPiece - size_);
      status_.Update(more.status());
      if (more.value_or(0) == 0) break;
      size_ += *more;
      read_ += *more;
    }
    return true;
  }
  bool is_gzip() const {
    return size_ >= 2 && static_cast<unsigned char>(piece_[0]) == kFirst &&
           static_cast<unsigned char>(piece_[1]) == kSecond;
  }

  char* data() { return piece_.data(); }
  int64_t size() const { return size_; }
  // Packed bytes known so far: all of a file, or those of a pipe that have
  // come.
  int64_t known() const { return std::max(input_.size(), read_); }
  const std::string& path() const { return path_; }
  const absl::Status& status() const { return status_; }

 private:
  std::string path_;
  OpenInput input_;
  std::array<char, kGzipPiece> piece_;
  int64_t size_ = 0;
  int64_t read_ = 0;
  absl::Status status_;
};

class InputFile::Plain : public std::streambuf {
 public:
  Plain(Source* source, InputKind kind, int64_t most)
      : source_(*source), kind_(kind), most_(most), left_(most) {
    if (Show()) gbump(MarkSize(source->data(), source->size()));
  }

  const absl::Status& status() const { return status_; }

 protected:
  int_type underflow() override {
    if (!status_.ok() || !source_.Next() || !Show()) return traits_type::eof();
    return traits_type::to_int_type(*gptr());
  }

 private:
  bool Show() {
    left_ -= source_.size();
    if (left_ < 0) {
      status_ = TooLarge(source_.path(), kind_, most_);
      return false;
    }
    setg(source_.data(), source_.data(), source_.data() + source_.size());
    return true;
  }

  Source& source_;
  InputKind kind_;
  int64_t most_;
  int64_t left_;
  absl::Status status_;
};

// Expands a piece whenever one is wanted.
class InputFile::Expander : public std::streambuf {
 public:
  // So many bytes, `raised`, may be read however small the packed file is.
  Expander(Source* source, InputKind kind, int64_t most, int64_t raised)
      : source_(*source), kind_(kind), most_(most), raised_(raised) {
    // 15 bits, the largest window; 16: a gzip header.
    const int code = inflateInit2(&zlib_, 15 + 16);
    if (code != Z_OK) Fail("zlib cannot be set up");
    Feed();
  }
  ~Expander() override { inflateEnd(&zlib_); }

  const absl::Status& status() const { return status_; }

 protected:
  int_type underflow() override {
    while (status_.ok() && !ended_) {
      const int64_t size = Expand();
      if (size == 0) continue;
      expanded_ += size;
      CheckSize();
      if (!status_.ok()) break;
      setg(out_.data(), out_.data(), out_.data() + size);
      if (expanded_ == size) gbump(MarkSize(out_.data(), size));
      if (gptr() == egptr()) continue;
      return traits_type::to_int_type(*gptr());
    }
    return traits_type::eof();
  }

 private:
  void Fail(absl::string_view what) {
    constexpr char kAllowed[] = "a whole gzip file, or plain text";
    status_ = InFile(source_.path(), 0,
                     WithValue(absl::InvalidArgumentError(
                                   absl::StrCat(what, "; allowed: ", kAllowed)),
                               "", kAllowed));
  }

  void CheckSize() {
    if (expanded_ > most_) {
      status_ = TooLarge(source_.path(), kind_, most_);
    } else if (expanded_ > raised_ &&
               expanded_ / kMostExpansion > source_.known()) {
      const std::string allowed =
          absl::StrCat("at most ", kMostExpansion, " times");
      status_ = InFile(
          source_.path(), 0,
          WithValue(absl::InvalidArgumentError(absl::StrCat(
                        "expands to more than ", kMostExpansion,
                        " times its packed size; allowed: ", allowed,
                        " (PIPEWRIGHT_MAX_INPUT=SIZE raises the limit)")),
                    "", allowed));
    }
  }

  void Feed() {
    zlib_.next_in = reinterpret_cast<Bytef*>(source_.data());
    zlib_.avail_in = static_cast<uInt>(source_.size());
  }

  // How many bytes are in out_ now.
  int64_t Expand() {
    if (zlib_.avail_in == 0) {
      if (source_.Next()) {
        Feed();
      } else {
        if (in_member_) Fail("the gzip file ends in the middle");
        ended_ = true;
        return 0;
      }
    }
    zlib_.next_out = reinterpret_cast<Bytef*>(out_.data());
    zlib_.avail_out = kGzipPiece;
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
    return kGzipPiece - zlib_.avail_out;
  }

  Source& source_;
  InputKind kind_;
  int64_t most_;
  int64_t raised_;
  int64_t expanded_ = 0;
  z_stream zlib_ = {};
  bool in_member_ = false;
  bool ended_ = false;
  absl::Status status_;
  std::array<char, kGzipPiece> out_;
};

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::Open(
    const std::string& path, InputKind kind) {
  PW_ASSIGN_OR_RETURN(const int64_t raised, RaisedLimit());
  PW_ASSIGN_OR_RETURN(const int64_t most, MostBytes(kind));
  PW_ASSIGN_OR_RETURN(OpenInput opened, OpenInput::Open(path, kind, most));
  auto input = std::unique_ptr<InputFile>(new InputFile());
  input->source_ = std::make_unique<Source>(std::move(opened), path);
  Source& source = *input->source_;
  if (!source.Begin()) {
    PW_RETURN_IF_ERROR(source.status());
    return InFile(path, 0, absl::NotFoundError("is empty"));
  }
  std::streambuf* buffer = nullptr;
  if (source.is_gzip()) {
    input->expander_ = std::make_unique<Expander>(&source, kind, most, raised);
    buffer = input->expander_.get();
  } else {
    input->plain_ = std::make_unique<Plain>(&source, kind, most);
    buffer = input->plain_.get();
  }
  input->stream_ = std::make_unique<std::istream>(buffer);
  return input;
}

InputFile::~InputFile() = default;

absl::Status InputFile::status() const {
  absl::Status status = source_->status();
  status.Update(plain_ != nullptr ? plain_->status() : expander_->status());
  return status;
}

}  // namespace pipewright

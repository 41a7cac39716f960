// The tables that ship, unpacked when somebody asks for them.
#include <zlib.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/gzip.h"
#include "sim/base/status.h"
#include "sim/profile/silicon_table.h"

namespace pipewright {

// Made at build time (cmake/embed.cmake).
const std::vector<std::pair<std::string, absl::string_view>>& EmbeddedSilicon();

namespace {

// A whole gzip file that we packed ourselves.
std::string Unpacked(absl::string_view packed) {
  z_stream zlib = {};
  PW_CHECK(inflateInit2(&zlib, 15 + 16) == Z_OK);
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  zlib.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  text.resize(packed.size() * 8);
  int code = Z_OK;
  while (code == Z_OK) {
    if (zlib.total_out == text.size()) text.resize(2 * text.size());
    zlib.next_out = reinterpret_cast<Bytef*>(&text[zlib.total_out]);
    zlib.avail_out = static_cast<uInt>(text.size() - zlib.total_out);
    code = inflate(&zlib, Z_NO_FLUSH);
  }
  PW_CHECK(code == Z_STREAM_END);
  text.resize(zlib.total_out);
  inflateEnd(&zlib);
  return text;
}

}  // namespace

std::vector<std::string> ShippedSiliconNames() {
  std::vector<std::string> names;
  for (const auto& file : EmbeddedSilicon()) names.push_back(file.first);
  std::sort(names.begin(), names.end());
  return names;
}

const std::vector<SiliconTable>* ShippedSilicon(const std::string& name) {
  static std::mutex mutex;
  static auto* const read =
      new std::map<std::string, std::unique_ptr<std::vector<SiliconTable>>>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = read->find(name);
  if (found != read->end()) return found->second.get();
  for (const auto& [file, packed] : EmbeddedSilicon()) {
    if (file != name) continue;
    absl::StatusOr<std::vector<SiliconTable>> tables =
        ReadSiliconTables(Unpacked(packed), name);
    PW_CHECK(tables.ok());
    return read
        ->emplace(name, std::make_unique<std::vector<SiliconTable>>(
                            *std::move(tables)))
        .first->second.get();
  }
  return nullptr;
}

absl::StatusOr<std::vector<SiliconTable>> ReadSiliconFile(
    const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> in,
                      InputFile::Open(path, InputKind::kProfile));
  const std::string text((std::istreambuf_iterator<char>(in->stream())),
                         std::istreambuf_iterator<char>());
  PW_RETURN_IF_ERROR(in->status());
  return ReadSiliconTables(text, path);
}

}  // namespace pipewright

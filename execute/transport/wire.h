// Values as bytes between processes of one program on machines of one kind:
// as they lie in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

class WireWriter {
 public:
  template <class T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void PutAll(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    Put(static_cast<uint64_t>(values.size()));
    if (values.empty()) return;
    bytes_.append(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(T));
  }
  void PutText(absl::string_view text) {
    Put(static_cast<uint64_t>(text.size()));
    bytes_.append(text.data(), text.size());
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads what a WireWriter has written, in the same order. A missing value reads
// as zero or empty; see ok().
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    // A byte that is neither 0 nor 1 is no bool.
    if constexpr (std::is_same_v<T, bool>) return Get<uint8_t>() != 0;
    T value{};
    if (Has(1, sizeof(T))) Copy(&value, sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> GetAll() {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto count = Get<uint64_t>();
    std::vector<T> values;
    if (!Has(count, sizeof(T))) return values;
    values.resize(count);
    if (count > 0) Copy(values.data(), count * sizeof(T));
    return values;
  }
  std::string GetText() {
    const auto count = Get<uint64_t>();
    if (!Has(count, 1)) return "";
    std::string text(bytes_.substr(0, count));
    bytes_.remove_prefix(count);
    return text;
  }

  bool ok() const { return ok_; }

 private:
  bool Has(uint64_t count, size_t size) {
    ok_ = ok_ && count <= bytes_.size() / size;
    return ok_;
  }
  void Copy(void* into, size_t size) {
    std::memcpy(into, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }

  absl::string_view bytes_;
  bool ok_ = true;
};

}  // namespace pipewright

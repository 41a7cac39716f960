#include "tests/emulation/nccl/board.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "tests/emulation/nccl/text.h"

namespace emulated_nccl {
namespace {

class InMemory : public Board {
 public:
  bool Put(const std::string& name, std::string content) override {
    const std::lock_guard lock(mutex_);
    return contents_
        .emplace(name, std::make_shared<const std::string>(std::move(content)))
        .second;
  }
  std::shared_ptr<const std::string> Find(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const auto found = contents_.find(name);
    return found == contents_.end() ? nullptr : found->second;
  }
  void Drop(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    contents_.erase(name);
  }
  void Clear() override {
    const std::lock_guard lock(mutex_);
    contents_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const std::string>> contents_;
};

class InFiles : public Board {
 public:
  explicit InFiles(std::string folder) : folder_(std::move(folder)) {
    if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) Stop(folder_);
  }

  // A file appears under its name when it is whole.
  bool Put(const std::string& name, std::string content) override {
    static std::atomic<int64_t> count{0};
    const std::string draft = Text(folder_, "/.", getpid(), ".", count++);
    const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (file < 0) Stop(draft);
    for (size_t at = 0; at < content.size();) {
      const ssize_t bytes =
          write(file, content.data() + at, content.size() - at);
      if (bytes < 0) Stop(draft);
      at += static_cast<size_t>(bytes);
    }
    close(file);
    const bool fresh = link(draft.c_str(), Path(name).c_str()) == 0;
    if (!fresh && errno != EEXIST) Stop(Path(name));
    unlink(draft.c_str());
    return fresh;
  }

  std::shared_ptr<const std::string> Find(const std::string& name) override {
    const int file = open(Path(name).c_str(), O_RDONLY);
    if (file < 0) return nullptr;
    struct stat status = {};
    if (fstat(file, &status) != 0) Stop(Path(name));
    auto content = std::make_shared<std::string>(
        static_cast<size_t>(status.st_size), '\0');
    for (size_t at = 0; at < content->size();) {
      const ssize_t bytes =
          read(file, content->data() + at, content->size() - at);
      if (bytes <= 0) Stop(Path(name));
      at += static_cast<size_t>(bytes);
    }
    close(file);
    return content;
  }

  void Drop(const std::string& name) override { unlink(Path(name).c_str()); }

  void Clear() override {
    std::error_code error;  // another one may be clearing it
    std::filesystem::remove_all(folder_, error);
  }

 private:
  std::string Path(const std::string& name) const {
    return Text(folder_, "/", name);
  }
  [[noreturn]] static void Stop(const std::string& path) {
    std::fprintf(stderr, "emulation: %s: %s\n", path.c_str(),
                 std::strerror(errno));
    std::fflush(nullptr);
    _exit(99);
  }

  const std::string folder_;
};

}  // namespace

std::shared_ptr<Board> MemoryBoard() { return std::make_shared<InMemory>(); }

std::shared_ptr<Board> FileBoard(const std::string& folder) {
  return std::make_shared<InFiles>(folder);
}

}  // namespace emulated_nccl

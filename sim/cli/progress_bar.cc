#include "sim/cli/progress_bar.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/strings/str_format.h"

namespace pipewright {
namespace {

constexpr std::chrono::milliseconds kBeforeBar(2000);
constexpr std::chrono::milliseconds kBetweenBars(100);
constexpr int kBarWidth = 30;

bool IsTerminal(int file) {
  const char* const terminal = std::getenv("TERM");
  return ::isatty(file) != 0 &&
         (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
}

// Past stdio: a forked child has a copy of its buffers.
void WriteToError(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count =
        ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<size_t>(count);
  }
}

}  // namespace

ProgressBar::ProgressBar() : begin_(Clock::now()), next_(begin_ + kBeforeBar) {
  if (!IsTerminal(STDERR_FILENO)) return;
  void* const page =
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) drawn_ = new (page) std::atomic<bool>(false);
}

ProgressBar::~ProgressBar() {
  Wipe();
  if (drawn_ != nullptr) ::munmap(drawn_, sizeof(std::atomic<bool>));
}

std::string ProgressBar::Line(double part, double elapsed_s) {
  part = std::clamp(part, 0.0, 1.0);
  const auto full = static_cast<int>(part * kBarWidth);
  std::string out = absl::StrFormat("[%s%s] %d %%", std::string(full, '#'),
                                    std::string(kBarWidth - full, '.'),
                                    static_cast<int>(100 * part));
  // Below a hundredth the rest is a guess.
  if (part >= 0.01) {
    absl::StrAppendFormat(
        &out, ", about %d s left",
        static_cast<int64_t>(std::lround(elapsed_s * (1 - part) / part)));
  }
  return out;
}

void ProgressBar::At(double part) {
  if (drawn_ == nullptr) return;
  if (part >= 1) return Wipe();
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kBetweenBars;
  *drawn_ = true;
  const std::chrono::duration<double> elapsed = now - begin_;
  WriteToError("\r\x1b[K" + Line(part, elapsed.count()));
}

void ProgressBar::Wipe() {
  if (drawn_ == nullptr || !drawn_->exchange(false)) return;
  WriteToError("\r\x1b[K");
}

}  // namespace pipewright

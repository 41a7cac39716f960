#include "sim/cli/progress_bar.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pipewright {
namespace {

constexpr std::chrono::milliseconds kBeforeBar(1000);
constexpr std::chrono::milliseconds kBetweenLines(100);
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

TerminalLine::TerminalLine(std::chrono::milliseconds wait)
    : next_(Clock::now() + wait) {
  if (!IsTerminal(STDERR_FILENO)) return;
  void* const page =
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) drawn_ = new (page) std::atomic<bool>(false);
}

TerminalLine::~TerminalLine() {
  Wipe();
  if (drawn_ != nullptr) ::munmap(drawn_, sizeof(std::atomic<bool>));
}

void TerminalLine::Draw(const std::string& text) {
  if (drawn_ == nullptr) return;
  next_ = Clock::now() + kBetweenLines;
  *drawn_ = true;
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0;
  // A line that is broken cannot be wiped.
  const size_t most = known && size.ws_col > 1 ? size.ws_col - 1 : 79;
  WriteToError("\r\x1b[K" + text.substr(0, most));
}

void TerminalLine::Wipe() {
  if (drawn_ == nullptr || !drawn_->exchange(false)) return;
  WriteToError("\r\x1b[K");
}

ProgressBar::ProgressBar() : begin_(Clock::now()), line_(kBeforeBar) {}

std::string ProgressBar::Line(double part, double elapsed_s,
                              absl::string_view doing) {
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
  if (!doing.empty()) absl::StrAppend(&out, ": ", doing);
  return out;
}

void ProgressBar::At(double part, absl::string_view doing) {
  if (part >= 1) return line_.Wipe();
  if (!line_.IsDue()) return;
  const std::chrono::duration<double> elapsed = Clock::now() - begin_;
  line_.Draw(Line(part, elapsed.count(), doing));
}

}  // namespace pipewright

#include "sim/engine/simgrid_child.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/file.h"

namespace pipewright {
namespace {

static_assert(std::is_trivially_copyable_v<TraceOp>);
static_assert(std::is_trivially_copyable_v<RankTimes>);

// What a message on the pipe holds; its length in bytes follows.
enum class Frame : uint64_t { kOps, kSummary, kError };

class PipeWriter {
 public:
  explicit PipeWriter(int file) : file_(file) {}

  void WriteFrame(Frame frame, const std::string& content) {
    const uint64_t header[2] = {static_cast<uint64_t>(frame), content.size()};
    const absl::string_view head(reinterpret_cast<const char*>(header),
                                 sizeof(header));
    // Else the parent is gone.
    if (!WriteAll(file_, head) || !WriteAll(file_, content)) ::_exit(1);
  }

 private:
  int file_;
};

template <class T>
void Append(const T& value, std::string* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <class T>
void AppendAll(const std::vector<T>& values, std::string* out) {
  Append(static_cast<uint64_t>(values.size()), out);
  for (const T& value : values) Append(value, out);
}

// Reads back what Append wrote; both ends are the same program.
class Reader {
 public:
  explicit Reader(const std::string& content) : next_(content.data()) {}
  template <class T>
  void Read(T* value) {
    std::memcpy(static_cast<void*>(value), next_, sizeof(T));
    next_ += sizeof(T);
  }
  template <class T>
  void ReadAll(std::vector<T>* values) {
    uint64_t size = 0;
    Read(&size);
    values->resize(size);
    for (T& value : *values) Read(&value);
  }

 private:
  const char* next_;
};

// Applies `each` to every field in one fixed order.
template <class Summary, class Scalar, class List>
void VisitSummary(Summary& summary, Scalar scalar, List list) {
  list(summary.row_of_replica);
  list(summary.iteration_end_s);
  scalar(summary.steady);
  scalar(summary.passes);
  scalar(summary.simulated_ops);
  scalar(summary.flows);
  scalar(summary.timers);
  scalar(summary.apart);
  scalar(summary.execs);
  scalar(summary.comms);
  scalar(summary.bytes_sent);
}

std::string Encode(const RunSummary& summary) {
  std::string out;
  VisitSummary(
      summary, [&](const auto& value) { Append(value, &out); },
      [&](const auto& values) { AppendAll(values, &out); });
  Append(static_cast<uint64_t>(summary.times.size()), &out);
  for (const std::vector<RankTimes>& row : summary.times) {
    AppendAll(row, &out);
  }
  return out;
}

RunSummary Decode(const std::string& content) {
  RunSummary summary;
  Reader reader(content);
  VisitSummary(
      summary, [&](auto& value) { reader.Read(&value); },
      [&](auto& values) { reader.ReadAll(&values); });
  uint64_t rows = 0;
  reader.Read(&rows);
  summary.times.resize(rows);
  for (std::vector<RankTimes>& row : summary.times) reader.ReadAll(&row);
  return summary;
}

// Gathers operations into frames.
class PipeSink : public TraceSink {
 public:
  explicit PipeSink(PipeWriter* writer) : writer_(writer) {}
  void OnOp(const TraceOp& op) override {
    Append(op, &buffer_);
    if (buffer_.size() >= kFrameBytes) Flush();
  }
  void Flush() {
    if (buffer_.empty()) return;
    writer_->WriteFrame(Frame::kOps, buffer_);
    buffer_.clear();
  }

 private:
  static constexpr size_t kFrameBytes = size_t{1} << 20;
  PipeWriter* writer_;
  std::string buffer_;
};

[[noreturn]] void Child(
    int file, bool traced,
    const std::function<absl::StatusOr<RunSummary>(TraceSink*)>& run) {
  PipeWriter writer(file);
  PipeSink sink(&writer);
  const absl::StatusOr<RunSummary> summary = run(traced ? &sink : nullptr);
  sink.Flush();
  if (summary.ok()) {
    writer.WriteFrame(Frame::kSummary, Encode(*summary));
  } else {
    writer.WriteFrame(Frame::kError,
                      absl::StrCat(static_cast<int>(summary.status().code()),
                                   " ", summary.status().message()));
  }
  // Not exit: the parent's buffers and destructors are not ours to run.
  ::_exit(0);
}

absl::StatusOr<RunSummary> ReadResult(int file, TraceSink* trace) {
  absl::StatusOr<RunSummary> result =
      absl::InternalError("the simulation's process ended without a result");
  uint64_t header[2];
  std::string content;
  while (ReadAll(file, header, sizeof(header))) {
    content.resize(header[1]);
    if (!ReadAll(file, content.data(), content.size())) break;
    switch (static_cast<Frame>(header[0])) {
      case Frame::kOps:
        for (size_t at = 0; at < content.size(); at += sizeof(TraceOp)) {
          TraceOp op;
          std::memcpy(static_cast<void*>(&op), content.data() + at, sizeof(op));
          trace->OnOp(op);
        }
        break;
      case Frame::kSummary:
        result = Decode(content);
        break;
      case Frame::kError: {
        const size_t blank = content.find(' ');
        result = absl::Status(
            static_cast<absl::StatusCode>(std::stoi(content.substr(0, blank))),
            content.substr(blank + 1));
        break;
      }
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<RunSummary> RunInChild(
    TraceSink* trace,
    const std::function<absl::StatusOr<RunSummary>(TraceSink*)>& run) {
  int files[2];
  if (::pipe(files) != 0) {
    return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  // SimGrid flushes the standard streams, in the child too: leave it nothing.
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    ::close(files[0]);
    ::close(files[1]);
    return absl::InternalError(absl::StrCat("fork: ", std::strerror(errno)));
  }
  if (child == 0) {
    ::close(files[0]);
    Child(files[1], trace != nullptr, run);
  }
  ::close(files[1]);
  absl::StatusOr<RunSummary> result = ReadResult(files[0], trace);
  ::close(files[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!result.ok() && WIFSIGNALED(status)) {
    return absl::InternalError(absl::StrCat(
        "the simulation's process died of signal ", WTERMSIG(status)));
  }
  return result;
}

}  // namespace pipewright

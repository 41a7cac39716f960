#include "sim/report/run_data.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "sim/base/quantity.h"
#include "sim/program/program.h"
#include "sim/report/memory_svg.h"
#include "sim/report/palette.h"
#include "sim/trace/memory_timeline.h"

namespace pipewright {
namespace {

// More samples of memory than this, of all ranks, become columns that each show
// their highest one.
constexpr size_t kMostSamples = 200'000;
constexpr size_t kMemoryColumns = 2048;

constexpr uint8_t kJointFlag = 1;
constexpr uint8_t kPassFlag = 2;

bool IsDrawn(const TraceOp& op, const DrawnRun& drawn, int ranks) {
  // A transfer is drawn once, at its sender.
  return op.iteration == drawn.iteration && op.replica == drawn.replica &&
         op.end_s > op.start_s && op.rank >= 0 && op.rank < ranks &&
         op.kind != OpKind::kReceive;
}

// Where an operation is drawn and what it is, to find it again.
using OpPlace = std::tuple<int32_t, Stream, OpKind, uint64_t, uint64_t>;

uint64_t BitsOf(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

uint64_t BitsOf(Pass pass) {
  return static_cast<uint64_t>(pass.lane()) << 48 ^ pass.key();
}

class RunWriter {
 public:
  RunWriter(const Program& program, const std::vector<TraceOp>& ops,
            const DrawnRun& drawn, PageData* data)
      : program_(program), data_(data) {
    for (const TraceOp& op : ops) {
      if (IsDrawn(op, drawn, program.pp())) ops_.push_back(&op);
    }
    std::stable_sort(
        ops_.begin(), ops_.end(), [](const TraceOp* one, const TraceOp* other) {
          return std::tie(one->rank, one->stream, one->start_s) <
                 std::tie(other->rank, other->stream, other->start_s);
        });
  }

  void WriteOps(Json* run) const {
    const size_t count = ops_.size();
    std::vector<double> start(count);
    std::vector<double> seconds(count);
    std::vector<double> bytes(count);
    std::vector<uint32_t> low(count);
    std::vector<uint32_t> high(count);
    std::vector<int32_t> to(count);
    std::vector<int32_t> stage(count);
    std::vector<uint8_t> kind(count);
    std::vector<uint8_t> style(count);
    std::vector<uint8_t> flags(count);
    std::array<bool, kNumStyles> present{};
    Json tracks = Json::array();
    double first_s = 0;
    double last_s = 0;
    for (size_t index = 0; index < count; ++index) {
      const TraceOp& op = *ops_[index];
      start[index] = op.start_s;
      seconds[index] = op.end_s - op.start_s;
      bytes[index] = op.bytes;
      // As in Pass: kind, direction, chunk, joint, slice; then the microbatch.
      low[index] = static_cast<uint32_t>(op.pass.kind()) |
                   static_cast<uint32_t>(op.pass.direction())
                       << Pass::kDirectionShift |
                   static_cast<uint32_t>(op.pass.chunk()) << Pass::kChunkShift |
                   static_cast<uint32_t>(op.pass.slice()) << Pass::kSliceShift;
      high[index] = static_cast<uint32_t>(op.pass.microbatch());
      to[index] = ReceiverOf(op);
      stage[index] = op.stage;
      kind[index] = static_cast<uint8_t>(op.kind);
      style[index] = static_cast<uint8_t>(StyleOf(op));
      flags[index] = static_cast<uint8_t>((op.joint ? kJointFlag : 0) |
                                          (op.stage >= 0 ? kPassFlag : 0));
      present[style[index]] |= op.kind != OpKind::kSend;
      first_s = index == 0 ? op.start_s : std::min(first_s, op.start_s);
      last_s = index == 0 ? op.end_s : std::max(last_s, op.end_s);
      if (index == 0 || op.rank != ops_[index - 1]->rank ||
          op.stream != ops_[index - 1]->stream) {
        tracks.push_back({op.rank, static_cast<int>(op.stream), index, 0});
      }
      tracks.back()[3] = tracks.back()[3].get<int64_t>() + 1;
    }
    Json styles = Json::array();
    for (int each = 0; each < kNumStyles; ++each) {
      if (present[each]) styles.push_back(each);
    }
    (*run)["start"] = first_s;
    (*run)["end"] = last_s;
    (*run)["present"] = std::move(styles);
    (*run)["tracks"] = std::move(tracks);
    (*run)["op"] = {
        {"start", data_->Add(start)}, {"seconds", data_->Add(seconds)},
        {"bytes", data_->Add(bytes)}, {"lo", data_->Add(low)},
        {"hi", data_->Add(high)},     {"to", data_->Add(to)},
        {"stage", data_->Add(stage)}, {"kind", data_->Add(kind)},
        {"style", data_->Add(style)}, {"flags", data_->Add(flags)}};
  }

  void WritePath(const std::vector<PagePiece>& path, Json* run) const {
    if (path.empty()) return;
    std::vector<int32_t> rank;
    std::vector<double> start;
    std::vector<double> end;
    for (const PagePiece& piece : path) {
      rank.push_back(piece.rank);
      start.push_back(piece.start_s);
      end.push_back(piece.end_s);
    }
    (*run)["path"] = {{"rank", data_->Add(rank)},
                      {"start", data_->Add(start)},
                      {"end", data_->Add(end)}};
  }

  void WriteReplay(const PageReplay& replay, const Report& report,
                   Json* run) const {
    std::map<OpPlace, int32_t> drawn;
    for (size_t index = 0; index < ops_.size(); ++index) {
      const TraceOp& op = *ops_[index];
      drawn[{op.rank, op.stream, op.kind, BitsOf(op.pass),
             BitsOf(op.start_s)}] = static_cast<int32_t>(index);
    }
    std::vector<double> seconds;
    std::vector<double> part;
    std::vector<uint32_t> first = {0};
    std::vector<uint32_t> from;
    std::vector<int32_t> rank;
    std::vector<int32_t> op;
    std::vector<uint8_t> iteration;
    std::vector<uint8_t> kind;
    std::vector<uint8_t> compute;
    for (const PageReplay::Node& node : replay.nodes) {
      seconds.push_back(node.seconds);
      part.push_back(node.part);
      from.insert(from.end(), node.from.begin(), node.from.end());
      first.push_back(static_cast<uint32_t>(from.size()));
      rank.push_back(node.rank);
      iteration.push_back(node.iteration);
      kind.push_back(static_cast<uint8_t>(node.factor));
      compute.push_back(static_cast<uint8_t>((node.is_pass ? 1 : 0) |
                                             (node.ends_step ? 2 : 0)));
      const auto found = drawn.find({node.rank, node.stream, node.kind,
                                     BitsOf(node.pass), BitsOf(node.start_s)});
      op.push_back(node.iteration == 0 && found != drawn.end() ? found->second
                                                               : -1);
    }
    Json sliders = Json::array();
    for (const PageReplay::Slider& slider : replay.sliders) {
      sliders.push_back({{"key", slider.key},
                         {"name", slider.name},
                         {"seconds", slider.seconds},
                         {"least", slider.least}});
    }
    (*run)["replay"] = {
        {"ranks", program_.pp()},
        {"iterations", replay.iterations},
        {"untilSteady", replay.until_steady},
        {"recompute", replay.recompute_follows},
        {"note",
         "Factors on the times of this run, as --what-if of explain has them. "
         "The order of the passes stays; a schedule that plans with times "
         "could choose another."},
        {"sliders", std::move(sliders)},
        {"base",
         {{"iteration_s", report.iteration_s},
          {"span_global_s", report.span_s.global},
          {"span_per_rank_s", report.span_s.per_rank},
          {"busy_s", report.busy_s},
          {"bubble_global", report.bubble_fraction.global},
          {"bubble_per_rank", report.bubble_fraction.per_rank}}},
        {"seconds", data_->Add(seconds)},
        {"part", data_->Add(part)},
        {"first", data_->Add(first)},
        {"from", data_->Add(from)},
        {"rank", data_->Add(rank)},
        {"op", data_->Add(op)},
        {"iteration", data_->Add(iteration)},
        {"kind", data_->Add(kind)},
        {"compute", data_->Add(compute)}};
  }

 private:
  int32_t ReceiverOf(const TraceOp& op) const {
    if (op.kind != OpKind::kSend || op.channel < 0) return -1;
    const auto& channels = program_.OfReplica(op.replica).channels;
    return static_cast<size_t>(op.channel) < channels.size()
               ? channels[op.channel].to_rank
               : -1;
  }

  const Program& program_;
  PageData* const data_;
  std::vector<const TraceOp*> ops_;  // by rank, stream and start
};

// At most kMemoryColumns samples, the highest of each stretch.
std::vector<MemorySample> Thinned(std::vector<MemorySample> samples,
                                  bool thin) {
  if (!thin || samples.size() <= kMemoryColumns) return samples;
  const double start_s = samples.front().time_s;
  const double step_s =
      (samples.back().time_s - start_s) / static_cast<double>(kMemoryColumns);
  std::vector<MemorySample> out;
  size_t column = 0;
  for (const MemorySample& sample : samples) {
    const auto own = static_cast<size_t>((sample.time_s - start_s) / step_s);
    if (out.empty() || own > column) {
      out.push_back(sample);
      column = own;
    } else if (sample.bytes.total() > out.back().bytes.total()) {
      out.back().bytes = sample.bytes;
    }
  }
  return out;
}

void WriteMemory(const MemoryReport& report, const Program& program,
                 const std::vector<TraceOp>& ops, const DrawnRun& drawn,
                 PageData* data, Json* run) {
  const ScheduleMemory& memory = *report.memory;
  std::vector<std::vector<MemorySample>> samples = MemoryOverTime(
      program, memory, ops, drawn.memory_replica, drawn.iteration);
  size_t count = 0;
  double last_s = 0;
  std::array<bool, kNumMemoryKinds> used{};
  for (const auto& rank : samples) {
    count += rank.size();
    if (!rank.empty()) last_s = std::max(last_s, rank.back().time_s);
    for (const MemorySample& sample : rank) {
      for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
        used[kind] |= sample.bytes.of[kind] != 0;
      }
    }
  }
  if (count == 0) return;
  Json kinds = Json::array();
  for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
    if (!used[kind]) continue;
    kinds.push_back(
        {{"name", std::string(MemoryKindName(static_cast<MemoryKind>(kind)))},
         {"colour", std::string(MemoryKindColour(kind))}});
  }
  Json ranks = Json::array();
  double highest = 0;
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    const std::vector<MemorySample> own =
        Thinned(std::move(samples[rank]), count > kMostSamples);
    std::vector<double> time;
    std::vector<double> total;
    std::array<std::vector<double>, kNumMemoryKinds> of;
    for (const MemorySample& sample : own) {
      time.push_back(sample.time_s);
      total.push_back(static_cast<double>(sample.bytes.total()));
      highest = std::max(highest, total.back());
      for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
        of[kind].push_back(static_cast<double>(sample.bytes.of[kind]));
      }
    }
    Json columns = Json::array();
    for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
      if (used[kind]) columns.push_back(data->Add(of[kind]));
    }
    ranks.push_back({{"peak", memory.ranks[rank].peak()},
                     {"time", data->Add(time)},
                     {"total", data->Add(total)},
                     {"of", std::move(columns)}});
  }
  Json& out = (*run)["memory"];
  out = {{"kinds", std::move(kinds)},
         {"ranks", std::move(ranks)},
         {"worst", memory.WorstRank()},
         {"highest", highest},
         {"end", last_s}};
  const std::optional<double> limit = report.allocator_limit();
  if (limit && *limit > 0) out["limit"] = *limit;
}

}  // namespace

Json RunJson(const Report& report, const Program& program,
             const std::vector<TraceOp>& ops, const DrawnRun& drawn,
             const PageExtras* extras, PageData* data) {
  const Schedule* schedule = program.OfReplica(drawn.replica).schedule.get();
  Json run = {{"name", drawn.name},
              {"ranks", program.pp()},
              {"vpp", schedule == nullptr ? 1 : schedule->vpp()},
              {"slices", schedule == nullptr ? 1 : schedule->slices},
              {"directions", schedule == nullptr ? 1 : schedule->directions}};
  const RunWriter writer(program, ops, drawn, data);
  writer.WriteOps(&run);
  if (extras != nullptr) {
    writer.WritePath(extras->path, &run);
    if (extras->replay) writer.WriteReplay(*extras->replay, report, &run);
  }
  if (report.memory && schedule != nullptr) {
    WriteMemory(*report.memory, program, ops, drawn, data, &run);
  }
  return run;
}

void AddPageWords(PageData* data) {
  Json kinds = Json::array();
  for (int kind = 0; kind < kNumOpKinds; ++kind) {
    kinds.push_back(std::string(OpKindName(static_cast<OpKind>(kind))));
  }
  Json streams = Json::array();
  for (int stream = 0; stream < kNumStreams; ++stream) {
    streams.push_back(std::string(StreamName(static_cast<Stream>(stream))));
  }
  Json styles = Json::array();
  for (int style = 0; style < kNumStyles; ++style) {
    const Style each = static_cast<Style>(style);
    styles.push_back({{"label", std::string(StyleLabel(each))},
                      {"colour", Hex(ColourOf(each, 0, 1))}});
  }
  data->json()["kinds"] = std::move(kinds);
  data->json()["streams"] = std::move(streams);
  data->json()["styles"] = std::move(styles);
}

}  // namespace pipewright

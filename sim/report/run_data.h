// A run as a page draws it: operations of one replica and iteration in columns,
// memory over time, the critical path, and what a replay with other times
// needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/op_kind.h"
#include "sim/report/page_data.h"
#include "sim/report/report.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

// One operation on a chain of dependencies; seconds from the start of the run.
struct PagePiece {
  int rank = 0;
  double start_s = 0;
  double end_s = 0;
};

// Which factor of a page's sliders a time takes; as PW.CLASS in replay.js.
enum class ReplayFactor : uint8_t {
  kNone,
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kBackwardFull,  // `part` of it as B, the rest as W
  kRecompute,
  kHop,
};

// Operations of all iterations that a run can take, each behind all that it has
// waited for: it begins when the last of them has ended.
struct PageReplay {
  struct Node {
    double seconds = 0;
    double part = 0;
    int32_t rank = 0;
    uint8_t iteration = 0;
    ReplayFactor factor = ReplayFactor::kNone;
    bool is_pass = false;        // counts for spans and busy times
    bool ends_step = false;      // counts for the end of the iteration
    std::vector<uint32_t> from;  // indexes of earlier nodes
    // Finds the operation that is drawn.
    Stream stream = Stream::kCompute;
    OpKind kind = OpKind::kPass;
    Pass pass{};
    double start_s = 0;
  };
  struct Slider {
    std::string key;     // "F", "B", "W", "hop"
    std::string name;    // "F forward"
    double seconds = 0;  // 0: not one time for all ranks
    double least = 0;    // smallest factor
  };
  std::vector<Node> nodes;
  std::vector<Slider> sliders;
  int iterations = 1;
  bool until_steady = true;
  bool recompute_follows = false;  // R takes the factor of F
};

// What is known of a run beyond its report and trace.
struct PageExtras {
  std::vector<PagePiece> path;  // critical, of the iteration that is drawn
  std::optional<PageReplay> replay;
  std::string no_replay;  // why there is none; "" for no word about it
};

struct DrawnRun {
  std::string name;
  int replica = 0;
  int iteration = 0;
  int memory_replica = 0;
};

// `extras` may be null.
Json RunJson(const Report& report, const Program& program,
             const std::vector<TraceOp>& ops, const DrawnRun& drawn,
             const PageExtras* extras, PageData* data);

// Names that all runs of a page share: kinds, streams, styles.
void AddPageWords(PageData* data);

}  // namespace pipewright

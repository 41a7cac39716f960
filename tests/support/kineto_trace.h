// Writes traces as PyTorch's profiler does, with times that are known: the
// forwards and backwards of one rank, kernel after kernel. It shares nothing
// with the importer. Microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright::testing {

struct FakeRank {
  int rank = 0;
  int world_size = 1;
  std::string groups;  // elements of pg_config, as JSON
  std::string device = "NVIDIA H100 80GB HBM3";
  int multiprocessors = 132;
  int64_t memory_bytes = 85'017'624'576;
  int microbatches = 3;
  int layers = 4;
  bool has_embedding = true;
  bool has_head = true;
  bool has_modules = true;    // nn.Module events
  bool has_marks = false;     // record_function around each layer and end
  bool has_sequences = true;  // numbers that join backward and forward
  bool has_shapes = true;
  // Times of one layer, of the embedding and of the head; forward and backward.
  double layer_us[2] = {20, 40};
  double embedding_us[2] = {3, 5};
  double head_us[2] = {11, 17};
  // Written as sizes; of gpt-tiny.
  int64_t batch = 1;
  int64_t sequence = 128;
  int64_t hidden = 256;
  int64_t heads = 4;
  int64_t ffn = 1024;
  int64_t vocabulary = 512;
};

// The elements of "traceEvents".
std::vector<std::string> FakeEvents(const FakeRank& rank);
// One element: of phase X, `more` with the fields behind the times.
std::string FakeEvent(const std::string& category, const std::string& name,
                      const std::string& thread, double start_us,
                      double duration_us, const std::string& more = "");
std::string FakeTrace(const FakeRank& rank,
                      const std::vector<std::string>& events);
inline std::string FakeTrace(const FakeRank& rank) {
  return FakeTrace(rank, FakeEvents(rank));
}

}  // namespace pipewright::testing

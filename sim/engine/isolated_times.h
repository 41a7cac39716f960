// The time of every operation of a replica when nothing else uses the network,
// computed once before a run.
#pragma once

#include <cstdint>
#include <vector>

namespace pipewright {

struct Program;

struct IsolatedTimes {
  int dp_class = 0;
  std::vector<double> channel_s;               // [channel]
  std::vector<std::vector<double>> lane_s;     // [rank][lane], copies included
  std::vector<std::vector<double>> side_op_s;  // [rank][side operation]

  friend bool operator==(const IsolatedTimes&, const IsolatedTimes&) = default;
};

// Replicas sorted into rows of one class and of equal times.
struct ReplicaRows {
  std::vector<IsolatedTimes> times;  // [row]
  std::vector<int> first_replica;    // [row]
  std::vector<int> replicas;         // [row] how many
  std::vector<int> row_of_replica;   // [replica]
};
ReplicaRows SortReplicas(const Program& program);

// Bytes between ranks in one iteration of all replicas, by one device of each
// rank and by transfers: collectives, pulls and pushes are left out.
double CountBytesSent(const Program& program);

}  // namespace pipewright

// Which communicators the NCCL transport needs for a Program, in an order that
// all ranks agree on. A pure function of the Program.
//
// A link for each ordered pair of ranks where the first ever sends to the
// second: transfers of one direction wait only for each other, so no order of
// passes can block two ranks on their devices that would not block them on
// paper. And one communicator for each set of ranks that reduces or gathers
// together.
#pragma once

#include <vector>

#include "execute/transport/message.h"
#include "sim/program/comm_calls.h"

namespace pipewright {

struct Program;

struct CommPlan {
  std::vector<Address> members;
  int group = -1;  // number in the Program; -1: from members[0] to members[1]

  friend bool operator==(const CommPlan&, const CommPlan&) = default;
};

std::vector<CommPlan> PlanComms(const Program& program);

// What is called on them in the first iterations. Issuers are the ranks,
// replica
// * pp + rank, with their sends and collectives in the order of their passes,
// and for each link the thread that receives on it, in the order of its sender.
// Without what a rank pulls or pushes by itself, and for schedules that flush:
// in others iterations of two ranks do not end together. For devices with room
// for all: in less, messages decide by their coming which call stands in front
// of which.
CommCalls CallsOf(const Program& program);

// As many as CUDA makes.
inline constexpr int kMostQueues = 32;
// By CUDA_DEVICE_MAX_CONNECTIONS, which LoadNccl has set where nobody had.
DeviceRoom RoomOfDevice(const char* connections);

// The most inputs that the rank holds at a time: those that its passes began
// with, and those that come for the next passes.
int BlocksHeld(const Program& program, int rank);

}  // namespace pipewright

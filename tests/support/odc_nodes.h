// Nodes of devices whose links are easy to reckon with, and what odc and fsdp
// run on them.
#pragma once

#include "sim/program/lower.h"

namespace pipewright::testing {

// Every device has a link of 8 bytes/s to its node's switch and a card of 1
// byte/s to the others, both ways.
struct Nodes {
  int devices;
  int of_node;

  int Up(int device) const { return device; }
  int Down(int device) const { return devices + device; }
  int Out(int device) const { return 2 * devices + device; }
  int In(int device) const { return 3 * devices + device; }

  Network Build() const;
};

// Options of one rank with so many layers: F, B and W of a second each, and 48
// bytes of parameters and of gradients, a layer. One iteration; owners look at
// once.
LowerOptions OdcOptions(const Nodes& nodes, const Network& network,
                        DataParallel mode, int layers);

}  // namespace pipewright::testing

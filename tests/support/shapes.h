// Clusters of every registered shape for tests that name none of them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/topology/registry.h"

namespace pipewright::testing {

// `nodes` nodes of `devices` devices: NVLink 300 GB/s and 1 us, NICs 25 GB/s
// and 2 us, PCIe 32 GB/s and 3 us. Own parameters that have to be given have
// their first legal value.
ShapeParams SampleParams(absl::string_view shape, int nodes, int devices);

// With own parameters as SampleParams has them, and with those of the example,
// where the shape has all of its links.
std::vector<ShapeParams> Bases(const ShapeInfo& shape, int nodes, int devices);

// A cluster of that size, of the first shape that takes it.
Cluster AnyCluster(int nodes, int devices);

// Every bandwidth times `factor` and every latency over it, own parameters too.
ShapeParams TimesAsFast(ShapeParams params, double factor);

// All values of a choice; both ends of a range and some between them; sizes
// whose products are 1, 2, 3, 5 or 8.
std::vector<std::string> LegalValuesOf(const ShapeParam& param);
std::vector<std::string> IllegalValuesOf(const ShapeParam& param);

std::vector<std::string> LinkNames(const Cluster& cluster,
                                   const std::vector<LinkId>& links);

}  // namespace pipewright::testing

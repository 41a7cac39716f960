// The fields of a profile's messages, listed once for both directions: an `Io`
// is the reader or the writer of profile_io.cc. A field's name is that of
// sim/proto/profile.proto; the number behind a count is the least allowed.
#pragma once

#include <string>
#include <vector>

#include "sim/profile/profile.h"

namespace pipewright::profile_fields {

inline const std::vector<std::string>& Types() {
  static const std::vector<std::string> names = {"fp32", "bf16", "fp8"};
  return names;
}

template <class Io>
void Visit(Io& io, Distribution& time) {
  io.Count("count", &time.count, 1);
  io.Count("outliers", &time.outliers);
  io.Time("median_us", &time.median_s);
  io.Time("p10_us", &time.p10_s);
  io.Time("p90_us", &time.p90_s);
  io.Time("mean_us", &time.mean_s);
  io.Time("min_us", &time.min_s);
  io.Time("max_us", &time.max_s);
  io.Time("mad_us", &time.mad_s);
  io.Time("confidence_low_us", &time.confidence_low_s);
  io.Time("confidence_high_us", &time.confidence_high_s);
  io.Time("prediction_low_us", &time.prediction_low_s);
  io.Time("prediction_high_us", &time.prediction_high_s);
  io.Times("quantiles_us", &time.quantiles_s);
}

template <class Io>
void Visit(Io& io, ProfileModel& model) {
  io.Text("style", &model.style);
  io.Count("hidden", &model.hidden, 1);
  io.Count("heads", &model.heads);
  io.Count("kv_heads", &model.kv_heads);
  io.Count("head_dim", &model.head_dim);
  io.Count("ffn", &model.ffn);
  io.Count("vocabulary", &model.vocabulary);
  io.Flag("causal", &model.causal);
  io.Count("experts", &model.experts);
  io.Count("experts_per_token", &model.experts_per_token);
  io.Count("expert_ffn", &model.expert_ffn);
  io.Count("shared_ffn", &model.shared_ffn);
}

template <class Io>
void Visit(Io& io, PassEntry& entry) {
  io.Nested("model", &entry.model);
  io.Enum("part", &entry.part, kNumProfileParts, ProfilePartName);
  io.Enum("pass", &entry.pass, kNumProfilePasses, ProfilePassName);
  io.Choice("type", &entry.type, Types());
  io.Count("microbatch_size", &entry.microbatch_size, 1);
  io.Count("sequence", &entry.sequence, 1);
  io.Count("tp", &entry.tp, 1);
  io.Count("ep", &entry.ep);
  io.Count("slices", &entry.slices);
  io.Count("pp", &entry.pp);
  io.Count("rank", &entry.rank);
  io.Nested("time", &entry.time);
  io.Time("gemm_us", &entry.gemm_s);
  io.Number("flops", &entry.flops);
  io.Text("implementation", &entry.implementation);
  io.Optional("graph", &entry.graph);
}

template <class Io>
void Visit(Io& io, SplitEntry& entry) {
  io.Nested("model", &entry.model);
  io.Choice("type", &entry.type, Types());
  io.Count("microbatch_size", &entry.microbatch_size, 1);
  io.Count("sequence", &entry.sequence, 1);
  io.Count("tp", &entry.tp, 1);
  io.Count("ep", &entry.ep);
  io.Flag("recompute", &entry.recompute);
  io.Nested("chain", &entry.chain);
  io.Nested("fused", &entry.fused);
}

template <class Io>
void Visit(Io& io, KernelEntry& entry) {
  io.Text("name", &entry.name);
  io.Counts("shape", &entry.shape);
  io.Choice("type", &entry.type, Types());
  io.Nested("time", &entry.time);
  io.Number("flops", &entry.flops);
  io.Number("bytes", &entry.bytes);
  io.Text("implementation", &entry.implementation);
}

template <class Io>
void Visit(Io& io, OptimizerEntry& entry) {
  io.Choice("where", &entry.where, {"device", "host"});
  io.Count("parameters", &entry.parameters, 1);
  io.Nested("time", &entry.time);
  io.Flag("prediction", &entry.prediction);
}

template <class Io>
void Visit(Io& io, CopyEntry& entry) {
  io.Enum("direction", &entry.direction, 3, CopyName);
  io.Count("bytes", &entry.bytes, 1);
  io.Flag("beside_opposite", &entry.beside_opposite);
  io.Nested("time", &entry.time);
}

template <class Io>
void Visit(Io& io, TransferEntry& entry) {
  io.Choice("operation", &entry.operation,
            {"send_recv", "all_reduce", "all_gather", "reduce_scatter"});
  io.Choice("transport", &entry.transport, MeasuredTransports());
  io.Count("ranks", &entry.ranks, 2);
  io.Count("bytes", &entry.bytes, 1);
  io.Nested("time", &entry.time);
  io.Count("nodes", &entry.nodes);
}

template <class Io>
void Visit(Io& io, InterferenceEntry& entry) {
  // F, B and W come first.
  io.Enum("pass", &entry.pass, 3, ProfilePassName);
  io.Enum("beside", &entry.beside, kNumBeside, BesideName);
  io.Number("pass_slowdown", &entry.pass_slowdown);
  io.Number("pass_low", &entry.pass_low);
  io.Number("pass_high", &entry.pass_high);
  io.Number("beside_slowdown", &entry.beside_slowdown);
  io.Number("beside_low", &entry.beside_low);
  io.Number("beside_high", &entry.beside_high);
}

template <class Io>
void Visit(Io& io, ProfileState& state) {
  io.Reading("clock_mhz", &state.clock_mhz);
  io.Reading("memory_clock_mhz", &state.memory_clock_mhz);
  io.Reading("max_clock_mhz", &state.max_clock_mhz);
  io.Reading("power_w", &state.power_w);
  io.Reading("temperature_c", &state.temperature_c);
  io.Reading("throttle", &state.throttle);
  io.Reading("pcie_generation", &state.pcie_generation);
  io.Reading("pcie_width", &state.pcie_width);
}

template <class Io>
void Visit(Io& io, ProfileSource& source) {
  io.Choice("kind", &source.kind,
            {"calibrate", "kineto", "nccl-tests", "nvbandwidth"});
  io.Text("file", &source.file);
  io.Text("version", &source.version);
  io.Text("date", &source.date);
  io.Text("backend", &source.backend);
  io.Text("device", &source.device);
  io.Text("driver", &source.driver);
  io.Text("libraries", &source.libraries);
  io.Text("system", &source.system);
  io.Count("cores", &source.cores);
  io.Count("memory_bytes", &source.memory_bytes);
  io.Optional("before", &source.before);
  io.Optional("after", &source.after);
  io.Number("seconds", &source.seconds);
  io.Texts("warnings", &source.warnings);
}

template <class Io>
void Visit(Io& io, Profile& profile) {
  io.Repeated("sources", &profile.sources);
  io.Entries("passes", &profile.passes);
  io.Entries("splits", &profile.splits);
  io.Entries("kernels", &profile.kernels);
  io.Entries("optimizers", &profile.optimizers);
  io.Entries("copies", &profile.copies);
  io.Entries("transfers", &profile.transfers);
  io.Entries("interference", &profile.interference);
  io.Number("host_memory_GBps", &profile.host_memory_bytes_per_s, 1e9);
  io.Number("device_memory_GBps", &profile.device_memory_bytes_per_s, 1e9);
  io.Flag("complete", &profile.complete);
}

}  // namespace pipewright::profile_fields

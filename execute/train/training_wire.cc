#include "execute/train/training_wire.h"

namespace pipewright {

namespace {

void PutSnapshots(const std::vector<StageSnapshot>& snapshots,
                  WireWriter* writer) {
  writer->Put(static_cast<uint64_t>(snapshots.size()));
  for (const StageSnapshot& snapshot : snapshots) {
    writer->Put(snapshot.iteration);
    writer->Put(snapshot.stage);
    writer->Put(snapshot.bidirectional);
    writer->Put(snapshot.begin);
    writer->Put(snapshot.end);
    writer->PutAll(snapshot.gradients);
    writer->PutAll(snapshot.weights);
  }
}

std::vector<StageSnapshot> GetSnapshots(WireReader* reader) {
  std::vector<StageSnapshot> all;
  const auto snapshots = reader->Get<uint64_t>();
  for (uint64_t index = 0; index < snapshots && reader->ok(); ++index) {
    StageSnapshot& snapshot = all.emplace_back();
    snapshot.iteration = reader->Get<int>();
    snapshot.stage = reader->Get<int>();
    snapshot.bidirectional = reader->Get<int>();
    snapshot.begin = reader->Get<int64_t>();
    snapshot.end = reader->Get<int64_t>();
    snapshot.gradients = reader->GetAll<float>();
    snapshot.weights = reader->GetAll<float>();
  }
  return all;
}

}  // namespace

void PutRecord(const WorkerRecord& record, WireWriter* writer) {
  PutSnapshots(record.snapshots, writer);
  PutSnapshots(record.first_step, writer);
  writer->Put(record.first_loss_sum);
  writer->Put(static_cast<uint64_t>(record.loss_sum.size()));
  for (const auto& [iteration, sum] : record.loss_sum) {
    writer->Put(iteration);
    writer->Put(sum);
  }
  writer->Put(record.peak_bytes);
  writer->Put(record.resident_bytes);
  writer->Put(record.message_bytes);
  writer->Put(record.owner_bytes);
  writer->Put(record.peak_host_bytes);
  writer->Put(record.peak_activations);
  writer->PutAll(record.memory);
}

WorkerRecord GetRecord(WireReader* reader) {
  WorkerRecord record;
  record.snapshots = GetSnapshots(reader);
  record.first_step = GetSnapshots(reader);
  record.first_loss_sum = reader->Get<double>();
  const auto losses = reader->Get<uint64_t>();
  for (uint64_t index = 0; index < losses && reader->ok(); ++index) {
    const int iteration = reader->Get<int>();
    record.loss_sum[iteration] = reader->Get<double>();
  }
  record.peak_bytes = reader->Get<size_t>();
  record.resident_bytes = reader->Get<size_t>();
  record.message_bytes = reader->Get<size_t>();
  record.owner_bytes = reader->Get<size_t>();
  record.peak_host_bytes = reader->Get<size_t>();
  record.peak_activations = reader->Get<double>();
  record.memory = reader->GetAll<PassBytes>();
  return record;
}

void PutCheck(const TrainingCheck& check, WireWriter* writer) {
  writer->Put(check.same_order);
  writer->Put(check.bits_owed);
  writer->Put(check.same_bits);
  writer->PutAll(check.steps_in_full);
  writer->Put(check.missing);
  writer->Put(check.loss_error);
  writer->Put(check.first_gradient_error);
  writer->Put(check.gradient_error);
  writer->Put(check.weight_error);
  writer->Put(check.tolerance);
  writer->Put(check.later_tolerance);
  writer->Put(check.weight_tolerance);
  writer->PutAll(check.losses);
  writer->PutAll(check.sequential_losses);
}

TrainingCheck GetCheck(WireReader* reader) {
  TrainingCheck check;
  check.same_order = reader->Get<bool>();
  check.bits_owed = reader->Get<bool>();
  check.same_bits = reader->Get<bool>();
  check.steps_in_full = reader->GetAll<int>();
  check.missing = reader->Get<int>();
  check.loss_error = reader->Get<double>();
  check.first_gradient_error = reader->Get<double>();
  check.gradient_error = reader->Get<double>();
  check.weight_error = reader->Get<double>();
  check.tolerance = reader->Get<double>();
  check.later_tolerance = reader->Get<double>();
  check.weight_tolerance = reader->Get<double>();
  check.losses = reader->GetAll<double>();
  check.sequential_losses = reader->GetAll<double>();
  return check;
}

void PutReference(const std::optional<ReferenceCheck>& check,
                  WireWriter* writer) {
  writer->Put(check.has_value());
  if (!check) return;
  writer->Put(check->loss);
  writer->Put(check->reference_loss);
  writer->Put(check->missing);
  writer->Put(check->gradient_error);
  writer->Put(check->weight_error.has_value());
  writer->Put(check->weight_error.value_or(0));
  writer->Put(check->tolerance);
  writer->PutText(check->worst_gradient);
  writer->PutText(check->worst_weight);
}

std::optional<ReferenceCheck> GetReference(WireReader* reader) {
  if (!reader->Get<bool>()) return std::nullopt;
  ReferenceCheck check;
  check.loss = reader->Get<double>();
  check.reference_loss = reader->Get<double>();
  check.missing = reader->Get<int>();
  check.gradient_error = reader->Get<double>();
  const bool weights = reader->Get<bool>();
  const auto weight_error = reader->Get<double>();
  if (weights) check.weight_error = weight_error;
  check.tolerance = reader->Get<double>();
  check.worst_gradient = reader->GetText();
  check.worst_weight = reader->GetText();
  return check;
}

}  // namespace pipewright

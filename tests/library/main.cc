// Program of a project outside: an order is proved, a run simulated, a layout
// found.
#include <cmath>
#include <cstdio>

#include "pipewright/plan.h"
#include "pipewright/schedule.h"
#include "pipewright/simulate.h"

int main() {
  pipewright::ScheduleParams sizes;
  sizes.pp = 4;
  sizes.microbatches = 8;
  const auto order = pipewright::BuildSchedule("1f1b", sizes);
  if (!order.ok() || !pipewright::VerifySchedule(*order).ok()) return 1;

  const auto config = pipewright::ReadConfig(
      "{strategy: {pp: 4, microbatches: 8}, schedule: {name: 1f1b},"
      " costs: {uniform: {forward: 1s, backward: 2s}, p2p: 0s}, engine: fast}",
      "run.yaml");
  if (!config.ok()) return 2;
  pipewright::RunContext context;
  const auto run = pipewright::Simulate(*config, &context);
  // (m + p - 1) (F + BW)
  if (!run.ok() || std::fabs(run->report.span_s.global - 33) > 1e-9) return 3;

  const auto base = pipewright::ReadConfig(
      "{model: {preset: gpt2}, system: {preset: dgx-h100, nodes: 1},"
      " costs: {analytic: {}}}",
      "plan.yaml");
  if (!base.ok()) return 4;
  pipewright::PlanRequest request;
  request.base = *base;
  request.global_batch = 64;
  request.fixed = {{"schedule", {"1f1b"}}, {"cp", {"1"}}, {"tp", {"1"}}};
  pipewright::PlanOptions options;
  options.confirm = false;
  const auto plan = pipewright::MakePlan(request, options, &context);
  if (!plan.ok() || plan->ranked.empty()) return 5;
  std::printf("%.0f s, %zu layouts\n%s", run->report.span_s.global,
              plan->ranked.size(), pipewright::PlanToText(*plan).c_str());
}

// What the services share. Made by Server, outlives them; every member is
// thread-safe.
#pragma once

#include <string>

#include "server/engines.h"
#include "server/evaluation/evaluation_pool.h"
#include "server/models/repository.h"
#include "server/observe/metrics.h"
#include "server/observe/model_metrics.h"
#include "server/observe/readiness.h"
#include "server/options.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/fair_threads.h"
#include "server/spaces/spaces.h"

namespace weir {

struct ServiceContext {
  const ServerOptions& options;
  const Engines& engines;
  const ModelRepository& models;
  Admission& admission;
  Metrics& metrics;
  ModelMetrics& model_metrics;
  const Readiness& readiness;
  FairThreads& long_steps;  // for RunStep
  EvaluationPool& evaluations;
  std::string incarnation;  // new in every process
  int64_t started_unix_ns = 0;
  // What turns a steady-clock time stamp into nanoseconds since the epoch.
  int64_t unix_minus_steady_ns = 0;
  Spaces* spaces = nullptr;  // null: the server offers none (--max-spaces=0)
};

}  // namespace weir

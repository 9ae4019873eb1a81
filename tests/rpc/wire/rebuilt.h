// What our parsers made of a message, as the message again: to be compared with
// what protobuf makes of the same bytes.
#pragma once

#include "proto/inference/grpc_service.pb.h"
#include "proto/weir/v1/catalog.pb.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/wire/commands.h"
#include "server/rpc/wire/evaluate_request.h"
#include "server/rpc/wire/explain_request.h"
#include "server/rpc/wire/infer_request.h"

namespace weir {

v1::EvaluateRequest Rebuilt(const EvaluateRequestView& from);
v1::RunRequest Rebuilt(const RunRequestView& from);
v1::SessionRequest Rebuilt(const SessionRequestView& from);
v1::TensorPut Rebuilt(const TensorPutView& from);
v1::ExplainRequest Rebuilt(const ExplainRequestView& from);
inference::ModelInferRequest Rebuilt(const InferRequest& from);

}  // namespace weir

// Requests from command lines: shared by eval, infer and load.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/tensor_argument.h"
#include "proto/inference/grpc_service.pb.h"
#include "proto/weir/v1/evaluator.pb.h"

namespace weir::client {

// A program from a file: weir.v1.Graph in protobuf text format, or ONNX for
// *.onnx.
absl::StatusOr<v1::Graph> ReadProgram(const std::string& path);

// INVALID_ARGUMENT as ParseTensorArgument says, and for a name that is given
// twice.
absl::StatusOr<std::vector<TensorArgument>> ParseInputs(
    const std::vector<std::string>& texts);

// What is wrong with a value of --output, which is NAME=FILE; empty if nothing.
std::string CheckOutputFile(const std::string& text);
// The files by the outputs that they are for. A name may hold '=': it is the
// longest of `names` that a text begins with. INVALID_ARGUMENT where there is
// none, which says that `whose` has no such output, and which it has; and for
// an output that is given twice, and two that have one file.
absl::StatusOr<std::map<std::string, std::string>> OutputFiles(
    const std::vector<std::string>& texts,
    const std::vector<std::string>& names, const std::string& whose);

v1::EvaluateRequest MakeEvaluateRequest(
    v1::Graph graph, const std::vector<TensorArgument>& inputs);

inference::ModelInferRequest MakeInferRequest(
    const std::string& model, const std::string& version,
    const std::vector<TensorArgument>& inputs);

// Whether a message of so many bytes (ByteSizeLong) can be sent: protobuf makes
// an empty one of what takes 2 GiB. INVALID_ARGUMENT, naming the bytes.
absl::Status CheckRequestBytes(size_t bytes);

// Whether a server's reply is what it says: raw contents for every output, as
// many bytes as its type and shape need. INTERNAL, naming the output.
absl::Status CheckInferReply(const inference::ModelInferResponse& response);

}  // namespace weir::client

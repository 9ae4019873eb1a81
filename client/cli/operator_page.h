// What an operator is, as a page for people. Pure; any thread.
#pragma once

#include <string>

#include "proto/weir/v1/operator.pb.h"

namespace weir::client {

// Name, opsets and devices; what it computes; inputs and outputs with their
// types, those that are one by a name; attributes. Lines of at most 80 columns
// where words allow.
std::string OperatorPage(const v1::OperatorDescription& op);

// "weir.Resize"; "Add" of ONNX's domain.
std::string OperatorName(const v1::OperatorSummary& summary);

}  // namespace weir::client

#include "server/services/commands/tensor_commands.h"

#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/in_space.h"
#include "server/services/failure_proto.h"
#include "server/spaces/kept_tensor.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

absl::Status FreeTensor(Space& space, const v1::TensorFree& request) {
  WEIR_ASSIGN_OR_RETURN(const auto tensor,
                        space.tensors().Remove(request.tensor()));
  tensor->Freed();
  return absl::OkStatus();
}

void FillSpec(const KeptTensor& tensor, v1::TensorSpec* spec) {
  const SymbolicShape shape = tensor.shape();
  if (!shape.has_value()) return;
  spec->set_dtype(static_cast<v1::DataType>(tensor.dtype()));
  for (const Dim& dim : *shape) {
    spec->add_shape(dim.known() ? dim.value() : kUnknownExtent);
  }
}

absl::Status DescribeTensor(Space& space, const v1::TensorDescribe& request,
                            v1::TensorDescription* response) {
  WEIR_ASSIGN_OR_RETURN(const auto tensor,
                        space.tensors().Find(request.tensor()));
  FillSpec(*tensor, response->mutable_spec());
  if (response->spec().dtype() == 0) response->clear_spec();
  response->set_device_uuid(tensor->engine().device().info().uuid);
  response->set_ready(tensor->dims().has_value());
  response->set_bytes(tensor->bytes());
  const absl::Status failure = tensor->failure();
  if (!failure.ok()) *response->mutable_failure() = ToFailure(failure);
  return absl::OkStatus();
}

}  // namespace

void AddTensorCommands(ServiceContext* context, CommandHandlers* handlers) {
  handlers->Add(Command::kTensorFree,
                InSpace<v1::TensorFree, v1::TensorFreed>(context, FreeTensor));
  handlers->Add(Command::kTensorDescribe,
                InSpace<v1::TensorDescribe, v1::TensorDescription>(
                    context, DescribeTensor));
}

}  // namespace weir

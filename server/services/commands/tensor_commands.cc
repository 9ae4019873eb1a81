#include "server/services/commands/tensor_commands.h"

#include <utility>

#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor/shape.h"
#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/in_space.h"
#include "server/services/failure_proto.h"
#include "server/services/whole_spec.h"
#include "server/spaces/kept_tensor.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

absl::Status AllocateTensor(const ServiceContext& context, Space& space,
                            const v1::TensorAllocate& request,
                            v1::TensorAllocated* response) {
  WEIR_ASSIGN_OR_RETURN(Engine* const engine,
                        context.engines.Find(request.device()));
  WEIR_ASSIGN_OR_RETURN(const TensorSpec spec, ReadWholeSpec(request.spec()));
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(spec.dtype, spec.dims));
  auto claim = space.TakeTensor(request.tensor());
  if (!claim.ok()) return WithField(claim.status(), "tensor");
  WEIR_ASSIGN_OR_RETURN(Account::Share share,
                        space.account().Take(Holding::kTensors));
  WEIR_ASSIGN_OR_RETURN(Account::Share room,
                        space.account().Take(Holding::kTensorBytes,
                                             static_cast<uint64_t>(bytes)));
  if (!claim->Fill(KeptTensor::Allocate(engine, spec.dtype, spec.dims,
                                        std::move(share), std::move(room)))) {
    return SpaceNotFound(space.id());
  }
  response->set_device_uuid(engine->device().info().uuid);
  response->set_bytes(static_cast<uint64_t>(bytes));
  return absl::OkStatus();
}

absl::Status CommitTensor(Space& space, const v1::TensorCommit& request) {
  WEIR_ASSIGN_OR_RETURN(const auto tensor,
                        space.tensors().Find(request.tensor()));
  return tensor->Commit();
}

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
  response->set_uncommitted(tensor->uncommitted());
  const absl::Status failure = tensor->failure();
  if (!failure.ok()) *response->mutable_failure() = ToFailure(failure);
  return absl::OkStatus();
}

}  // namespace

void AddTensorCommands(ServiceContext* context, CommandHandlers* handlers) {
  handlers->Add(Command::kTensorFree,
                InSpace<v1::TensorFree, v1::TensorFreed>(context, FreeTensor));
  handlers->Add(
      Command::kTensorAllocate,
      InSpace<v1::TensorAllocate, v1::TensorAllocated>(
          context, [context](Space& space, const v1::TensorAllocate& request,
                             v1::TensorAllocated* response) {
            return AllocateTensor(*context, space, request, response);
          }));
  handlers->Add(
      Command::kTensorCommit,
      InSpace<v1::TensorCommit, v1::TensorCommitted>(context, CommitTensor));
  handlers->Add(Command::kTensorDescribe,
                InSpace<v1::TensorDescribe, v1::TensorDescription>(
                    context, DescribeTensor));
}

}  // namespace weir

"""One process with the generated weir/v1, tritonclient and googleapis: a call
of each protocol and their errors. Run by clients_test.py."""

import grpc
import numpy as np
import tritonclient.grpc as triton
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tritonclient.grpc import service_pb2, service_pb2_grpc
from weir.v1 import catalog_pb2_grpc, evaluator_pb2, evaluator_pb2_grpc
from weir.v1 import graph_pb2, sync_report_pb2, tensor_pb2

ADDRESS = "127.0.0.1:8001"
channel = grpc.insecure_channel(ADDRESS)
weir = evaluator_pb2_grpc.EvaluatorStub(channel)
catalog_pb2_grpc.CatalogStub(channel)
kserve = service_pb2_grpc.GRPCInferenceServiceStub(channel)


def detail_of(error, message):
    """The detail of that type among those of a failed call."""
    for detail in rpc_status.from_call(error).details:
        if detail.Unpack(message):
            return message
    raise AssertionError(f"no {type(message).__name__} in {error}")


def tensor(name, dtype, array):
    spec = tensor_pb2.TensorSpec(dtype=dtype, shape=array.shape)
    return tensor_pb2.NamedTensor(name=name, value=tensor_pb2.TensorValue(
        spec=spec, raw=array.tobytes()))


image = np.zeros((1, 1, 8, 8), np.float32)
served = graph_pb2.Graph(model=graph_pb2.ModelReference(name="digits"))
response = weir.Evaluate(evaluator_pb2.EvaluateRequest(
    graph=served, inputs=[tensor("image", tensor_pb2.DATA_TYPE_FLOAT, image)]))
print("weir.v1:", sync_report_pb2.WorkState.Name(response.report.state))

given = triton.InferInput("image", image.shape, "FP32")
given.set_data_from_numpy(image)
with triton.InferenceServerClient(ADDRESS) as client:
    print("inference:",
          client.infer("digits", [given]).as_numpy("probabilities").shape)

served.model.name = "nope"
try:
    weir.Evaluate(evaluator_pb2.EvaluateRequest(graph=served))
except grpc.RpcError as error:
    info = detail_of(error, error_details_pb2.ErrorInfo())
    bad = detail_of(error, error_details_pb2.BadRequest())
    print("weir.v1 error:", error.code().name, info.domain, info.reason,
          bad.field_violations[0].field)

try:
    kserve.ModelMetadata(service_pb2.ModelMetadataRequest(name="nope"))
except grpc.RpcError as error:
    info = detail_of(error, error_details_pb2.ErrorInfo())
    print("inference error:", error.code().name, info.domain, info.reason)

pick = graph_pb2.GraphDefinition(
    inputs=[graph_pb2.GraphInput(name="x"), graph_pb2.GraphInput(name="i")],
    outputs=["y"],
    nodes=[graph_pb2.Node(op="Gather", inputs=["x", "i"], outputs=["y"])])
try:
    weir.Evaluate(evaluator_pb2.EvaluateRequest(
        graph=graph_pb2.Graph(definition=pick),
        inputs=[tensor("x", tensor_pb2.DATA_TYPE_FLOAT, image[0, 0, 0]),
                tensor("i", tensor_pb2.DATA_TYPE_INT64, np.array([8]))]))
except grpc.RpcError as error:
    info = detail_of(error, error_details_pb2.ErrorInfo())
    report = detail_of(error, sync_report_pb2.SyncReport())
    print("failed work:", error.code().name, info.reason,
          sync_report_pb2.WorkState.Name(report.state))

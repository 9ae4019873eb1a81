"""What a kubelet asks a container, by the probe that its manifest declares."""

import http.client
import socket

import grpc

CHECK = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"  # as grpc.health.v1 has it on the wire
HEADERS = {"User-Agent": "kube-probe", "Connection": "close"}


def port_of(port, ports):
    """Its number; None if it is the name of none of the container's."""
    if isinstance(port, int):
        return port
    return next((one["containerPort"] for one in ports
                 if one.get("name") == port), None)


def failure(probe, address, ports):
    """Why a probe of the container at an address fails; None if it does not."""
    seconds = probe.get("timeoutSeconds", 1)
    [kind] = {"grpc", "httpGet", "tcpSocket"} & set(probe)
    how = probe[kind]
    port = port_of(how["port"], ports)
    if port is None:
        return f"no port {how['port']}"
    return {"grpc": ask_grpc, "httpGet": ask_http, "tcpSocket": ask_tcp}[kind](
        how, address, port, seconds)


def ask_grpc(how, address, port, seconds):
    """In plain text, for a kubelet speaks no TLS there."""
    if why := ask_tcp(how, address, port, seconds):
        return why  # A channel costs more, and nobody may listen yet.
    service = how.get("service", "").encode()
    with grpc.insecure_channel(f"{address}:{port}", options=(
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1))) as channel:
        try:
            answer = channel.unary_unary(CHECK)(
                b"\x0a" + bytes([len(service)]) + service, timeout=seconds)
        except grpc.RpcError as why:
            return f"port {port}: {why.code().name} {why.details()}"
    return None if answer == SERVING else f"{service.decode()}: not serving"


def ask_http(how, address, port, seconds):
    if how.get("scheme", "HTTP") != "HTTP":
        raise NotImplementedError(how)
    connection = http.client.HTTPConnection(address, port, timeout=seconds)
    try:
        connection.request("GET", how.get("path", "/"), headers=HEADERS)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as why:
        return f"port {port}: {why}"
    finally:
        connection.close()
    return None if 200 <= status < 400 else f"{how['path']}: HTTP {status}"


def ask_tcp(_, address, port, seconds):
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except OSError as why:
        return f"port {port}: {why}"
    return None

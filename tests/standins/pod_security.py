"""Kubernetes' Pod Security Standard `restricted`, as its admission controller
holds pods against it."""

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral",
           "persistentVolumeClaim", "projected", "secret"}
PROFILES = ("RuntimeDefault", "Localhost")


def violations(spec):
    """What a pod's `spec` has against it, in words."""
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"host namespaces ({name})"
    for volume in spec.get("volumes", ()):
        for kind in set(volume) - {"name"} - VOLUMES:
            yield f"restricted volume types (volume {volume['name']}: {kind})"
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        for what in of_container(spec.get("securityContext", {}), container):
            yield f"{what} (container {container['name']})"


def of_container(whole, container):
    """Of one, in a pod whose own context is `whole`."""
    own = container.get("securityContext", {})
    both = {**whole, **own}
    capabilities = own.get("capabilities", {})
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation", True):
        yield "allowPrivilegeEscalation != false"
    if "ALL" not in capabilities.get("drop", ()) or set(
            capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "unrestricted capabilities"
    if not both.get("runAsNonRoot"):
        yield "runAsNonRoot != true"
    if both.get("runAsUser") == 0:
        yield "runAsUser=0"
    if both.get("seccompProfile", {}).get("type") not in PROFILES:
        yield "seccompProfile"
    for port in container.get("ports", ()):
        if port.get("hostPort"):
            yield "hostPort"

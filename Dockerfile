# weir as a container, from Debian packages and PyPI wheels alone.
#
#   docker build --target cpu -t weir:cpu .
#   docker build --target cuda -t weir:cuda .
#
# HEALTHCHECK is kept by the Docker image format only: give podman and buildah
# `--format docker`. docs/container.md tells the rest.
ARG BASE=debian:12-slim

# The compiler and the libraries that the programs are built against.
FROM ${BASE} AS toolchain
WORKDIR /src
COPY deploy/setup.sh deploy/
RUN WEIR_CUDA=0 deploy/setup.sh --programs

FROM toolchain AS build-cpu
COPY . .
RUN deploy/stage_image.sh /out -DWEIR_CUDA=OFF

FROM toolchain AS build-cuda
RUN WEIR_CUDA=1 deploy/setup.sh --programs
COPY . .
RUN deploy/stage_image.sh /out -DWEIR_CUDA=ON

# What both images share: who runs what, and how it is reached.
FROM ${BASE} AS runtime
ARG WEIR_VERSION=0.1.0
ARG WEIR_REVISION=unknown
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="gRPC server for tensor programs and ONNX models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${WEIR_VERSION}" \
      org.opencontainers.image.revision="${WEIR_REVISION}"
ENV WEIR_GRPC=0.0.0.0:8001 \
    WEIR_HTTP=0.0.0.0:8002 \
    WEIR_MODEL_REPOSITORY=/models
EXPOSE 8001 8002
ENTRYPOINT ["/usr/local/bin/weir-server"]
# Arguments of one's own replace this one, so nobody who configures TLS serves
# in the clear because a default said so.
CMD ["--insecure"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["/usr/local/bin/weir", "status", "--probe"]

FROM runtime AS cuda
COPY --from=build-cuda /out/ /
RUN /usr/local/share/weir/install_packages.sh
# What NVIDIA's container runtime adds: the driver, and the GPUs asked for.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532

# The last stage is what a build without --target makes.
FROM runtime AS cpu
COPY --from=build-cpu /out/ /
RUN /usr/local/share/weir/install_packages.sh
USER 65532:65532

# weir as a container, from Debian packages and PyPI wheels alone.
#
#   docker build --target cpu -t weir:cpu --build-arg BASE="$(deploy/pins.py base)" \
#     --build-arg WEIR_REVISION="$(git rev-parse HEAD)" .
#
# or `--target cuda -t weir:cuda`. Without BASE the base is whatever has its name
# on the day; without WEIR_REVISION the image's label says `unknown`, for the
# context has nothing of git's.
# HEALTHCHECK is kept by the Docker image format only: give podman and buildah
# `--format docker`. docs/container.md tells the rest.
ARG BASE=debian:12-slim

# The compiler and the libraries that the programs are built against: of the day,
# as in the image, those too that come with the base and that no package asks for
# in the newest version.
FROM ${BASE} AS toolchain
WORKDIR /src
RUN apt-get update -q && \
    DEBIAN_FRONTEND=noninteractive apt-get upgrade -q -y --with-new-pkgs
COPY deploy/setup.sh deploy/pins.txt deploy/
RUN WEIR_CUDA=0 deploy/setup.sh --programs && deploy/setup.sh --sbom

FROM toolchain AS build-cpu
COPY . .
RUN deploy/stage_image.sh /out -DWEIR_CUDA=OFF

FROM toolchain AS build-cuda
RUN WEIR_CUDA=1 deploy/setup.sh --programs
COPY . .
RUN deploy/stage_image.sh /out -DWEIR_CUDA=ON

# What both images share: who runs what, and how it is reached.
FROM ${BASE} AS runtime
ARG BASE
ARG WEIR_VERSION=0.1.0
ARG WEIR_REVISION=unknown
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="gRPC server for tensor programs and ONNX models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE}" \
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

# The whole image but for its list of parts, which names the packages of that.
FROM runtime AS whole-cuda
COPY --from=build-cuda /out/ /
RUN /usr/local/share/weir/install_packages.sh

FROM build-cuda AS parts-cuda
COPY --from=whole-cuda /var/lib/dpkg/status /image/var/lib/dpkg/
COPY --from=whole-cuda /usr/share/doc/ /image/usr/share/doc/
RUN deploy/stage_image.sh --parts /image /out

FROM whole-cuda AS cuda
COPY --from=parts-cuda /out/usr/local/share/weir/sbom.cdx.json /usr/local/share/weir/
# What NVIDIA's container runtime adds: the driver, and the GPUs asked for.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532

FROM runtime AS whole-cpu
COPY --from=build-cpu /out/ /
RUN /usr/local/share/weir/install_packages.sh

FROM build-cpu AS parts-cpu
COPY --from=whole-cpu /var/lib/dpkg/status /image/var/lib/dpkg/
COPY --from=whole-cpu /usr/share/doc/ /image/usr/share/doc/
RUN deploy/stage_image.sh --parts /image /out

# The last stage is what a build without --target makes.
FROM whole-cpu AS cpu
COPY --from=parts-cpu /out/usr/local/share/weir/sbom.cdx.json /usr/local/share/weir/
USER 65532:65532

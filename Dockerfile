# Forecloud in a container, from the package that scripts/deb makes: for x86-64 and arm64.
#
#   scripts/deb
#   docker build -t forecloud .                       # or, of a package made on that machine:
#   docker build -t forecloud --platform linux/arm64 .
#   docker run --rm --network host --ipc host forecloud forecloud_node --ros-args -p cameras:="[camera]"
#
# The host's network and shared memory, as images of other nodes come by them.
# Not tried: where this was written there was a Docker client, but no daemon.
FROM debian:bookworm-slim
ARG TARGETARCH
COPY build/deb/forecloud_*_${TARGETARCH}.deb /tmp/
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/forecloud_*.deb \
    && rm -rf /tmp/forecloud_*.deb /var/lib/apt/lists/*
RUN useradd --create-home forecloud
USER forecloud
CMD ["forecloud_node"]

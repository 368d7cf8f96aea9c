# timbrel's server on NVIDIA GPUs. From the repository's root:
#   docker build --file server/deploy/docker/gpu.Dockerfile --tag timbrel:gpu .
# The wheels bring CUDA's libraries; the host brings the driver and the NVIDIA container toolkit.
# Where packages come from an index of one's own: --build-arg PIP_INDEX_URL=https://pypi.example/simple
# Runs as nobody in particular, on a read-only root file system. For this machine alone, with a token of one's own:
#   export TIMBREL_TOKEN=$(openssl rand -hex 24)
#   docker run --gpus all --read-only --cap-drop ALL --stop-timeout 40 --log-driver local --publish 127.0.0.1:50051:50051 \
#       --env TIMBREL_TOKEN timbrel:gpu --insecure
# (--stop-timeout: Docker kills after 10 seconds otherwise, before --grace is over. --log-driver: its default one keeps
# each call's line for ever. --insecure: between this machine's loopback and the container the token travels
# unencrypted.) For a network, by TLS, with key.pem readable by user 65532:
#   docker run --gpus all --read-only --cap-drop ALL --stop-timeout 40 --log-driver local --publish 50051:50051 \
#       --env TIMBREL_TOKEN --volume "$PWD/tls:/tls:ro" timbrel:gpu --tls-cert /tls/cert.pem --tls-key /tls/key.pem

FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY . .
ARG PIP_INDEX_URL
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN python -m venv /opt/timbrel \
    && /opt/timbrel/bin/pip install --no-cache-dir --disable-pip-version-check \
        --constraint constraints.txt '.[gpu,server,metrics,telemetry]'

FROM python:3.11-slim-bookworm
COPY --from=build /opt/timbrel /opt/timbrel
COPY --chmod=644 server/deploy/docker/health_check.py /opt/timbrel/health_check.py
# What is set here wins over a file of options, and flags win over it.
ENV PATH=/opt/timbrel/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    TIMBREL_PROVIDER=cuda \
    TIMBREL_SLOTS=64 \
    TIMBREL_HOST=0.0.0.0 \
    TIMBREL_METRICS_PORT=9464 \
    TIMBREL_LOG_FORMAT=json
USER 65532:65532
EXPOSE 50051 9464
# Python hears it from its first moment on; SIGTERM, which says the same to the server, is lost on a container's first
# process until that has loaded.
STOPSIGNAL SIGINT
# It asks at TIMBREL_METRICS_PORT: for another port set this, and not the flag.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "/opt/timbrel/health_check.py"]
ENTRYPOINT ["timbrel", "serve"]

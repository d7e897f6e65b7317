# syntax=docker/dockerfile:1
# Two images of one code: `--target cpu` and `--target cuda`. Pin both bases by digest where you build for production:
#   docker build --target cpu --build-arg PYTHON_IMAGE=python:3.13-slim-bookworm@sha256:... -t voicejobs:cpu .
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY voicejobs voicejobs
COPY workers workers
COPY migrations migrations
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check '.[worker,server,piper,docx,s3,otel]'

FROM build AS build-cuda
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check '.[gpu]'

FROM ${PYTHON_IMAGE} AS base
# The user and its folders, each of which becomes a volume where it is mounted. The code belongs to root and is read-only
# to it; nothing is run from where files are written.
RUN groupadd --gid 10001 voicejobs \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/voicejobs --shell /usr/sbin/nologin voicejobs \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/voicejobs /var/lib/voicejobs/state /var/lib/voicejobs/models
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/var/lib/voicejobs \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    VOICEJOBS_STATE_DIR=/var/lib/voicejobs/state \
    VOICEJOBS_MODELS_DIR=/var/lib/voicejobs/models
USER 10001:10001
WORKDIR /var/lib/voicejobs
STOPSIGNAL SIGTERM
ENTRYPOINT ["voicejobs"]
CMD ["--help"]

FROM base AS cpu
COPY --from=build /opt/venv /opt/venv

# The libraries of CUDA come as wheels (extra `gpu`), so that their versions are those that CTranslate2 and torch were
# built for; of the machine only the driver is needed, which NVIDIA's container toolkit brings in.
FROM base AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /opt/venv /opt/venv

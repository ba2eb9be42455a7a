# Gangline's image by Docker, with the contents of `gangline dev image build` (docs/image.md): docker build -t gangline .
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip python3-venv ca-certificates tzdata libgomp1
COPY requirements-image.lock /src/
RUN python3 -m pip install --break-system-packages --no-deps --require-hashes --only-binary=:all: \
    --no-compile --target /site -r /src/requirements-image.lock
COPY operator/gangline /site/gangline
COPY webhooks/gangline_webhooks /site/gangline_webhooks
COPY crds /site/gangline/_data/crds
COPY examples /site/gangline/_data/examples
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /site || true

FROM debian:12-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-minimal libpython3-stdlib ca-certificates tzdata libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /site /opt/gangline
ENV PYTHONPATH=/opt/gangline PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp LANG=C.UTF-8
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/python3.11", "-m", "gangline.console.cli"]
CMD ["--help"]

# Underglass in a container; docs/hosting.md says how to run it.
#
#   docker build -t underglass .                       the server with the bundled model, CPU only
#   docker build -t underglass-slim --target slim .    without torch: the gateway, and what reads recordings

ARG PYTHON=3.11-slim-bookworm

# hatch_build.py builds the front end into the wheel, with a Node.js that is installed for this step only.
FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY . .
# The builder gets no .git, in which the version is a tag.
ARG VERSION=
RUN SETUPTOOLS_SCM_PRETEND_VERSION=$VERSION PIP_CONSTRAINT=constraints.txt \
    pip wheel --no-deps --wheel-dir /wheels .

FROM python:${PYTHON} AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PYTHONUNBUFFERED=1 UNDERGLASS_HOST=0.0.0.0 UNDERGLASS_PORT=8000
RUN useradd --create-home --uid 1000 underglass
COPY constraints.txt /
# The command's options are environment variables, too, so the port can be changed in one place.
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-c", \
  "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"UNDERGLASS_PORT\"]}/ready', timeout=4)"]
# SIGTERM lets running requests finish; `docker stop` would kill after 10 seconds, so give it --time=40.
STOPSIGNAL SIGTERM
ENTRYPOINT ["underglass"]
WORKDIR /home/underglass

FROM base AS slim
COPY --from=build /wheels /wheels
RUN wheel=$(echo /wheels/*.whl) && pip install -c /constraints.txt "$wheel[gateway]"
USER underglass
CMD ["--help"]

# On its own layer, which a new version of Underglass does not change. PyPI's torch for Linux is the one for
# CUDA, with 4 GB of libraries, so the index is named here.
FROM base AS full
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-deps --index-url "$TORCH_INDEX" -c /constraints.txt torch
COPY --from=build /wheels /wheels
RUN wheel=$(echo /wheels/*.whl) && pip install -c /constraints.txt "$wheel[server]" && \
    python -c "import torch; assert torch.version.cuda is None, torch.__version__"
USER underglass
CMD ["serve"]

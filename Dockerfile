# SPDX-License-Identifier: Apache-2.0
#
#   docker build -t tlt .
#   docker run --rm -it -v "$PWD:/work" tlt train recipes/demo.toml
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
COPY . /src
WORKDIR /src
RUN make install PREFIX=/usr/local DESTDIR=/image

FROM debian:12-slim
# The libraries of setup/debian-packages.txt without their headers, and what the rewards code and command start.
RUN apt-get update && apt-get install -y --no-install-recommends \
      libcpp-httplib0.11 libflint-arb2 libflint17 libfmt9 libgmp10 libpcre2-8-0 libspdlog1.10 libssl3 \
      libstdc++6 libtomlplusplus3 libutf8proc2 libyaml-cpp0.7 libzmq5 bubblewrap python3 python3-seccomp \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /image/ /
WORKDIR /work
ENTRYPOINT ["tlt"]
CMD ["--help"]

# Builds the image of onlyonce: one static binary, no shell, a user that is not root.
#
#   docker build -t onlyonce .
#   docker run --read-only -v onlyonce-data:/data -p 8080:8080 onlyonce proxy --upstream http://app:3000 --single-tenant
#
# Other platforms: docker buildx build --platform linux/amd64,linux/arm64 .
# The compiler runs on the builder's own platform and cross-compiles.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY . .
ARG TARGETOS
ARG TARGETARCH
# The version that `onlyonce version` prints.
ARG VERSION=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version.release=$VERSION" \
    -o bin/onlyonce ./cmd/onlyonce
RUN mkdir -m 0700 data

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/bin/onlyonce /usr/local/bin/onlyonce
COPY --from=build /src/LICENSE /usr/share/doc/onlyonce/LICENSE
# The only directory that onlyonce writes to: the working directory, in which the
# SQLite files are by default.
COPY --from=build --chown=65532:65532 /src/data /data
VOLUME ["/data"]
WORKDIR /data
USER 65532:65532
# A container's loopback can't be reached from outside. /metrics and the probes are at
# the second address, which must not be published.
ENV ONLYONCE_LISTEN=:8080 ONLYONCE_ADMIN=:9090
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/onlyonce"]
CMD ["--help"]

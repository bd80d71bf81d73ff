# The image of a release, from the binaries that goreleaser has built. Apart from that, it
# is the image of the Dockerfile in the root.
FROM --platform=$BUILDPLATFORM busybox:1.37.0-musl AS files
RUN mkdir -m 0700 /data

FROM gcr.io/distroless/static-debian12:nonroot
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/onlyonce /usr/local/bin/onlyonce
COPY LICENSE /usr/share/doc/onlyonce/LICENSE
COPY --from=files --chown=65532:65532 /data /data
VOLUME ["/data"]
WORKDIR /data
USER 65532:65532
ENV ONLYONCE_LISTEN=:8080 ONLYONCE_ADMIN=:9090
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/onlyonce"]
CMD ["--help"]

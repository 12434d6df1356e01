# syntax=docker/dockerfile:1
# Targets: worker (the default, for production) has the two commands and nothing else;
# dev adds a shell, wget and the example shop, for docker-compose.yml.

FROM golang:1.26-bookworm AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOMODCACHE=/cache/mod GOCACHE=/cache/build
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/cache go mod download
# With .git in the context, outbox-worker version tells the revision.
COPY . .
RUN --mount=type=cache,target=/cache go build -trimpath -ldflags='-s -w' -o /out/ ./cmd/outbox-worker ./cmd/enqueue ./examples/shop/cmd/shop

FROM alpine:3.22 AS dev
COPY --from=build /out/ /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["outbox-worker"]

FROM scratch AS worker
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/outbox-worker /out/enqueue /usr/local/bin/
ENV PATH=/usr/local/bin
USER 65532:65532
# Signals reach the worker itself: it is process 1 and there is no shell in between.
STOPSIGNAL SIGTERM
ENTRYPOINT ["outbox-worker"]
CMD ["run"]

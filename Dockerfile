# chunkmill with its server, from a wheel of this checkout. docs/deployment.md shows how to run it.
FROM python:3.11-slim AS build
COPY . /src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.11-slim
ARG EXTRAS=serve,oidc,s3
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[$EXTRAS]" && rm -r /wheels
RUN mkdir /lake && chown 65532:65532 /lake
USER 65532:65532
WORKDIR /tmp
EXPOSE 51234
ENTRYPOINT ["chunkmill"]
CMD ["serve", "/lake", "--create", "--host", "0.0.0.0"]

# The page of `moreaugrad serve`, for a machine without a GPU.
#   docker build -t moreaugrad .
#   docker run --rm -p 127.0.0.1:7860:7860 moreaugrad          then open the address that it prints
# Another model: add it to the image, and  docker run ... moreaugrad --model package.module:factory
FROM python:3.13-slim
RUN useradd --create-home visitor
WORKDIR /home/visitor
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY src src
# an image without a GPU is a fifth of the size with the CPU build of torch; install that one first
RUN pip install --no-cache-dir '.[serve]'
USER visitor
ENV OMP_WAIT_POLICY=PASSIVE
EXPOSE 7860
# inside of the container every address is its own; the token in the printed address keeps others out
ENTRYPOINT ["moreaugrad", "serve", "--host", "0.0.0.0"]

"""The loopback host of the client tests: llama.cpp's own HTTP server, run by the package xllamacpp.

    python model_server.py MODEL.gguf

Prints its base URL and serves until its standard input ends, so that it never outlives the test that started it.

Why this one: a host that this project wrote would share its mistakes. xllamacpp ships llama.cpp's server, with its own HTTP
code, prebuilt in its wheel (30 MB; llama-cpp-python builds for twelve minutes), and needs no model but the tiny one made here.
"""

import sys

import xllamacpp


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 2048
    params.n_parallel = 1
    params.n_threads_http = 2
    params.warmup = False
    params.endpoint_metrics = True  # the test reads how many tokens the host was given
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

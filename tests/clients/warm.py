"""A Python program that is imported once and run many times: lm_eval and inspect take ten seconds of a core to load, and a test runs them a dozen times.

    python warm.py SOCKET MODULE,… FUNCTION     serves: each run is a fork of the loaded program
    python warm.py SOCKET -- ARGUMENT…          runs it once, as the program itself would run: its own arguments, folder, environment and streams

What runs is the client's own code from its own entry point; only the imports are shared.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading


def serve(path: str, module: str, function: str) -> None:
    """`module`: the one with the entry point, and behind commas others that it would load on its way. Without a function: Python, with these loaded."""
    modules = [importlib.import_module(name) for name in module.split(",")]
    entry = getattr(modules[0], function) if function else script
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    # It ends with the test that started it.
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            once(connection, entry)
        connection.close()


def script() -> None:
    """What `python FILE` does."""
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")


def once(connection: socket.socket, entry) -> None:
    """The child: takes the streams of who asks, runs, and says how it ended."""
    message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not message.endswith(b"\n"):
        message += connection.recv(1 << 20)
    asked = json.loads(message)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w", buffering=1)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["arguments"]
    status = 0
    try:
        status = entry() or 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(b"%d\n" % status)
    os._exit(status)


def ask(path: str, arguments: list[str]) -> int:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(connection, [b" "], [0, 1, 2])
    connection.sendall(json.dumps(asked).encode() + b"\n")
    answer = connection.recv(64)
    return int(answer) if answer.strip() else 1


if __name__ == "__main__":
    if sys.argv[2] == "--":
        sys.exit(ask(sys.argv[1], sys.argv[3:]))
    serve(*sys.argv[1:4])
